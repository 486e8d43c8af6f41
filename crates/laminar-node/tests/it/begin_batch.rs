//! Batches of a query: which run may begin one, and what becomes of those that may not.

use laminar_client::{ErrorClass, Field};

use crate::runs::{Runs, holds_all};
use crate::support::rows;

/// EPOCH-2, TXN-1: a driver that hung before its first task, while its successor committed that batch and went on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_paused_before_its_first_task_cannot_fence_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path(), 3).await;
    let successor = runs.begin(2, 7).await.unwrap();
    runs.commit(&successor, 7).await.unwrap();
    let next = runs.begin(2, 8).await.unwrap();
    assert_eq!((next.node_id, &next.epochs), (successor.node_id, &successor.epochs));

    let failure = runs.begin(1, 6).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::StaleEpoch, "{failure}");
    assert_eq!(failure.number("owner"), Some(successor.node_id));
    assert_eq!(failure.number("current_epoch"), Some(successor.epochs[0].epoch));
    assert_eq!(failure.fields["writer"], Field::from("ingest"));
    assert!(failure.number("since_ms").is_some_and(|since| since > 0));
    assert_eq!(failure.fields.get("batch_committed"), None, "{failure}");
    assert!(
        failure.message.contains("batch 6 of query q refused, batch 7 was committed already"),
        "{failure}"
    );

    assert!(holds_all(&runs, &successor).await);
    runs.commit(&next, 8).await.unwrap();
    assert_eq!(runs.rows().await, 6);
    runs.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unseen_run_with_the_last_batch_is_told_that_it_is_done_and_claims_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path(), 2).await;
    let first = runs.begin(1, 0).await.unwrap();
    assert_eq!((first.committed, first.last_batch), (false, None));
    runs.commit(&first, 0).await.unwrap();
    let again = runs.begin(2, 0).await.unwrap();
    assert_eq!((again.node_id, again.committed, again.last_batch), (0, true, Some(0)));
    assert_eq!(again.epochs, []);
    assert!(holds_all(&runs, &first).await);
    // The run itself is told so too, and goes on.
    let own = runs.begin(1, 0).await.unwrap();
    assert_eq!((own.node_id, own.committed, own.last_batch), (first.node_id, true, Some(0)));
    assert!(!runs.begin(1, 1).await.unwrap().committed);
    runs.close().await;
}

/// EPOCH-1, OWN-2: whatever happens afterwards, and whoever else lets go of the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_superseded_run_never_wins_back_also_after_a_restart_of_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path(), 2).await;
    let first = runs.begin(1, 0).await.unwrap();
    let second = runs.begin(2, 0).await.unwrap();
    assert!(second.epochs.iter().zip(&first.epochs).all(|(now, before)| now.epoch == before.epoch + 1));

    let failure = runs.begin(1, 0).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::StaleEpoch, "{failure}");
    assert_eq!(failure.number("epoch"), Some(first.epochs[0].epoch));
    assert_eq!(failure.number("current_epoch"), Some(second.epochs[0].epoch));
    assert_eq!(
        (failure.number("node"), failure.number("owner")),
        (Some(first.node_id), Some(second.node_id))
    );
    assert_eq!(failure.fields["batch_committed"], false.into());
    assert!(failure.message.contains("took over with epoch"), "{failure}");
    let late = runs.commit(&first, 0).await.unwrap_err();
    assert_eq!(late.class, ErrorClass::StaleEpoch, "{late}");

    runs.commit(&second, 0).await.unwrap();
    let failure = runs.begin(1, 0).await.unwrap_err();
    assert_eq!(failure.fields["batch_committed"], true.into(), "{failure}");
    runs.stream.release_run(second.node_id).await.unwrap();
    for batch in [1, 2] {
        let failure = runs.begin(1, batch).await.unwrap_err();
        assert_eq!(failure.class, ErrorClass::StaleEpoch, "{failure}");
    }
    // Nor does the one that gave it back.
    assert_eq!(runs.begin(2, 1).await.unwrap_err().class, ErrorClass::StaleEpoch);

    let runs = runs.reopen(folder.path()).await;
    assert_eq!(runs.begin(1, 1).await.unwrap_err().class, ErrorClass::StaleEpoch);
    let third = runs.begin(3, 1).await.unwrap();
    runs.commit(&third, 1).await.unwrap();
    assert_eq!(runs.rows().await, 4);
    runs.close().await;
}

