//! Bytes that are not what was written are refused, and a state that no log led to as well. Nothing panics.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::proto::{
    VerdictDestroyed, VerdictExpired, VerdictHead, VerdictLimits as Limits, VerdictLogId, VerdictOutcome,
    VerdictPartition, VerdictProducer, VerdictQuery, VerdictRemembered, VerdictRow, verdict_row::Row,
};
use super::*;
use crate::entry::BatchId;
use crate::verdict::VerdictLimits;

/// A frame with right lengths and checksums around any body.
fn frame(body: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(crc32c(body).to_le_bytes());
    let crc = crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes.extend(body);
    bytes
}

fn rows(rows: &[Row]) -> Vec<u8> {
    let mut body = Vec::new();
    for row in rows {
        VerdictRow { row: Some(row.clone()) }.encode_length_delimited(&mut body).unwrap();
    }
    frame(&body)
}

fn head() -> VerdictHead {
    VerdictHead {
        last_applied: Some(VerdictLogId { term: 2, index: 50 }),
        limits: Some(Limits {
            producers_max: 2,
            producer_window: 2,
            queries_max: 2,
            partitions_max: 2,
            skips_max: 2,
            expired_blocks_max: 2,
        }),
        forgotten_producer: Some(3),
        expired_floor: Some(VerdictExpired { block_high: 1, block_low: 0 }),
    }
}

fn partition(id: u32) -> VerdictPartition {
    VerdictPartition {
        partition: id,
        epoch: 3,
        owner: 1,
        machine: 1,
        highest: 5,
        next_offset: 9,
        start_offset: 9,
        last_time_ms: 7,
        since_ms: 7,
        created: 50,
        last_log_id: Some(VerdictLogId { term: 2, index: 50 }),
        skipped: vec![1, 4],
        ..VerdictPartition::default()
    }
}

fn outcome() -> VerdictOutcome {
    VerdictOutcome {
        index: 50,
        minted: true,
        partitions: vec![1],
        indices: vec![2],
        first_offsets: vec![3],
        rows: vec![4],
    }
}

fn producer(id: u64) -> Row {
    Row::Producer(VerdictProducer { id, last_sequence: 0, last_used: 50 })
}

fn remembered() -> Row {
    Row::Remembered(VerdictRemembered { checksum: 1, outcome: Some(outcome()) })
}

fn query(name: &str) -> Row {
    Row::Query(VerdictQuery { query: name.to_owned(), last_batch: 0, outcome: Some(outcome()) })
}

fn expired(block_low: u64) -> Row {
    Row::Expired(VerdictExpired { block_high: 1, block_low })
}

fn destroyed(first: u32, last: u32) -> Row {
    Row::Destroyed(VerdictDestroyed { first, last })
}

#[test]
fn rows_that_a_log_can_lead_to_are_read_and_written_as_they_were() {
    let used = VerdictProducer { id: 50, last_sequence: 9, last_used: 50 };
    let bytes = rows(&[
        Row::Head(head()),
        Row::Partition(partition(0)),
        Row::Partition(partition(7)),
        destroyed(1, 6),
        destroyed(8, u32::MAX),
        producer(4),
        Row::Producer(used),
        remembered(),
        remembered(),
        query("a"),
        query("b"),
        expired(1),
        expired(2),
    ]);
    assert_eq!(VerdictState::decode(&bytes).unwrap().encode(), bytes);
}

