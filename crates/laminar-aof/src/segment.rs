//! One segment of a log: its identity, its index, and the file it is in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{AofError, SegmentPart};
use crate::format::{
    DATA_START, INDEX_ENTRY_BYTES, IndexEntry, SegmentHeader, SegmentKey, Trailer, decode_index,
    encode_index, free_file_name, segment_file_name,
};
use crate::fs::{Folder, OpenFile};

/// How much of a segment is filled at a time.
const FILL_BYTES: usize = 1 << 20;

/// A segment, shared by the writer, the log and its readers. As long as a reader has it, its file is not recycled.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) key: SegmentKey,
    pub(crate) capacity: u64,
    /// The id in the name of its file while it is a draft: its own, or that of the segment the file was before.
    draft_id: u64,
    named: AtomicBool,
    index: Mutex<Index>,
}

#[derive(Debug)]
enum Index {
    Here(Vec<IndexEntry>),
    /// In the file, behind the records, and read when it is needed first.
    InFile(Trailer),
}

impl Segment {
    /// One that was found in the folder, without a trailer.
    pub(crate) fn scanned(header: &SegmentHeader, index: Vec<IndexEntry>) -> Arc<Self> {
        Arc::new(Self::new(header, Index::Here(index), None))
    }

    /// One that was found in the folder, with a trailer.
    pub(crate) fn sealed(header: &SegmentHeader, trailer: Trailer) -> Arc<Self> {
        Arc::new(Self::new(header, Index::InFile(trailer), None))
    }

    fn new(header: &SegmentHeader, index: Index, draft_id: Option<u64>) -> Self {
        Self {
            key: header.key,
            capacity: header.capacity,
            draft_id: draft_id.unwrap_or(header.key.id),
            named: AtomicBool::new(draft_id.is_none()),
            index: Mutex::new(index),
        }
    }

    /// Whether its file was that of another segment before.
    pub(crate) fn is_recycled(&self) -> bool {
        self.draft_id != self.key.id
    }

    /// What its file is called once it is no draft any more.
    pub(crate) fn file_name(&self) -> String {
        segment_file_name(self.key.id)
    }

    /// What its file is called as long as it is a draft. It may get its name right after this.
    pub(crate) fn draft_name(&self) -> Option<String> {
        // ORDER: relaxed, who opens a draft and does not find it looks for the name.
        (!self.named.load(Ordering::Relaxed)).then(|| free_file_name(self.draft_id))
    }

