//! What a crew promises: tasks are run by one thread at a time, by whoever has the turn, and end with it.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::{Crew, NotJoined, Turn, in_place, is_in_crew, spawn};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn crew(runtime: &Runtime) -> Crew {
    let _entered = runtime.enter();
    Crew::new()
}

/// The turn, as soon as the keeper has found that there is nothing to do.
fn turn(crew: &Crew) -> Turn {
    let began = Instant::now();
    loop {
        if let Some(turn) = crew.take_turn() {
            return turn;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "every turn that is taken is given back");
        thread::yield_now();
    }
}

#[test]
fn whoever_has_the_turn_runs_the_tasks_and_nobody_else_does() {
    let runtime = runtime();
    let crew = crew(&runtime);
    let _entered = runtime.enter();
    let turn = turn(&crew);
    assert!(crew.take_turn().is_none(), "there is one turn");
    let (hops_max, ran_on) = (100, Arc::new(std::sync::Mutex::new(Vec::<ThreadId>::new())));
    let (done, mut finished) = oneshot::channel();
    let ran = Arc::clone(&ran_on);
    crew.spawn(async move {
        // Two tasks that wake each other.
        let (to_other, mut at_other) = mpsc::channel(1);
        let (to_this, mut at_this) = mpsc::channel(1);
        let noted = Arc::clone(&ran);
        drop(spawn(async move {
            while let Some(number) = at_other.recv().await {
                noted.lock().unwrap().push(thread::current().id());
                to_this.send(number).await.unwrap();
            }
        }));
        for number in 0..hops_max {
            to_other.send(number).await.unwrap();
            assert_eq!(at_this.recv().await, Some(number));
            ran.lock().unwrap().push(thread::current().id());
        }
        done.send(()).unwrap();
    });
    turn.run_until(|| false);
    finished.try_recv().unwrap();
    let ran_on = ran_on.lock().unwrap();
    assert_eq!(ran_on.len(), 2 * hops_max);
    assert!(ran_on.iter().all(|thread| *thread == thread::current().id()));
}

#[test]
fn with_nobody_at_it_the_keeper_runs_the_tasks() {
    let runtime = runtime();
    let crew = crew(&runtime);
    let (go_on, told) = oneshot::channel();
    let (done, finished) = oneshot::channel();
    crew.spawn(async move {
        // It is woken from a thread that has no turn.
        told.await.unwrap();
        done.send((is_in_crew(), thread::current().id())).unwrap();
    });
    go_on.send(()).unwrap();
    let (in_crew, ran_on) = runtime.block_on(finished).unwrap();
    assert!(in_crew);
    assert_ne!(ran_on, thread::current().id());
}

#[test]
fn what_is_left_when_a_turn_ends_is_left_to_the_keeper() {
    let runtime = runtime();
    let crew = crew(&runtime);
    let turn = {
        let _entered = runtime.enter();
        turn(&crew)
    };
    let answers: Vec<_> = (0..100)
        .map(|number| {
            let (done, finished) = oneshot::channel();
            crew.spawn(async move { done.send(number).unwrap() });
            finished
        })
        .collect();
    turn.finish();
    for (number, finished) in answers.into_iter().enumerate() {
        assert_eq!(runtime.block_on(finished), Ok(number));
    }
}

#[test]
fn a_task_that_waits_for_the_disk_holds_nobody_up() {
    let runtime = runtime();
    let crew = crew(&runtime);
    let _entered = runtime.enter();
    let turn = turn(&crew);
    let (release, released) = std::sync::mpsc::channel();
    let (done, mut finished) = oneshot::channel();
    crew.spawn(async move {
        // It ends when a task has run that comes behind it.
        in_place(|| released.recv().unwrap());
        done.send(thread::current().id()).unwrap();
    });
    crew.spawn(async move { release.send(()).unwrap() });
    turn.run_until(|| false);
    assert_eq!(finished.try_recv(), Ok(thread::current().id()), "it goes on where it waited");
    drop(turn);
    drop(self::turn(&crew));
}

