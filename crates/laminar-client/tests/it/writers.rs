//! Exclusive writers and their batches.

use std::time::Duration;

use laminar_client::{ErrorClass, Field, ReadOptions};
use laminar_core::ids::PartitionId;
use laminar_node::NodeConfig;

use crate::support::{Place, all, create, drain, orders, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_superseded_writer_is_refused_and_told_by_whom() {
    let place = Place::new().await;
    let stream = create(&place.remote(), "/orders", 4, "log").await;
    let first = stream.writer("first", None).await.unwrap();
    first.append(&[orders(0..10)]).await.unwrap();

    let second = place.local.stream("/orders").await.unwrap().writer("second", None).await.unwrap();
    let partition = PartitionId(stream.info().partition_id(2).unwrap());
    wait_until("the old guards hear of the takeover", || first.guards().check(partition).is_err()).await;
    second.append(&[orders(10..20)]).await.unwrap();
    let failure = first.append(&[orders(20..30)]).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::StaleEpoch, false), "{failure}");
    assert_eq!(failure.number("owner"), Some(second.node_id()));
    assert_eq!(failure.fields["writer"], Field::from("second"));
    assert!(failure.number("since_ms").is_some());
    assert!(failure.message.contains("\"first\"") && failure.message.contains("\"second\""), "{failure}");
    // It never comes back, closed or not.
    assert!(first.append(&[orders(20..30)]).await.is_err());
    first.close().await.unwrap();
    second.append(&[orders(30..40)]).await.unwrap();
    assert_eq!(all(&stream).await, (0..20).chain(30..40).collect::<Vec<_>>());
    second.close().await.unwrap();
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_partitions_refuse_managed_appends_until_released() {
    let place = Place::new().await;
    let stream = create(&place.local, "/held", 2, "log").await;
    let writer = stream.writer("holder", None).await.unwrap();
    let failure = stream.append(&[orders(0..10)]).await.unwrap_err();
    assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::NotOwned, false), "{failure}");
    assert_eq!(failure.fields["writer"], Field::from("holder"));
    assert_eq!(failure.fields["stream"], Field::from("/held"));
    writer.close().await.unwrap();
    writer.close().await.unwrap();
    assert_eq!(writer.append(&[orders(0..10)]).await.unwrap_err().class, ErrorClass::Invalid);
    stream.append(&[orders(0..10)]).await.unwrap();
    assert_eq!(all(&stream).await.len(), 10);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_callers_claimed_partition_does_not_fail_the_others() {
    let place = Place::new().await;
    let stream = create(&place.remote(), "/some", 4, "log").await;
    let writer = stream.writer("holder", Some(&[0])).await.unwrap();
    assert_eq!(writer.partitions(), [0]);
    let callers: Vec<_> = (0..200_i64)
        .map(|id| {
            let stream = stream.clone();
            tokio::spawn(async move { (id, stream.append(&[orders([id])]).await) })
        })
        .collect();
    let mut landed = Vec::new();
    for caller in callers {
        match caller.await.unwrap() {
            (id, Ok(appended)) => {
                assert!(!appended.offsets.contains_key(&0));
                landed.push(id);
            }
            (_, Err(failure)) => {
                assert_eq!(
                    (failure.class, failure.number("partition")),
                    (ErrorClass::NotOwned, Some(0)),
                    "{failure}"
                );
            }
        }
    }
    assert!(landed.len() > 100 && landed.len() < 200, "{} of 200 landed", landed.len());
    assert_eq!(all(&stream).await, landed);
    drop(writer);
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_writer_gives_its_partitions_back() {
    let place = Place::new().await;
    let stream = create(&place.local, "/dropped", 2, "log").await;
    drop(stream.writer("short", None).await.unwrap());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while let Err(failure) = stream.append(&[orders([1])]).await {
        assert_eq!(failure.class, ErrorClass::NotOwned, "{failure}");
        assert!(tokio::time::Instant::now() < deadline, "the partitions stay claimed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_lands_once_and_never_goes_back() {
    let place = Place::new().await;
    let stream = create(&place.remote(), "/batches", 4, "log").await;
    let writer = stream.writer("query", None).await.unwrap();
    let mut batch = writer.batch("q", 7).unwrap();
    batch.append(&[orders(0..5)], None).await.unwrap();
    batch.append(&[orders(5..10)], None).await.unwrap();
    let first = batch.commit().await.unwrap();
    assert_eq!((first.rows, first.duplicate), (10, false));
    let second = batch.commit().await.unwrap();
    assert!(second.duplicate);
    assert_eq!((second.global_index, &second.offsets), (first.global_index, &first.offsets));
    let mut back = writer.batch("q", 6).unwrap();
    back.append(&[orders(10..12)], None).await.unwrap();
    assert_eq!(back.commit().await.unwrap_err().class, ErrorClass::Invalid);

    // Another run takes over; the old one is told that its batch had landed.
    let other = place.local.stream("/batches").await.unwrap().writer("query", None).await.unwrap();
    let mut late = writer.batch("q", 7).unwrap();
    late.append(&[orders(0..5)], None).await.unwrap();
    let failure = late.commit().await.unwrap_err();
    assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::StaleEpoch, false), "{failure}");
    assert_eq!(failure.fields["batch_committed"], Field::Flag(true));
    assert_eq!(failure.number("owner"), Some(other.node_id()));
    let mut next = other.batch("q", 8).unwrap();
    next.append(&[orders(10..15)], None).await.unwrap();
    assert!(!next.commit().await.unwrap().duplicate);
    assert_eq!(all(&stream).await, (0..15).collect::<Vec<_>>());
    other.close().await.unwrap();
    place.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_batch_is_one_entry() {
    let place = Place::new().await;
    let stream = create(&place.local, "/large", 4, "log").await;
    let writer = stream.writer("w", None).await.unwrap();
    let mut batch = writer.batch("q", 1).unwrap();
    for part in 0..4_i64 {
        let ids = (part * 100_000..(part + 1) * 100_000).map(|row| row.wrapping_mul(0x5851_F42D_4C95_7F2D));
        batch.append(&[orders(ids)], None).await.unwrap();
    }
    assert!(batch.bytes() > place.local.hello().await.unwrap().inline_bytes_max);
    let appended = batch.commit().await.unwrap();
    assert_eq!((appended.rows, appended.offsets.len()), (400_000, 4));
    let at = |at| ReadOptions { at: Some(at), ..Default::default() };
    assert_eq!(drain(stream.read(at(appended.global_index)).await.unwrap()).await.len(), 400_000);
    assert_eq!(drain(stream.read(at(appended.global_index - 1)).await.unwrap()).await.len(), 0);
    writer.close().await.unwrap();
    place.close().await;
}

/// Heartbeats that come too late end the registration; the run claims again and goes on with what it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_only_missed_its_heartbeats_goes_on() {
    let config = NodeConfig {
        heartbeat_interval: Duration::from_millis(400),
        worker_timeout: Duration::from_millis(50),
        ..NodeConfig::default()
    };
    let place = Place::with(config).await;
    let stream = create(&place.remote(), "/late", 2, "log").await;
    let writer = stream.writer("late", None).await.unwrap();
    let cluster = place.local.clone();
    let failed = async |cluster: &laminar_client::Cluster| {
        let nodes = cluster.nodes().await.unwrap();
        nodes.iter().any(|node| node.writer == "late" && node.state != "active")
    };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !failed(&cluster).await {
        assert!(tokio::time::Instant::now() < deadline, "the registration does not end");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    writer.append(&[orders(0..10)]).await.unwrap();
    while failed(&cluster).await {
        assert!(tokio::time::Instant::now() < deadline, "the run does not claim again");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    writer.append(&[orders(10..20)]).await.unwrap();
    assert_eq!(all(&stream).await.len(), 20);
    writer.close().await.unwrap();
    place.close().await;
}
