//! Sends what waits, one request at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use laminar_core::error::ErrorKind;
use laminar_rpc::Failure;
use laminar_rpc::proto::{AppendRequest, AppendResponse, MintProducerRequest, PartitionRows, Producer};
use tokio::time::Instant;

use super::Lane;
use super::fate::{Fate, fate};
use super::queue::{Item, Turn, next_turn};
use crate::appended::Appended;
use crate::retry::Repeat;
use crate::session::{Limit, lock};

/// How often a producer is minted for the same appends. A node that forgets each at once is out of order.
const MINTS_MAX: u32 = 3;
/// The wait of a refused append where the node names none.
const PARK_DEFAULT: Duration = Duration::from_millis(20);
const PARK_MAX: Duration = Duration::from_secs(1);

/// Sends until nothing waits.
pub(super) async fn drive(lane: Arc<Lane>) {
    let mut driving = Driving { lane: &lane, done: false };
    loop {
        let turn = {
            let mut state = lock(&lane.state);
            let turn =
                next_turn(&mut state.waiting, Instant::now(), lane.inline_bytes_max.load(Ordering::Relaxed));
            if matches!(turn, Turn::Rest) {
                state.driven = false;
            }
            turn
        };
        match turn {
            Turn::Send(items) => send(&lane, items).await,
            Turn::Wait(until) => {
                // Either is a reason to look again.
                let _ = tokio::time::timeout_at(until, lane.arrived.notified()).await;
            }
            Turn::Rest => {
                driving.done = true;
                return;
            }
        }
    }
}

/// A driver at work. If it ends before the queue is empty (the runtime is being closed), those who wait are told.
struct Driving<'a> {
    lane: &'a Lane,
    done: bool,
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        // What was in flight may have landed: the producer goes too.
        let left = std::mem::take(&mut *lock(&self.lane.state));
        drop(left.waiting);
    }
}

async fn send(lane: &Lane, items: Vec<Item>) {
    let mut groups = vec![items];
    let mut mints = 0;
    while let Some(items) = groups.pop() {
        let items = under_epochs(lane, items);
        if items.is_empty() {
            continue;
        }
        let limit = limit_of(&items);
        let (producer, last) = match producer(lane, limit).await {
            Ok(producer) => producer,
            Err(failure) => {
                answer_all(items, &failure);
                continue;
            }
        };
        let request = request(lane, &items, Producer { id: producer, sequence: last + 1 });
        let ended = lane
            .session
            .call_tracked(limit, Repeat::SafeUnlessFull, |live| {
                let request = AppendRequest { timeout_ms: limit.node_timeout_ms(), ..request.clone() };
                async move { live.transport.append_again(request, limit.deadline).await }
            })
            .await;
        let failure = match ended.result {
            Ok(response) => {
                lock(&lane.state).producer = Some((producer, last + 1));
                answer_landed(items, &request, &response);
                continue;
            }
            Err(failure) => failure,
        };
        match fate(&failure, ended.unknown, items.len(), lane.ownership.is_some()) {
            Fate::Unknown => {
                lock(&lane.state).producer = None;
                answer_all(items, &failure.unknown());
            }
            Fate::Apart => groups.extend(items.into_iter().rev().map(|item| vec![item])),
            Fate::Parked => items.into_iter().for_each(|item| park(lane, item, failure.clone())),
            Fate::Minted if mints < MINTS_MAX => {
                mints += 1;
                lock(&lane.state).producer = None;
                groups.push(items);
            }
            Fate::Minted | Fate::Refused => {
                // Should node and lane disagree about the sequence, every later append would be refused for it.
                if failure.class.kind() == ErrorKind::Invalid {
                    lock(&lane.state).producer = None;
                }
                answer_all(items, &failure);
            }
        }
    }
}

/// Leaves out, and answers, appends whose guards say that they would be refused.
fn under_epochs(lane: &Lane, items: Vec<Item>) -> Vec<Item> {
    let Some(ownership) = &lane.ownership else {
        return items;
    };
    let mut good = Vec::with_capacity(items.len());
    for item in items {
        match item.carried.iter().try_for_each(|carried| ownership.epoch(carried.partition_id).map(drop)) {
            Ok(()) => good.push(item),
            Err(failure) => answer(item, Err(failure)),
        }
    }
    good
}

/// As long as the most patient caller waits.
fn limit_of(items: &[Item]) -> Limit {
    let began = items.iter().map(|item| item.limit.began).min().unwrap_or_else(Instant::now);
    let deadline = items.iter().map(|item| item.limit.deadline).max().unwrap_or_else(Instant::now);
    Limit { began, deadline }
}

