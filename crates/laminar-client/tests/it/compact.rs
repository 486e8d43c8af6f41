//! The newest row of each key, in few parts, whoever writes meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, Int64Array, RecordBatch, StringArray};
use laminar_client::{
    Commit, CompactCommit, CompactOptions, CompactOutcome, CompactedRows, ErrorClass, ReadOptions,
    StreamHandle, TaskOptions, TaskWriter,
};

use crate::support::{Place, create, schema};

const KEEP: CompactOptions = CompactOptions { keep_removed: Duration::from_secs(3600), block_bytes: None };
const DROP: CompactOptions = CompactOptions { keep_removed: Duration::ZERO, block_bytes: None };

/// Rows with names; no name removes the key.
fn named(rows: &[(i64, Option<&str>)]) -> RecordBatch {
    let ids: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
    let names: Vec<Option<&str>> = rows.iter().map(|(_, name)| *name).collect();
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(ids)), Arc::new(StringArray::from(names))])
        .unwrap()
}

async fn put(stream: &StreamHandle, id: i64, name: &str) {
    stream.append(&[named(&[(id, Some(name))])]).await.unwrap();
}

/// All rows in order.
async fn rows(stream: &StreamHandle) -> Vec<(i64, Option<String>)> {
    let mut reader = stream.read(ReadOptions::default()).await.unwrap();
    let mut rows = Vec::new();
    while let Some(batch) = reader.next().await.unwrap() {
        rows.extend(pairs(&batch));
    }
    rows
}

fn pairs(batch: &RecordBatch) -> Vec<(i64, Option<String>)> {
    let ids = batch.column(0).as_primitive::<Int64Type>().values();
    let names = batch.column(1).as_string::<i32>();
    (0..batch.num_rows())
        .map(|at| (ids[at], names.is_valid(at).then(|| names.value(at).to_owned())))
        .collect()
}

/// What the machine has.
async fn scan(stream: &StreamHandle) -> BTreeMap<i64, Option<String>> {
    let mut reader = stream.scan().unwrap();
    let mut found = BTreeMap::new();
    while let Some(batch) = reader.next().await.unwrap() {
        found.extend(pairs(&batch));
    }
    found
}

/// What the rows come to, if they are folded.
async fn folded(stream: &StreamHandle) -> BTreeMap<i64, Option<String>> {
    let mut folded: BTreeMap<_, _> = rows(stream).await.into_iter().collect();
    folded.retain(|_, name| name.is_some());
    folded
}

