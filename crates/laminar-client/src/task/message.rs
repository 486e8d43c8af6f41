//! What a task tells whoever commits, as bytes. They come from outside, so nothing in them is taken for granted.
//!
//! ```text
//!   0        4         5   8          16
//!  +--------+---------+---+----------+------------------------+
//!  | "LAMT" | version | 0 | checksum | TaskParts, as protobuf |
//!  |        | u8 = 1  |   | u64      |                        |
//!  +--------+---------+---+----------+------------------------+
//!   checksum  xxh3 of what follows, little-endian
//! ```

use bytes::{BufMut, Bytes};
use laminar_rpc::proto::{PartitionRows, TaskParts, partition_rows};
use laminar_rpc::{Failure, Message};
use laminar_store::{BlockId, checksum};

const MARK: &[u8; 4] = b"LAMT";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 16;

/// The message of a task.
pub(crate) fn encode(parts: &TaskParts) -> Bytes {
    let body = parts.encode_to_vec();
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend_from_slice(MARK);
    message.put_u8(VERSION);
    message.put_bytes(0, 3);
    message.put_u64_le(checksum(&body));
    message.extend_from_slice(&body);
    message.into()
}

/// What a message says. Its inline rows share its memory.
///
/// # Errors
/// Invalid: it is no message of a task, of a newer release, or not whole.
pub(crate) fn decode(message: &Bytes) -> Result<TaskParts, Failure> {
    let Some((header, body)) = message.split_at_checked(HEADER_BYTES) else {
        return Err(refused(&format!(
            "it has {} bytes and a message has at least {HEADER_BYTES}",
            message.len()
        )));
    };
    if header[..4] != MARK[..] {
        return Err(refused("it is no message of a task; pass what TaskWriter.finish returned"));
    }
    if header[4] > VERSION {
        let version = header[4];
        return Err(refused(&format!(
            "it has version {version} and this release reads up to {VERSION}; upgrade whoever commits"
        )));
    }
    let expected = header[8..].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    if header[4..8] != [VERSION, 0, 0, 0] || checksum(body) != expected {
        return Err(refused("it is not whole, or was changed on its way; run the task again"));
    }
    let parts = TaskParts::decode(message.slice(HEADER_BYTES..))
        .map_err(|error| refused(&format!("it cannot be read ({error})")))?;
    parts.parts.iter().try_for_each(check_part)?;
    let rows = parts.parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(u64::from(part.rows)));
    if rows != Some(parts.rows) {
        return Err(refused("its parts do not have as many rows as it says"));
    }
    Ok(parts)
}

fn check_part(part: &PartitionRows) -> Result<(), Failure> {
    if part.rows == 0 {
        return Err(refused("a part of it has no rows"));
    }
    match &part.payload {
        None => Err(refused("a part of it has neither rows nor a place of them")),
        Some(partition_rows::Payload::Inline(_)) => Ok(()),
        Some(partition_rows::Payload::Pointer(pointer)) => {
            let id = BlockId((u128::from(pointer.block_high) << 64) | u128::from(pointer.block_low));
            let named = BlockId::from_path(&pointer.path).is_ok_and(|named| named == id);
            if named && pointer.begin.checked_add(pointer.length).is_some() {
                Ok(())
            } else {
                Err(refused(&format!("a part of it lies where none can be: {:?}", pointer.path)))
            }
        }
    }
}

fn refused(what: &str) -> Failure {
    Failure::invalid(format!("message of a task refused: {what}"))
}

#[cfg(test)]
mod tests {
    use laminar_rpc::ErrorClass;
    use laminar_rpc::proto::BlockPointer;
    use laminar_store::new_block_id;
    use proptest::prelude::*;

    use super::*;

    fn pointer(time_ms: u64, begin: u64, length: u64) -> BlockPointer {
        let id = new_block_id(time_ms).unwrap();
        BlockPointer {
            block_high: (id.0 >> 64) as u64,
            block_low: id.0 as u64,
            begin,
            length,
            checksum: 7,
            path: id.path(),
        }
    }

