//! Bulk append, replay and opening of one large log.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laminar_aof::fs::RealFileSystem;
use laminar_aof::{Aof, AofConfig, Committer, CommitterConfig, Durability};
use raft_engine::LogBatch;

use crate::engines::{BULK_BYTES, Indexed, LONG, Payloads, RECORD_BYTES, entries, ours, peer, written_file};
use crate::{ROUNDS, best, line, medians, settle};

fn megabytes(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

pub(crate) fn measure(dir: &Path, payloads: &Payloads) {
    let count = (BULK_BYTES / RECORD_BYTES) as u64;
    let batch = |first: u64| payloads.get(first, 1024);
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let dir = dir.join(format!("bulk-{round}"));
        std::fs::create_dir(&dir).unwrap();
        // The floor.
        let file = written_file(&dir);
        let begun = Instant::now();
        for at in 0..BULK_BYTES >> 20 {
            file.write_all_at(&payloads.0[(at % 64) << 20..((at % 64) + 1) << 20], (at as u64) << 20)
                .unwrap();
        }
        file.sync_data().unwrap();
        let floor_written = megabytes(BULK_BYTES, begun.elapsed());
        let begun = Instant::now();
        let mut buffer = vec![0; 1 << 20];
        let mut crc = 0;
        for at in 0..BULK_BYTES >> 20 {
            file.read_exact_at(&mut buffer, (at as u64) << 20).unwrap();
            buffer.chunks(RECORD_BYTES).for_each(|record| crc ^= crc32c::crc32c(record));
        }
        assert_ne!(crc, 1);
        let floor_read = count as f64 / begun.elapsed().as_secs_f64() / 1e6;
        // Ours, and open after a crash: the log is dropped without a trailer in its last segment.
        let log = ours(&dir, Durability::Background);
        settle();
        let begun = Instant::now();
        (0..count).step_by(1024).for_each(|first| drop(log.append_within(batch(first), LONG).unwrap()));
        log.sync().unwrap().wait(LONG).unwrap();
        let ours_written = megabytes(BULK_BYTES, begun.elapsed());
        let begun = Instant::now();
        let mut reader = log.reader(0);
        let mut bytes = 0;
        while let Some(record) = reader.next().unwrap() {
            bytes += record.payload.len();
        }
        assert_eq!(bytes, BULK_BYTES);
        let ours_read = count as f64 / begun.elapsed().as_secs_f64() / 1e6;
        log.close().unwrap();
        let committer =
            Committer::start(CommitterConfig::default(), Arc::new(RealFileSystem::default())).unwrap();
        let open = |verify_sealed| {
            let config = AofConfig { verify_sealed, ..AofConfig::default() };
            let begun = Instant::now();
            let (log, opened) = Aof::open_read_only(&committer, &dir.join("ours"), config).unwrap();
            assert_eq!(opened.sequences, 0..count);
            assert!(!verify_sealed || opened.records_verified == count);
            let time = begun.elapsed();
            drop(log);
            time
        };
        let (all, sealed) = (open(true), open(false));
        // The peer, in its best configuration for this.
        let peers = [(false, false), (false, true), (true, false), (true, true)].map(|(prefill, lz4)| {
            let engine = peer(&dir, prefill, lz4);
            settle();
            let begun = Instant::now();
            for first in (0..count).step_by(1024) {
                let mut log_batch = LogBatch::with_capacity(1);
                log_batch.add_entries::<Indexed>(1, &entries(first, &batch(first))).unwrap();
                engine.write(&mut log_batch, false).unwrap();
            }
            engine.sync().unwrap();
            let written = megabytes(BULK_BYTES, begun.elapsed());
            let begun = Instant::now();
            let mut bytes = 0;
            for first in (1..=count).step_by(4096) {
                let mut found = Vec::new();
                engine
                    .fetch_entries_to::<Indexed>(1, first, (first + 4096).min(count + 1), None, &mut found)
                    .unwrap();
                bytes += found.iter().map(|entry| entry.get_value().len()).sum::<usize>();
            }
            assert_eq!(bytes, BULK_BYTES);
            (written, count as f64 / begun.elapsed().as_secs_f64() / 1e6)
        });
        let recovery = count as f64 / all.as_secs_f64() / 1e6;
        written.push([ours_written, floor_written, best(peers.map(|peer| peer.0))]);
        read.push([
            ours_read,
            floor_read,
            best(peers.map(|peer| peer.1)),
            recovery,
            sealed.as_secs_f64() * 1e3,
        ]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    let [ours, floor, peer] = medians(&written);
    line("bulk append, one sync", "MB/s", ours, floor, Some(peer));
    let [ours, floor, peer, recovery, sealed] = medians(&read);
    line("replay", "Mrec/s", ours, floor, Some(peer));
    line("open, every record verified", "Mrec/s", recovery, floor, None);
    println!("open by trailers             {sealed:>10.1} ms");
}
