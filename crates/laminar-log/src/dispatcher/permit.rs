//! What an admitted caller holds until it is answered.

use std::sync::Arc;

use super::assembler::ClientId;
use super::charge::Charges;
use super::shared::Shared;

/// An admitted entry. It counts until it is dropped: when the reply has arrived, or the proposal is lost.
#[must_use = "dropping the permit ends the admission"]
#[derive(Debug)]
pub struct Permit {
    pub(super) shared: Arc<Shared>,
    pub(super) charges: Charges,
}

impl Permit {
    /// How many records were admitted.
    pub fn ops(&self) -> u64 {
        self.charges.total().ops
    }

    /// How many bytes they count for.
    pub fn bytes(&self) -> u64 {
        self.charges.total().bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = self.shared.runtime.now();
        self.shared.lock().release(&self.charges, now);
    }
}

/// The right to wait at a barrier. It counts until it is dropped.
#[must_use = "dropping the permit ends the waiting"]
#[derive(Debug)]
pub struct WaiterPermit {
    pub(super) shared: Arc<Shared>,
    pub(super) client: ClientId,
}

impl Drop for WaiterPermit {
    fn drop(&mut self) {
        self.shared.lock().release_waiter(self.client);
    }
}
