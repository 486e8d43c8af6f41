//! Snapshots as bytes: what goes in comes out, and nothing else does.

use bytes::Bytes;
use laminar_core::error::ErrorKind;
use laminar_log::PartitionLogIndex;
use laminar_log::snapshot::{Frame, SnapshotError, SnapshotForm, SnapshotPartition, SnapshotWriter};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::snapshot_file_parts::{boundaries, bytes_of, crc32c, decode, head, kv, log, stored};

#[test]
fn frames_come_out_as_they_went_in_whatever_the_chunks() {
    let bytes = bytes_of(SnapshotForm::Streamed);
    let rows = (7..=9).map(|index| stored(3, index, 4)).collect();
    let expected = vec![
        Frame::Head(SnapshotForm::Streamed, head(100)),
        Frame::Verdict("verdicts".into()),
        Frame::Partition(kv()),
        Frame::State("one".into()),
        Frame::State("two".into()),
        Frame::Rows(rows),
        Frame::PartitionEnd(0x1234),
        Frame::Partition(log()),
        Frame::PartitionEnd(0),
    ];
    for chunk in [1, 2, 11, 100, usize::MAX] {
        let (mut frames, summary) = decode(&bytes, chunk).unwrap();
        assert_eq!((summary.partitions, summary.records), (2, 3));
        assert!(matches!(frames.pop(), Some(Frame::End(end)) if end.hash == summary.hash));
        assert_eq!(frames, expected);
    }
}

#[test]
fn many_records_and_a_large_verdict_share_frames_of_about_a_mebibyte() {
    let mut writer = SnapshotWriter::new(Vec::<Bytes>::new(), SnapshotForm::Streamed, head(5000)).unwrap();
    let verdict = Bytes::from((0..3_000_000_u32).map(|n| n as u8).collect::<Vec<u8>>());
    writer.verdict(&verdict).unwrap();
    let partition = SnapshotPartition {
        first: PartitionLogIndex(1),
        applied: PartitionLogIndex(4000),
        highest: PartitionLogIndex(4000),
        ..kv()
    };
    writer.partition(partition).unwrap();
    (1..=4000).for_each(|index| writer.record(stored(3, index, 500)).unwrap());
    writer.partition_end(1).unwrap();
    writer.partition(log()).unwrap();
    writer.partition_end(0).unwrap();
    let (parts, summary) = writer.finish().unwrap();
    assert!(parts.iter().all(|part| part.len() <= (1 << 20) + 1000));
    let (frames, decoded) = decode(&parts.concat(), 1 << 16).unwrap();
    assert_eq!((summary.records, decoded.records), (4000, 4000));
    let (mut pieces, mut rows) = (Vec::new(), Vec::new());
    for frame in frames {
        match frame {
            Frame::Verdict(piece) => pieces.push(piece),
            Frame::Rows(records) => rows.push(records.len()),
            _ => {}
        }
    }
    assert_eq!((pieces.len(), pieces.concat()), (3, verdict.to_vec()));
    assert_eq!((rows.len(), rows.iter().sum::<usize>()), (3, 4000));
}

#[test]
fn every_truncation_is_refused() {
    for form in [SnapshotForm::Local, SnapshotForm::Streamed] {
        let bytes = bytes_of(form);
        for end in 0..bytes.len() {
            let error = decode(&bytes[..end], usize::MAX).unwrap_err();
            assert!(matches!(error, SnapshotError::CutShort { at } if at == end as u64), "{end}: {error}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(matches!(decode(&longer, usize::MAX), Err(SnapshotError::TooLong { .. })));
        assert!(matches!(decode(&longer, 1), Err(SnapshotError::TooLong { .. })));
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let bytes = bytes_of(SnapshotForm::Streamed);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let error = decode(&flipped, usize::MAX).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
        }
    }
}

#[test]
fn frames_that_are_missing_twice_or_swapped_are_refused() {
    let bytes = bytes_of(SnapshotForm::Streamed);
    let at = boundaries(&bytes);
    let frames: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
    for n in 0..frames.len() {
        let mut missing = frames.clone();
        missing.remove(n);
        assert!(decode(&missing.concat(), usize::MAX).is_err(), "{n} is missing");
        let mut twice = frames.clone();
        twice.insert(n, frames[n]);
        assert!(decode(&twice.concat(), usize::MAX).is_err(), "{n} comes twice");
        let mut swapped = frames.clone();
        swapped.swap(n, (n + 1) % frames.len());
        assert!(decode(&swapped.concat(), usize::MAX).is_err(), "{n} is swapped");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes, 64).is_err());
    }

    #[test]
    fn bytes_from_elsewhere_within_a_snapshot_are_refused(
        at in any::<Index>(), from in any::<Index>(), length in 1..40_usize,
    ) {
        let bytes = bytes_of(SnapshotForm::Streamed);
        let mut changed = bytes.clone();
        let (at, from) = (at.index(bytes.len()), from.index(bytes.len()));
        let length = length.min(bytes.len() - at).min(bytes.len() - from);
        changed[at..at + length].copy_from_slice(&bytes[from..from + length]);
        if changed != bytes {
            prop_assert!(decode(&changed, usize::MAX).is_err());
        }
    }
}

