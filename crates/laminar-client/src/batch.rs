//! A batch of a query: all its rows as one entry, once (TXN-1).

use std::sync::Arc;

use arrow_array::RecordBatch;
use laminar_rpc::Failure;
use laminar_rpc::proto::{AppendRequest, Batch as BatchName, PartitionRows};

use crate::appended::Appended;
use crate::codec::{Part, Place, Rows};
use crate::producer::check_places;
use crate::retry::Repeat;
use crate::run::Run;
use crate::session::Limit;
use crate::staging::{self, Carried};
use crate::writer::{recovered, refusal};

/// How often a commit is sent again because the stream got more partitions or the run had to claim again.
const SENT_AGAIN_MAX: u32 = 3;

/// Rows that are collected for one commit. Dropping it without a commit leaves nothing behind but, of large batches whose
/// commit failed, a staged block that expires.
pub struct Batch {
    run: Arc<Run>,
    name: BatchName,
    /// What was appended, the partition that was named for it, and where it went.
    rows: Vec<(Vec<RecordBatch>, Option<u32>, Place)>,
    parts: Vec<Part>,
    /// By how many partitions the parts were placed; 0: none was placed by key.
    partition_count: u32,
    bytes: u64,
    carried: Option<Vec<Carried>>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("name", &self.name).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new(run: Arc<Run>, query: &str, number: u64) -> Self {
        Batch {
            run,
            name: BatchName { query: query.to_owned(), number },
            rows: Vec::new(),
            parts: Vec::new(),
            partition_count: 0,
            bytes: 0,
            carried: None,
        }
    }

    /// The query and number that it is committed under.
    pub fn name(&self) -> (&str, u64) {
        (&self.name.query, self.name.number)
    }

    /// Bytes that it has collected.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Collects rows; nothing is sent. They go to one partition, or to those of their keys.
    ///
    /// # Errors
    /// Invalid: rows do not fit the schema, or the batch would be larger than an append may be.
    pub async fn append(&mut self, batches: &[RecordBatch], partition: Option<u32>) -> Result<(), Failure> {
        self.run.check_open()?;
        let limit = self.run.stream().limit();
        let most = self.run.stream().session().live(limit).await?.hello.append_bytes_max;
        let place = self.place(partition)?;
        let parts = self.encode(batches, place)?;
        let more: u64 = parts.iter().map(|part| part.payload.len() as u64).sum();
        let bytes = self.bytes + more;
        if bytes > most {
            let BatchName { query, number } = &self.name;
            let message = format!(
                "batch {number} of query {query}: rows refused, {bytes} of {most} bytes (append_bytes_max); make smaller \
                 batches"
            );
            return Err(Failure::invalid(message).with("value", bytes).with("limit", most));
        }
        self.take(parts, place);
        self.rows.push((batches.to_vec(), partition, place));
        self.carried = None;
        Ok(())
    }

    /// Where the next rows go.
    fn place(&self, partition: Option<u32>) -> Result<Place, Failure> {
        let info = self.run.stream().info();
        Ok(match partition {
            Some(ordinal) => {
                info.partition_id(ordinal)?;
                Place::Chosen(ordinal)
            }
            None if info.codec().schema().has_key() => Place::ByKey { count: info.partition_count() },
            None => {
                let claimed = self.run.ordinals();
                Place::Chosen(claimed.get(self.rows.len() % claimed.len().max(1)).copied().unwrap_or(0))
            }
        })
    }

    fn encode(&self, batches: &[RecordBatch], place: Place) -> Result<Vec<Part>, Failure> {
        let info = self.run.stream().info();
        info.codec().encode(Rows::Batches(batches), place).map_err(|failure| info.name(failure))
    }

    fn take(&mut self, parts: Vec<Part>, place: Place) {
        self.bytes += parts.iter().map(|part| part.payload.len() as u64).sum::<u64>();
        self.partition_count = self.partition_count.max(place.partition_count());
        self.parts.extend(parts);
    }

    /// Makes one record a partition of what came with many small appends: each record costs the log something.
    fn join(&mut self) -> Result<(), Failure> {
        let partitions: std::collections::BTreeSet<u32> =
            self.parts.iter().map(|part| part.ordinal).collect();
        if self.parts.len() == partitions.len() {
            return Ok(());
        }
        let mut by_place: Vec<(Place, Vec<RecordBatch>)> = Vec::new();
        for (batches, _, place) in &self.rows {
            match by_place.iter_mut().find(|(known, _)| known == place) {
                Some((_, collected)) => collected.extend(batches.iter().cloned()),
                None => by_place.push((*place, batches.clone())),
            }
        }
        (self.parts, self.bytes) = (Vec::new(), 0);
        for (place, batches) in by_place {
            let parts = self.encode(&batches, place)?;
            self.take(parts, place);
        }
        Ok(())
    }