/// OWN-1: whoever is last holds everything; who lost, in the race or after it, stays refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_runs_that_begin_at_once_one_wins_all() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path(), 8).await;
    for round in 0..10_u64 {
        let numbers: Vec<u128> = (1..=4).map(|run| u128::from(round) * 4 + run).collect();
        let begun = futures_util::future::join_all(numbers.iter().map(|run| runs.begin(*run, round))).await;
        let mut holders = 0;
        for (run, begun) in numbers.iter().zip(&begun) {
            match begun {
                Ok(begun) if holds_all(&runs, begun).await => {
                    holders += 1;
                    runs.commit(begun, round).await.unwrap();
                }
                Ok(begun) => {
                    assert_eq!(runs.commit(begun, round).await.unwrap_err().class, ErrorClass::StaleEpoch);
                    assert_eq!(runs.begin(*run, round).await.unwrap_err().class, ErrorClass::StaleEpoch);
                }
                Err(failure) => {
                    assert_eq!(failure.class, ErrorClass::StaleEpoch, "{failure}");
                    assert!(failure.number("owner").is_some(), "{failure}");
                    assert_eq!(runs.begin(*run, round).await.unwrap_err().class, ErrorClass::StaleEpoch);
                }
            }
        }
        assert_eq!(holders, 1, "round {round}: {begun:?}");
    }
    assert_eq!(runs.rows().await, 80);
    runs.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_tasks_of_a_run_get_the_same_also_when_they_ask_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path(), 8).await;
    for run in 1..=5 {
        let tasks = (0..32).map(|_| runs.begin(run, 0));
        let begun = futures_util::future::join_all(tasks).await;
        let first = begun[0].clone().unwrap();
        assert_eq!(first.epochs.len(), 8);
        assert!(begun.iter().all(|begun| begun.as_ref() == Ok(&first)), "{begun:?}");
    }
    // One epoch for each run: its tasks did not fence each other.
    let epochs: Vec<u64> = runs.begin(5, 0).await.unwrap().epochs.iter().map(|held| held.epoch).collect();
    assert_eq!(epochs, [2 + 5; 8]);
    runs.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_query_under_the_same_writer_is_refused_adopted_or_free_if_nothing_was_committed() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path(), 1).await;
    let begin = |run, query: &'static str, adopt| runs.begin_as(run, query, 0, adopt);
    runs.begin_as(1, "never-committed", 0, false).await.unwrap();
    let first = begin(2, "first", false).await.unwrap();
    runs.commit_as(&first, "first", 0).await.unwrap();

    let failure = begin(3, "second", false).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Invalid, "{failure}");
    assert_eq!(failure.fields["writer"], "ingest".into());
    assert_eq!(failure.fields["query"], "second".into());
    assert_eq!(failure.fields["bound_query"], "first".into());
    for part in ["query first", "query second", "adoptQuery=true"] {
        assert!(failure.message.contains(part), "{failure}");
    }
    assert!(holds_all(&runs, &first).await, "nothing was taken");

    let adopted = begin(4, "second", true).await.unwrap();
    runs.commit_as(&adopted, "second", 0).await.unwrap();
    // Now the first one is the other.
    let failure = runs.begin_as(5, "first", 1, false).await.unwrap_err();
    assert_eq!(failure.fields["bound_query"], "second".into());
    // The run that holds the stream is asked the same.
    assert_eq!(begin(4, "third", false).await.unwrap_err().class, ErrorClass::Invalid);
    let kept = begin(4, "third", true).await.unwrap();
    assert_eq!((kept.node_id, kept.epochs), (adopted.node_id, adopted.epochs));
    runs.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_query_on_two_streams_is_two_queries() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path(), 2).await;
    let other = runs.other_stream("/shop/carts").await;
    let (one, two) = (runs.begin(1, 5).await.unwrap(), other.begin(1, 3).await.unwrap());
    assert_ne!(one.node_id, two.node_id, "a run has a registration for each stream");
    runs.commit(&one, 5).await.unwrap();
    assert_eq!(runs.stream.last_batch("q").await.unwrap(), Some(5));
    assert_eq!(other.stream.last_batch("q").await.unwrap(), None);
    other.commit(&two, 3).await.unwrap();
    assert_eq!(other.stream.last_batch("q").await.unwrap(), Some(3));
    assert!(holds_all(&runs, &one).await && holds_all(&other, &two).await);

    // Writers' batches too, and the refusal says the name that the user gave.
    let writer = other.stream.writer("w", None).await.unwrap();
    let mut batch = writer.batch("q", 1).unwrap();
    batch.append(&[rows(0..4)], None).await.unwrap();
    let failure = batch.commit().await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Invalid, "{failure}");
    assert!(failure.message.starts_with("query q: batch 1 refused, batch 3"), "{failure}");
    writer.close().await.unwrap();
    runs.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_only_missed_its_heartbeats_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open_impatient(folder.path(), 2).await;
    let begun = runs.begin(1, 0).await.unwrap();
    runs.wait_for_state(begun.node_id, "failed").await;
    let again = runs.begin(1, 0).await.unwrap();
    assert_eq!((again.node_id, &again.epochs), (begun.node_id, &begun.epochs));
    runs.commit(&again, 0).await.unwrap();
    // Nobody hears it, somebody else claims: now it is over.
    runs.wait_for_state(begun.node_id, "failed").await;
    runs.begin(2, 1).await.unwrap();
    assert_eq!(runs.begin(1, 1).await.unwrap_err().class, ErrorClass::StaleEpoch);
    runs.close().await;
}

