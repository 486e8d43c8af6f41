//! The process of a detached node that does not become the node. A script stands for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use laminar_client::{ClientConfig, Cluster, ErrorClass, Failure};
use laminar_node::embedded::{EXIT_INVALID, EXIT_NOT_THE_NODE};
use laminar_node::{FolderConnector, NoMachines, NodeConfig, Role};
use tokio::time::Instant;

/// What a client is told whose node's process does this, how often it was started, and how long that took.
async fn open_with(script: &str, timeout: Duration) -> (Failure, usize, Duration) {
    let place = tempfile::tempdir().unwrap();
    let counted = format!("echo started >> {}/starts; {script}", place.path().display());
    let command = ["sh", "-c", &counted].map(str::to_owned).to_vec();
    let connector = FolderConnector::new(
        &place.path().join("data"),
        Role::Detached(command),
        NodeConfig::default(),
        Arc::new(NoMachines),
    );
    let cluster = Cluster::new(Arc::new(connector), ClientConfig { timeout, ..ClientConfig::default() });
    let began = Instant::now();
    let failure = cluster.hello().await.unwrap_err();
    (failure, count(&place.path().join("starts")), began.elapsed())
}

fn count(starts: &Path) -> usize {
    std::fs::read_to_string(starts).unwrap_or_default().lines().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_start_tells_why_and_is_not_started_again_and_again() {
    let script = "echo 'Traceback of something' >&2; echo 'OSError: the disk is on fire' >&2; exit 1";
    let (failure, starts, _) = open_with(script, Duration::from_secs(5)).await;
    assert_eq!(failure.class, ErrorClass::Unavailable);
    assert!(failure.message.contains("OSError: the disk is on fire"), "{failure}");
    assert!((1..=3).contains(&starts), "started {starts} times in five seconds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_would_fail_again_is_given_up_at_once() {
    let script = format!("echo 'worker_timeout is soon' >&2; exit {EXIT_INVALID}");
    let (failure, starts, took) = open_with(&script, Duration::from_secs(30)).await;
    assert_eq!(failure.class, ErrorClass::Invalid);
    assert!(failure.message.contains("worker_timeout is soon"), "{failure}");
    assert_eq!(starts, 1);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_lost_the_lock_is_followed_by_another_look() {
    // Whoever had it is gone by then: the node is started again, and not waited for until the end.
    let (failure, starts, _) = open_with(&format!("exit {EXIT_NOT_THE_NODE}"), Duration::from_secs(2)).await;
    assert_eq!(failure.class, ErrorClass::Unavailable);
    assert!(starts > 1, "started {starts} times");
}
