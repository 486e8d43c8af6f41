//! What the disk can do at most, and payloads to measure with.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Condvar, Mutex};

use bytes::Bytes;

use crate::Seeded;

/// The size of the records that are measured with.
pub const RECORD_BYTES: usize = 256;
/// How much is written before the floor's file begins anew.
pub const FLOOR_BYTES: usize = 256 << 20;

/// Bytes that do not repeat within 64 MiB: LZ4 finds nothing in them.
pub struct Payloads(pub Bytes);

impl Default for Payloads {
    fn default() -> Self {
        let mut random = Seeded::new(7);
        Self((0..(64 << 20) / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect())
    }
}

impl Payloads {
    /// The records of one call: parts of one buffer that the caller has just filled, as a request would.
    pub fn get(&self, number: u64, count: u64) -> Vec<Bytes> {
        let bytes = count as usize * RECORD_BYTES;
        let at = (number as usize * RECORD_BYTES) % (self.0.len() - bytes);
        let buffer = Bytes::copy_from_slice(&self.0[at..at + bytes]);
        (0..bytes).step_by(RECORD_BYTES).map(|at| buffer.slice(at..at + RECORD_BYTES)).collect()
    }
}

/// A file whose blocks are allocated and written.
pub fn written_file(dir: &Path) -> File {
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(dir.join("floor")).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..(FLOOR_BYTES + (64 << 20)) >> 20)
        .for_each(|at| file.write_all_at(&zeros, (at as u64) << 20).unwrap());
    file.sync_all().unwrap();
    file
}

/// Group commit and nothing else: no index, no rotation, no purge.
pub struct Bare {
    file: File,
    state: Mutex<BareState>,
    wake: [Condvar; 2],
}

#[derive(Default)]
struct BareState {
    pending: Vec<u8>,
    group: u64,
    done: u64,
    leading: bool,
    offset: u64,
}

impl Bare {
    /// Into a file in this folder.
    pub fn new(dir: &Path) -> Self {
        Self { file: written_file(dir), state: Mutex::default(), wake: [Condvar::new(), Condvar::new()] }
    }

    /// Returns when the records are synced, with whatever else waited.
    pub fn append(&self, records: &[Bytes]) {
        let mut state = self.state.lock().unwrap();
        records.iter().for_each(|record| state.pending.extend_from_slice(record));
        let mine = state.group;
        while state.done <= mine {
            if state.leading {
                state = self.wake[(mine % 2) as usize].wait(state).unwrap();
                continue;
            }
            state.leading = true;
            drop(state);
            for _ in 0..20 {
                std::thread::yield_now();
            }
            state = self.state.lock().unwrap();
            let bytes = std::mem::take(&mut state.pending);
            let (group, offset) = (state.group, state.offset % (FLOOR_BYTES as u64));
            state.group += 1;
            state.offset = offset + bytes.len() as u64;
            drop(state);
            self.file.write_all_at(&bytes, offset).unwrap();
            self.file.sync_data().unwrap();
            state = self.state.lock().unwrap();
            state.done = group + 1;
            state.leading = false;
            self.wake[(group % 2) as usize].notify_all();
            self.wake[((group + 1) % 2) as usize].notify_one();
        }
    }
}

/// Brings everything to disk that set-up or another engine left in the page cache: a sync of one file may have to wait
/// for the bytes of others.
pub fn settle() {
    assert!(std::process::Command::new("sync").status().unwrap().success());
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
