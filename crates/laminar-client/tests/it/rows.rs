//! Rows in and out.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use laminar_client::{Alteration, Cluster, End, ErrorClass, NewStream, ReadOptions, Start};
use std::sync::Arc;

use crate::support::{Place, all, create, drain, ids_of, orders};

/// What users do first, over either way to the node.
async fn append_and_read(cluster: &Cluster, path: &str) {
    let stream = create(cluster, path, 4, "log").await;
    let appended = stream.append(&[orders(0..60), orders(60..100)]).await.unwrap();
    assert_eq!((appended.rows, appended.duplicate), (100, false));
    assert_eq!(appended.offsets.values().map(|range| range.rows).sum::<u64>(), 100);
    assert!(appended.global_index > 0);
    let offsets = stream.offsets().await.unwrap();
    assert_eq!(offsets.len(), 4);
    for (partition, range) in &appended.offsets {
        assert_eq!((range.first, range.rows), (offsets[partition].start, offsets[partition].end));
    }
    assert_eq!(all(&stream).await, (0..100).collect::<Vec<_>>());

    let barrier = stream.barrier(Duration::from_secs(5)).await.unwrap();
    stream.append(&[orders(100..110)]).await.unwrap();
    let at = ReadOptions { at: Some(barrier.global_index), ..Default::default() };
    assert_eq!(drain(stream.read(at).await.unwrap()).await.len(), 100, "rows after the barrier are not seen");

    let options = ReadOptions {
        partitions: Some(vec![2]),
        start: Start::Offsets(BTreeMap::from([(2, 1)])),
        end: End::Offsets(BTreeMap::from([(2, 3)])),
        columns: Some(vec!["id".to_owned()]),
        include_metadata: true,
        ..Default::default()
    };
    let mut reader = stream.read(options).await.unwrap();
    let batch = reader.next().await.unwrap().unwrap();
    let names: Vec<_> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["id", "_partition", "_offset", "_timestamp", "_epoch"]);
    assert_eq!(batch.num_rows(), 2);
    assert!(reader.next().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_back_in_the_same_process_and_over_grpc() {
    let place = Place::new().await;
    append_and_read(&place.local, "/local").await;
    append_and_read(&place.remote(), "/remote").await;
    let paths: Vec<_> =
        place.remote().streams("/").await.unwrap().into_iter().map(|info| info.path).collect();
    assert_eq!(paths, ["/local", "/remote"]);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_of_many_callers_all_land_once() {
    let place = Place::new().await;
    for cluster in [place.local.clone(), place.remote()] {
        let path = format!("/many/{}", cluster.streams("/many/").await.unwrap().len());
        let stream = create(&cluster, &path, 3, "log").await;
        let callers = (0..64_i64).map(|caller| {
            let stream = stream.clone();
            tokio::spawn(async move {
                let mut places = Vec::new();
                for turn in 0..10 {
                    let appended = stream.append(&[orders([caller * 10 + turn])]).await.unwrap();
                    let (partition, range) = appended.offsets.first_key_value().unwrap();
                    places.push((*partition, range.first));
                }
                places
            })
        });
        let mut places = Vec::new();
        for caller in callers.collect::<Vec<_>>() {
            places.extend(caller.await.unwrap());
        }
        assert_eq!(all(&stream).await, (0..640).collect::<Vec<_>>());
        // Every caller was told a place of its own.
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 640);
    }
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_appends_go_through_the_store() {
    let place = Place::new().await;
    let stream = create(&place.remote(), "/large", 4, "log").await;
    let rows = 400_000;
    let hello = place.local.hello().await.unwrap();
    // Spread, so that compression does not make them small.
    let ids = |row: i64| row.wrapping_mul(0x5851_F42D_4C95_7F2D);
    let appended = stream.append(&[orders((0..rows).map(ids))]).await.unwrap();
    assert_eq!(appended.rows, rows as u64);
    let staged = std::fs::read_dir(std::path::Path::new(&hello.store_path).join("stage")).unwrap().count();
    assert!(staged > 0, "nothing was staged");
    let mut expected: Vec<i64> = (0..rows).map(ids).collect();
    expected.sort_unstable();
    assert_eq!(all(&stream).await, expected);
    assert_eq!(all(&place.local.stream("/large").await.unwrap()).await, expected);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_do_not_fit_are_refused_by_name() {
    let place = Place::new().await;
    let stream = create(&place.local, "/fit", 2, "log").await;
    let other = Arc::new(Schema::new(vec![Field::new("number", DataType::Int64, false)]));
    let batch = RecordBatch::try_new(other, vec![Arc::new(Int64Array::from(vec![1]))]).unwrap();
    let failure = stream.append(&[batch]).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::Invalid, false));
    let failure = place.local.stream("/nothing").await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Invalid);
    let options = ReadOptions { columns: Some(vec!["nothing".to_owned()]), ..Default::default() };
    assert_eq!(stream.read(options).await.unwrap_err().class, ErrorClass::Invalid);
    assert_eq!(stream.scan().unwrap_err().class, ErrorClass::Invalid);
    // The lane goes on.
    stream.append(&[orders([1])]).await.unwrap();
    assert_eq!(stream.append(&[]).await.unwrap().rows, 0);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_row_of_a_key_is_found() {
    let place = Place::new().await;
    for cluster in [place.local.clone(), place.remote()] {
        let path = format!("/kv/{}", cluster.streams("/kv/").await.unwrap().len());
        let stream = create(&cluster, &path, 4, "kv").await;
        stream.append(&[orders(0..50)]).await.unwrap();
        stream.append(&[orders(25..75)]).await.unwrap();
        let key = |id| orders([id]).project(&[0]).unwrap();
        assert_eq!(ids_of(&stream.get(&key(30)).await.unwrap().unwrap()), [30]);
        assert!(stream.get(&key(99)).await.unwrap().is_none());
        let mut scan = stream.scan().unwrap();
        let mut ids = Vec::new();
        while let Some(batch) = scan.next().await.unwrap() {
            ids.extend(ids_of(&batch));
        }
        ids.sort_unstable();
        assert_eq!(ids, (0..75).collect::<Vec<_>>());
        assert_eq!(all(&stream).await.len(), 100);
    }
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_go_where_they_are_told_or_where_their_key_says() {
    let place = Place::new().await;
    let new = NewStream {
        path: "/bytes".to_owned(),
        partitions: 4,
        machine: "kv".to_owned(),
        ..NewStream::default()
    };
    let stream = place.remote().create_stream(new).await.unwrap();
    let pair = |key: &'static str, value: &'static str| {
        (Some(Bytes::from_static(key.as_bytes())), Some(Bytes::from_static(value.as_bytes())))
    };
    let told = stream.append_bytes(Some(3), &[pair("a", "1"), pair("b", "2")]).await.unwrap();
    assert_eq!(told.offsets.keys().copied().collect::<Vec<_>>(), [3]);
    stream.append_bytes(None, &[pair("c", "3"), pair("d", "4")]).await.unwrap();
    assert_eq!(stream.get_bytes(b"c").await.unwrap().unwrap(), "3");
    stream.append_bytes(None, &[(Some(Bytes::from_static(b"c")), None)]).await.unwrap();
    assert!(stream.get_bytes(b"c").await.unwrap().is_none());
    let failure = stream.append_bytes(Some(4), &[pair("a", "1")]).await.unwrap_err();
    assert_eq!((failure.class, failure.number("partition")), (ErrorClass::UnknownPartition, Some(4)));
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_follows_gets_rows_as_they_come() {
    let place = Place::new().await;
    let stream = create(&place.remote(), "/follow", 3, "log").await;
    stream.append(&[orders(0..10)]).await.unwrap();
    let mut reader = stream.read(ReadOptions { follow: true, ..Default::default() }).await.unwrap();
    let mut seen = Vec::new();
    for round in 1..=3_i64 {
        while (seen.len() as i64) < round * 10 {
            let next = tokio::time::timeout(Duration::from_secs(10), reader.next()).await.expect("rows come");
            seen.extend(ids_of(&next.unwrap().unwrap()));
        }
        stream.append(&[orders(round * 10..round * 10 + 10)]).await.unwrap();
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..30).collect::<Vec<_>>());
    drop(reader);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_placed_anew_when_the_stream_gets_more_partitions() {
    let place = Place::new().await;
    let old = create(&place.local, "/grow", 2, "log").await;
    old.append(&[orders(0..10)]).await.unwrap();
    let other = place.remote();
    let stream = other.stream("/grow").await.unwrap();
    other.alter(&stream, Alteration { partitions: Some(8), ..Default::default() }).await.unwrap();
    assert_eq!(old.info().partition_count(), 2, "the handle has not heard of it");
    old.append(&[orders(10..100)]).await.unwrap();
    assert_eq!(old.info().partition_count(), 8);
    assert_eq!(all(&stream).await, (0..100).collect::<Vec<_>>());
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_of_a_dropped_stream_does_not_write_into_the_next_of_its_name() {
    let place = Place::new().await;
    let old = create(&place.local, "/again", 2, "log").await;
    old.append(&[orders(0..10)]).await.unwrap();
    place.remote().drop_stream("/again").await.unwrap();
    let new = create(&place.remote(), "/again", 2, "log").await;
    let failure = old.append(&[orders(10..20)]).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::UnknownPartition, false));
    assert_eq!(old.refresh().await.unwrap_err().class, ErrorClass::UnknownPartition);
    assert_eq!(all(&new).await, Vec::<i64>::new());
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_the_secret_is_refused() {
    let place = Place::new().await;
    let endpoint = laminar_node::folder::Endpoint::read(place.folder.path()).unwrap().unwrap();
    for secret in [None, Some("wrong".to_owned())] {
        let connector = laminar_client::RemoteConnector::new(vec![endpoint.address.clone()], secret).unwrap();
        let cluster = Cluster::new(Arc::new(connector), laminar_client::ClientConfig::default());
        assert_eq!(cluster.hello().await.unwrap_err().class, ErrorClass::Invalid);
    }
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_told_within_the_time() {
    let connector = laminar_client::RemoteConnector::parse("127.0.0.1:1", None).unwrap();
    let cluster = Cluster::new(Arc::new(connector), laminar_client::ClientConfig::default());
    let failure = cluster.with_timeout(Duration::from_millis(300)).hello().await.unwrap_err();
    assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::Unavailable, false));
    assert!(failure.message.starts_with("no node of 127.0.0.1:1 answered within 0."), "{failure}");
}
