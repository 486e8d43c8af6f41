//! A snapshot of two partitions, in both forms.

use bytes::Bytes;
use laminar_core::ids::{Epoch, NodeId, PartitionId};
use laminar_log::entry::{Append, Change, MachineKind, PartitionRecord, Payload};
use laminar_log::format::encode_stored;
use laminar_log::snapshot::{
    Frame, SnapshotDecoder, SnapshotError, SnapshotForm, SnapshotHead, SnapshotPartition, SnapshotSink,
    SnapshotSummary, SnapshotWriter,
};
use laminar_log::verdict::AcceptedRecord;
use laminar_log::{LogId, PartitionLogIndex};

pub(crate) fn head(index: u64) -> SnapshotHead {
    SnapshotHead { log_id: LogId::new(2, index), membership: "members".into(), partitions: 2 }
}

pub(crate) fn stored(partition: u32, index: u64, bytes: usize) -> Bytes {
    encode_stored(&AcceptedRecord {
        index: PartitionLogIndex(index),
        first_offset: index * 10,
        log_id: LogId::new(1, index),
        time_ms: 5,
        record: PartitionRecord {
            partition: PartitionId(partition),
            owner: NodeId(1),
            epoch: Epoch::FIRST,
            change: Change::Append(Append {
                rows: 10,
                create: None,
                payload: Payload::Inline(vec![b'r'; bytes].into()),
            }),
        },
    })
}

pub(crate) fn kv() -> SnapshotPartition {
    SnapshotPartition {
        partition: PartitionId(3),
        machine: MachineKind::Kv,
        applied: PartitionLogIndex(8),
        highest: PartitionLogIndex(9),
        first: PartitionLogIndex(7),
        start_offset: 70,
    }
}

pub(crate) fn log() -> SnapshotPartition {
    let index = PartitionLogIndex(4);
    SnapshotPartition {
        partition: PartitionId(7),
        machine: MachineKind::Log,
        applied: index,
        highest: index,
        first: index.next(),
        start_offset: 50,
    }
}

/// Everything behind the head of a snapshot of two partitions.
pub(crate) fn build<S: SnapshotSink>(
    writer: &mut SnapshotWriter<S>,
    form: SnapshotForm,
    record_bytes: usize,
) -> Result<(), SnapshotError> {
    writer.verdict(&"verdicts".into())?;
    writer.partition(kv())?;
    writer.state("one".into())?;
    writer.state("two".into())?;
    if form == SnapshotForm::Streamed {
        (7..=9).try_for_each(|index| writer.record(stored(3, index, record_bytes)))?;
    }
    writer.partition_end(0x1234)?;
    writer.partition(log())?;
    writer.partition_end(0)
}

pub(crate) fn bytes_of(form: SnapshotForm) -> Vec<u8> {
    let mut writer = SnapshotWriter::new(Vec::new(), form, head(100)).unwrap();
    build(&mut writer, form, 4).unwrap();
    writer.finish().unwrap().0
}

pub(crate) fn decode(bytes: &[u8], chunk: usize) -> Result<(Vec<Frame>, SnapshotSummary), SnapshotError> {
    let (mut decoder, mut frames) = (SnapshotDecoder::new(), Vec::new());
    for chunk in bytes.chunks(chunk) {
        decoder.push(chunk);
        while let Some(frame) = decoder.next()? {
            frames.push(frame);
        }
    }
    decoder.finish().map(|summary| (frames, summary))
}

/// Where each frame begins, and the length.
pub(crate) fn boundaries(bytes: &[u8]) -> Vec<usize> {
    let mut at = vec![0];
    while *at.last().unwrap() < bytes.len() {
        let begin = at[at.len() - 1];
        let length = u32::from_le_bytes(bytes[begin + 4..begin + 8].try_into().unwrap());
        at.push(begin + 12 + length as usize);
    }
    at
}

/// By its definition, bit by bit.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    })
}
