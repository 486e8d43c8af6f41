//! The fuzz targets, driven by proptest; `fuzz/` has the same for `cargo fuzz`.

use laminar_aof::format::{GroupHeader, SegmentHeader, SegmentKey, Trailer, push_record};
use laminar_aof::fuzz_targets::{decoders, folder};
use proptest::collection::vec;
use proptest::prelude::*;

/// What a file of ours consists of.
fn encodings() -> impl Strategy<Value = Vec<u8>> {
    (any::<[u64; 6]>(), vec(any::<u8>(), 0..100)).prop_map(|(words, payload)| {
        let key = SegmentKey::new(words[0], words[1]);
        let group = GroupHeader {
            offset: 4096,
            synced: words[2],
            start: words[3],
            first_sequence: words[4],
            records: words[5] as u32,
            body_bytes: words[5] as u32,
            closed: words[5] % 2 == 0,
        };
        let trailer = Trailer {
            first_sequence: words[2],
            end_sequence: words[3],
            data_end: words[4] % (1 << 32),
            start: words[5],
            index_entries: words[5] as u32,
            index_crc: words[2] as u32,
        };
        let mut bytes = SegmentHeader { key, capacity: words[2] }.encode().to_vec();
        match words[5] % 4 {
            0 => bytes = group.encode(&key).to_vec(),
            1 => bytes = trailer.encode(&key).to_vec(),
            2 => push_record(&mut bytes, &key, words[3], &payload, crc32c::crc32c(&payload)),
            _ => {}
        }
        bytes
    })
}

/// Folders are slow; this many are enough to meet each kind of damage hundreds of times.
fn folders() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #[test]
    fn decoders_take_any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        decoders(&bytes);
    }

    #[test]
    fn decoders_take_damaged_encodings(bytes in encodings(), at: usize, bit in 0..8_u32, length in 0..300_usize) {
        let mut bytes = bytes;
        decoders(&bytes);
        let at = at % bytes.len();
        bytes[at] ^= 1_u8 << bit;
        decoders(&bytes);
        bytes.truncate(length);
        decoders(&bytes);
    }
}

proptest! {
    #![proptest_config(folders())]

    #[test]
    fn a_damaged_folder_never_gives_what_was_not_written(changes in vec(any::<u8>(), 8..64)) {
        folder(&changes);
    }
}
