//! Chance from the system, for secrets and ids.

use rustix::rand::{GetRandomFlags, getrandom};

/// 128 random bits. Waits until the system has them, which Linux always has once it runs.
pub(crate) fn bits128() -> u128 {
    let mut bytes = [0_u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        // Interrupted by a signal before anything was given.
        let Ok(given) = getrandom(&mut bytes[filled..], GetRandomFlags::empty()) else { continue };
        filled += given;
    }
    u128::from_le_bytes(bytes)
}
