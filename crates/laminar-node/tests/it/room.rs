//! Room on the disk: what users see of the logs of both groups.

use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use laminar_client::NewStream;
use laminar_node::{NoMachines, NodeConfig};

use crate::support::{open, open_with, orders};

const MIB: u64 = 1 << 20;

/// Bytes of the files in a folder, also in those below it.
fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    // A file may go while it is looked at.
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_in(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Metadata entries may be megabytes too: a schema is one. Its log is kept short as that of the rows is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_the_metadata_is_purged_by_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = NodeConfig::default();
    config.metadata.replica.raft.snapshot_bytes = MIB;
    let opened = open_with(folder.path(), config, Arc::new(NoMachines));
    let named = |number: usize| Field::new(format!("{number:0>200}"), DataType::Int64, true);
    let wide = Arc::new(Schema::new((0..1000).map(named).collect::<Vec<_>>()));
    opened.cluster.create_stream(orders(1)).await.unwrap();
    let (mut longest, rounds) = (0, 100);
    for _ in 0..rounds {
        let stream =
            NewStream { path: "/wide".to_owned(), schema: Some(wide.clone()), key: vec![], ..orders(1) };
        opened.cluster.create_stream(stream).await.unwrap();
        opened.cluster.drop_stream("/wide").await.unwrap();
        longest = longest.max(bytes_in(&folder.path().join("metadata/raft")));
    }
    // Each schema is more than 200 kB, so the entries of all rounds are twenty megabytes.
    assert!(longest < 10 * MIB, "the log of the metadata had {longest} bytes");
    opened.connector.close().await.unwrap();

    let opened = open(folder.path());
    let streams = opened.cluster.streams("/").await.unwrap();
    assert_eq!(streams.iter().map(|stream| stream.path.as_str()).collect::<Vec<_>>(), ["/shop/orders"]);
    opened.connector.close().await.unwrap();
}
