//! Folders are opened and closed by one at a time each, and a node that does not stop keeps its own.

use std::fs::OpenOptions;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use laminar_client::ErrorClass;
use laminar_node::folder::Folder;
use laminar_node::{NoMachines, NodeConfig};
use tokio::time::Instant;

use crate::support::{open, open_with, orders, read_ids, rows};

/// A disk that hangs: every call of it reads which faults it is to have, and waits for somebody to say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_stop_keeps_its_folder_and_holds_up_no_other() {
    let (folder, other, place) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let faults = place.path().join("faults");
    let config = NodeConfig {
        close_timeout: Duration::from_millis(300),
        disk_faults: Some(faults.clone()),
        ..NodeConfig::default()
    };
    let opened = open_with(folder.path(), config, Arc::new(NoMachines));
    let stream = opened.cluster.create_stream(orders(1)).await.unwrap();
    assert!(Command::new("mkfifo").arg(&faults).status().unwrap().success());
    // Faults are read anew after a while only.
    let mut acknowledged = 0;
    loop {
        let append = [rows(acknowledged..acknowledged + 1)];
        match tokio::time::timeout(Duration::from_secs(1), stream.append(&append)).await {
            Ok(appended) => drop(appended.unwrap()),
            Err(_) => break,
        }
        acknowledged += 1;
    }

    let refused = opened.connector.close().await.unwrap_err();
    assert_eq!(refused.class, ErrorClass::Unavailable);
    assert!(refused.message.contains("did not stop within 300ms (close_timeout)"), "{refused}");
    assert!(Folder::has_node(folder.path(), None).unwrap(), "the folder stays locked");

    // Another folder comes and goes meanwhile.
    let second = open(other.path());
    second.cluster.create_stream(orders(1)).await.unwrap().append(&[rows(0..3)]).await.unwrap();
    second.connector.close().await.unwrap();
    // This one does not: a second node of it must not begin before the first has ended.
    let early = open(folder.path()).cluster.with_timeout(Duration::from_millis(300));
    let waits = early.stream("/shop/orders").await.unwrap_err();
    assert_eq!(waits.class, ErrorClass::Unavailable, "{waits}");

    // The disk is back.
    let says = OpenOptions::new().write(true).open(&faults).unwrap();
    std::fs::remove_file(&faults).unwrap();
    drop(says);
    let again = open(folder.path());
    let stream = again.cluster.stream("/shop/orders").await.unwrap();
    // The one in flight may have landed.
    let ids = read_ids(&stream).await;
    let all: Vec<i64> = (0..=acknowledged).collect();
    assert!(ids == all || ids == all[..all.len() - 1], "{ids:?} of {acknowledged}");
    again.connector.close().await.unwrap();
    assert!(!Folder::has_node(folder.path(), None).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_that_nobody_waits_for_comes_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    opened.cluster.create_stream(orders(1)).await.unwrap();
    // Ctrl-C while it closes: the call is dropped after its first step.
    let connector = opened.connector.clone();
    let close = tokio::time::timeout(Duration::ZERO, connector.close()).await;
    drop(close);
    let until = Instant::now() + Duration::from_secs(20);
    while Folder::has_node(folder.path(), None).unwrap() {
        assert!(Instant::now() < until, "the node does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!folder.path().join("node.json").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_has_one_node_in_a_process_whatever_it_is_called() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("real")).unwrap();
    std::os::unix::fs::symlink(place.path().join("real"), place.path().join("link")).unwrap();
    // Before the folder is there, and after.
    let first = open_with(&place.path().join("link/data"), NodeConfig::default(), Arc::new(NoMachines));
    first.cluster.create_stream(orders(1)).await.unwrap();
    let second = open(&place.path().join("real/data"));
    second.cluster.stream("/shop/orders").await.unwrap();
    assert!(second.connector.local_node().is_some(), "it is called directly");
    first.connector.close().await.unwrap();
    second.cluster.stream("/shop/orders").await.unwrap();
    second.connector.close().await.unwrap();
    assert!(!Folder::has_node(&place.path().join("real/data"), None).unwrap());
}
