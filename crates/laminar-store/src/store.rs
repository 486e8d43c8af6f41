//! Writes, reads, lists and deletes blocks.

use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};

use crate::block::{BlockId, BlockRef, STAGE, StagedBlock, checksum, checksum_of_pieces, new_block_id};
use crate::error::StoreError;
use crate::local::Folder;

const PROBE: &str = "probe";

/// Blocks on an object store. Clones share it.
#[derive(Debug, Clone)]
pub struct BlockStore {
    store: Arc<dyn ObjectStore>,
    /// Of a local store.
    folder: Option<Folder>,
}

impl BlockStore {
    /// Blocks in a folder, which is made if it is not there. Everything that is written is synced.
    ///
    /// # Errors
    ///
    /// Unavailable: the folder cannot be made or written. Invalid: its file system lets a name be created twice.
    pub async fn open_local(dir: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = Folder::create(dir.into()).await?;
        let store = LocalFileSystem::new_with_prefix(folder.path()).map_err(access(STAGE, "opened"))?;
        Self::probed(Arc::new(store.with_fsync(true)), Some(folder)).await
    }

    /// Blocks in memory, gone with the last clone.
    ///
    /// # Errors
    ///
    /// None in practice; as [`BlockStore::open`].
    pub async fn in_memory() -> Result<Self, StoreError> {
        Self::open(Arc::new(InMemory::new())).await
    }

    /// Blocks on any store that creates a name only once, which is tried.
    ///
    /// # Errors
    ///
    /// Unavailable: the store does not answer. Invalid: it lets a name be created twice.
    pub async fn open(store: Arc<dyn ObjectStore>) -> Result<Self, StoreError> {
        Self::probed(store, None).await
    }

    /// The folder of a local store.
    pub fn folder(&self) -> Option<&FilePath> {
        self.folder.as_ref().map(Folder::path)
    }

    async fn probed(store: Arc<dyn ObjectStore>, folder: Option<Folder>) -> Result<Self, StoreError> {
        let opened = Self { store, folder };
        // The time is of no use in the name of a probe.
        let path = format!("{PROBE}/{:032x}", new_block_id(0)?.0);
        opened.create(&path, PutPayload::from_static(b"1")).await.map_err(access(&path, "created"))?;
        let second = opened.create(&path, PutPayload::from_static(b"2")).await;
        opened.remove(&path).await?;
        match second {
            Err(Error::AlreadyExists { .. }) => Ok(opened),
            Err(source) => Err(access(&path, "created a second time")(source)),
            Ok(()) => Err(StoreError::NotCreateOnly { store: opened.store.to_string(), path }),
        }
    }

    /// Writes a block. When this returns it is durable. Repeating it with the same id and bytes is harmless, and is what
    /// to do when the answer was lost.
    ///
    /// # Errors
    ///
    /// Internal: the id is taken by other bytes. Unavailable: the store failed; the block may be there or not.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped the block may be written or not; repeating it is harmless.
    pub async fn stage(&self, block: BlockId, bytes: Bytes) -> Result<BlockRef, StoreError> {
        self.stage_pieces(block, vec![bytes]).await
    }

    /// As [`stage`](Self::stage), of pieces that follow each other: large ones need not be copied into one.
    ///
    /// # Errors
    ///
    /// As [`stage`](Self::stage).
    ///
    /// # Cancel safety
    ///
    /// As [`stage`](Self::stage).
    pub async fn stage_pieces(&self, block: BlockId, pieces: Vec<Bytes>) -> Result<BlockRef, StoreError> {
        let path = block.path();
        let staged = BlockRef {
            id: block,
            path: path.clone(),
            length: pieces.iter().map(|piece| piece.len() as u64).sum(),
            checksum: checksum_of_pieces(&pieces),
        };
        match self.create(&path, PutPayload::from_iter(pieces)).await {
            Ok(()) => Ok(staged),
            // Perhaps our own: its answer may have been lost.
            Err(Error::AlreadyExists { .. }) => self.settle(staged).await,
            Err(source) => Err(access(&path, "written")(source)),
        }
    }

