//! Staged blocks: those that rows are in stay, and those that nothing names go.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use laminar_client::{Commit, CompactOptions, ErrorClass, NewStream, ReadOptions};
use laminar_node::{NoMachines, NodeConfig};
use laminar_store::{BlockId, BlockStore, new_block_id};

use crate::support::{Opened, open, open_with, orders, read_ids, rows};

/// A node that stages what has more than a kilobyte, and soon collects what nothing names.
fn open_collecting(folder: &Path) -> Opened {
    let config = NodeConfig {
        inline_bytes_max: 1024,
        stage_interval: Duration::from_millis(50),
        // Longer than an append or a compaction takes from staging to its commit.
        stage_age: Duration::from_secs(2),
        ..NodeConfig::default()
    };
    open_with(folder, config, Arc::new(NoMachines))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_nothing_names_is_deleted_and_one_that_rows_are_in_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open_collecting(folder.path());
    let stream = opened.cluster.create_stream(orders(2)).await.unwrap();
    stream.append(&[rows(0..10_000)]).await.unwrap();
    let store = BlockStore::open_local(folder.path().join("objects")).await.unwrap();
    let named = paths(&store).await;
    assert!(!named.is_empty(), "the append was too large for the entry");

    let orphan = store.stage(new_block_id(1).unwrap(), Bytes::from_static(b"never committed")).await.unwrap();
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let there = paths(&store).await;
        assert!(named.iter().all(|path| there.contains(path)), "rows are in {named:?}");
        if !there.contains(&orphan.path) {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "the block that nothing names is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(read_ids(&stream).await, (0..10_000).collect::<Vec<_>>());

    // Once the stream is dropped nothing names the others either.
    opened.cluster.drop_stream("/shop/orders").await.unwrap();
    while !store.list().await.unwrap().is_empty() {
        assert!(tokio::time::Instant::now() < until, "blocks of a dropped stream are still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    opened.connector.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_of_compacted_rows_go_once_a_snapshot_has_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open_collecting(folder.path());
    let keyed = NewStream { machine: "kv".to_owned(), ..orders(1) };
    let stream = opened.cluster.create_stream(keyed).await.unwrap();
    for _ in 0..2 {
        stream.append(&[rows(0..5_000)]).await.unwrap();
    }
    let store = BlockStore::open_local(folder.path().join("objects")).await.unwrap();
    let old = paths(&store).await;
    assert_eq!(old.len(), 2);
    let options = CompactOptions { keep_removed: Duration::ZERO, block_bytes: None };
    let staged = stream.compact(0, options).await.unwrap();
    stream.commit_compacted(0, &staged, &Commit::default()).await.unwrap();
    stream.trim(0, staged.end).await.unwrap();
    let all = paths(&store).await;

    // A node that dies now applies the old rows again, so they must still be there after a round of collecting that takes
    // a younger block.
    let youngest = BlockId::from_path(all.last().unwrap()).unwrap();
    let orphan = new_block_id(youngest.time_ms()).unwrap();
    let orphan = store.stage(orphan, Bytes::from_static(b"never committed")).await.unwrap();
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while paths(&store).await.contains(&orphan.path) {
        assert!(tokio::time::Instant::now() < until, "the block that nothing names is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(paths(&store).await, all);

    opened.cluster.snapshot("data").await.unwrap();
    while paths(&store).await.iter().any(|path| old.contains(path)) {
        assert!(tokio::time::Instant::now() < until, "blocks of trimmed rows are still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    opened.connector.close().await.unwrap();
    let opened = open(folder.path());
    let stream = opened.cluster.stream("/shop/orders").await.unwrap();
    assert_eq!(read_ids(&stream).await, (0..5_000).collect::<Vec<_>>());
    let mut scan = stream.scan().unwrap();
    let mut keys = 0;
    while let Some(batch) = scan.next().await.unwrap() {
        keys += batch.num_rows();
    }
    assert_eq!(keys, 5_000);
    opened.connector.close().await.unwrap();
}

/// Rows that go while they are read are told as that, and not as damage, also if their blocks are gone by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_go_under_a_reader_are_told_as_trimmed_or_dropped() {
    for drops in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let opened = open_collecting(folder.path());
        let stream = opened.cluster.create_stream(orders(1)).await.unwrap();
        for begin in [0, 5_000] {
            stream.append(&[rows(begin..begin + 5_000)]).await.unwrap();
        }
        let options = ReadOptions { batch_rows: Some(5_000), ..ReadOptions::default() };
        let mut reader = stream.read(options).await.unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap().num_rows(), 5_000);

        if drops {
            opened.cluster.drop_stream("/shop/orders").await.unwrap();
        } else {
            // The last record stays in the log, whatever is trimmed.
            stream.trim(0, 10_000).await.unwrap();
            stream.append(&[rows(10_000..10_001)]).await.unwrap();
            stream.trim(0, 10_001).await.unwrap();
        }
        let store = BlockStore::open_local(folder.path().join("objects")).await.unwrap();
        wait_for_blocks(&store, 0, "a block of rows that are gone").await;
        let failure = reader.next().await.unwrap_err();
        let class = if drops { ErrorClass::UnknownPartition } else { ErrorClass::Invalid };
        assert_eq!(failure.class, class, "{failure}");
        assert_eq!(failure.number("start_offset"), (!drops).then_some(10_001), "{failure}");
        opened.connector.close().await.unwrap();
    }
}

/// Nobody is about to commit a block that was committed, so nobody has to wait until it is old. One that was not stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_of_a_dropped_stream_and_of_trimmed_rows_go_with_the_next_round() {
    let folder = tempfile::tempdir().unwrap();
    let config = || NodeConfig {
        inline_bytes_max: 1024,
        stage_interval: Duration::from_millis(50),
        ..NodeConfig::default()
    };
    let opened = open_with(folder.path(), config(), Arc::new(NoMachines));
    let stream = opened.cluster.create_stream(orders(1)).await.unwrap();
    let store = BlockStore::open_local(folder.path().join("objects")).await.unwrap();
    let orphan = store.stage(new_block_id(1).unwrap(), Bytes::from_static(b"not yet")).await.unwrap();
    stream.append(&[rows(0..1000)]).await.unwrap();
    stream.append(&[rows(1000..2000)]).await.unwrap();
    let other = NewStream { path: "/other".to_owned(), ..orders(2) };
    opened.cluster.create_stream(other.clone()).await.unwrap().append(&[rows(0..1000)]).await.unwrap();
    assert_eq!(paths(&store).await.len(), 4);
    stream.trim(0, 1000).await.unwrap();
    wait_for_blocks(&store, 3, "the block of trimmed rows").await;
    opened.cluster.drop_stream("/other").await.unwrap();
    wait_for_blocks(&store, 2, "the block of the dropped stream").await;
    opened.connector.close().await.unwrap();

    // A node that was opened since learns in a round which blocks are named. That there was one, another stream tells.
    let opened = open_with(folder.path(), config(), Arc::new(NoMachines));
    for _ in 0..2 {
        let stream = opened.cluster.create_stream(other.clone()).await.unwrap();
        stream.append(&[rows(0..1000)]).await.unwrap();
        opened.cluster.drop_stream("/other").await.unwrap();
        wait_for_blocks(&store, 2, "the block of the other stream").await;
    }
    let stream = opened.cluster.stream("/shop/orders").await.unwrap();
    assert_eq!(read_ids(&stream).await, (1000..2000).collect::<Vec<_>>());
    opened.cluster.drop_stream("/shop/orders").await.unwrap();
    wait_for_blocks(&store, 1, "the block that was named before the node was opened").await;
    assert_eq!(paths(&store).await, [orphan.path], "somebody may be about to commit it");
    opened.connector.close().await.unwrap();
}

async fn wait_for_blocks(store: &BlockStore, count: usize, what: &str) {
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while paths(store).await.len() > count {
        assert!(tokio::time::Instant::now() < until, "{what} is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(paths(store).await.len(), count, "{what}");
}

async fn paths(store: &BlockStore) -> Vec<String> {
    let mut paths: Vec<String> = store.list().await.unwrap().into_iter().map(|block| block.path).collect();
    paths.sort_unstable();
    paths
}
