//! A process that appends is killed with SIGKILL; what it had acknowledged is there, in order, once (LOG-3).
//!
//! `LAMINAR_CRASH_ROUNDS=5000 cargo test --release -p laminar-aof --test it crash::` kills it more often.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use laminar_aof::fs::RealFileSystem;
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig, Durability};

use crate::LONG;

const CHILD_DIR: &str = "LAMINAR_CRASH_CHILD_DIR";
const DURABILITIES: [Durability; 2] = [Durability::Synced, Durability::Background];

fn config(durability: Durability) -> AofConfig {
    AofConfig { durability, segment_bytes_max: 1 << 18, ..AofConfig::default() }
}

fn record(sequence: u64) -> Bytes {
    let mut bytes =
        sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().repeat(1 + sequence as usize % 60);
    bytes.truncate(bytes.len() - sequence as usize % 8);
    bytes.into()
}

fn committer() -> Committer {
    Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap()
}

/// The process that is killed: appends to both logs and tells its parent what was acknowledged.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let committer = committer();
    let told = Arc::new(Mutex::new(std::io::stdout()));
    let mut threads = Vec::new();
    for (number, durability) in DURABILITIES.into_iter().enumerate() {
        let (log, _) =
            Aof::open(&committer, &Path::new(&dir).join(number.to_string()), config(durability)).unwrap();
        let told = Arc::clone(&told);
        threads.push(std::thread::spawn(move || {
            for round in 0_u64.. {
                let next = log.sequences().end;
                let batch = (next..next + 1 + round % 7).map(record).collect();
                let ticket = log.append_within(batch, LONG).unwrap();
                if durability == Durability::Background && round % 5 == 0 {
                    log.sync().unwrap().wait(LONG).unwrap();
                }
                if durability == Durability::Synced {
                    ticket.wait(LONG).unwrap();
                }
                if round % 40 == 39 {
                    let kept = log.sequences().end.saturating_sub(300).max(log.sequences().start);
                    log.truncate_front(kept).unwrap().wait(LONG).unwrap();
                }
                let mut message = [0; 9];
                message[0] = number as u8;
                message[1..].copy_from_slice(&log.synced().to_le_bytes());
                told.lock().unwrap().write_all(&message).unwrap();
            }
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn what_was_acknowledged_survives_sigkill() {
    let rounds: u64 = std::env::var("LAMINAR_CRASH_ROUNDS").map_or(200, |rounds| rounds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = child.stdout.take().unwrap();
        // The harness prints a few lines first.
        let mut line = Vec::new();
        while !line.ends_with(b"running 1 test\n") {
            let mut byte = [0];
            told.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        let mut acknowledged = [0_u64; 2];
        let mut note = |message: &[u8; 9]| {
            let synced = u64::from_le_bytes(*message.last_chunk().unwrap());
            let number = usize::from(message[0]);
            acknowledged[number] = acknowledged[number].max(synced);
        };
        let mut message = [0; 9];
        let mut skipped = Vec::new();
        // "test crash::child ... " stands before the first message, in a line of its own length.
        while !skipped.ends_with(b"... ") {
            let mut byte = [0];
            told.read_exact(&mut byte).unwrap();
            skipped.push(byte[0]);
        }
        for _ in 0..1 + round.wrapping_mul(0x9E37_79B9) % 150 {
            told.read_exact(&mut message).unwrap();
            note(&message);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        while told.read_exact(&mut message).is_ok() {
            note(&message);
        }
        let committer = committer();
        for (number, durability) in DURABILITIES.into_iter().enumerate() {
            let path = dir.path().join(number.to_string());
            if !path.exists() {
                assert_eq!(acknowledged[number], 0);
                continue;
            }
            let (log, opened) = Aof::open(&committer, &path, config(durability)).unwrap();
            assert!(
                opened.sequences.end >= acknowledged[number],
                "round {round}: {opened:?} {acknowledged:?}"
            );
            let mut reader = log.reader(opened.sequences.start);
            for sequence in opened.sequences.clone() {
                assert_eq!(reader.next().unwrap().unwrap().payload, record(sequence), "round {round}");
            }
            // Killed rather than closed, so that openings after openings are seen too.
            if round % 2 == 0 {
                log.close().unwrap();
            }
        }
    }
}
