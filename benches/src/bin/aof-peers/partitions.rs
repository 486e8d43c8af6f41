//! Many small logs: beginning them, opening a thousand after a crash, and what ten thousand idle ones take.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use laminar_aof::fs::RealFileSystem;
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig, Durability};

use crate::engines::{BULK_BYTES, LONG, Payloads, RECORD_BYTES};
use crate::{ROUNDS, line, medians, settle};

const LOGS: usize = 1000;
const IDLE_LOGS: usize = 10_000;

fn committer() -> Committer {
    Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap()
}

fn config() -> AofConfig {
    AofConfig { durability: Durability::Background, verify_sealed: true, ..AofConfig::default() }
}

fn open_all(committer: &Committer, dir: &Path, logs: usize) -> Vec<(Aof, u64)> {
    let open = |number: usize| {
        let (log, opened) = Aof::open(committer, &dir.join(number.to_string()), config()).unwrap();
        (log, opened.records_verified)
    };
    (0..logs).map(open).collect()
}

/// Reads every byte of every file and sums it up, record by record.
fn read_all(dir: &Path) -> u64 {
    let mut buffer = vec![0; 1 << 20];
    let (mut bytes, mut crc) = (0, 0);
    let entries = |dir: &Path| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for path in entries(dir).flat_map(|dir| entries(&dir)) {
        let file = File::open(path).unwrap();
        let mut offset = 0;
        loop {
            let read = file.read_at(&mut buffer, offset).unwrap();
            if read == 0 {
                break;
            }
            buffer[..read].chunks(RECORD_BYTES).for_each(|record| crc ^= crc32c::crc32c(record));
            offset += read as u64;
        }
        bytes += offset;
    }
    assert_ne!(crc, 1);
    bytes
}

/// 256 MiB in a thousand logs, as a killed process leaves them.
pub(crate) fn open_after_crash(dir: &Path, payloads: &Payloads) {
    let (alive, crashed) = (dir.join("alive"), dir.join("crashed"));
    let records = (BULK_BYTES / RECORD_BYTES / LOGS) as u64;
    let committer = committer();
    let logs = open_all(&committer, &alive, LOGS);
    for first in (0..records).step_by(64) {
        for (number, (log, _)) in logs.iter().enumerate() {
            let batch = payloads.get(first + number as u64 * 31, 64.min(records - first));
            drop(log.append_within(batch, LONG).unwrap());
        }
    }
    logs.iter().for_each(|(log, _)| log.sync().unwrap().wait(LONG).unwrap());
    let rounds: Vec<[f64; 2]> = (0..ROUNDS)
        .map(|_| {
            let copied = Command::new("cp").arg("-r").args([&alive, &crashed]).status().unwrap();
            assert!(copied.success());
            settle();
            let begun = Instant::now();
            let bytes = read_all(&crashed) as f64 / 1e6;
            let floor = bytes / begun.elapsed().as_secs_f64();
            let begun = Instant::now();
            let opened = open_all(&committer, &crashed, LOGS);
            let ours = bytes / begun.elapsed().as_secs_f64();
            assert_eq!(opened.iter().map(|(_, verified)| verified).sum::<u64>(), records * LOGS as u64);
            drop(opened);
            std::fs::remove_dir_all(&crashed).unwrap();
            [ours, floor]
        })
        .collect();
    let [ours, floor] = medians(&rounds);
    line("open 1,000 after a crash", "MB/s", ours, floor, None);
}

/// New logs until the first record of each is on disk; and opening them again, after they were closed.
///
/// They stay until the end: a file system that has just removed many files is slow to make others.
pub(crate) fn first(dir: &Path, payloads: &Payloads) {
    for count in [1, LOGS, IDLE_LOGS] {
        let rounds: Vec<[f64; 3]> = (0..ROUNDS)
            .map(|round| {
                let dir = dir.join(format!("first-{count}-{round}"));
                std::fs::create_dir(&dir).unwrap();
                settle();
                let committer = committer();
                let begun = Instant::now();
                let milliseconds = || begun.elapsed().as_secs_f64() * 1e3;
                let logs = open_all(&committer, &dir, count);
                let opened = milliseconds();
                for (number, (log, _)) in logs.iter().enumerate() {
                    drop(log.append_within(payloads.get(number as u64, 1), LONG).unwrap());
                }
                let tickets: Vec<_> = logs.iter().map(|(log, _)| log.sync().unwrap()).collect();
                tickets.iter().for_each(|ticket| ticket.wait(LONG).unwrap());
                let synced = milliseconds();
                drop(logs);
                let closed = milliseconds();
                let logs = open_all(&committer, &dir, count);
                let again = milliseconds() - closed;
                assert!(logs.iter().all(|(log, _)| log.synced() == 1));
                [opened, synced, again]
            })
            .collect();
        let [opened, synced, again] = medians(&rounds);
        println!(
            "{count:>6} new logs            {opened:>10.1} ms opened, {synced:.1} ms first record synced, \
             {again:.1} ms opened again"
        );
    }
}

/// Resident bytes, open files and threads of this process.
fn usage() -> [usize; 3] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: usize = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let count = |of: &str| std::fs::read_dir(PathBuf::from("/proc/self").join(of)).unwrap().count();
    [kilobytes << 10, count("fd"), count("task")]
}

/// Ten thousand logs of one record each, synced and idle.
pub(crate) fn idle(dir: &Path, payloads: &Payloads) {
    let before = usage();
    let committer = committer();
    let dir = dir.join("idle");
    let logs = open_all(&committer, &dir, IDLE_LOGS);
    for (number, (log, _)) in logs.iter().enumerate() {
        drop(log.append_within(payloads.get(number as u64, 1), LONG).unwrap());
    }
    logs.iter().for_each(|(log, _)| log.sync().unwrap().wait(LONG).unwrap());
    let after = usage();
    println!(
        "10,000 idle logs             {:>10.1} MB resident, {} open files, {} threads more",
        (after[0].saturating_sub(before[0])) as f64 / 1e6,
        after[1].saturating_sub(before[1]),
        after[2].saturating_sub(before[2])
    );
    drop(logs);
    std::fs::remove_dir_all(&dir).unwrap();
}
