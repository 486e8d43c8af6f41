//! Reads fixed-size numbers one after the other, and knows where it is.

use bytes::Bytes;

use super::{FORMAT_VERSION, FormatError};

/// Bytes being read, of which each part can be kept without a copy.
pub(super) struct Cursor<'a> {
    bytes: &'a Bytes,
    at: usize,
    what: &'static str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a Bytes, at: usize, what: &'static str) -> Self {
        Self { bytes, at, what }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next `length` bytes.
    pub(super) fn slice(&mut self, length: usize) -> Result<&'a [u8], FormatError> {
        let found = self.bytes.len() - self.at;
        let Some(end) = self.at.checked_add(length).filter(|end| *end <= self.bytes.len()) else {
            return Err(FormatError::Length { what: self.what, at: self.at, found, expected: length });
        };
        let slice = &self.bytes[self.at..end];
        self.at = end;
        Ok(slice)
    }

    /// The same, kept alive with the whole.
    pub(super) fn take(&mut self, length: usize) -> Result<Bytes, FormatError> {
        self.slice(length).map(|slice| self.bytes.slice_ref(slice))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        self.slice(N).map(|slice| *slice.first_chunk().expect("N bytes were taken"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, FormatError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, FormatError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, FormatError> {
        self.array().map(u128::from_le_bytes)
    }

    /// Bytes that say nothing yet.
    pub(super) fn zeros(&mut self, length: usize) -> Result<(), FormatError> {
        let at = self.at;
        match self.slice(length)?.iter().find(|byte| **byte != 0) {
            None => Ok(()),
            Some(byte) => Err(FormatError::Value { what: self.what, at, found: u64::from(*byte) }),
        }
    }

    pub(super) fn version(&mut self) -> Result<(), FormatError> {
        let at = self.at;
        match self.u8()? {
            FORMAT_VERSION => Ok(()),
            0 => Err(FormatError::Value { what: self.what, at, found: 0 }),
            found => Err(FormatError::VersionTooNew { what: self.what, at, found }),
        }
    }

    /// The last `length` bytes read were this value, which is not one.
    pub(super) fn bad_value(&self, length: usize, found: u64) -> FormatError {
        FormatError::Value { what: self.what, at: self.at - length, found }
    }

    /// Everything was read.
    pub(super) fn end(&self, expected: usize) -> Result<(), FormatError> {
        if self.at == expected {
            return Ok(());
        }
        Err(FormatError::Length { what: self.what, at: self.at, found: expected - self.at, expected: 0 })
    }
}
