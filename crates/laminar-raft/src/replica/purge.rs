//! Keeps the Raft log short in bytes. openraft counts entries, and ten thousand of them may be ten gigabytes.
//!
//! 1. Once the entries that were applied since the last snapshot have `snapshot_bytes`, openraft is asked for another.
//!    That the log is long is no reason: a snapshot comes only for what was applied since the one before, so one that frees
//!    nothing does not call for the next. One that fails is tried again where it is built (`machine.rs`), and what is asked
//!    for meanwhile openraft drops.
//! 2. Of what the snapshot has, no more than `kept_bytes` stay. openraft purges nothing that its snapshot lacks or that it
//!    is sending; and a snapshot is reported only once every partition's own log is on disk up to it, so no partition needs
//!    what goes (LOG-5). A follower that does gets the snapshot, as one that lags `kept_entries` does.

use std::sync::Weak;
use std::time::Duration;

use openraft::AsyncRuntime;
use openraft::async_runtime::watch::WatchReceiver;

use super::Inner;
use super::life::Life;

/// How often it is looked. A fast disk takes some tens of megabytes meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What was asked for last: of which life, and up to which entry.
type Asked = Option<(Duration, u64)>;

/// Keeps the log of a group short, until the replica is gone.
pub(super) async fn keep_short<R: AsyncRuntime>(inner: Weak<Inner<R>>) {
    let mut purge_asked = None;
    loop {
        let Some(held) = inner.upgrade() else { return };
        if held.is_shut_down() {
            return;
        }
        if let Ok(life) = held.serving() {
            held.shorten(&life, &mut purge_asked).await;
        }
        let interval = LOOK_INTERVAL.min(held.config.tick);
        drop(held);
        R::sleep(interval).await;
    }
}

impl<R: AsyncRuntime> Inner<R> {
    async fn shorten(&self, life: &Life<R>, purge_asked: &mut Asked) {
        let metrics = life.raft.metrics();
        let (snapshot, applied) = {
            let metrics = metrics.borrow_watched();
            let index = |id: Option<&crate::types::RaftLogId>| id.map(|id| id.index());
            (index(metrics.snapshot.as_ref()), index(metrics.last_applied.as_ref()))
        };
        let Some(applied) = applied else { return };
        let settings = &self.config.raft;
        // A group that has ended says so to whoever watches over it.
        if life.store.bytes_between(snapshot.unwrap_or(0), applied) >= settings.snapshot_bytes {
            drop(life.raft.trigger().snapshot().await);
        }
        let kept_bytes = settings.kept_bytes.min(settings.snapshot_bytes / 4);
        let Some(upto) = snapshot.and_then(|snapshot| life.store.before_last_bytes(snapshot, kept_bytes))
        else {
            return;
        };
        // It may have to wait for a follower, and need not be asked for twice.
        let asked = purge_asked.filter(|(began, _)| *began == life.began).map(|(_, upto)| upto);
        let purged = life.store.state().purged.map(|purged| purged.index.0);
        if Some(upto) > purged.max(asked) {
            *purge_asked = Some((life.began, upto));
            drop(life.raft.trigger().purge_log(upto).await);
        }
    }
}
