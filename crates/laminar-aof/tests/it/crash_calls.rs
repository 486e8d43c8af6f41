//! A process is killed with SIGKILL right before each file call of a script; what it had acknowledged is there, in order,
//! once, and nothing else (LOG-3).

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use laminar_aof::fs::{File, FileSystem, RealFileSystem};
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig, Durability};

use crate::LONG;

const CHILD_DIR: &str = "LAMINAR_CRASH_CALLS_DIR";
const KILL_AT: &str = "LAMINAR_CRASH_CALLS_AT";
const BACKGROUND: &str = "LAMINAR_CRASH_CALLS_BACKGROUND";
/// What the child writes before its first message.
const READY: u8 = 0xA5;

/// Files that kill their process before a call. Whoever counts never reaches the end.
#[derive(Debug)]
struct Deadly {
    inner: RealFileSystem,
    calls: Arc<Calls>,
}

#[derive(Debug)]
struct Calls {
    made: AtomicU64,
    kill_at: u64,
}

impl Calls {
    fn count(&self) {
        if self.made.fetch_add(1, Ordering::SeqCst) == self.kill_at {
            drop(Command::new("kill").args(["-9", &std::process::id().to_string()]).status());
            loop {
                std::thread::park();
            }
        }
    }
}

#[derive(Debug)]
struct DeadlyFile(Arc<dyn File>, Arc<Calls>);

impl Deadly {
    fn file(&self, opened: io::Result<Arc<dyn File>>) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(DeadlyFile(opened?, Arc::clone(&self.calls))))
    }

    fn counted(&self) -> &RealFileSystem {
        self.calls.count();
        &self.inner
    }
}

impl FileSystem for Deadly {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.counted().create_dir(dir)
    }
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.counted().make_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.file(self.counted().create(path))
    }
    fn open(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn File>> {
        self.file(self.inner.open(path, writable))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.counted().rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.counted().remove(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.counted().remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.counted().sync_dir(dir)
    }
    fn device(&self, dir: &Path) -> io::Result<u64> {
        self.inner.device(dir)
    }
    fn sync_device(&self, device: u64) -> io::Result<()> {
        self.counted().sync_device(device)
    }
    fn entropy(&self) -> io::Result<u64> {
        self.inner.entropy()
    }
    fn now(&self) -> Duration {
        self.inner.now()
    }
}

/// Reading changes nothing on the disk, so a death before it is one after the call before.
impl File for DeadlyFile {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.1.count();
        self.0.write_at(bytes, offset)
    }
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.1.count();
        self.0.allocate(length)
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.1.count();
        self.0.set_length(length)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.count();
        self.0.sync()
    }
}

#[derive(Clone, Copy)]
enum Step {
    /// So many records.
    Append(u64),
    Back(u64),
    Front(u64),
    Reopen,
}

/// Fills segments, truncates at both ends, recycles and reopens.
const SCRIPT: [Step; 14] = {
    use Step::{Append, Back, Front, Reopen};
    [
        Append(1),
        Append(9),
        Append(9),
        Back(14),
        Append(9),
        Front(8),
        Append(9),
        Reopen,
        Append(9),
        Front(25),
        Append(9),
        Back(40),
        Append(9),
        Reopen,
    ]
};

/// Sequences, each with the step that wrote it.
#[derive(Clone, Default, PartialEq, Debug)]
struct Content {
    start: u64,
    records: BTreeMap<u64, u8>,
}

impl Content {
    fn end(&self) -> u64 {
        self.records.last_key_value().map_or(self.start, |(sequence, _)| sequence + 1)
    }

    fn after(&self, step: usize) -> Self {
        let mut next = self.clone();
        match SCRIPT[step] {
            Step::Append(count) => {
                next.records.extend((self.end()..self.end() + count).map(|s| (s, step as u8)))
            }
            Step::Back(from) => drop(next.records.split_off(&from)),
            Step::Front(before) => {
                next.records = next.records.split_off(&before);
                next.start = before;
            }
            Step::Reopen => {}
        }
        next
    }
}

fn payload(sequence: u64, step: u8) -> Bytes {
    let mut bytes = vec![step; 3000];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    bytes.into()
}

fn config(durability: Durability) -> AofConfig {
    AofConfig { durability, segment_bytes_max: 1 << 16, ..AofConfig::default() }
}