    fn part() -> impl Strategy<Value = PartitionRows> {
        let inline = prop::collection::vec(any::<u8>(), 0..64)
            .prop_map(|bytes| partition_rows::Payload::Inline(bytes.into()));
        let staged = (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(time, begin, length)| {
            partition_rows::Payload::Pointer(pointer(u64::from(time), u64::from(begin), u64::from(length)))
        });
        (any::<u32>(), 1..1000_u32, prop_oneof![inline, staged]).prop_map(|(partition_id, rows, payload)| {
            PartitionRows { partition_id, epoch: 0, rows, payload: Some(payload) }
        })
    }

    fn parts() -> impl Strategy<Value = TaskParts> {
        (any::<u64>(), any::<u32>(), prop::collection::vec(part(), 0..8)).prop_map(
            |(stream_id, partition_count, parts)| {
                let rows = parts.iter().map(|part| u64::from(part.rows)).sum();
                TaskParts { stream_id, partition_count, rows, parts }
            },
        )
    }

    /// The message of anything, right or not.
    fn sealed(body: &[u8]) -> Bytes {
        let mut message = MARK.to_vec();
        message.extend_from_slice(&[VERSION, 0, 0, 0]);
        message.put_u64_le(checksum(body));
        message.extend_from_slice(body);
        message.into()
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(parts in parts()) {
            prop_assert_eq!(decode(&encode(&parts)).unwrap(), parts);
        }

        #[test]
        fn messages_that_were_cut_or_changed_are_refused(parts in parts(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let message = encode(&parts);
            let at = at.index(message.len());
            prop_assert_eq!(decode(&message.slice(..at)).unwrap_err().class, ErrorClass::Invalid);
            let mut changed = message.to_vec();
            changed[at] ^= 1 << bit;
            prop_assert_eq!(decode(&changed.into()).unwrap_err().class, ErrorClass::Invalid);
        }

        #[test]
        fn any_bytes_give_parts_that_can_be_or_an_error(body in prop::collection::vec(any::<u8>(), 0..256)) {
            for message in [Bytes::from(body.clone()), sealed(&body)] {
                match decode(&message) {
                    Ok(parts) => prop_assert!(parts.parts.iter().all(|part| part.rows > 0)),
                    Err(failure) => prop_assert_eq!(failure.class, ErrorClass::Invalid),
                }
            }
        }
    }

    #[test]
    fn parts_that_cannot_be_are_refused() {
        let right = PartitionRows {
            partition_id: 1,
            epoch: 0,
            rows: 2,
            payload: Some(partition_rows::Payload::Pointer(pointer(9, 0, 10))),
        };
        let of = |part: PartitionRows, rows: u64| {
            decode(&encode(&TaskParts { stream_id: 1, partition_count: 0, rows, parts: vec![part] }))
        };
        assert!(of(right.clone(), 2).is_ok());
        let elsewhere = BlockPointer { path: "stage/../secret".to_owned(), ..pointer(9, 0, 10) };
        let other = BlockPointer { block_low: 1, ..pointer(9, 0, 10) };
        let beyond = pointer(9, u64::MAX, 1);
        for wrong in [elsewhere, other, beyond] {
            let payload = Some(partition_rows::Payload::Pointer(wrong));
            assert_eq!(
                of(PartitionRows { payload, ..right.clone() }, 2).unwrap_err().class,
                ErrorClass::Invalid
            );
        }
        assert!(of(PartitionRows { payload: None, ..right.clone() }, 2).is_err());
        assert!(of(PartitionRows { rows: 0, ..right.clone() }, 0).is_err());
        assert!(of(right, 3).unwrap_err().message.contains("as many rows"));
    }

    #[test]
    fn messages_of_a_newer_release_ask_for_an_upgrade() {
        let mut message = sealed(b"").to_vec();
        message[4] = VERSION + 1;
        assert!(decode(&message.into()).unwrap_err().message.contains("upgrade"));
    }
}