    /// Places all rows anew, after the stream got more partitions.
    fn place_again(&mut self) -> Result<(), Failure> {
        let rows = std::mem::take(&mut self.rows);
        (self.parts, self.partition_count, self.bytes, self.carried) = (Vec::new(), 0, 0, None);
        for (batches, partition, _) in rows {
            let place = self.place(partition)?;
            let parts = self.encode(&batches, place)?;
            self.take(parts, place);
            self.rows.push((batches, partition, place));
        }
        Ok(())
    }

    /// Commits. After an error whose outcome is unknown it may be called again: the batch lands once. `duplicate` tells
    /// that it had landed before. A batch without rows leaves no trace.
    ///
    /// # Errors
    /// Stale: another run has taken over, and `batch_committed` tells whether the batch had landed. Invalid: a later batch of
    /// the query was committed.
    pub async fn commit(&mut self) -> Result<Appended, Failure> {
        let limit = self.run.stream().limit();
        let mut again = 0;
        loop {
            self.run.check_open()?;
            let failure = match self.commit_once(limit).await {
                Ok(appended) => return Ok(appended),
                Err(failure) => failure,
            };
            if again >= SENT_AGAIN_MAX || !recovered(&self.run, &failure, limit).await? {
                return Err(refusal(&self.run, failure).await);
            }
            if crate::producer::is_stream_changed(&failure) {
                self.place_again()?;
            }
            again += 1;
        }
    }

    async fn commit_once(&mut self, limit: Limit) -> Result<Appended, Failure> {
        let stream = self.run.stream().clone();
        let (info, session) = (stream.info(), stream.session());
        if self.parts.is_empty() {
            return Ok(Appended::default());
        }
        let carried = match &self.carried {
            // The same block again: a second one would be staged for nothing.
            Some(carried) => carried.clone(),
            None => {
                self.join()?;
                let live = session.live(limit).await?;
                let stores = session.stores();
                let parts = self.parts.clone();
                let carried = staging::carry(&stores, &live.hello, &info.machine, parts, limit, |ordinal| {
                    info.partition_id(ordinal)
                })
                .await;
                self.carried.insert(carried.map_err(|failure| info.name(failure))?).clone()
            }
        };
        let request = self.request(info.stream_id, &carried).map_err(|failure| info.name(failure))?;
        let ended = session
            .call_tracked(limit, Repeat::Safe, |live| {
                let request = AppendRequest { timeout_ms: limit.node_timeout_ms(), ..request.clone() };
                async move { live.transport.append(request, limit.deadline).await }
            })
            .await;
        let response = match ended.result {
            Ok(response) => response,
            // An earlier attempt that is still on its way may land after this refusal, unless the epoch is over.
            Err(failure)
                if ended.unknown && failure.class.kind() != laminar_core::error::ErrorKind::Stale =>
            {
                return Err(info.name(failure.unknown()));
            }
            Err(failure) => return Err(info.name(failure)),
        };
        appended(&carried, &request, &response)
    }

    fn request(&self, stream_id: u64, carried: &[Carried]) -> Result<AppendRequest, Failure> {
        let ownership = self.run.ownership();
        let rows = carried.iter().map(|carried| {
            Ok(PartitionRows {
                partition_id: carried.partition_id,
                // A stale guard does not stop a batch: only the log can tell whether it had landed.
                epoch: match ownership.held_epoch(carried.partition_id) {
                    0 => ownership.epoch(carried.partition_id)?,
                    held => held,
                },
                rows: carried.rows,
                payload: Some(carried.payload.clone()),
            })
        });
        Ok(AppendRequest {
            stream_id,
            partition_count: self.partition_count,
            producer: None,
            batch: Some(self.name.clone()),
            owner: self.run.node_id(),
            rows: rows.collect::<Result<_, Failure>>()?,
            timeout_ms: 0,
            commit: None,
        })
    }
}

/// Where a batch is. One that landed before may have had other rows (a query is free to read more the second time), and
/// its places are told as they are.
fn appended(
    carried: &[Carried],
    request: &AppendRequest,
    response: &laminar_rpc::proto::AppendResponse,
) -> Result<Appended, Failure> {
    let mut appended = Appended {
        global_index: response.global_index,
        duplicate: response.duplicate,
        ..Appended::default()
    };
    if !response.duplicate {
        check_places(request, response)?;
    }
    let ordinals: std::collections::BTreeMap<u32, u32> =
        carried.iter().map(|carried| (carried.partition_id, carried.ordinal)).collect();
    for placed in &response.placed {
        if let Some(ordinal) = ordinals.get(&placed.partition_id) {
            appended.add(*ordinal, placed.first_offset, placed.rows);
        }
    }
    Ok(appended)
}
