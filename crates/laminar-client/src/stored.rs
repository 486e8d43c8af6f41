//! The rows of a record as it is stored: in the record, or in a block.

use std::ops::Range;

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

/// Why rows that were about to be read are not there: they were trimmed, or their stream was dropped, since. If they must be
/// there, it is what they failed with.
pub(crate) async fn gone_or(
    stream: &StreamHandle,
    info: &StreamInfo,
    ordinal: u32,
    rows: Range<u64>,
    failure: Failure,
) -> Failure {
    let told = match stream.ask_offsets(Some(&[ordinal]), None, None, stream.limit()).await {
        Ok(told) => told,
        Err(dropped) if dropped.class == ErrorClass::UnknownPartition => return dropped,
        Err(_) => return failure,
    };
    match told.get(&ordinal).map(|told| told.start_offset).filter(|start| *start >= rows.end) {
        Some(start) => {
            let (path, next) = (&info.path, rows.start);
            let message = format!(
                "partition {ordinal} of {path}: rows from offset {next} on were trimmed before they were read; read on from \
                 {start}"
            );
            Failure::invalid(message).with("start_offset", start)
        }
        None => failure,
    }
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
            match staging::fetch(&session.stores(), &live.hello.store_path, pointer).await {
                // A block goes once nothing names it: then the record is gone too.
                Err(failure) if failure.class == ErrorClass::Corruption => {
                    let end = record.first_offset.saturating_add(u64::from(record.rows));
                    Err(gone_or(stream, info, ordinal, record.first_offset..end, failure).await)
                }
                fetched => fetched,
            }
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
