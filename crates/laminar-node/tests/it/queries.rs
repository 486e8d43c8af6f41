//! Queries of batches: the log knows so many, and those of a dropped stream go with it.

use std::sync::Arc;

use laminar_client::{Commit, NewStream, StreamHandle};
use laminar_node::{NoMachines, NodeConfig};

use crate::support::{open_with, orders};

async fn commit(stream: &StreamHandle, query: &str, number: u64) -> Result<bool, laminar_rpc::Failure> {
    let batch = Some((query.to_owned(), number));
    let commit = Commit { batch, record_empty: true, ..Commit::default() };
    stream.commit_batch(&[], &commit).await.map(|appended| appended.duplicate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_of_a_dropped_stream_make_room_and_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = NodeConfig::default();
    config.data.segmented.verdict.queries_max = 4;
    let opened = open_with(folder.path(), config.clone(), Arc::new(NoMachines));
    let stays = opened.cluster.create_stream(orders(2)).await.unwrap();
    assert!(!commit(&stays, "kept", 5).await.unwrap());
    let other = NewStream { path: "/other".to_owned(), ..orders(3) };
    for round in 0..4 {
        let stream = opened.cluster.create_stream(other.clone()).await.unwrap();
        for query in ["a", "b", "c"] {
            assert!(!commit(&stream, query, 7).await.unwrap(), "round {round}");
        }
        let failure = commit(&stream, "d", 7).await.unwrap_err();
        assert!(failure.message.contains("4 of 4 queries are known (log.queries_max)"), "{failure}");
        opened.cluster.drop_stream("/other").await.unwrap();
        assert!(commit(&stream, "a", 8).await.is_err(), "a late batch of a dropped stream");
    }
    assert!(commit(&stays, "kept", 5).await.unwrap(), "it is the same batch");
    assert!(commit(&stays, "kept", 4).await.is_err());
    opened.connector.close().await.unwrap();

    let opened = open_with(folder.path(), config, Arc::new(NoMachines));
    let stays = opened.cluster.stream("/shop/orders").await.unwrap();
    for query in ["a", "b", "c"] {
        assert!(!commit(&stays, query, 1).await.unwrap());
    }
    assert!(commit(&stays, "kept", 5).await.unwrap());
    opened.connector.close().await.unwrap();
}