/// The process that is killed. It has one thread only, so that the calls always come in the same order.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let kill_at = std::env::var(KILL_AT).unwrap().parse().unwrap();
    let calls = Arc::new(Calls { made: AtomicU64::new(0), kill_at });
    let fs = Deadly { inner: RealFileSystem::default(), calls };
    let committer = Committer::manual(CommitterConfig::default(), Arc::new(fs)).unwrap();
    let background = std::env::var_os(BACKGROUND).is_some();
    let durability = if background { Durability::Background } else { Durability::Synced };
    let open = || Aof::open(&committer, Path::new(&dir), config(durability)).unwrap().0;
    let mut told = std::io::stdout();
    let mut tell = |step: u8| {
        told.write_all(&[step]).unwrap();
        told.flush().unwrap();
    };
    tell(READY);
    let mut log = open();
    let mut content = Content::default();
    for (number, step) in SCRIPT.into_iter().enumerate() {
        let next = content.after(number);
        match step {
            Step::Append(_) => {
                let added = next.records.iter().skip(content.records.len());
                let batch = added.map(|(sequence, step)| payload(*sequence, *step)).collect();
                log.append_and_wait(batch, LONG).unwrap();
            }
            Step::Back(from) => log.truncate_back(from).unwrap().wait(LONG).unwrap(),
            Step::Front(before) => log.truncate_front(before).unwrap().wait(LONG).unwrap(),
            Step::Reopen => {
                log.close().unwrap();
                log = open();
            }
        }
        committer.step();
        tell(number as u8 + 1);
        content = next;
    }
    drop(log);
}

/// Runs the child until it dies or ends; returns how many steps it acknowledged, and whether it died.
fn run_child(dir: &Path, durability: Durability, kill_at: u64) -> (usize, bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if durability == Durability::Background {
        command.env(BACKGROUND, "");
    }
    let mut child = command
        .args(["--exact", "crash_calls::child", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .env(KILL_AT, kill_at.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut told).unwrap();
    let died = !child.wait().unwrap().success();
    let begin = told.iter().position(|byte| *byte == READY).unwrap() + 1;
    // What the test harness prints at the end is text.
    let steps = told[begin..].iter().take_while(|byte| usize::from(**byte) <= SCRIPT.len()).count();
    (steps.min(SCRIPT.len()), died)
}

#[test]
fn what_was_acknowledged_survives_sigkill_at_every_call() {
    kill_at_every_call(Durability::Synced);
}

#[test]
fn what_was_acknowledged_survives_sigkill_at_every_call_in_the_background() {
    kill_at_every_call(Durability::Background);
}

fn kill_at_every_call(durability: Durability) {
    let parent = tempfile::tempdir().unwrap();
    let mut deaths = 0;
    for kill_at in 0.. {
        let dir = parent.path().join(kill_at.to_string());
        let (steps, died) = run_child(&dir, durability, kill_at);
        deaths += u64::from(died);
        let acknowledged = (0..steps).fold(Content::default(), |content, step| content.after(step));
        let next = if steps < SCRIPT.len() { acknowledged.after(steps) } else { acknowledged.clone() };
        let fs = Arc::new(RealFileSystem::default());
        let committer = Committer::manual(CommitterConfig::default(), fs).unwrap();
        let (log, opened) = Aof::open(&committer, &dir, config(durability)).unwrap();
        let mut found = Content { start: opened.sequences.start, records: BTreeMap::new() };
        for sequence in opened.sequences {
            let bytes = log.read(sequence).unwrap();
            assert_eq!(bytes, payload(sequence, bytes[2999]), "call {kill_at}");
            found.records.insert(sequence, bytes[2999]);
        }
        // What was being done is done whole, in part if it is an append, or not at all.
        let part = found.start == next.start
            && found.end() >= acknowledged.end()
            && found.records.iter().all(|(sequence, step)| next.records.get(sequence) == Some(step));
        assert!(found == acknowledged || found == next || part, "call {kill_at}, {steps} steps: {found:?}");
        drop(log);
        std::fs::remove_dir_all(&dir).unwrap();
        if !died {
            break;
        }
    }
    assert!(deaths > 60, "{deaths} calls");
}
