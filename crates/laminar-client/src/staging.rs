//! Rows on their way into a request: inline, or staged as one block of the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use laminar_core::error::ErrorKind;
use laminar_rpc::proto::{BlockPointer, HelloResponse, partition_rows};
use laminar_rpc::{ErrorClass, Failure};
use laminar_store::{BlockStore, StoreError, checksum_of_pieces, new_block_id};

use crate::chance;
use crate::codec::Part;
use crate::retry::{Attempts, Next, Repeat};
use crate::session::Limit;

/// Parts of a block begin at multiples of this, so that Arrow can use them where they lie.
const PART_ALIGNMENT: usize = 64;

/// The stores that this process has opened, by folder.
#[derive(Default)]
pub(crate) struct Stores {
    open: tokio::sync::Mutex<BTreeMap<String, Arc<BlockStore>>>,
}

/// Rows of one partition as a request carries them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Carried {
    pub(crate) ordinal: u32,
    pub(crate) partition_id: u32,
    pub(crate) rows: u32,
    pub(crate) payload: partition_rows::Payload,
}

impl Carried {
    /// The bytes that the request grows by.
    pub(crate) fn inline_bytes(&self) -> usize {
        match &self.payload {
            partition_rows::Payload::Inline(bytes) => bytes.len(),
            partition_rows::Payload::Pointer(_) => 0,
        }
    }
}

impl Stores {
    /// The store in a folder.
    pub(crate) async fn open(&self, path: &str) -> Result<Arc<BlockStore>, Failure> {
        let mut open = self.open.lock().await;
        if let Some(store) = open.get(path) {
            return Ok(store.clone());
        }
        let store = BlockStore::open_local(path).await.map_err(|error| failure(&error))?;
        let store = Arc::new(store);
        open.insert(path.to_owned(), store.clone());
        Ok(store)
    }
}

/// Makes encoded rows ready for a request: as they are if they are few, else as one block.
pub(crate) async fn carry(
    stores: &Stores,
    hello: &HelloResponse,
    machine: &str,
    parts: Vec<Part>,
    limit: Limit,
    partition_id: impl Fn(u32) -> Result<u32, Failure>,
) -> Result<Vec<Carried>, Failure> {
    let bytes: usize = parts.iter().map(|part| part.payload.len()).sum();
    let payloads = match placement(bytes as u64, hello, machine)? {
        Placement::Inline => parts
            .iter()
            .map(|part| partition_rows::Payload::Inline(part.payload.joined()))
            .collect::<Vec<_>>(),
        Placement::Staged => {
            let store = stores.open(&hello.store_path).await?;
            let pointers = stage(&store, &parts, limit).await?;
            pointers.into_iter().map(partition_rows::Payload::Pointer).collect()
        }
    };
    let carried = parts.iter().zip(payloads).map(|(part, payload)| {
        let partition_id = partition_id(part.ordinal)?;
        Ok(Carried { ordinal: part.ordinal, partition_id, rows: part.rows, payload })
    });
    carried.collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    Inline,
    Staged,
}

/// Where so many bytes of rows go.
fn placement(bytes: u64, hello: &HelloResponse, machine: &str) -> Result<Placement, Failure> {
    let (inline, most) = (hello.inline_bytes_max, hello.append_bytes_max);
    if bytes > most {
        let message =
            format!("append refused, {bytes} of {most} bytes (append_bytes_max); send fewer rows at once");
        return Err(Failure::invalid(message).with("value", bytes).with("limit", most));
    }
    if bytes <= inline {
        return Ok(Placement::Inline);
    }
    check_staging(bytes, hello, machine)?;
    Ok(Placement::Staged)
}

/// Whether more bytes of rows than an entry carries can be staged.
pub(crate) fn check_staging(bytes: u64, hello: &HelloResponse, machine: &str) -> Result<(), Failure> {
    let inline = hello.inline_bytes_max;
    if machine != "log" && machine != "kv" {
        let message = format!(
            "append refused, {bytes} of {inline} bytes (inline_bytes_max), and the machine {machine:?} takes no more at once; \
             send fewer rows at once"
        );
        return Err(Failure::invalid(message).with("value", bytes).with("limit", inline));
    }
    if hello.store_path.is_empty() {
        let message = format!(
            "append refused, {bytes} of {inline} bytes (inline_bytes_max), and more needs a store that this client can \
             reach; send fewer rows at once"
        );
        return Err(Failure::invalid(message).with("value", bytes).with("limit", inline));
    }
    Ok(())
}

