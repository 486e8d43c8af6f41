//! Looks after the partitions from time to time: a log can fail while nobody writes to it, and a worker can stand still.

use std::sync::{Arc, Weak};

use super::{Inner, repair};

/// Watches until the replica is dropped.
pub(super) async fn watch(inner: Weak<Inner>) {
    loop {
        let Some(held) = inner.upgrade() else { return };
        let (runtime, interval) = (Arc::clone(&held.shared.runtime), held.shared.config.watch_interval);
        drop(held);
        runtime.sleep(interval).await;
        let Some(held) = inner.upgrade() else { return };
        held.look_after();
    }
}

impl Inner {
    fn look_after(&self) {
        let partitions: Vec<_> = self.partitions().values().cloned().collect();
        for partition in partitions {
            let mut state = partition.state();
            state.check_repaired(partition.id, &self.shared);
            let failed = state.log.as_ref().is_none_or(|log| log.failure().is_some());
            drop(state);
            if failed {
                repair::start(&partition, &self.shared);
            }
        }
        self.shared.dispatcher.tick();
    }
}
