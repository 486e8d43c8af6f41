//! What tasks write, and its commit.

use laminar_client::{Commit, ErrorClass, Field, TaskOptions, TaskWriter};
use laminar_node::NodeConfig;

use crate::support::{Place, all, create, orders};

async fn task(
    stream: &laminar_client::StreamHandle,
    ids: std::ops::Range<i64>,
    block_bytes: usize,
) -> bytes::Bytes {
    let options = TaskOptions { block_bytes: Some(block_bytes), partition: None };
    let mut writer = TaskWriter::new(stream.clone(), options).unwrap();
    for begin in ids.clone().step_by(1000) {
        writer.add(&[orders(begin..(begin + 1000).min(ids.end))]).await.unwrap();
    }
    assert_eq!(writer.rows(), u64::try_from(ids.end - ids.start).unwrap());
    writer.finish().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_commit_as_one_and_once() {
    let place = Place::new().await;
    let stream = create(&place.remote(), "/tasks", 4, "log").await;
    let messages = [task(&stream, 0..20_000, 64 << 10).await, task(&stream, 20_000..40_000, 64 << 10).await];
    assert!(all(&stream).await.is_empty());
    let commit = Commit { batch: Some(("q".to_owned(), 7)), ..Commit::default() };
    let first = stream.commit_batch(&messages, &commit).await.unwrap();
    assert_eq!((first.rows, first.duplicate, first.offsets.len()), (40_000, false, 4));
    let again = place.local.stream("/tasks").await.unwrap().commit_batch(&messages, &commit).await.unwrap();
    assert_eq!(
        (again.global_index, again.duplicate, again.offsets),
        (first.global_index, true, first.offsets)
    );
    assert_eq!(all(&stream).await, (0..40_000).collect::<Vec<_>>());
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_parts_of_many_tasks_become_one_record_a_partition() {
    // Joined, they are within the least limit.
    let config = NodeConfig { commit_parts_max: 2, ..NodeConfig::default() };
    let place = Place::with(config).await;
    let stream = create(&place.local, "/small", 2, "log").await;
    let mut messages = Vec::new();
    for at in 0..100 {
        messages.push(task(&stream, at * 10..at * 10 + 10, 1 << 20).await);
    }
    stream.commit_batch(&messages, &Commit::default()).await.unwrap();
    assert_eq!(all(&stream).await, (0..1000).collect::<Vec<_>>());
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_an_epoch_of_a_partition_repeats_its_batch() {
    let place = Place::new().await;
    let stream = create(&place.local, "/run", 4, "log").await;
    let writer = stream.writer("run", None).await.unwrap();
    let id = stream.info().partition_id(0).unwrap();
    let commit = Commit { node_id: writer.node_id(), epochs: [(id, 2)].into(), ..Commit::default() };
    let message = task(&stream, 0..100, 1 << 20).await;
    let failure = stream.commit_batch(&[message], &commit).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::Invalid, false), "{failure}");
    assert_eq!(failure.fields["stream_changed"], Field::Flag(true));
    assert!(all(&stream).await.is_empty());
    writer.close().await.unwrap();
    place.close().await;
}
