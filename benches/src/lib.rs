//! What the benches share: seeded inputs, so that two runs measure the same work, and the floor they are compared with.

#![allow(clippy::unwrap_used, reason = "a failed bench should stop")]

pub mod floor;

/// A small generator (xorshift) with a fixed seed. Good enough to put ids out of order, and the same everywhere.
pub struct Seeded(u64);

impl Seeded {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// `count` numbers below `limit`.
    pub fn below(&mut self, limit: u32, count: usize) -> Vec<u32> {
        (0..count).map(|_| (self.next_u64() % u64::from(limit)) as u32).collect()
    }
}
