//! Callers that wait for the disk, one and many.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use laminar_aof::Durability;

use crate::engines::{Bare, Floor, Log, Ours, Payloads, Peer, ours, peer, written_file};
use crate::{ROUNDS, Wanted, best, line, medians, settle};

/// Records a second.
fn concurrent(log: &dyn Log, payloads: &Payloads, callers: u64, records: u64, calls: u64) -> f64 {
    let barrier = Barrier::new(callers as usize + 1);
    let begun = std::thread::scope(|scope| {
        for caller in 0..callers {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for call in 0..calls {
                    let first = caller * 7919 + call * records;
                    log.append(caller as usize, payloads.get(first * 31, records));
                }
            });
        }
        barrier.wait();
        Instant::now()
    });
    (callers * records * calls) as f64 / begun.elapsed().as_secs_f64()
}

/// Microseconds at the median.
fn one_synced(log: &dyn Log, payloads: &Payloads) -> f64 {
    let mut times: Vec<f64> = (0..1500)
        .map(|number| {
            let batch = payloads.get(number * 31, 1);
            let begun = Instant::now();
            log.append(0, batch);
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

pub(crate) fn measure(dir: &Path, payloads: &Payloads, wanted: &Wanted) {
    let cases = [("8x1", 8, 1, 1500), ("64x1", 64, 1, 600), ("64x64", 64, 64, 150)];
    if !wanted.has("one") && !cases.iter().any(|(name, ..)| wanted.has(name)) {
        return;
    }
    let floor = Floor(written_file(dir), AtomicU64::new(0));
    let bare = Bare::new(dir);
    let ours = Ours(ours(dir, Durability::Synced));
    let peers = [(false, false), (false, true), (true, false), (true, true)]
        .map(|(prefill, lz4)| Peer(peer(dir, prefill, lz4), [const { AtomicU64::new(0) }; 64]));
    if wanted.has("one") {
        let rounds: Vec<[f64; 3]> = (0..ROUNDS)
            .map(|_| {
                settle();
                let peer = peers.iter().map(|peer| one_synced(peer, payloads)).fold(f64::MAX, f64::min);
                [one_synced(&ours, payloads), one_synced(&floor, payloads), peer]
            })
            .collect();
        let [ours, floor, peer] = medians(&rounds);
        line("one appender, synced, p50", "us", ours, floor, Some(peer));
    }
    for (name, callers, records, calls) in cases.into_iter().filter(|(name, ..)| wanted.has(name)) {
        let rounds: Vec<[f64; 3]> = (0..ROUNDS)
            .map(|_| {
                settle();
                let records_a_second = |log: &dyn Log| concurrent(log, payloads, callers, records, calls);
                let (ours, floor) = (records_a_second(&ours), records_a_second(&bare));
                [ours, floor, best(peers.iter().map(|peer| records_a_second(peer)))]
            })
            .collect();
        let [ours, floor, peer] = medians(&rounds);
        line(name, "rec/s", ours, floor, Some(peer));
    }
}