#[test]
fn wrong_order_of_parts_is_a_bug_and_says_so() {
    let begin = |form| SnapshotWriter::new(Vec::<u8>::new(), form, head(100)).unwrap();
    let misused = |error: SnapshotError| {
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        let SnapshotError::Misused { source } = error else { panic!("{error}") };
        source.to_string()
    };
    let mut writer = begin(SnapshotForm::Local);
    assert_eq!(
        misused(writer.partition(kv()).unwrap_err()),
        "snapshot, partition frame at byte 51: it must not come after the head"
    );
    writer.verdict(&Bytes::new()).unwrap();
    writer.partition(log()).unwrap();
    assert!(
        misused(writer.verdict(&Bytes::new()).unwrap_err()).contains("after the beginning of a partition")
    );
    writer.partition_end(0).unwrap();
    assert!(misused(writer.partition(kv()).unwrap_err()).contains("the partition is 3, expected 8"));
    assert!(misused(writer.finish().unwrap_err()).contains("the number of partitions is 1, expected 2"));

    // The local form has no rows, the streamed one has all of them, of the right partition.
    let mut writer = begin(SnapshotForm::Local);
    writer.verdict(&Bytes::new()).unwrap();
    writer.partition(kv()).unwrap();
    writer.record(stored(3, 7, 1)).unwrap();
    assert!(misused(writer.partition_end(0).unwrap_err()).contains("rows frame"));
    for (records, expected) in [
        (vec![], "the place behind the last record is 7, expected 10"),
        (vec![stored(3, 7, 1), stored(3, 9, 1)], "the place of a record is 9, expected 8"),
        (vec![stored(4, 7, 1)], "the partition of a record is 4, expected 3"),
    ] {
        let mut writer = begin(SnapshotForm::Streamed);
        writer.verdict(&Bytes::new()).unwrap();
        writer.partition(kv()).unwrap();
        let written = records.into_iter().try_for_each(|record| writer.record(record));
        let error = misused(written.and_then(|()| writer.partition_end(0)).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }

    // A partition must keep what its machine has not seen.
    let mut writer = begin(SnapshotForm::Local);
    writer.verdict(&Bytes::new()).unwrap();
    let gap = SnapshotPartition { first: PartitionLogIndex(10), ..kv() };
    assert!(misused(writer.partition(gap).unwrap_err()).contains("the first record is 10, expected 9"));
    let ahead = SnapshotPartition { applied: PartitionLogIndex(10), ..kv() };
    assert!(misused(writer.partition(ahead).unwrap_err()).contains("the applied record is 10, expected 9"));
    let huge = writer.state(Bytes::from(vec![0; (64 << 20) + 1])).unwrap_err();
    assert!(matches!(huge, SnapshotError::TooLarge { .. }) && huge.kind() == ErrorKind::Invalid);
}

/// These bytes are in files and on the wire between releases: they must not change.
#[test]
fn bytes_are_what_they_were() {
    let bytes = bytes_of(SnapshotForm::Streamed);
    let at = boundaries(&bytes);
    let frame = |n: usize| &bytes[at[n]..at[n + 1]];
    for n in 0..at.len() - 1 {
        let found = u32::from_le_bytes(frame(n)[8..12].try_into().unwrap());
        assert_eq!(found, crc32c(&[&frame(n)[..8], &frame(n)[12..]].concat()));
    }
    assert_eq!(&frame(0)[..8], b"\x01\0\0\0\x27\0\0\0");
    assert_eq!(
        &frame(0)[12..],
        b"LSNP\x01\x02\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\0members"
    );
    assert_eq!((&frame(1)[..8], &frame(1)[12..]), (&b"\x02\0\0\0\x08\0\0\0"[..], &b"verdicts"[..]));
    assert_eq!(
        &frame(2)[12..],
        b"\x03\0\0\0\x02\0\0\0\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x46\0\0\0\0\0\0\0"
    );
    assert_eq!((frame(3)[0], &frame(3)[12..]), (4, &b"one"[..]));
    let row = stored(3, 7, 4);
    assert_eq!((frame(5)[0], &frame(5)[12..16]), (5, &(row.len() as u32).to_le_bytes()[..]));
    assert_eq!(&frame(5)[16..16 + row.len()], row);
    assert_eq!((frame(6)[0], &frame(6)[12..]), (6, &0x1234_u64.to_le_bytes()[..]));
    let end = frame(at.len() - 2);
    assert_eq!((end[0], &end[12..36]), (7, &b"\x02\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0"[..]));
    let hash = u64::from_le_bytes(end[44..52].try_into().unwrap());
    assert_eq!((bytes.len(), hash), (597, 3_631_767_331_414_724_276));
}
