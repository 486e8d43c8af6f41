//! Appends that wait for their turn, and which of them go into one request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use laminar_rpc::Failure;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::appended::Appended;
use crate::session::{Limit, lock};
use crate::staging::Carried;

/// A request has at most so many records, so that one entry is applied quickly.
const RECORDS_MAX: usize = 4096;

/// The append of one caller.
pub(crate) struct Item {
    pub(crate) carried: Vec<Carried>,
    /// By how many partitions the rows were placed; 0: not by key.
    pub(crate) partition_count: u32,
    pub(crate) limit: Limit,
    /// Not to be sent before this.
    pub(crate) not_before: Option<Instant>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) reply: oneshot::Sender<Result<Appended, Failure>>,
    /// What it takes of the queue's room, given back when it is answered.
    pub(crate) _room: [OwnedSemaphorePermit; 2],
}

/// How far an append has come, told to a caller whose time is over.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Step>);

/// A step of an append.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Step {
    /// It waits behind others.
    #[default]
    Queued,
    /// It was refused for now, and will be sent again.
    Parked(Failure),
    /// The node may have it.
    Sent,
    /// Its caller is gone; it must not be sent.
    Abandoned,
}

impl Progress {
    /// Says that the append is being sent; false if its caller is gone.
    pub(crate) fn send(&self) -> bool {
        let mut step = lock(&self.0);
        if *step == Step::Abandoned {
            return false;
        }
        *step = Step::Sent;
        true
    }

    /// Says that the node refused it for now.
    pub(crate) fn park(&self, failure: Failure) {
        let mut step = lock(&self.0);
        if *step != Step::Abandoned {
            *step = Step::Parked(failure);
        }
    }

    /// Gives the append up unless it is being sent, and tells how far it was.
    pub(crate) fn abandon(&self) -> Step {
        let mut step = lock(&self.0);
        match &*step {
            Step::Sent => Step::Sent,
            _ => std::mem::replace(&mut *step, Step::Abandoned),
        }
    }
}

/// What the driver does next.
pub(crate) enum Turn {
    /// Sends these as one request.
    Send(Vec<Item>),
    /// Waits until this moment, or until another append comes.
    Wait(Instant),
    /// There is nothing to do.
    Rest,
}

/// Takes the appends of the next request: those that are due, in order, as long as they fit.
pub(crate) fn next_turn(waiting: &mut VecDeque<Item>, now: Instant, inline_bytes_max: usize) -> Turn {
    let mut taken: Vec<Item> = Vec::new();
    let mut left = VecDeque::with_capacity(waiting.len());
    let (mut bytes, mut records) = (0_usize, 0_usize);
    let mut wake: Option<Instant> = None;
    let mut full = false;
    for item in waiting.drain(..) {
        if full {
            left.push_back(item);
            continue;
        }
        if let Some(due) = item.not_before.filter(|due| *due > now) {
            wake = Some(wake.map_or(due, |wake| wake.min(due)));
            left.push_back(item);
            continue;
        }
        let item_bytes: usize = item.carried.iter().map(Carried::inline_bytes).sum();
        let fits = taken.first().is_none_or(|first| {
            first.partition_count == item.partition_count
                && bytes + item_bytes <= inline_bytes_max
                && records + item.carried.len() <= RECORDS_MAX
        });
        if !fits {
            // What comes after it must not overtake it.
            full = true;
            left.push_back(item);
            continue;
        }
        if item.progress.send() {
            bytes += item_bytes;
            records += item.carried.len();
            taken.push(item);
        }
    }
    *waiting = left;
    match wake {
        _ if !taken.is_empty() => Turn::Send(taken),
        Some(wake) => Turn::Wait(wake),
        None => Turn::Rest,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use laminar_rpc::ErrorClass;
    use laminar_rpc::proto::partition_rows::Payload;
    use tokio::sync::Semaphore;

    use super::*;

    type Answer = oneshot::Receiver<Result<Appended, Failure>>;

    fn item(bytes: usize, partition_count: u32) -> (Item, Answer) {
        let room = Arc::new(Semaphore::new(2));
        let permit = || room.clone().try_acquire_owned().unwrap();
        let (reply, answer) = oneshot::channel();
        let payload = Payload::Inline(Bytes::from(vec![0; bytes]));
        let item = Item {
            carried: vec![Carried { ordinal: 0, partition_id: 100, rows: 1, payload }],
            partition_count,
            limit: Limit::of(Duration::from_secs(1)),
            not_before: None,
            progress: Arc::default(),
            reply,
            _room: [permit(), permit()],
        };
        (item, answer)
    }

    fn sizes(turn: Turn) -> Vec<usize> {
        let Turn::Send(items) = turn else { panic!("nothing is sent") };
        items.iter().map(|item| item.carried[0].inline_bytes()).collect()
    }

    #[test]
    fn what_fits_goes_together_and_nothing_overtakes() {
        let now = Instant::now();
        let mut waiting: VecDeque<Item> = [40, 50, 20, 10].map(|bytes| item(bytes, 8).0).into();
        assert_eq!(sizes(next_turn(&mut waiting, now, 100)), [40, 50]);
        assert_eq!(sizes(next_turn(&mut waiting, now, 100)), [20, 10]);
        assert!(matches!(next_turn(&mut waiting, now, 100), Turn::Rest));
    }

    #[test]
    fn one_above_the_limit_goes_alone() {
        let mut waiting: VecDeque<Item> = [400, 1].map(|bytes| item(bytes, 8).0).into();
        assert_eq!(sizes(next_turn(&mut waiting, Instant::now(), 100)), [400]);
        assert_eq!(waiting.len(), 1);
    }

    #[test]
    fn rows_placed_by_other_counts_of_partitions_go_apart() {
        let mut waiting: VecDeque<Item> = [8, 8, 16].map(|count| item(1, count).0).into();
        assert_eq!(sizes(next_turn(&mut waiting, Instant::now(), 100)).len(), 2);
    }

    #[test]
    fn an_append_that_waits_lets_others_pass() {
        let now = Instant::now();
        let due = now + Duration::from_millis(20);
        let (mut parked, _) = item(1, 8);
        parked.not_before = Some(due);
        let mut waiting: VecDeque<Item> = [parked, item(2, 8).0].into();
        assert_eq!(sizes(next_turn(&mut waiting, now, 100)), [2]);
        assert!(matches!(next_turn(&mut waiting, now, 100), Turn::Wait(wake) if wake == due));
        assert_eq!(sizes(next_turn(&mut waiting, due, 100)), [1]);
    }

    #[test]
    fn an_abandoned_append_is_never_sent() {
        let (gone, _answer) = item(1, 8);
        assert_eq!(gone.progress.abandon(), Step::Queued);
        let mut waiting: VecDeque<Item> = [gone].into();
        assert!(matches!(next_turn(&mut waiting, Instant::now(), 100), Turn::Rest));
        assert!(waiting.is_empty());
    }

    #[test]
    fn what_was_sent_cannot_be_abandoned() {
        let progress = Progress::default();
        progress.park(Failure::new(ErrorClass::Backpressure, "full"));
        assert!(progress.send());
        assert_eq!(progress.abandon(), Step::Sent);
    }
}