    /// Whether what is there is what we wanted to write.
    async fn settle(&self, staged: BlockRef) -> Result<BlockRef, StoreError> {
        let path = &staged.path;
        let found = match self.store.get(&Path::from(path.as_str())).await {
            Ok(found) => found.bytes().await.map_err(access(path, "read"))?,
            Err(source) => return Err(access(path, "read")(source)),
        };
        let (found_length, found) = (found.len() as u64, checksum(&found));
        if (found_length, found) != (staged.length, staged.checksum) {
            return Err(StoreError::BlockTaken {
                path: staged.path,
                found_length,
                found,
                length: staged.length,
                expected: staged.checksum,
            });
        }
        if let Some(folder) = &self.folder {
            folder.sync(staged.id).await?;
        }
        Ok(staged)
    }

    /// A part of a block, whose bytes have this checksum.
    ///
    /// # Errors
    ///
    /// Invalid: no path of a block. Corrupt: it is not there, too short, or has other bytes. Unavailable: the store failed.
    pub async fn read(&self, path: &str, range: Range<u64>, expected: u64) -> Result<Bytes, StoreError> {
        BlockId::from_path(path)?;
        let Range { start: begin, end } = range;
        if begin > end {
            return Err(StoreError::BadRange { path: path.to_owned(), begin, end });
        }
        // An empty range is no range for a store; then only the block's being there is looked at.
        let asked = (begin < end).then_some(GetRange::Bounded(begin..end));
        let options = GetOptions { head: asked.is_none(), range: asked, ..GetOptions::default() };
        let found = match self.store.get_opts(&Path::from(path), options).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Err(StoreError::Missing { path: path.to_owned() }),
            Err(source) => return Err(self.explain(path, begin..end, source).await),
        };
        let length = found.meta.size;
        if end > length {
            return Err(StoreError::TooShort { path: path.to_owned(), begin, end, length });
        }
        let bytes =
            if begin == end { Bytes::new() } else { found.bytes().await.map_err(access(path, "read"))? };
        let sum = checksum(&bytes);
        if bytes.len() as u64 != end - begin || sum != expected {
            return Err(StoreError::Corrupt { path: path.to_owned(), begin, end, found: sum, expected });
        }
        Ok(bytes)
    }

    /// Stores tell in different ways that a range lies behind the end.
    async fn explain(&self, path: &str, range: Range<u64>, source: Error) -> StoreError {
        match self.store.head(&Path::from(path)).await {
            Ok(ObjectMeta { size: length, .. }) if range.end > length => {
                StoreError::TooShort { path: path.to_owned(), begin: range.start, end: range.end, length }
            }
            _ => access(path, "read")(source),
        }
    }

    /// Deletes a block; one that is not there is fine. Only after the log says that nothing will ever point to it.
    ///
    /// # Errors
    ///
    /// Invalid: no path of a block. Unavailable: the store failed.
    pub async fn delete(&self, path: &str) -> Result<(), StoreError> {
        BlockId::from_path(path)?;
        self.remove(path).await
    }

    /// All blocks, in the order of their ids, which is that of their age.
    ///
    /// # Errors
    ///
    /// Unavailable: the store failed.
    pub async fn list(&self) -> Result<Vec<StagedBlock>, StoreError> {
        let objects: Vec<ObjectMeta> =
            self.store.list(Some(&Path::from(STAGE))).try_collect().await.map_err(access(STAGE, "listed"))?;
        let block = |object: ObjectMeta| {
            let path = object.location.to_string();
            // What is not called like a block is not ours to judge.
            let id = BlockId::from_path(&path).ok()?;
            let written_ms = object.last_modified.timestamp_millis();
            Some(StagedBlock { id, path, length: object.size, written_ms })
        };
        let mut blocks: Vec<StagedBlock> = objects.into_iter().filter_map(block).collect();
        blocks.sort_by_key(|block| block.id);
        Ok(blocks)
    }

    async fn create(&self, path: &str, payload: PutPayload) -> Result<(), Error> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        self.store.put_opts(&Path::from(path), payload, options).await.map(drop)
    }

    async fn remove(&self, path: &str) -> Result<(), StoreError> {
        match self.store.delete(&Path::from(path)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(access(path, "deleted")(source)),
        }
    }
}

fn access(path: &str, doing: &'static str) -> impl FnOnce(Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Access { path, doing, source }
}