#[test]
fn many_threads_that_take_turns_leave_no_task_behind() {
    let runtime = runtime();
    let crew = crew(&runtime);
    let (tasks_each, threads) = (500, 4);
    let ran = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..threads)
        .map(|_| {
            let (crew, ran, handle) = (crew.clone(), Arc::clone(&ran), runtime.handle().clone());
            thread::spawn(move || {
                let _entered = handle.enter();
                for _ in 0..tasks_each {
                    let turn = crew.take_turn();
                    let (done, finished) = oneshot::channel();
                    let ran = Arc::clone(&ran);
                    crew.spawn(async move {
                        in_place(thread::yield_now);
                        ran.fetch_add(1, Ordering::Relaxed);
                        let _nobody_waits = done.send(());
                    });
                    if let Some(turn) = turn {
                        turn.run_until(|| false);
                    }
                    finished.blocking_recv().unwrap();
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(ran.load(Ordering::Relaxed), tasks_each * threads);
}

#[test]
fn a_task_that_panics_is_told_as_that_and_the_others_go_on() {
    let runtime = runtime();
    let crew = crew(&runtime);
    let joined = runtime.block_on(crew.scope(async {
        let panics = spawn(async { assert!(!is_in_crew(), "on purpose") });
        let other = spawn(async { 7 });
        (panics.await, other.await)
    }));
    assert_eq!(joined, (Err(NotJoined::Panicked), Ok(7)));
}

/// Says when it is dropped.
struct Dropped(Option<oneshot::Sender<()>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _nobody_waits = self.0.take().unwrap().send(());
    }
}

#[test]
fn tasks_end_with_the_last_handle_of_their_crew() {
    let runtime = runtime();
    let crew = crew(&runtime);
    let (told, ended) = oneshot::channel();
    let dropped = Dropped(Some(told));
    let waits = async move {
        let _dropped = dropped;
        pending::<()>().await;
    };
    let joining = runtime.block_on(crew.scope(std::future::ready(waits).map(spawn)));
    let other = crew.clone();
    drop(crew);
    assert!(format!("{other:?}").contains("tasks: 1"), "{other:?}");
    drop(other);
    runtime.block_on(ended).unwrap();
    assert_eq!(runtime.block_on(joining), Err(NotJoined::Ended));
}

#[test]
fn tasks_end_with_the_runtime_of_their_keeper() {
    let runtime = runtime();
    let crew = crew(&runtime);
    let (told, ended) = oneshot::channel();
    let dropped = Dropped(Some(told));
    crew.spawn(async move {
        let _dropped = dropped;
        pending::<()>().await;
    });
    drop(runtime);
    ended.blocking_recv().unwrap();
    assert!(crew.take_turn().is_none(), "there is nothing to run any more");
}

#[test]
fn outside_of_a_crew_tasks_are_tokios() {
    let runtime = runtime();
    let joined = runtime.block_on(async { spawn(async { is_in_crew() }).await });
    assert_eq!(joined, Ok(false));
}

#[test]
fn what_the_tasks_of_a_crew_apart_spawn_outlives_it() {
    let runtime = runtime();
    let crew = {
        let _entered = runtime.enter();
        Crew::apart()
    };
    let (go_on, told) = oneshot::channel();
    let (done, finished) = oneshot::channel();
    let (spawned, is_spawned) = oneshot::channel();
    crew.spawn(async move {
        spawned.send(is_in_crew()).unwrap();
        drop(spawn(async move {
            told.await.unwrap();
            done.send(()).unwrap();
        }));
    });
    assert_eq!(runtime.block_on(is_spawned), Ok(false));
    drop(self::turn(&crew));
    drop(crew);
    go_on.send(()).unwrap();
    runtime.block_on(finished).unwrap();
}

#[test]
fn work_in_place_outside_of_a_turn_gives_nothing_back() {
    let runtime = runtime();
    let crew = crew(&runtime);
    assert_eq!(runtime.block_on(crew.scope(async { in_place(|| 5) })), 5);
    let _entered = runtime.enter();
    drop(turn(&crew));
}