/// OWN-2: it takes what is new only while it has everything it had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_takes_partitions_that_the_stream_gets_later_unless_it_was_superseded() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path(), 2).await;
    let before = runs.begin(1, 0).await.unwrap();
    runs.grow(4).await;
    let after = runs.begin(1, 0).await.unwrap();
    assert_eq!(after.node_id, before.node_id);
    assert_eq!(after.epochs[..2], before.epochs[..]);
    assert_eq!(after.epochs.len(), 4);
    runs.commit(&after, 0).await.unwrap();
    assert_eq!(runs.rows().await, 4);

    // What another writer has claimed of the new ones stays with it.
    runs.grow(5).await;
    let writer = runs.stream.writer("other", Some(&[4])).await.unwrap();
    let failure = runs.begin(1, 1).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::NotOwned, "{failure}");
    assert_eq!(failure.fields["writer"], "other".into());
    writer.close().await.unwrap();
    let all = runs.begin(1, 1).await.unwrap();
    assert_eq!(all.epochs.len(), 5);

    // One that it had and lost is lost, also when nobody holds it any more.
    let writer = runs.stream.writer("other", Some(&[4])).await.unwrap();
    writer.close().await.unwrap();
    let failure = runs.begin(1, 1).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::StaleEpoch, "{failure}");
    assert_eq!(failure.number("partition"), Some(4));

    runs.begin(2, 1).await.unwrap();
    runs.grow(6).await;
    assert_eq!(runs.begin(1, 1).await.unwrap_err().class, ErrorClass::StaleEpoch);
    assert_eq!(runs.begin(2, 1).await.unwrap().epochs.len(), 6);
    runs.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_go_back_are_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path(), 1).await;
    let begun = runs.begin(1, 4).await.unwrap();
    runs.commit(&begun, 4).await.unwrap();
    let failure = runs.begin(1, 3).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Invalid, "{failure}");
    assert!(
        failure.message.contains("batch 3 of query q refused, batch 4 was committed already"),
        "{failure}"
    );
    // Of an unseen run too, once nobody holds the stream.
    runs.stream.release_run(begun.node_id).await.unwrap();
    assert_eq!(runs.begin(2, 3).await.unwrap_err().class, ErrorClass::Invalid);
    // A run has one name.
    runs.begin(3, 5).await.unwrap();
    let failure = runs.begin_named(3, "another", "q", 5).await.unwrap_err();
    assert!(failure.message.contains("it began as writer \"ingest\""), "{failure}");
    assert_eq!(runs.begin(0, 5).await.unwrap_err().class, ErrorClass::Invalid);
    runs.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_asks_learns_of_the_takeover_as_its_write_would() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path(), 2).await;
    let first = runs.begin(1, 0).await.unwrap();
    let check = || runs.stream.check_run(first.node_id, &first.epochs, Some(("q", 0)));
    check().await.unwrap();
    let second = runs.begin(2, 0).await.unwrap();
    let told = check().await.unwrap_err();
    let written = runs.commit(&first, 0).await.unwrap_err();
    assert_eq!(told.class, written.class, "{told}");
    for field in
        ["partition", "stream", "epoch", "current_epoch", "node", "owner", "writer", "batch_committed"]
    {
        assert_eq!(told.fields.get(field), written.fields.get(field), "{field}: {told}");
        assert!(told.fields.contains_key(field), "{field}");
    }
    runs.commit(&second, 0).await.unwrap();
    assert_eq!(check().await.unwrap_err().fields["batch_committed"], true.into());
    // Whoever is told to stop is in the story, whether it wrote or asked: a task that hears it writes no more.
    let story = runs.cluster().why("/shop/orders", Some(0)).await.unwrap();
    assert_eq!(story[0].refused, 3);
    // A run that holds nothing has nothing to lose.
    runs.stream.check_run(0, &[], None).await.unwrap();
    runs.close().await;
}
