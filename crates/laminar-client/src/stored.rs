//! The rows of a record as it is stored: in the record, or in a block.

use arrow_array::RecordBatch;
use bytes::Bytes;
use laminar_rpc::proto::{StoredRows, stored_rows};
use laminar_rpc::{ErrorClass, Failure};

use crate::description::StreamInfo;
use crate::staging;
use crate::stream::StreamHandle;

/// Says what is wrong with a record.
pub(crate) fn corrupt(info: &StreamInfo, ordinal: u32, record: &StoredRows, what: &str) -> Failure {
    let (path, offset) = (&info.path, record.first_offset);
    let message = format!("partition {ordinal} of {path}: the record at offset {offset} {what}");
    Failure::new(ErrorClass::Corruption, message)
}

/// The encoded rows of a record.
pub(crate) async fn payload(
    stream: &StreamHandle,
    info: &StreamInfo,
    ordinal: u32,
    record: &StoredRows,
) -> Result<Bytes, Failure> {
    match &record.payload {
        Some(stored_rows::Payload::Inline(payload)) => Ok(payload.clone()),
        Some(stored_rows::Payload::Pointer(pointer)) => {
            let session = stream.session();
            let live = session.live(stream.limit()).await?;
            staging::fetch(&session.stores(), &live.hello.store_path, pointer).await
        }
        None => Err(corrupt(info, ordinal, record, "came without its rows")),
    }
}

/// All rows of a record, and the bytes they are encoded in.
pub(crate) async fn rows(
    stream: &StreamHandle,
    info: &StreamInfo,
    ordinal: u32,
    record: &StoredRows,
) -> Result<(RecordBatch, u64), Failure> {
    let lost = |what: &str| corrupt(info, ordinal, record, what);
    let payload = payload(stream, info, ordinal, record).await?;
    let decoded = info.codec().decode(&payload);
    let batch = decoded.map_err(|failure| lost(&format!("cannot be decoded: {}", failure.message)))?;
    if batch.num_rows() != record.rows as usize {
        return Err(lost(&format!("says {} rows and has {}", record.rows, batch.num_rows())));
    }
    Ok((batch, payload.len() as u64))
}
