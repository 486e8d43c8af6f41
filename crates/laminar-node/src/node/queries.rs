//! Queries: each stream counts the batches of its own, and users see the names that they gave.

use std::collections::BTreeSet;
use std::time::Duration;

use laminar_log::BarrierError;
use laminar_log::dispatcher::ClientId;
use laminar_log::entry::{BatchId, Entry, Record};
use laminar_log::verdict::Refusal;
use laminar_raft::{NotServing, ReadIndexError};
use laminar_rpc::{Failure, proto};

use super::Node;
use crate::error::{of_barrier, of_read_index};
use crate::random;

/// The longest name of a query, in bytes, as users give it.
const QUERY_BYTES_MAX: usize = 256;

/// A query of a stream, as the data log knows it. The same name on two streams is two queries; a stream that was dropped
/// and created again has another id, and its queries begin anew.
pub(crate) fn scoped(stream_id: u64, query: &str) -> String {
    format!("{stream_id}/{query}")
}

/// The batch of a query of a stream, as the data log knows it.
pub(crate) fn batch_id(stream_id: u64, batch: &proto::Batch) -> Result<BatchId, Failure> {
    check_query(&batch.query)?;
    Ok(BatchId { query: scoped(stream_id, &batch.query), number: batch.number })
}

/// Whether users may call a query so. What is put before the name does not count.
pub(crate) fn check_query(query: &str) -> Result<(), Failure> {
    if (1..=QUERY_BYTES_MAX).contains(&query.len()) {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "query name is {} bytes long; it must be from 1 to {QUERY_BYTES_MAX}",
        query.len()
    )))
}

/// A refusal that names queries as users do.
pub(super) fn in_users_words(refusal: &Refusal) -> Refusal {
    let name = |scoped: &str| scoped.split_once('/').map_or(scoped, |(_, query)| query).to_owned();
    match refusal.clone() {
        Refusal::BatchBackwards { batch, last } => {
            Refusal::BatchBackwards { batch: BatchId { query: name(&batch.query), ..batch }, last }
        }
        Refusal::TooManyQueries { query, limit } => Refusal::TooManyQueries { query: name(&query), limit },
        other => other,
    }
}

impl Node {
    pub(crate) async fn last_batch(
        &self,
        request: proto::LastBatchRequest,
    ) -> Result<proto::LastBatchResponse, Failure> {
        check_query(&request.query)?;
        self.current().await?;
        let stream = self.stream_by_id(request.stream_id)?;
        let timeout = self.timeout(request.timeout_ms);
        let number = self.last_committed(stream.stream_id.0, &request.query, timeout).await?;
        Ok(proto::LastBatchResponse { number })
    }

    /// The last committed batch of a query. Everything that was acknowledged before the call is counted: the verdict is
    /// given when an entry is applied, so nobody has to wait for the partitions.
    pub(crate) async fn last_committed(
        &self,
        stream_id: u64,
        query: &str,
        timeout: Duration,
    ) -> Result<Option<u64>, Failure> {
        let machine = self.machine()?;
        let index = match self.inner.data.read_index().await {
            Ok(index) => index,
            // As for rows: the only voter acknowledges only what it has applied.
            Err(ReadIndexError::NotServing(NotServing::Rebuilding)) => machine.decided_index(),
            Err(error) => return Err(of_read_index(&error)),
        };
        match machine.barrier(ClientId(random::bits128()), &[], index, timeout).await {
            Ok(()) => Ok(self.last_decided(stream_id, query)?),
            Err(BarrierError::TimedOut { .. }) => Err(Failure::unavailable(format!(
                "query {query}: its last batch is not known, the log was applied up to {} of {index} after {timeout:?}; try \
                 again",
                machine.decided_index()
            ))),
            Err(error) => Err(of_barrier(&error)),
        }
    }

    /// Has the data log forget the queries of streams that were dropped, once nothing of them can land.
    ///
    /// The name of a query begins with the id of its stream, which is not used again. A stream that the metadata does not
    /// have was dropped, because its query got into the log while it was there. Nothing new is proposed for it from then on.
    /// What was on its way names partitions of the stream: all that the data log had are destroyed before this is proposed,
    /// and those that it never had were never anybody's to write. So what comes late is refused whichever query it names
    /// (TXN-1).
    pub(crate) async fn forget_queries(&self) -> Result<(), Failure> {
        let machine = self.machine()?;
        let mut streams = BTreeSet::new();
        let mut from = String::new();
        while let Some(query) = machine.first_query_from(&from) {
            // One without a stream has no name that a node gave it.
            from = match query.split_once('/') {
                Some((stream, _)) => {
                    streams.extend(stream.parse::<u64>());
                    // Behind all that begin with the stream: this is the character after `/`.
                    format!("{stream}0")
                }
                None => format!("{query}\0"),
            };
        }
        // After the log was looked at: a stream that was made since is not taken for one that was dropped.
        self.current().await?;
        self.inner.metadata.read_local(|metadata| {
            for stream in metadata.streams("") {
                streams.remove(&stream.stream_id.0);
            }
        });
        if streams.is_empty() {
            return Ok(());
        }
        let owned =
            |id| self.inner.metadata.read_local(|metadata| metadata.partition_ownership(id).is_some());
        if !machine.partition_ids().into_iter().all(owned) {
            // Of a stream that was dropped just now: whoever destroys the last of them comes here too.
            return Ok(());
        }
        let forget = |stream: u64| Record::ForgetQueries(scoped(stream, ""));
        let records: Vec<Record> = streams.into_iter().map(forget).collect();
        match self.decide(Entry { records, ..Entry::default() }).await? {
            Ok(()) => Ok(()),
            Err(refusal) => Err(Failure::internal(refusal.to_string())),
        }
    }

    /// The last batch of a query that this node has applied.
    pub(crate) fn last_decided(&self, stream_id: u64, query: &str) -> Result<Option<u64>, Failure> {
        Ok(self.machine()?.last_batch(&scoped(stream_id, query)).map(|(number, _)| number))
    }
}

/// What is known of a batch when the last one of its query is: as the data log says it.
pub(crate) fn is_committed(last: Option<u64>, number: u64) -> Option<bool> {
    match last {
        Some(last) if last == number => Some(true),
        Some(last) if last > number => None,
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_queries_as_users_do() {
        let batch = BatchId { query: scoped(u64::MAX, "a/b"), number: 3 };
        let refusal = in_users_words(&Refusal::BatchBackwards { batch, last: 4 });
        assert_eq!(
            refusal.to_string(),
            "query a/b: batch 3 refused, batch 4 was committed already; batches must not go back"
        );
        let refusal = in_users_words(&Refusal::TooManyQueries { query: scoped(7, "q"), limit: 1 });
        assert_eq!(
            refusal.to_string(),
            "query q: batch refused, 1 of 1 queries are known (log.queries_max); use the name of one that is known, or drop a \
             stream that is not needed: its queries go with it"
        );
    }

    #[test]
    fn the_limit_of_a_name_counts_what_the_user_gave() {
        for (length, right) in [(0, false), (1, true), (256, true), (257, false)] {
            let batch = proto::Batch { query: "q".repeat(length), number: 1 };
            match batch_id(u64::MAX, &batch) {
                Ok(id) => assert!(right && id.query.len() <= BatchId::QUERY_BYTES_MAX),
                Err(failure) => assert!(!right, "{failure}"),
            }
        }
    }
}
