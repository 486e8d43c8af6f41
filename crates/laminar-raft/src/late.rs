//! A verdict that comes when the partitions have applied an entry, which may be long after `apply` has returned.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use laminar_log::verdict::Verdict;

#[derive(Default)]
struct Slot {
    verdict: Option<Verdict>,
    waker: Option<Waker>,
    /// Nobody will bring a verdict any more.
    lost: bool,
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A verdict that is still to come; none if whoever was to bring it is gone.
pub struct LateVerdict {
    slot: Arc<Mutex<Slot>>,
}

/// Brings the verdict.
pub(crate) struct VerdictSender {
    slot: Arc<Mutex<Slot>>,
}

pub(crate) fn late_verdict() -> (VerdictSender, LateVerdict) {
    let slot = Arc::new(Mutex::new(Slot::default()));
    (VerdictSender { slot: Arc::clone(&slot) }, LateVerdict { slot })
}

impl LateVerdict {
    /// The verdict, if it is there already.
    pub(crate) fn take(&self) -> Option<Verdict> {
        lock(&self.slot).verdict.take()
    }
}

impl Future for LateVerdict {
    type Output = Option<Verdict>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.slot);
        match slot.verdict.take() {
            Some(verdict) => Poll::Ready(Some(verdict)),
            None if slot.lost => Poll::Ready(None),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl VerdictSender {
    pub(crate) fn send(self, verdict: Verdict) {
        lock(&self.slot).verdict = Some(verdict);
    }
}

impl Drop for VerdictSender {
    fn drop(&mut self) {
        let mut slot = lock(&self.slot);
        slot.lost = true;
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for LateVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LateVerdict").field("ready", &lock(&self.slot).verdict.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use laminar_log::verdict::Outcome;

    use super::*;

    #[test]
    fn a_verdict_comes_or_is_known_to_be_lost() {
        let verdict = Verdict::Accepted(Outcome::default());
        let (sender, mut late) = late_verdict();
        assert_eq!((&mut late).now_or_never(), None);
        sender.send(verdict.clone());
        assert_eq!(late.now_or_never(), Some(Some(verdict)));
        let (sender, late) = late_verdict();
        drop(sender);
        assert_eq!(late.now_or_never(), Some(None));
    }
}
