//! A snapshot that comes from a peer, until it has taken the place of what this replica had.

use bytes::Bytes;

use super::decoder::SnapshotDecoder;
use super::error::SnapshotError;
use super::file::FileSink;
use super::frame::{Frame, SnapshotForm, SnapshotHead};
use super::reader::SnapshotReader;
use super::store::{SnapshotStore, file_name};
use super::writer::SnapshotSink;
use crate::log_id::LogId;

const INSTALL: &str = ".install";

/// A snapshot on its way in. Dropping it forgets it.
#[derive(Debug)]
pub struct IncomingSnapshot {
    file: FileSink,
    decoder: SnapshotDecoder,
    head: Option<(SnapshotForm, SnapshotHead)>,
}

impl IncomingSnapshot {
    /// Takes the next bytes, of any length, and verifies the frames that they complete.
    ///
    /// # Errors
    ///
    /// Corrupt, if this is not what a peer wrote. Invalid, if a newer release wrote it. Overloaded, if the disk is
    /// full. Unavailable, if a file call fails.
    pub fn push(&mut self, bytes: Bytes) -> Result<(), SnapshotError> {
        self.decoder.push(&bytes);
        self.file.write(bytes)?;
        while let Some(frame) = self.decoder.next()? {
            if let Frame::Head(form, head) = frame {
                self.head = Some((form, head));
            }
        }
        Ok(())
    }

    /// Whether all of it is here.
    pub fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// How many bytes were understood so far.
    pub fn bytes(&self) -> u64 {
        self.decoder.bytes()
    }
}

impl SnapshotStore {
    /// Begins to receive a snapshot of a peer.
    ///
    /// # Errors
    ///
    /// Overloaded, if the disk is full. Unavailable, if a file call fails.
    pub fn begin_install(&self) -> Result<IncomingSnapshot, SnapshotError> {
        let file = self.dir.create_temporary()?;
        Ok(IncomingSnapshot { file, decoder: SnapshotDecoder::new(), head: None })
    }

    /// The point of no return: the snapshot that came, which must be the one of `expected`, is the state of this
    /// replica from here on, also after a crash.
    ///
    /// # Errors
    ///
    /// Corrupt, if it is not whole. Unavailable, if it is another one, or a file call fails: then nothing has changed,
    /// or, if the last call failed, it may be found at the next start.
    pub fn commit_install(
        &self,
        incoming: IncomingSnapshot,
        expected: LogId,
    ) -> Result<SnapshotHead, SnapshotError> {
        let IncomingSnapshot { file, decoder, head } = incoming;
        decoder.finish()?;
        let Some((SnapshotForm::Streamed, head)) = head else {
            return Err(SnapshotError::OutOfOrder { at: 0, frame: "head", after: "in the local form" });
        };
        if head.log_id != expected {
            return Err(SnapshotError::OtherSnapshot { found: head.log_id, expected });
        }
        file.commit(&file_name(expected, INSTALL))?;
        Ok(head)
    }

    /// The snapshot that is to be installed, which was read once and is whole. To be asked at every start, before
    /// anything else of this replica is read.
    ///
    /// # Errors
    ///
    /// As [`newest`](Self::newest).
    pub fn pending_install(&self) -> Result<Option<(SnapshotHead, SnapshotReader)>, SnapshotError> {
        // An older one was overtaken before it was finished.
        let Some(log_id) = self.list_suffix(INSTALL)?.pop() else { return Ok(None) };
        let reader = SnapshotReader::open(&self.dir, &file_name(log_id, INSTALL))?;
        reader.validate(SnapshotForm::Streamed, log_id).map(Some)
    }

    /// The entries that there are snapshots to be installed of, in order; all but the last were overtaken.
    ///
    /// # Errors
    ///
    /// Unavailable, if the folder cannot be read.
    pub fn list_installs(&self) -> Result<Vec<LogId>, SnapshotError> {
        self.list_suffix(INSTALL)
    }

    /// The snapshot to be installed at this entry, which is verified as it is read.
    ///
    /// # Errors
    ///
    /// Unavailable, if there is none or it cannot be opened.
    pub fn read_install(&self, log_id: LogId) -> Result<SnapshotReader, SnapshotError> {
        SnapshotReader::open(&self.dir, &file_name(log_id, INSTALL))
    }

    /// The partitions' logs have their rows and the local snapshot is written, all on disk: what came is not needed any
    /// more.
    ///
    /// # Errors
    ///
    /// Unavailable, if a file call fails; it can be called again.
    pub fn finish_install(&self) -> Result<(), SnapshotError> {
        for log_id in self.list_suffix(INSTALL)? {
            self.dir.remove(&file_name(log_id, INSTALL))?;
        }
        self.dir.sync()
    }
}
