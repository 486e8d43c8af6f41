//! Readers that follow a stream whose partitions become more, and one that is dropped.

use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use laminar_client::{Alteration, Cluster, ErrorClass, ReadOptions, RowReader, Start, StreamHandle};

use crate::support::{Place, create, ids_of, orders};

async fn grow(cluster: &Cluster, path: &str, partitions: u32) -> StreamHandle {
    let stream = cluster.stream(path).await.unwrap();
    let alteration = Alteration { partitions: Some(partitions), ..Default::default() };
    cluster.alter(&stream, alteration).await.unwrap();
    stream
}

fn following() -> ReadOptions {
    ReadOptions { follow: true, include_metadata: true, ..Default::default() }
}

/// Reads so many rows; sorted, as (id, partition).
async fn read(reader: &mut RowReader, count: usize) -> Vec<(i64, i32)> {
    let mut rows = Vec::new();
    while rows.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(10), reader.next()).await.expect("rows come");
        let batch = next.unwrap().unwrap();
        let partitions = batch.column_by_name("_partition").unwrap().as_primitive::<Int32Type>().values();
        rows.extend(ids_of(&batch).into_iter().zip(partitions.iter().copied()));
    }
    rows.sort_unstable();
    rows
}

fn ids(rows: &[(i64, i32)]) -> Vec<i64> {
    rows.iter().map(|(id, _)| *id).collect()
}

/// Rows that are in the new partitions before a follower knows of them are seen, each once; whether all rows were asked
/// for or only those to come.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_all_partitions_gets_those_that_are_added_from_their_first_row() {
    let place = Place::new().await;
    for (turn, cluster) in [place.local.clone(), place.remote()].into_iter().enumerate() {
        let path = format!("/grow/{turn}");
        let stream = create(&cluster, &path, 2, "log").await;
        stream.append(&[orders(0..20)]).await.unwrap();
        let mut all = stream.read(following()).await.unwrap();
        let mut later = stream.read(ReadOptions { start: Start::Latest, ..following() }).await.unwrap();
        assert_eq!(ids(&read(&mut all, 20).await), (0..20).collect::<Vec<_>>());
        let mut count = 20;
        for partitions in [3, 8] {
            let grown = grow(&place.remote(), &path, partitions).await;
            grown.append(&[orders(count..count + 100)]).await.unwrap();
            for reader in [&mut all, &mut later] {
                let rows = read(reader, 100).await;
                assert_eq!(ids(&rows), (count..count + 100).collect::<Vec<_>>());
                assert!(rows.iter().any(|(_, partition)| *partition == partitions as i32 - 1), "{rows:?}");
            }
            count += 100;
        }
        drop((all, later));
    }
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_chosen_partitions_stays_with_them() {
    let place = Place::new().await;
    let stream = create(&place.local, "/chosen", 2, "log").await;
    let chosen = ReadOptions { partitions: Some(vec![0, 1]), ..following() };
    let mut chosen = stream.read(chosen).await.unwrap();
    let mut all = stream.read(following()).await.unwrap();
    let grown = grow(&place.remote(), "/chosen", 8).await;
    grown.append(&[orders(0..100)]).await.unwrap();
    // Once the other follower has found the new partitions, this one would have too.
    let rows = read(&mut all, 100).await;
    let expected: Vec<_> = rows.iter().copied().filter(|(_, partition)| *partition < 2).collect();
    assert!(expected.len() < 100);
    assert_eq!(read(&mut chosen, expected.len()).await, expected);
    grown.append(&[orders(100..200)]).await.unwrap();
    let rows = read(&mut all, 100).await;
    let expected: Vec<_> = rows.into_iter().filter(|(_, partition)| *partition < 2).collect();
    assert_eq!(read(&mut chosen, expected.len()).await, expected);
    drop((all, chosen));
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_a_dropped_stream_is_told_so_and_ends() {
    let place = Place::new().await;
    for again in [false, true] {
        let stream = create(&place.remote(), "/dropped", 2, "log").await;
        stream.append(&[orders(0..10)]).await.unwrap();
        let mut reader = stream.read(following()).await.unwrap();
        read(&mut reader, 10).await;
        place.local.drop_stream("/dropped").await.unwrap();
        if again {
            create(&place.local, "/dropped", 4, "log").await;
        }
        let next = tokio::time::timeout(Duration::from_secs(10), reader.next()).await.expect("it ends");
        let failure = next.unwrap_err();
        assert_eq!(failure.class, ErrorClass::UnknownPartition, "{failure}");
        assert!(failure.message.contains("dropped"), "{failure}");
        assert!(reader.next().await.unwrap().is_none());
    }
    place.close().await;
}
