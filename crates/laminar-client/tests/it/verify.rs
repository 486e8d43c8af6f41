//! Verification: what is whole is said to be, and every kind of damage is found where it is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use laminar_client::proto::{AppendRequest, PartitionRows, partition_rows};
use laminar_client::{Alteration, Connector, ErrorClass, StreamHandle, Verified};
use laminar_node::NodeConfig;
use tokio::time::Instant;

use crate::support::{Place, create, orders};

/// Small rows are staged too.
async fn staging() -> Place {
    Place::with(NodeConfig { inline_bytes_max: 1024, ..NodeConfig::default() }).await
}

async fn verify_all(stream: &StreamHandle) -> Verified {
    stream.verify(0, 0, None).await.unwrap()
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Flips a bit in the middle of some bytes, wherever they are in a file.
fn flip(file: &Path, around: &[u8]) -> bool {
    let mut bytes = std::fs::read(file).unwrap();
    let Some(at) = bytes.windows(around.len()).position(|window| window == around) else { return false };
    bytes[at + around.len() / 2] ^= 1;
    std::fs::write(file, bytes).unwrap();
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_whole_is_found_whole_in_one_range_or_in_many() {
    let place = staging().await;
    let stream = create(&place.remote(), "/whole", 1, "log").await;
    for turn in 0..10_i64 {
        stream.append(&[orders(turn * 5..turn * 5 + 5)]).await.unwrap();
    }
    stream.append(&[orders(50..1000)]).await.unwrap();
    let whole = verify_all(&stream).await;
    assert_eq!((whole.records, whole.rows, whole.blocks, whole.misplaced), (11, 1000, 1, 0));
    assert!(whole.first_epoch.is_some() && whole.first_epoch == whole.last_epoch && whole.fault.is_none());
    let mut sum = Verified::default();
    for start in (0..1000).step_by(37) {
        let part = stream.verify(0, start, Some((start + 37).min(1000))).await.unwrap();
        assert_eq!(part.fault, None);
        sum.records += part.records;
        sum.rows += part.rows;
        sum.bytes += part.bytes;
    }
    assert_eq!((sum.records, sum.rows, sum.bytes), (whole.records, whole.rows, whole.bytes));

    let failure = stream.verify(0, 0, Some(1001)).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Invalid, "{failure}");
    stream.trim(0, 20).await.unwrap();
    assert_eq!(verify_all(&stream).await.rows, 980, "what was trimmed is no fault");
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_stream_that_got_partitions_are_misplaced_and_no_fault() {
    let place = Place::new().await;
    let stream = create(&place.local, "/grew", 1, "log").await;
    stream.append(&[orders(0..100)]).await.unwrap();
    let alteration = Alteration { partitions: Some(4), ..Default::default() };
    place.local.alter(&stream, alteration).await.unwrap();
    let found = verify_all(&stream).await;
    assert!(found.misplaced > 50 && found.misplaced < 100, "{found:?}");
    assert_eq!(found.fault, None);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_and_a_missing_block_are_found_after_a_restart() {
    let place = staging().await;
    let stream = create(&place.local, "/blocks", 1, "log").await;
    stream.append(&[orders(0..10)]).await.unwrap();
    stream.append(&[orders(10..500)]).await.unwrap();
    place.connector.close().await.unwrap();
    let objects = place.folder.path().join("objects");
    let block = files(&objects).into_iter().max_by_key(|file| file.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&block).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&block, bytes).unwrap();

    let reopened = Place::reopen(place).await;
    let stream = reopened.local.stream("/blocks").await.unwrap();
    let found = verify_all(&stream).await;
    let fault = found.fault.unwrap();
    assert_eq!((found.rows, fault.offset), (10, 10));
    assert!(fault.what.contains("checksum"), "{}", fault.what);
    assert_eq!(stream.verify(0, 0, Some(10)).await.unwrap().fault, None, "the rows before it are whole");

    std::fs::remove_file(block).unwrap();
    let fault = verify_all(&stream).await.fault.unwrap();
    assert_eq!(fault.offset, 10);
    assert!(fault.what.contains("it is not there"), "{}", fault.what);
    reopened.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_is_found() {
    let place = Place::new().await;
    let stream = create(&place.local, "/records", 1, "log").await;
    for id in 0..20 {
        stream.append(&[orders([1000 + id])]).await.unwrap();
    }
    assert_eq!(verify_all(&stream).await.fault, None);
    // The partition's own log is written behind: until it is, what is damaged is not what is read.
    let deadline = Instant::now() + Duration::from_secs(30);
    let fault = loop {
        let damaged = files(place.folder.path())
            .iter()
            .filter(|file| file.to_string_lossy().contains("partitions"))
            .any(|file| flip(file, b"order 1013"));
        if damaged && let Some(fault) = verify_all(&stream).await.fault {
            break fault;
        }
        assert!(Instant::now() < deadline, "the record was never on disk");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(fault.offset, 13, "{}", fault.what);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_says_more_rows_than_it_has_is_found() {
    let place = Place::new().await;
    let stream = create(&place.local, "/counts", 1, "log").await;
    stream.append(&[orders(0..3)]).await.unwrap();
    let transport = place.connector.connect(None, None).await.unwrap().transport;
    let info = stream.info();
    let send = |rows: u32, payload: Bytes| {
        let rows = PartitionRows {
            partition_id: info.partition_id(0).unwrap(),
            rows,
            payload: Some(partition_rows::Payload::Inline(payload)),
            ..Default::default()
        };
        let request = AppendRequest { stream_id: info.stream_id, rows: vec![rows], ..Default::default() };
        transport.append(request, Instant::now() + Duration::from_secs(10))
    };
    let payload: Bytes = laminar_rows::encode(&orders(3..5)).unwrap();
    send(7, payload).await.unwrap();
    let found = verify_all(&stream).await;
    let fault = found.fault.unwrap();
    assert_eq!((found.rows, fault.offset), (3, 3));
    assert!(fault.what.contains("says 7 rows and has 2"), "{}", fault.what);
    send(1, Bytes::from_static(b"no rows at all")).await.unwrap();
    let fault = stream.verify(0, 10, None).await.unwrap().fault.unwrap();
    assert_eq!(fault.offset, 10);
    assert!(fault.what.contains("cannot be decoded"), "{}", fault.what);
    place.close().await;
}
