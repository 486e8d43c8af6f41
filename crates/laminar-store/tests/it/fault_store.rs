//! Stores that lose answers, or that let a name be written twice.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use laminar_core::error::ErrorKind;
use laminar_store::{BlockStore, StoreError, new_block_id};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// A store in memory with a fault.
#[derive(Debug, Default)]
struct Faulty {
    inner: InMemory,
    /// Creating a name writes over what is there.
    overwrites: bool,
    /// The next write happens, and its answer is lost.
    loses_answer: AtomicBool,
}

impl fmt::Display for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        if self.overwrites {
            options.mode = PutMode::Overwrite;
        }
        let done = self.inner.put_opts(path, payload, options).await;
        if self.loses_answer.swap(false, Ordering::SeqCst) {
            return Err(Error::Generic { store: "faulty", source: "the connection was cut".into() });
        }
        done
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn a_store_that_accepts_a_name_twice_is_refused() {
    let store = Arc::new(Faulty { overwrites: true, ..Faulty::default() });
    let error = BlockStore::open(store).await.unwrap_err();
    assert!(matches!(&error, StoreError::NotCreateOnly { store, .. } if store == "faulty"));
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_block_whose_answer_was_lost_is_ours_when_staged_again() {
    let faulty = Arc::new(Faulty::default());
    let store = BlockStore::open(faulty.clone()).await.unwrap();
    let (id, rows) = (new_block_id(1).unwrap(), Bytes::from_static(b"rows"));

    faulty.loses_answer.store(true, Ordering::SeqCst);
    let error = store.stage(id, rows.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Access { .. }));
    assert_eq!(error.kind(), ErrorKind::Unavailable);

    let block = store.stage(id, rows.clone()).await.unwrap();
    assert_eq!(store.read(&block.path, 0..4, block.checksum).await.unwrap(), rows);
}
