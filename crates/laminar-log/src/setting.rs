//! Settings, and the ranges that they must be in.

use std::time::Duration;

use laminar_core::error::ErrorKind;
use thiserror::Error;

/// A setting that is out of its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{name} is {given}; it must be from {min} to {max}")]
pub struct SettingOutOfRange {
    /// Its name.
    pub name: &'static str,
    /// What it was set to.
    pub given: u64,
    /// The least it may be.
    pub min: u64,
    /// The most it may be.
    pub max: u64,
}

impl SettingOutOfRange {
    /// Always Invalid.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }

    /// Checks a number.
    ///
    /// # Errors
    /// It is not from `min` to `max`.
    pub fn check(name: &'static str, given: u64, min: u64, max: u64) -> Result<(), Self> {
        if (min..=max).contains(&given) { Ok(()) } else { Err(Self { name, given, min, max }) }
    }

    /// Checks a time, in milliseconds.
    ///
    /// # Errors
    /// It is not from `min` to `max`.
    pub fn check_time(name: &'static str, given: Duration, min: Duration, max: Duration) -> Result<(), Self> {
        Self::check(name, millis(given), millis(min), millis(max))
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