/// The producer and its last sequence, minted if there is none. One that is minted twice only leaves a number unused.
async fn producer(lane: &Lane, limit: Limit) -> Result<(u64, u64), Failure> {
    if let Some(producer) = lock(&lane.state).producer {
        return Ok(producer);
    }
    let mint = lane.session.call(limit, Repeat::Safe, |live| async move {
        live.transport.mint_producer(MintProducerRequest {}, limit.deadline).await
    });
    let minted = match mint.await {
        Ok(minted) => minted.producer_id,
        // No rows were sent.
        Err(failure) => return Err(Failure { outcome_unknown: false, ..failure }),
    };
    lock(&lane.state).producer = Some((minted, 0));
    Ok((minted, 0))
}

fn request(lane: &Lane, items: &[Item], producer: Producer) -> AppendRequest {
    let rows = items.iter().flat_map(|item| &item.carried).map(|carried| PartitionRows {
        partition_id: carried.partition_id,
        // A guard that ended just now: the node refuses the epoch that it held.
        epoch: lane.ownership.as_ref().map_or(0, |ownership| ownership.held_epoch(carried.partition_id)),
        rows: carried.rows,
        payload: Some(carried.payload.clone()),
    });
    AppendRequest {
        stream_id: lane.stream_id,
        partition_count: items.first().map_or(0, |item| item.partition_count),
        producer: Some(producer),
        batch: None,
        owner: lane.ownership.as_ref().map_or(0, |ownership| ownership.node_id()),
        rows: rows.collect(),
        timeout_ms: 0,
        commit: None,
    }
}

/// Tells each caller where its rows are: the answer has one place for each part of the request, in order.
fn answer_landed(items: Vec<Item>, request: &AppendRequest, response: &AppendResponse) {
    if let Err(failure) = check_places(request, response) {
        return answer_all(items, &failure);
    }
    let mut places = response.placed.iter();
    for item in items {
        let mut appended = Appended { global_index: response.global_index, ..Appended::default() };
        for (carried, placed) in item.carried.iter().zip(&mut places) {
            appended.add(carried.ordinal, placed.first_offset, placed.rows);
        }
        answer(item, Ok(appended));
    }
}

/// Whether an answer names the parts of its request.
pub(crate) fn check_places(request: &AppendRequest, response: &AppendResponse) -> Result<(), Failure> {
    let sent = request.rows.iter().map(|rows| (rows.partition_id, rows.rows));
    let placed = response.placed.iter().map(|placed| (placed.partition_id, placed.rows));
    if sent.eq(placed) {
        return Ok(());
    }
    let (found, expected, index) = (response.placed.len(), request.rows.len(), response.global_index);
    let message = format!(
        "append landed at {index}, and the node's answer does not name what was sent ({found} places for {expected} parts); \
         report it"
    );
    Err(Failure::internal(message).unknown())
}

/// Puts a refused append back, to be sent when the node may have room.
fn park(lane: &Lane, mut item: Item, failure: Failure) {
    let left = item.limit.left();
    if left < Duration::from_millis(2) {
        return answer(item, Err(failure));
    }
    let told = failure.number("retry_after_ms").map(Duration::from_millis);
    let wait = told.unwrap_or(PARK_DEFAULT).clamp(Duration::from_millis(1), PARK_MAX).min(left / 2);
    item.not_before = Some(Instant::now() + wait);
    item.progress.park(failure);
    lock(&lane.state).waiting.push_back(item);
}

fn answer_all(items: Vec<Item>, failure: &Failure) {
    for item in items {
        answer(item, Err(failure.clone()));
    }
}

/// Answers a caller; one that is gone hears nothing.
fn answer(item: Item, result: Result<Appended, Failure>) {
    let _ = item.reply.send(result);
}

#[cfg(test)]
mod tests {
    use laminar_rpc::ErrorClass;
    use laminar_rpc::proto::Placed;

    use super::*;

    fn sent(parts: &[(u32, u32)]) -> AppendRequest {
        let rows = parts.iter().map(|(partition_id, rows)| PartitionRows {
            partition_id: *partition_id,
            rows: *rows,
            ..Default::default()
        });
        AppendRequest { rows: rows.collect(), ..Default::default() }
    }

    fn placed(parts: &[(u32, u32)]) -> AppendResponse {
        let placed = parts.iter().map(|(partition_id, rows)| Placed {
            partition_id: *partition_id,
            rows: *rows,
            first_offset: 0,
        });
        AppendResponse { placed: placed.collect(), ..Default::default() }
    }

    #[test]
    fn an_answer_that_names_something_else_is_not_believed() {
        let request = sent(&[(1, 2), (1, 3)]);
        assert!(check_places(&request, &placed(&[(1, 2), (1, 3)])).is_ok());
        for wrong in [&[(1, 2)][..], &[(1, 3), (1, 2)], &[(1, 2), (2, 3)], &[(1, 2), (1, 3), (1, 1)]] {
            let failure = check_places(&request, &placed(wrong)).unwrap_err();
            assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::Internal, true));
        }
    }
}
