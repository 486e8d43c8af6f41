use proptest::prelude::*;

use super::*;

fn key() -> SegmentKey {
    SegmentKey::new(3, 0x0123_4567_89AB_CDEF)
}

fn group() -> GroupHeader {
    GroupHeader {
        offset: 8192,
        synced: 4096,
        start: 5,
        first_sequence: 7,
        records: 2,
        body_bytes: 64,
        closed: true,
    }
}

fn trailer() -> Trailer {
    Trailer { first_sequence: 7, end_sequence: 9, data_end: 8192, start: 5, index_entries: 2, index_crc: 1 }
}

/// Every flipped bit of an encoding is noticed.
fn every_flip_is_noticed(bytes: &[u8], decodes: impl Fn(&[u8]) -> bool) {
    assert!(decodes(bytes));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(!decodes(&damaged), "bit {bit}");
    }
    (0..bytes.len()).for_each(|length| assert!(!decodes(&bytes[..length]), "{length} bytes"));
}

#[test]
fn what_is_encoded_is_decoded_and_damage_is_noticed() {
    let header = SegmentHeader { key: key(), capacity: 65536 };
    assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    every_flip_is_noticed(&header.encode(), |bytes| SegmentHeader::decode(bytes).is_ok());

    assert_eq!(GroupHeader::decode(&group().encode(&key()), &key(), 8192), Ok(group()));
    every_flip_is_noticed(&group().encode(&key()), |bytes| GroupHeader::decode(bytes, &key(), 8192).is_ok());

    let length = trailer().file_bytes();
    assert_eq!(Trailer::decode(&trailer().encode(&key()), &key(), length), Ok(trailer()));
    every_flip_is_noticed(&trailer().encode(&key()), |bytes| Trailer::decode(bytes, &key(), length).is_ok());

    let index = [IndexEntry { sequence: 7, offset: 4160 }, IndexEntry { sequence: 8, offset: 6000 }];
    let bytes = encode_index(&index);
    let crc = crc32c(&bytes);
    assert_eq!(decode_index(&bytes, crc), Ok(index.to_vec()));
    every_flip_is_noticed(&bytes, |bytes| decode_index(bytes, crc).is_ok());

    let mut bytes = Vec::new();
    push_record(&mut bytes, &key(), 9, b"some payload.", crc32c(b"some payload."));
    every_flip_is_noticed(&bytes, |bytes| decode_record(bytes, &key(), 9).is_ok());
}

#[test]
fn a_group_is_read_only_where_and_in_the_life_it_was_written() {
    let bytes = group().encode(&key());
    assert!(GroupHeader::decode(&bytes, &key(), 8200).is_err());
    assert!(GroupHeader::decode(&bytes, &SegmentKey::new(3, 1), 8192).is_err());
    assert!(GroupHeader::decode(&bytes, &SegmentKey::new(4, key().identity), 8192).is_err());
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut bytes = SegmentHeader { key: key(), capacity: 65536 }.encode();
    bytes[8] = 2;
    let crc = crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFault::VersionTooNew(2)));
}

#[test]
fn only_canonical_names_are_ours() {
    assert_eq!(FileName::parse(&segment_file_name(0x1F)), Some(FileName::Segment(0x1F)));
    assert_eq!(FileName::parse(&free_file_name(7)), Some(FileName::Free(7)));
    for name in
        ["1f.seg", "000000000000001F.seg", "000000000000001f.log", "+00000000000001f.seg", "notes.txt"]
    {
        assert_eq!(FileName::parse(name), None, "{name}");
    }
}

proptest! {
    /// Two lives of a file never agree on a record: other seeds at the end of the same bytes give other checksums.
    #[test]
    fn equal_records_of_different_lives_differ(
        payload in proptest::collection::vec(any::<u8>(), 0..300), sequence: u64, one: u64, other: u64,
    ) {
        let (one, other) = (SegmentKey::new(3, one), SegmentKey::new(3, other));
        prop_assume!(one.seed != other.seed);
        let mut bytes = Vec::new();
        push_record(&mut bytes, &one, sequence, &payload, crc32c(&payload));
        let record = decode_record(&bytes, &one, sequence).unwrap();
        prop_assert_eq!((&bytes[record.payload], record.next), (&payload[..], bytes.len()));
        prop_assert!(decode_record(&bytes, &other, sequence).is_err());
        prop_assert!(decode_record(&bytes, &one, sequence.wrapping_add(1)).is_err());
    }

    /// No input makes a decoder panic, and what it accepts it would have written itself.
    #[test]
    fn decoders_take_any_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), offset: u64, crc: u32, sequence: u64, sealed: bool,
    ) {
        let mut bytes = bytes;
        if sealed && bytes.len() >= 64 {
            // A checksum that fits, so that what stands behind it is reached.
            bytes[4..8].copy_from_slice(b"LGRP");
            bytes[8..16].copy_from_slice(&key().identity.to_le_bytes());
            let crc = crc32c_append(key().seed, &bytes[4..64]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
        if let Ok(header) = SegmentHeader::decode(&bytes) {
            prop_assert_eq!(&header.encode()[..], &bytes[..64]);
        }
        let at = if sealed && bytes.len() >= 24 { u64_at(&bytes, 16) } else { offset };
        if let Ok(group) = GroupHeader::decode(&bytes, &key(), at) {
            prop_assert_eq!(&group.encode(&key())[..], &bytes[..64]);
        }
        let _ = Trailer::decode(&bytes, &key(), offset);
        let _ = decode_index(&bytes, crc);
        let _ = decode_record(&bytes, &key(), sequence);
        if bytes.len() >= 8 {
            let _ = announced_bytes(&bytes);
        }
        let _ = FileName::parse(&String::from_utf8_lossy(&bytes));
    }
}
