//! Random operations on guards and guard sets against a model that states the rules in the plainest way.

use std::collections::BTreeMap;

use laminar_core::error::EpochError;
use laminar_core::guard::{PartitionGuard, PartitionGuardSet};
use laminar_core::ids::{Epoch, NodeId, PartitionId, RequestId};
use laminar_core::metadata::{DeltaMetadata, MetadataChange, MetadataLogEntry};
use proptest::prelude::*;

const ME: NodeId = NodeId(1);
const PARTITIONS: [u32; 5] = [0, 1, 64, 70_000, u32::MAX];

#[derive(Debug, Clone)]
enum Op {
    Insert { partition: u32, epoch: u64 },
    Remove { partition: u32 },
    Refresh { view: View },
    Validate { view: View },
}

/// What some replica, new or old, says of the partitions.
type View = BTreeMap<u32, (u64, u64)>;

fn partition() -> impl Strategy<Value = u32> {
    prop::sample::select(&PARTITIONS[..])
}

fn view() -> impl Strategy<Value = View> {
    prop::collection::btree_map(partition(), (0..3_u64, 1..6_u64), 0..=PARTITIONS.len())
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (partition(), 1..6_u64).prop_map(|(partition, epoch)| Op::Insert { partition, epoch }),
        1 => partition().prop_map(|partition| Op::Remove { partition }),
        3 => view().prop_map(|view| Op::Refresh { view }),
        2 => view().prop_map(|view| Op::Validate { view }),
    ]
}

fn metadata(view: &View) -> DeltaMetadata {
    let mut metadata = DeltaMetadata::new();
    for (&partition, &(node, epoch)) in view {
        let change = MetadataChange::AssignPartition {
            partition_id: PartitionId(partition),
            node_id: NodeId(node),
            epoch: Epoch::new(epoch).unwrap(),
            expected: None,
        };
        let entry = MetadataLogEntry::one(0, RequestId::NONE, change);
        assert!(metadata.apply(&entry).is_applied());
    }
    metadata
}

/// A guard of the model: its epoch, and whether it has ended.
#[derive(Debug, Clone, Copy)]
struct Modelled {
    epoch: u64,
    ended: bool,
}

impl Modelled {
    fn hear(&mut self, ownership: Option<&(u64, u64)>) {
        self.ended |= match ownership {
            None => true,
            Some(&(node, epoch)) => epoch > self.epoch || (epoch == self.epoch && node != ME.0),
        };
    }
}

fn guard(partition: u32, epoch: u64) -> PartitionGuard {
    PartitionGuard::new(PartitionId(partition), Epoch::new(epoch).unwrap(), ME).unwrap()
}

proptest! {
    /// EPOCH-3 and the meaning of every answer, for one guard under any sequence of answers of replicas new and old.
    #[test]
    fn guard_follows_the_model(views in prop::collection::vec((any::<bool>(), view()), 0..12)) {
        let guard = guard(0, 3);
        let mut model = Modelled { epoch: 3, ended: false };
        for (validates, view) in views {
            let seen = metadata(&view);
            model.hear(view.get(&0));
            if validates {
                let confirmed = view.get(&0) == Some(&(ME.0, 3)) && !model.ended;
                prop_assert_eq!(guard.validate(&seen).is_ok(), confirmed);
            } else {
                prop_assert_eq!(guard.refresh(&seen), !model.ended);
            }
            prop_assert_eq!(guard.check().is_ok(), !model.ended);
            prop_assert_eq!(guard.clone().check(), guard.check());
        }
    }

    /// The same for a set with insertions and removals: it agrees with a map of guards that remembers, for each
    /// partition, the newest epoch heard of.
    #[test]
    fn guard_set_follows_the_model(ops in prop::collection::vec(op(), 0..40)) {
        let set = PartitionGuardSet::new(ME).unwrap();
        let mut guards: BTreeMap<u32, Modelled> = BTreeMap::new();
        let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Insert { partition, epoch } => {
                    let heard = newest.entry(partition).or_insert(epoch);
                    *heard = epoch.max(*heard);
                    let replaced = set.insert(guard(partition, epoch)).unwrap();
                    let expected = guards.insert(partition, Modelled { epoch, ended: epoch < *heard });
                    prop_assert_eq!(
                        replaced.map(|guard| (guard.epoch().get(), guard.check().is_err())),
                        expected.map(|guard| (guard.epoch, guard.ended))
                    );
                }
                Op::Remove { partition } => {
                    let removed = set.remove(PartitionId(partition)).map(|guard| guard.epoch().get());
                    prop_assert_eq!(removed, guards.remove(&partition).map(|guard| guard.epoch));
                }
                Op::Refresh { view } | Op::Validate { view } if guards.is_empty() => {
                    prop_assert_eq!(set.refresh_all(&metadata(&view)), []);
                }
                Op::Refresh { view } => {
                    let revoked = set.refresh_all(&metadata(&view));
                    hear_all(&mut guards, &mut newest, &view);
                    prop_assert_eq!(revoked, failing(&guards));
                }
                Op::Validate { view } => {
                    let refused: Vec<_> = set.validate_all(&metadata(&view)).into_iter().map(|(id, _)| id).collect();
                    hear_all(&mut guards, &mut newest, &view);
                    let unconfirmed = guards.iter().filter(|(partition, guard)| {
                        guard.ended || view.get(partition) != Some(&(ME.0, guard.epoch))
                    });
                    prop_assert_eq!(refused, unconfirmed.map(|(id, _)| PartitionId(*id)).collect::<Vec<_>>());
                }
            }
            let ids: Vec<_> = guards.keys().copied().map(PartitionId).collect();
            prop_assert_eq!(set.partition_ids(), ids.clone());
            prop_assert_eq!(set.len(), guards.len());
            prop_assert_eq!(set.check_many(ids), failing(&guards));
            for partition in PARTITIONS {
                let fresh = guards.get(&partition).is_some_and(|guard| !guard.ended);
                let answer = set.check(PartitionId(partition));
                prop_assert_eq!(answer.is_ok(), fresh);
                if !guards.contains_key(&partition) {
                    let absent = matches!(answer, Err(EpochError::NotOwned { .. }));
                    prop_assert!(absent);
                }
            }
        }
    }
}

fn hear_all(guards: &mut BTreeMap<u32, Modelled>, newest: &mut BTreeMap<u32, u64>, view: &View) {
    for (partition, guard) in guards.iter_mut() {
        guard.hear(view.get(partition));
        let heard = newest.entry(*partition).or_insert(guard.epoch);
        *heard = (*heard).max(view.get(partition).map_or(0, |&(_, epoch)| epoch));
    }
}

fn failing(guards: &BTreeMap<u32, Modelled>) -> Vec<PartitionId> {
    guards.iter().filter(|(_, guard)| guard.ended).map(|(partition, _)| PartitionId(*partition)).collect()
}
