//! `laminar-aof` beside `raft-engine` and beside the floor, in one run and in turns, with ratios.
//!
//! `cargo run --release -p laminar-benches --features peers --bin aof-peers [FOLDER [CASE...]]`, cases being `one`, `8x1`,
//! `64x1`, `64x64`, `bulk`, `first`, `many` and `idle`, all of them by default. The folder should be on the disk that
//! matters. The floor is a preallocated, already written file with `pwrite` and `fdatasync`; for several callers it is a
//! bare loop of group commit without index, rotation or purge.

#![allow(clippy::unwrap_used, reason = "a failed bench should stop")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

mod bulk;
mod callers;
mod engines;
mod partitions;

use engines::Payloads;
use laminar_benches::floor::{median, settle};

const ROUNDS: usize = 3;

/// The cases asked for.
struct Wanted(Vec<String>);

impl Wanted {
    fn has(&self, case: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|wanted| wanted == case)
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().unwrap_or_else(|| ".".to_owned());
    let wanted = Wanted(arguments.collect());
    let dir = tempfile::tempdir_in(parent).unwrap();
    println!(
        "raft-engine 0.4.2, best of default and prefill-for-recycle, LZ4 on and off; {ROUNDS} rounds in turns, medians"
    );
    let payloads = Payloads::default();
    callers::measure(dir.path(), &payloads, &wanted);
    if wanted.has("bulk") {
        bulk::measure(dir.path(), &payloads);
    }
    if wanted.has("first") {
        partitions::first(dir.path(), &payloads);
    }
    if wanted.has("many") {
        partitions::open_after_crash(dir.path(), &payloads);
    }
    if wanted.has("idle") {
        partitions::idle(dir.path(), &payloads);
    }
}

fn line(what: &str, unit: &str, ours: f64, floor: f64, peer: Option<f64>) {
    let peers =
        peer.map_or(String::new(), |peer| format!("  raft-engine {peer:>12.1}  ({:.2} x)", ours / peer));
    println!("{what:<28} {unit:>6}  ours {ours:>12.1}  floor {floor:>12.1}  ({:.2} x){peers}", ours / floor);
}

/// The median of each column.
fn medians<const N: usize>(rounds: &[[f64; N]]) -> [f64; N] {
    std::array::from_fn(|at| median(rounds.iter().map(|round| round[at]).collect()))
}

fn best(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}