#[track_caller]
fn malformed(bytes: &[u8]) -> (u64, &'static str) {
    match VerdictState::decode(bytes) {
        Err(VerdictSnapshotError::Malformed { row, reason }) => (row, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rows_that_no_log_leads_to_are_refused() {
    let limits = |change: fn(&mut Limits)| {
        let mut head = head();
        change(head.limits.as_mut().unwrap());
        Row::Head(head)
    };
    let heads = [
        (Row::Head(VerdictHead { limits: None, ..head() }), "it has no limits"),
        (limits(|limits| limits.skips_max = 0), "a limit is out of its range"),
        (limits(|limits| limits.queries_max = u32::MAX), "a limit is out of its range"),
        (
            Row::Head(VerdictHead { forgotten_producer: Some(51), ..head() }),
            "a producer was forgotten that is still to be minted",
        ),
    ];
    for (row, reason) in heads {
        assert_eq!(malformed(&rows(&[row])), (0, reason));
    }
    let empty = VerdictHead { last_applied: None, forgotten_producer: None, ..head() };
    assert_eq!(
        malformed(&rows(&[Row::Head(empty), destroyed(1, 1)])),
        (1, "there is something before the first entry")
    );
    assert_eq!(malformed(&frame(&[])), (0, "it has no head"));
    assert_eq!(malformed(&frame(&[0])), (0, "it is empty, or comes before the head"));
    assert_eq!(malformed(&rows(&[query("q")])), (0, "it is empty, or comes before the head"));
    assert_eq!(malformed(&rows(&[Row::Head(head()), Row::Head(head())])), (1, "it has two heads"));
}

#[test]
fn partitions_that_no_log_leads_to_are_refused() {
    type Change = fn(&mut VerdictPartition);
    let skips = "the skipped records of a partition are too many, out of order or not there";
    let beyond = "a partition goes beyond the last entry";
    let cases: [(Change, &str); 18] = [
        (|row| row.epoch = 0, "a partition has epoch 0"),
        (|row| row.machine = 0, "a partition has a machine of no known kind"),
        (|row| row.machine = 127, "a partition has a machine of no known kind"),
        (|row| row.machine = 256, "a partition has a machine of no known kind"),
        (|row| row.last_log_id = None, "a partition has no last record"),
        (|row| row.skipped = vec![0, 1], skips),
        (|row| row.skipped = vec![2, 1], skips),
        (|row| row.skipped = vec![2, 2], skips),
        (|row| row.skipped = vec![1, 2, 3], skips),
        (|row| row.skipped = vec![5], skips),
        (
            |row| {
                row.highest = 0;
                row.skipped = vec![];
            },
            "a partition has no record",
        ),
        (|row| row.start_offset = 10, "a partition starts behind its end"),
        (|row| row.since_ms = 8, "an epoch began behind its last record"),
        (|row| row.created = 51, beyond),
        (|row| row.last_log_id = Some(VerdictLogId { term: 2, index: 51 }), beyond),
        (|row| row.last_log_id = Some(VerdictLogId { term: 3, index: 50 }), beyond),
        (|row| row.last_log_id = Some(VerdictLogId { term: 2, index: 49 }), beyond),
        (|row| row.partition = 4, "partitions are out of order"),
    ];
    for (change, reason) in cases {
        let mut row = partition(6);
        change(&mut row);
        let bytes = rows(&[Row::Head(head()), Row::Partition(partition(4)), Row::Partition(row)]);
        assert_eq!(malformed(&bytes), (2, reason));
    }
    let three = [1, 2, 3].map(|id| Row::Partition(partition(id)));
    let bytes = rows(&[&[Row::Head(head())], three.as_slice()].concat());
    assert_eq!(malformed(&bytes), (3, "there are too many partitions"));
    let both = rows(&[Row::Head(head()), Row::Partition(partition(4)), destroyed(3, 5)]);
    assert_eq!(malformed(&both), (3, "a partition exists and is destroyed"));
}

#[test]
fn other_tables_that_no_log_leads_to_are_refused() {
    let used = |last_sequence| Row::Producer(VerdictProducer { id: 9, last_sequence, last_used: 9 });
    let uses = |last_used| Row::Producer(VerdictProducer { id: 9, last_sequence: 0, last_used });
    let out_of_time = "a producer was used out of its time";
    let ranges = "destroyed ranges overlap, touch or are out of order";
    let blocks = "expired blocks are too many, or out of order, or below the floor";
    let missing = "appends of a producer are missing, or too many";
    let columns = VerdictOutcome { rows: vec![], ..outcome() };
    let ahead = VerdictOutcome { index: 51, ..outcome() };
    let with =
        |outcome| Row::Query(VerdictQuery { query: "q".to_owned(), last_batch: 0, outcome: Some(outcome) });
    let cases: Vec<(Vec<Row>, u64, &str)> = vec![
        (vec![destroyed(2, 1)], 1, ranges),
        (vec![destroyed(1, 2), destroyed(3, 3)], 2, ranges),
        (vec![destroyed(5, 5), destroyed(1, 1)], 2, ranges),
        (vec![producer(5), producer(6), producer(7)], 3, "there are too many producers"),
        (vec![producer(5), producer(5)], 2, "producers are out of order"),
        (vec![producer(3)], 1, "a producer is known and forgotten"),
        (vec![uses(8)], 1, out_of_time),
        (vec![uses(51)], 1, out_of_time),
        (vec![producer(51)], 1, out_of_time),
        (vec![remembered()], 1, "an append has no producer"),
        (vec![used(1)], 2, missing),
        (vec![used(1), query("q")], 2, missing),
        (vec![used(1), remembered(), remembered()], 4, missing),
        (vec![used(3), remembered(), remembered(), remembered()], 4, "a producer has too many appends"),
        (vec![used(1), Row::Remembered(VerdictRemembered::default())], 2, "it has no outcome"),
        (vec![query("a"), query("b"), query("c")], 3, "there are too many queries"),
        (vec![query("")], 1, "the name of a query is empty or too long"),
        (
            vec![query(&"q".repeat(BatchId::QUERY_BYTES_MAX + 1))],
            1,
            "the name of a query is empty or too long",
        ),
        (vec![query("b"), query("a")], 2, "queries are out of order"),
        (vec![query("a"), query("a")], 2, "queries are out of order"),
        (vec![with(columns)], 1, "the columns of an outcome differ in length"),
        (vec![with(ahead)], 1, "an outcome goes beyond the last entry"),
        (vec![expired(0)], 1, blocks),
        (vec![expired(2), expired(1)], 2, blocks),
        (vec![expired(1), expired(2), expired(3)], 3, blocks),
    ];
    for (mut table, row, reason) in cases {
        table.insert(0, Row::Head(head()));
        assert_eq!(malformed(&rows(&table)), (row, reason));
    }
}

#[test]
fn bytes_have_one_form_only() {
    let order = "its rows are out of order, or hold what this release does not know";
    assert_eq!(malformed(&rows(&[Row::Head(head()), query("q"), destroyed(1, 1)])), (3, order));
    let mut body = Vec::new();
    VerdictRow { row: Some(Row::Head(head())) }.encode(&mut body).unwrap();
    // A field that this release does not know: number 99, a varint.
    body.extend([0x98, 0x06, 0x01]);
    body.insert(0, u8::try_from(body.len()).unwrap());
    assert_eq!(malformed(&frame(&body)), (1, order));
}

#[test]
fn frames_are_checked() {
    let right = VerdictState::new(VerdictLimits::default()).unwrap().encode().to_vec();
    assert_eq!(VerdictState::decode(b"LAMIMETA").unwrap_err(), VerdictSnapshotError::NotASnapshot);
    let truncated = VerdictState::decode(&right[..right.len() - 1]).unwrap_err();
    let (found, expected) = (right.len() as u64 - 1, right.len() as u64);
    assert_eq!(truncated, VerdictSnapshotError::Truncated { found, expected });
    assert_eq!(malformed(&[right.as_slice(), b"x"].concat()), (0, "bytes follow its end"));
    let with_version = |version: u32| {
        let mut bytes = right.clone();
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c(&bytes[..24]);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
        VerdictState::decode(&bytes).unwrap_err()
    };
    assert_eq!(with_version(2), VerdictSnapshotError::VersionTooNew { found: 2 });
    assert_eq!(with_version(2).kind(), ErrorKind::Invalid);
    assert_eq!(with_version(0).kind(), ErrorKind::Corrupt);
    assert_eq!(
        with_version(2).to_string(),
        "verdict snapshot has version 2 and this release reads up to 1; upgrade laminar on this node"
    );
    assert_eq!(
        VerdictSnapshotError::Malformed { row: 3, reason: "it has two heads" }.to_string(),
        "verdict snapshot, row 3: it has two heads; fetch it again from a replica"
    );
}

#[test]
fn a_length_that_promises_more_than_there_is_makes_no_room_for_it() {
    // The row, the column of skipped records, and the name of a query claim 2^62 bytes.
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f];
    for prefix in [vec![], vec![12, 0x12, 10, 0x7a], vec![12, 0x32, 10, 0x0a]] {
        let body = [prefix, huge.to_vec()].concat();
        let error = VerdictState::decode(&frame(&body)).unwrap_err();
        assert!(matches!(error, VerdictSnapshotError::Undecodable { row: 0, .. }), "{error}");
    }
}

proptest! {
    #[test]
    fn any_body_in_a_right_frame_is_read_or_refused(body in vec(any::<u8>(), 0..300)) {
        if let Ok(state) = VerdictState::decode(&frame(&body)) {
            prop_assert_eq!(state.encode(), frame(&body));
        }
        let _ = VerdictState::decode(&body);
    }

    /// Rows of ours with a byte changed come much further than random bytes do.
    #[test]
    fn rows_with_changed_bytes_in_a_right_frame_are_read_or_refused(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let used = VerdictProducer { id: 50, last_sequence: 1, last_used: 50 };
        let right = rows(&[
            Row::Head(head()), Row::Partition(partition(0)), destroyed(1, 6), Row::Producer(used), remembered(),
            query("a"), expired(1),
        ]);
        let mut body = right[HEADER_BYTES..].to_vec();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok(state) = VerdictState::decode(&frame(&body)) {
            prop_assert_eq!(state.encode(), frame(&body));
        }
    }
}
