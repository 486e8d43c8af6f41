//! A node in this process, used through the client as users do.

use std::sync::Arc;
use std::time::Duration;

use laminar_client::{ClientConfig, Cluster, ErrorClass};
use laminar_node::{FolderConnector, NoMachines, NodeConfig, Role};

use crate::support::{open, orders, read_ids, rows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_appended_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let stream = first.cluster.create_stream(orders(4)).await.unwrap();
    let appended = stream.append(&[rows(0..1000)]).await.unwrap();
    assert_eq!(appended.rows, 1000);
    assert_eq!(read_ids(&stream).await, (0..1000).collect::<Vec<_>>());
    first.connector.close().await.unwrap();

    let second = open(folder.path());
    let stream = second.cluster.stream("/shop/orders").await.unwrap();
    stream.append(&[rows(1000..1500)]).await.unwrap();
    assert_eq!(read_ids(&stream).await, (0..1500).collect::<Vec<_>>());
    second.connector.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_was_taken_over_is_refused_where_the_data_lands() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    let stream = opened.cluster.create_stream(orders(4)).await.unwrap();
    let first = stream.writer("ingest", None).await.unwrap();
    first.append(&[rows(0..10)]).await.unwrap();
    let managed = stream.append(&[rows(10..20)]).await.unwrap_err();
    assert_eq!(managed.class, ErrorClass::NotOwned, "{managed}");

    let second = stream.writer("ingest", None).await.unwrap();
    second.append(&[rows(20..30)]).await.unwrap();
    let refused = first.append(&[rows(30..40)]).await.unwrap_err();
    assert_eq!(refused.class, ErrorClass::StaleEpoch, "{refused}");
    second.close().await.unwrap();
    stream.append(&[rows(40..50)]).await.unwrap();
    let expected: Vec<i64> = (0..10).chain(20..30).chain(40..50).collect();
    assert_eq!(read_ids(&stream).await, expected);
    opened.connector.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_lands_once_however_often_it_is_committed() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    let stream = opened.cluster.create_stream(orders(4)).await.unwrap();
    let writer = stream.writer("ingest", None).await.unwrap();
    for attempt in 0..3 {
        let mut batch = writer.batch("q", 7).unwrap();
        batch.append(&[rows(0..100)], None).await.unwrap();
        let appended = batch.commit().await.unwrap();
        assert_eq!(appended.duplicate, attempt > 0);
    }
    assert_eq!(read_ids(&stream).await.len(), 100);
    opened.connector.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_client_comes_in_over_the_port() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    let stream = opened.cluster.create_stream(orders(2)).await.unwrap();
    stream.append(&[rows(0..5)]).await.unwrap();
    let other = Arc::new(FolderConnector::new(
        folder.path(),
        Role::ClientOnly,
        NodeConfig::default(),
        Arc::new(NoMachines),
    ));
    let endpoint = laminar_node::folder::Endpoint::read(folder.path()).unwrap().unwrap();
    let remote =
        laminar_client::RemoteConnector::parse(&endpoint.address, Some(endpoint.secret.clone())).unwrap();
    let cluster = Cluster::new(Arc::new(remote), ClientConfig::default());
    let remote_stream = cluster.stream("/shop/orders").await.unwrap();
    remote_stream.append(&[rows(5..10)]).await.unwrap();
    assert_eq!(read_ids(&remote_stream).await, (0..10).collect::<Vec<_>>());

    let stranger =
        laminar_client::RemoteConnector::parse(&endpoint.address, Some("wrong".to_owned())).unwrap();
    let refused = Cluster::new(Arc::new(stranger), ClientConfig::default())
        .with_timeout(Duration::from_secs(5))
        .stream("/shop/orders")
        .await
        .unwrap_err();
    assert_eq!(refused.class, ErrorClass::Invalid, "{refused}");
    drop(other);
    opened.connector.close().await.unwrap();
}
