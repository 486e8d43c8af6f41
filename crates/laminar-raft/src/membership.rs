//! The members of a group as bytes, in log entries and snapshots.
//!
//! All numbers are little-endian.
//!
//! ```text
//!  0         1   4         8
//! +---------+---+---------+---------+---------+------+------+-----+
//! | version | 0 | configs | nodes   | configs      | nodes      |
//! | u8      |   | u32     | u32     |              |            |
//! +---------+---+---------+---------+--------------+------------+
//!  config    count u32, node id u64, again and again, in order; more than one while members change
//!  node      id u64, length u32, address (UTF-8); in the order of the ids. One in no config is a learner
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::types::{Node, RaftMembership};

const VERSION: u8 = 1;

/// Why bytes are not the members of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MembershipError {
    /// They end too early.
    #[error("membership: {left} bytes left, {needed} needed; restore the log from a replica")]
    Short {
        /// How many there are.
        left: usize,
        /// How many there should be at least.
        needed: usize,
    },
    /// A value that was never written.
    #[error("membership: {what} cannot be {found}; restore the log from a replica")]
    Value {
        /// What has the value.
        what: &'static str,
        /// The value.
        found: u64,
    },
    /// Written by a newer release.
    #[error("membership: version {found}, and this release reads up to {VERSION}; upgrade it")]
    VersionTooNew {
        /// Its version.
        found: u8,
    },
}

/// Encodes the members of a group. Equal members give equal bytes.
pub fn encode_membership(membership: &RaftMembership) -> Bytes {
    let configs = membership.get_joint_config();
    let mut bytes = BytesMut::new();
    bytes.put_u32_le(u32::from(VERSION));
    bytes.put_u32_le(count(configs.len()));
    bytes.put_u32_le(count(membership.nodes().count()));
    for config in configs {
        bytes.put_u32_le(count(config.len()));
        config.iter().for_each(|id| bytes.put_u64_le(*id));
    }
    for (id, node) in membership.nodes() {
        bytes.put_u64_le(*id);
        bytes.put_u32_le(count(node.address.len()));
        bytes.put_slice(node.address.as_bytes());
    }
    bytes.freeze()
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("a group has few members, with short addresses")
}

/// Decodes the members of a group.
///
/// # Errors
///
/// The bytes are not what [`encode_membership`] wrote.
pub fn decode_membership(bytes: &[u8]) -> Result<RaftMembership, MembershipError> {
    let mut left = bytes;
    match need(&mut left, 12)?.get_u32_le() {
        found if found == u32::from(VERSION) => {}
        found => match u8::try_from(found) {
            Ok(found) if found > VERSION => return Err(MembershipError::VersionTooNew { found }),
            _ => return Err(MembershipError::Value { what: "version", found: u64::from(found) }),
        },
    }
    let (configs, nodes) = (left.get_u32_le(), left.get_u32_le());
    let mut joint = Vec::new();
    for _ in 0..configs {
        let members = need(&mut left, 4)?.get_u32_le();
        let mut config = BTreeSet::new();
        for _ in 0..members {
            let id = need(&mut left, 8)?.get_u64_le();
            if config.last().is_some_and(|last| *last >= id) {
                return Err(MembershipError::Value { what: "member", found: id });
            }
            config.insert(id);
        }
        joint.push(config);
    }
    let mut known = BTreeMap::new();
    for _ in 0..nodes {
        need(&mut left, 12)?;
        let (id, length) = (left.get_u64_le(), left.get_u32_le() as usize);
        let (address, rest) = need(&mut left, length)?.split_at(length);
        let Ok(address) = str::from_utf8(address) else {
            return Err(MembershipError::Value { what: "address of node", found: id });
        };
        if known.last_key_value().is_some_and(|(last, _)| *last >= id) {
            return Err(MembershipError::Value { what: "node", found: id });
        }
        known.insert(id, Node { address: address.to_owned() });
        left = rest;
    }
    if !left.is_empty() {
        return Err(MembershipError::Value { what: "bytes behind the end", found: left.len() as u64 });
    }
    let members = joint.len() as u64;
    // A voter must have an address, and no config may be empty.
    RaftMembership::new(joint, known).map_err(|_| MembershipError::Value {
        what: "a number of configs with wrong members",
        found: members,
    })
}

fn need<'a, 'b>(left: &'a mut &'b [u8], needed: usize) -> Result<&'a mut &'b [u8], MembershipError> {
    if left.len() < needed {
        return Err(MembershipError::Short { left: left.len(), needed });
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(configs: &[&[u64]], learners: &[u64]) -> RaftMembership {
        let joint: Vec<BTreeSet<u64>> = configs.iter().map(|ids| ids.iter().copied().collect()).collect();
        let ids: BTreeSet<u64> = joint.iter().flatten().chain(learners).copied().collect();
        let nodes: BTreeMap<u64, Node> =
            ids.into_iter().map(|id| (id, Node { address: format!("n{id}") })).collect();
        RaftMembership::new(joint, nodes).unwrap()
    }

    /// A release must read what an older one wrote: these bytes do not change.
    #[test]
    fn bytes_are_as_documented() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let encoded = encode_membership(&members(&[&[1]], &[2]));
        let expected = "010000000100000002000000\
                        010000000100000000000000\
                        0100000000000000020000006e31\
                        0200000000000000020000006e32";
        assert_eq!(hex(&encoded), expected);
    }

    #[test]
    fn members_go_there_and_back() {
        for membership in
            [members(&[], &[]), members(&[&[1, 2, 3]], &[9]), members(&[&[1, 2], &[2, 3, 4]], &[])]
        {
            assert_eq!(decode_membership(&encode_membership(&membership)), Ok(membership));
        }
    }

    #[test]
    fn what_was_never_written_is_refused() {
        let good = encode_membership(&members(&[&[1, 2]], &[]));
        for length in 0..good.len() {
            assert!(matches!(decode_membership(&good[..length]), Err(MembershipError::Short { .. })));
        }
        let mut newer = good.to_vec();
        newer[0] = 2;
        assert_eq!(decode_membership(&newer), Err(MembershipError::VersionTooNew { found: 2 }));
        let longer = [&good[..], &[0]].concat();
        assert!(matches!(decode_membership(&longer), Err(MembershipError::Value { found: 1, .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(counts in proptest::collection::vec(0..4_u8, 2), body in proptest::collection::vec(0..3_u8, 0..60)) {
            let bytes = [vec![1, 0, 0, 0, counts[0], 0, 0, 0, counts[1], 0, 0, 0], body].concat();
            if let Ok(membership) = decode_membership(&bytes) {
                prop_assert_eq!(&encode_membership(&membership)[..], &bytes[..]);
            }
        }
    }
}
