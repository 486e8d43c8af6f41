//! The wall clock, asked in one place. It may jump: it is for people and for the times of rows, never for decisions.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "the one place that asks the wall clock")]
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