async fn commit(stream: &StreamHandle, rows: &CompactedRows) -> CompactCommit {
    stream.commit_compacted(0, rows, &Commit::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_become_the_newest_of_each_key_and_values_stay() {
    let place = Place::new().await;
    let stream = create(&place.remote(), "/kv", 1, "kv").await;
    for round in 0..5 {
        for id in 0..20 {
            put(&stream, id, &format!("{id} in round {round}")).await;
        }
    }
    let before = scan(&stream).await;
    let staged = stream.compact(0, KEEP).await.unwrap();
    assert_eq!((staged.start, staged.end, staged.records), (0, 100, 100));
    assert_eq!((staged.rows, staged.rows_kept, staged.removed_dropped), (100, 20, 0));
    assert!(staged.bytes > staged.bytes_kept && !staged.already_compact);
    assert_eq!(rows(&stream).await.len(), 100, "nothing of it can be read");
    let done = commit(&stream, &staged).await;
    assert_eq!((done.outcome, done.rows, done.moved), (CompactOutcome::Committed, 20, 0));
    assert_eq!((scan(&stream).await, folded(&stream).await), (before.clone(), before.clone()));
    assert_eq!(stream.trim(0, staged.end).await.unwrap(), 100);
    let left: Vec<i64> = rows(&stream).await.iter().map(|(id, _)| *id).collect();
    assert_eq!(left, (0..20).collect::<Vec<_>>(), "in the order of their offsets");
    assert_eq!((scan(&stream).await, folded(&stream).await), (before.clone(), before));
    let again = stream.compact(0, KEEP).await.unwrap();
    assert_eq!((again.already_compact, again.rows, again.message.len()), (true, 20, 0));
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_are_staged_in_blocks_and_read_back_after_a_restart() {
    let place = Place::new().await;
    let stream = create(&place.local, "/kv", 1, "kv").await;
    for round in 0..3 {
        let mut task = TaskWriter::new(stream.clone(), TaskOptions::default()).unwrap();
        let name = format!("{} {round}", "n".repeat(40));
        let batch: Vec<(i64, Option<&str>)> = (0..70_000).map(|id| (id, Some(name.as_str()))).collect();
        task.add(&[named(&batch)]).await.unwrap();
        stream.commit_batch(&[task.finish().await.unwrap()], &Commit::default()).await.unwrap();
    }
    let before = scan(&stream).await;
    let options = CompactOptions { block_bytes: Some(1 << 20), ..KEEP };
    let staged = stream.compact(0, options).await.unwrap();
    assert_eq!((staged.rows, staged.rows_kept), (210_000, 70_000));
    assert!(staged.message.len() < 4096, "the rows are in blocks: {}", staged.message.len());
    assert_eq!(commit(&stream, &staged).await.rows, 70_000);
    stream.trim(0, staged.end).await.unwrap();
    place.connector.close().await.unwrap();
    let place = Place::reopen(place).await;
    let stream = place.local.stream("/kv").await.unwrap();
    assert_eq!(scan(&stream).await, before);
    assert_eq!((rows(&stream).await.len(), folded(&stream).await), (70_000, before));
    assert_eq!(stream.verify(0, 0, None).await.unwrap().fault, None);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_came_meanwhile_win_and_no_older_one_is_appended_behind_them() {
    let place = Place::new().await;
    let stream = create(&place.local, "/kv", 1, "kv").await;
    for id in [1, 2, 3, 4, 1, 2, 3, 4] {
        put(&stream, id, "old").await;
    }
    let staged = stream.compact(0, DROP).await.unwrap();
    put(&stream, 2, "new").await;
    stream.append(&[named(&[(3, None)])]).await.unwrap();
    put(&stream, 9, "new").await;
    let before = scan(&stream).await;
    let done = commit(&stream, &staged).await;
    assert_eq!((done.outcome, done.rows, done.moved), (CompactOutcome::Committed, 2, 1));
    assert_eq!(stream.trim(0, staged.end).await.unwrap(), 8);
    let text = |name: &str| Some(name.to_owned());
    let expected = [(2, text("new")), (3, None), (9, text("new")), (1, text("old")), (4, text("old"))];
    assert_eq!(rows(&stream).await, expected);
    assert_eq!((scan(&stream).await, folded(&stream).await), (before.clone(), before));
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_on_the_end_is_refused_with_the_end_there_is() {
    let place = Place::new().await;
    let stream = create(&place.remote(), "/kv", 1, "kv").await;
    put(&stream, 1, "a").await;
    let id = stream.info().partition_id(0).unwrap();
    let mut task = TaskWriter::new(stream.clone(), TaskOptions::default()).unwrap();
    task.add(&[named(&[(1, Some("late"))])]).await.unwrap();
    let message = [task.finish().await.unwrap()];
    let expecting = |end| Commit { expected_ends: [(id, end)].into(), ..Commit::default() };
    for end in [0, 2] {
        let failure = stream.commit_batch(&message, &expecting(end)).await.unwrap_err();
        assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::Invalid, false), "{failure}");
        assert_eq!((failure.number("end_moved"), failure.number("partition")), (Some(1), Some(0)));
    }
    // A batch that landed is acknowledged, though the end has moved by its own rows.
    let batch = Commit { batch: Some(("q".to_owned(), 1)), ..expecting(1) };
    assert!(!stream.commit_batch(&message, &batch).await.unwrap().duplicate);
    assert!(stream.commit_batch(&message, &batch).await.unwrap().duplicate);
    let next = Commit { batch: Some(("q".to_owned(), 2)), ..expecting(1) };
    assert_eq!(stream.commit_batch(&message, &next).await.unwrap_err().number("end_moved"), Some(2));
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_stay_below_a_snapshot_until_they_are_trimmed() {
    let place = Place::new().await;
    let stream = create(&place.local, "/kv", 1, "kv").await;
    for id in [1, 2, 1, 2, 1] {
        put(&stream, id, "v").await;
        place.local.snapshot("data").await.unwrap();
    }
    assert_eq!(rows(&stream).await.len(), 5);
    let staged = stream.compact(0, KEEP).await.unwrap();
    commit(&stream, &staged).await;
    stream.trim(0, staged.end).await.unwrap();
    place.local.snapshot("data").await.unwrap();
    put(&stream, 3, "v").await;
    place.connector.close().await.unwrap();
    let place = Place::reopen(place).await;
    let stream = place.local.stream("/kv").await.unwrap();
    let left: Vec<i64> = rows(&stream).await.iter().map(|(id, _)| *id).collect();
    assert_eq!((left, scan(&stream).await.len()), (vec![2, 1, 3], 3));
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_keys_are_kept_while_young_and_left_out_then() {
    let place = Place::new().await;
    let stream = create(&place.local, "/kv", 1, "kv").await;
    stream.append(&[named(&[(1, Some("a")), (2, Some("b")), (1, None)])]).await.unwrap();
    let young = stream.compact(0, KEEP).await.unwrap();
    assert_eq!((young.rows_kept, young.removed_dropped), (2, 0));
    commit(&stream, &young).await;
    stream.trim(0, young.end).await.unwrap();
    assert_eq!(rows(&stream).await, [(2, Some("b".to_owned())), (1, None)]);
    let old = stream.compact(0, DROP).await.unwrap();
    assert_eq!((old.rows_kept, old.removed_dropped), (1, 1));
    commit(&stream, &old).await;
    stream.trim(0, old.end).await.unwrap();
    assert_eq!(rows(&stream).await, [(2, Some("b".to_owned()))]);
    // Nothing is left to append if all keys were removed.
    stream.append(&[named(&[(2, None)])]).await.unwrap();
    let none = stream.compact(0, DROP).await.unwrap();
    assert_eq!((none.rows_kept, commit(&stream, &none).await.rows), (0, 0));
    stream.trim(0, none.end).await.unwrap();
    assert!(rows(&stream).await.is_empty() && scan(&stream).await.is_empty());
    let empty = stream.compact(0, DROP).await.unwrap();
    assert_eq!((empty.already_compact, empty.rows), (true, 0));
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_compactions_at_once_leave_every_value() {
    let place = Place::new().await;
    let stream = create(&place.local, "/kv", 1, "kv").await;
    for id in [1, 2, 3, 1, 2, 3] {
        put(&stream, id, "v").await;
    }
    let before = scan(&stream).await;
    let (first, second) = (stream.compact(0, KEEP).await.unwrap(), stream.compact(0, KEEP).await.unwrap());
    assert_eq!(commit(&stream, &first).await.rows, 3);
    let late = commit(&stream, &second).await;
    assert_eq!((late.outcome, late.rows, late.moved), (CompactOutcome::Committed, 0, 1));
    // One that was overtaken by a trim beyond its end has nothing to do.
    let slow = stream.compact(0, KEEP).await.unwrap();
    put(&stream, 3, "w").await;
    let fast = stream.compact(0, KEEP).await.unwrap();
    commit(&stream, &fast).await;
    stream.trim(0, fast.end).await.unwrap();
    assert_eq!(commit(&stream, &slow).await.outcome, CompactOutcome::Busy);
    let expected =
        BTreeMap::from([(1, "v"), (2, "v"), (3, "w")].map(|(id, name)| (id, Some(name.to_owned()))));
    assert_eq!((scan(&stream).await, folded(&stream).await), (expected.clone(), expected));
    assert_ne!(before, scan(&stream).await);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimed_stream_and_one_without_keys_are_refused() {
    let place = Place::new().await;
    let log = create(&place.local, "/log", 1, "log").await;
    let failure = log.compact(0, KEEP).await.unwrap_err();
    assert!(failure.class == ErrorClass::Invalid && failure.message.contains("\"log\""), "{failure}");
    let stream = create(&place.local, "/kv", 1, "kv").await;
    put(&stream, 1, "a").await;
    put(&stream, 1, "b").await;
    let writer = stream.writer("ingest", None).await.unwrap();
    let staged = stream.compact(0, KEEP).await.unwrap();
    let failure = stream.commit_compacted(0, &staged, &Commit::default()).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::NotOwned, "{failure}");
    assert!(failure.message.contains("\"ingest\""), "{failure}");
    let id = stream.info().partition_id(0).unwrap();
    let epoch = writer.guards().get(laminar_core::ids::PartitionId(id)).unwrap().epoch().get();
    let held = Commit { node_id: writer.node_id(), epochs: [(id, epoch)].into(), ..Commit::default() };
    assert_eq!(stream.commit_compacted(0, &staged, &held).await.unwrap().rows, 1);
    writer.trim(0, staged.end).await.unwrap();
    assert_eq!(rows(&stream).await, [(1, Some("b".to_owned()))]);
    writer.close().await.unwrap();
    let stale = stream.commit_compacted(0, &staged, &held).await.unwrap_err();
    assert_eq!(stale.class, ErrorClass::StaleEpoch, "{stale}");
    place.close().await;
}