    /// Gives the file its name, which is not durable yet. All of its bytes are on disk: a segment without a header is
    /// a damaged one.
    pub(crate) fn give_name(&self, folder: &Folder) -> Result<(), AofError> {
        if let Some(draft) = self.draft_name() {
            folder.rename(&draft, &self.file_name())?;
            self.named.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Opens its file.
    pub(crate) fn open(&self, folder: &Folder, writable: bool) -> Result<OpenFile, AofError> {
        match self.draft_name().map(|draft| folder.open(&draft, writable)) {
            // It has got its name meanwhile. No other file is ever called as this one was, as long as it is in use.
            Some(Err(error)) if error.is_not_found() => folder.open(&self.file_name(), writable),
            Some(opened) => opened,
            None => folder.open(&self.file_name(), writable),
        }
    }

    pub(crate) fn add_to_index(&self, entries: &mut Vec<IndexEntry>) {
        match &mut *self.index() {
            Index::Here(index) => index.append(entries),
            Index::InFile(_) => unreachable!("nothing is written to a sealed segment"),
        }
    }

    /// The last place in the index at or before `sequence`, which the segment has.
    pub(crate) fn place_of(
        &self,
        sequence: u64,
        file: &OpenFile,
        folder: &Folder,
    ) -> Result<IndexEntry, AofError> {
        let mut index = self.index();
        if let Index::InFile(trailer) = &*index {
            *index = Index::Here(self.read_index(trailer, file, folder)?);
        }
        let Index::Here(entries) = &*index else { unreachable!("it was read above") };
        let after = entries.partition_point(|entry| entry.sequence <= sequence);
        Ok(entries[after.checked_sub(1).expect("the first record of a segment is in its index")])
    }

    fn read_index(
        &self,
        trailer: &Trailer,
        file: &OpenFile,
        folder: &Folder,
    ) -> Result<Vec<IndexEntry>, AofError> {
        let mut bytes = vec![0; trailer.index_entries as usize * INDEX_ENTRY_BYTES];
        let read = file.read_at(&mut bytes, trailer.data_end)?;
        decode_index(&bytes[..read], trailer.index_crc).map_err(|mismatch| AofError::CorruptSegment {
            dir: folder.dir.clone(),
            segment: self.key.id,
            part: SegmentPart::Index,
            byte: trailer.data_end,
            found: mismatch.found,
            expected: mismatch.expected,
        })
    }

    /// Writes index and trailer behind the records and gives back the room that is left.
    ///
    /// Whatever a crash leaves of this, the records stand below and are found by scanning.
    pub(crate) fn seal(&self, file: &OpenFile, extent: SegmentExtent, start: u64) -> Result<(), AofError> {
        let mut index = self.index();
        let Index::Here(entries) = &mut *index else { return Ok(()) };
        entries.retain(|entry| entry.offset < extent.data_end);
        let mut footer = encode_index(entries);
        let trailer = Trailer {
            first_sequence: extent.first,
            end_sequence: extent.end,
            data_end: extent.data_end,
            start,
            index_entries: u32::try_from(entries.len()).expect("a segment of 4 GiB has fewer places"),
            index_crc: crc32c::crc32c(&footer),
        };
        footer.extend_from_slice(&trailer.encode(&self.key));
        file.write_at(&footer, extent.data_end)?;
        // The trailer first: a shortened file without one would look damaged.
        file.sync()?;
        file.set_length(trailer.file_bytes())?;
        file.sync()?;
        *index = Index::InFile(trailer);
        Ok(())
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a segment holds: records `first..end`, which end at byte `data_end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentExtent {
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) data_end: u64,
}

/// A segment and its file, open for writing.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: OpenFile,
}

impl OpenSegment {
    /// Makes a file of `capacity` bytes with a header, out of the `recycled` one if there is one. It is a draft: opening
    /// removes it, so that a crash leaves nothing of it.
    pub(crate) fn draft(
        folder: &Folder,
        id: u64,
        capacity: u64,
        recycled: Option<u64>,
    ) -> Result<Self, AofError> {
        let draft_id = recycled.unwrap_or(id);
        let name = free_file_name(draft_id);
        let file = match recycled {
            Some(_) => folder.open(&name, true)?,
            None => folder.create(&name)?,
        };
        if recycled.is_some() && file.length()? > capacity {
            file.set_length(capacity)?;
        }
        file.allocate(capacity)?;
        let header = SegmentHeader { key: SegmentKey::new(id, folder.entropy()?), capacity };
        file.write_at(&header.encode(), 0)?;
        let segment = Arc::new(Segment::new(&header, Index::Here(Vec::new()), Some(draft_id)));
        Ok(Self { segment, file })
    }

    /// Writes zeros to all of a new segment, unless its file was one before. The first write to each block of a file that
    /// is only reserved changes the file's metadata too, which the next sync then waits for.
    pub(crate) fn fill(&self) -> Result<(), AofError> {
        if self.segment.is_recycled() {
            return Ok(());
        }
        let zeros = vec![0; FILL_BYTES];
        let mut at = DATA_START;
        while at < self.segment.capacity {
            let bytes = (self.segment.capacity - at).min(FILL_BYTES as u64) as usize;
            self.file.write_at(&zeros[..bytes], at)?;
            // A little at a time: whoever syncs an append waits for what the disk was given before.
            self.file.sync()?;
            at += bytes as u64;
        }
        Ok(())
    }
}