/// Writes all parts as one block, and says where each is. A store that fails is tried again until the time is over: the
/// same bytes under the same name are harmless.
pub(crate) async fn stage(
    store: &BlockStore,
    parts: &[Part],
    limit: Limit,
) -> Result<Vec<BlockPointer>, Failure> {
    let (block, places) = lay_out(parts);
    let id = new_block_id(chance::now_ms()).map_err(|error| failure(&error))?;
    let mut attempts = Attempts::new(Repeat::Safe);
    let staged = loop {
        let failure = match store.stage_pieces(id, block.clone()).await {
            Ok(staged) => break staged,
            Err(error) => failure(&error),
        };
        match attempts.after(&failure, limit.left()) {
            Next::Again { wait, .. } => {
                tracing::debug!(%failure, ?wait, "staging failed, trying again");
                tokio::time::sleep(wait).await;
            }
            Next::Fail => return Err(failure),
        }
    };
    let id = id.0;
    let pointers = places.into_iter().zip(parts).map(|(begin, part)| BlockPointer {
        block_high: (id >> 64) as u64,
        block_low: id as u64,
        begin: begin as u64,
        length: part.payload.len() as u64,
        checksum: checksum_of_pieces(part.payload.iter()),
        path: staged.path.clone(),
    });
    Ok(pointers.collect())
}

/// The pieces of a block of all parts, and where each part begins.
fn lay_out(parts: &[Part]) -> (Vec<Bytes>, Vec<usize>) {
    static PADDING: [u8; PART_ALIGNMENT] = [0; PART_ALIGNMENT];
    let mut pieces = Vec::with_capacity(3 * parts.len());
    let mut places = Vec::with_capacity(parts.len());
    let mut length: usize = 0;
    for part in parts {
        let place = length.next_multiple_of(PART_ALIGNMENT);
        pieces.push(Bytes::from_static(&PADDING[..place - length]));
        pieces.extend(part.payload.iter().cloned());
        places.push(place);
        length = place + part.payload.len();
    }
    (pieces, places)
}

/// Reads the part of a block that a record points to.
pub(crate) async fn fetch(
    stores: &Stores,
    store_path: &str,
    pointer: &BlockPointer,
) -> Result<Bytes, Failure> {
    if store_path.is_empty() {
        let path = &pointer.path;
        let message =
            format!("block {path}: this client cannot reach the store that it is in; read from its machine");
        return Err(Failure::unavailable(message));
    }
    let end = pointer.begin.checked_add(pointer.length).ok_or_else(|| {
        let (path, begin, length) = (&pointer.path, pointer.begin, pointer.length);
        let message =
            format!("block {path}: a record points to {length} bytes from {begin}, which cannot be");
        Failure::new(ErrorClass::Corruption, message)
    })?;
    let store = stores.open(store_path).await?;
    store.read(&pointer.path, pointer.begin..end, pointer.checksum).await.map_err(|error| failure(&error))
}

/// What is wrong with the store, as users see it.
fn failure(error: &StoreError) -> Failure {
    let class = match error.kind() {
        ErrorKind::Corrupt => ErrorClass::Corruption,
        ErrorKind::Invalid => ErrorClass::Invalid,
        ErrorKind::Internal => ErrorClass::Internal,
        ErrorKind::Overloaded => ErrorClass::Backpressure,
        ErrorKind::Unavailable | ErrorKind::Stale | ErrorKind::Fenced => ErrorClass::Unavailable,
    };
    Failure::new(class, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(store_path: &str) -> HelloResponse {
        let store_path = store_path.to_owned();
        HelloResponse { inline_bytes_max: 100, append_bytes_max: 1000, store_path, ..Default::default() }
    }

    #[test]
    fn rows_go_inline_up_to_the_limit_and_to_the_store_above_it() {
        assert_eq!(placement(100, &hello("/s"), "log").unwrap(), Placement::Inline);
        assert_eq!(placement(101, &hello("/s"), "log").unwrap(), Placement::Staged);
        assert_eq!(placement(1000, &hello("/s"), "log").unwrap(), Placement::Staged);
    }

    #[test]
    fn appends_above_a_limit_are_refused_with_both_numbers() {
        let failure = placement(1001, &hello("/s"), "log").unwrap_err();
        assert_eq!((failure.number("value"), failure.number("limit")), (Some(1001), Some(1000)));
        let failure = placement(101, &hello(""), "log").unwrap_err();
        assert_eq!((failure.class, failure.number("limit")), (ErrorClass::Invalid, Some(100)));
        assert_eq!(placement(101, &hello("/s"), "counter").unwrap_err().number("limit"), Some(100));
        assert!(failure.message.contains("101 of 100 bytes (inline_bytes_max)"), "{failure}");
    }

    #[test]
    fn parts_of_a_block_are_aligned_and_whole() {
        let part = |payload: &'static [u8]| Part {
            ordinal: 0,
            rows: 1,
            payload: Bytes::from_static(payload).into(),
        };
        let parts = [part(b"abc"), part(&[7; 64]), part(b""), part(b"z")];
        let (pieces, places) = lay_out(&parts);
        let block = Bytes::from(pieces.concat());
        assert_eq!(places, [0, 64, 128, 128]);
        for (place, part) in places.iter().zip(&parts) {
            assert_eq!(block.slice(*place..*place + part.payload.len()), part.payload.joined());
        }
    }
}
