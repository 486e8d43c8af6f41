//! Blocks in a folder and in memory: written once, read as written.
use std::fs;

use bytes::Bytes;
use laminar_core::error::ErrorKind;
use laminar_store::{BlockId, BlockStore, StoreError, checksum, new_block_id};

const NOW: u64 = 1_700_000_000_000;

fn rows() -> Bytes {
    Bytes::from_static(b"some rows of a large batch")
}

/// Both kinds of store, and what keeps the folder.
async fn stores() -> (Vec<BlockStore>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let local = BlockStore::open_local(dir.path().join("a/objects")).await.unwrap();
    (vec![local, BlockStore::in_memory().await.unwrap()], dir)
}

#[tokio::test]
async fn a_staged_block_is_read_back_in_parts() {
    let (stores, _dir) = stores().await;
    for store in stores {
        let id = new_block_id(NOW).unwrap();
        let block = store.stage(id, rows()).await.unwrap();
        assert_eq!(block.path, format!("stage/{:032x}", id.0));
        assert_eq!((block.id, block.length, block.checksum), (id, 26, checksum(&rows())));
        assert_eq!(store.read(&block.path, 0..26, block.checksum).await.unwrap(), rows());
        assert_eq!(store.read(&block.path, 5..9, checksum(b"rows")).await.unwrap(), "rows");
        assert_eq!(store.read(&block.path, 26..26, checksum(b"")).await.unwrap(), "");
    }
}

#[tokio::test]
async fn an_empty_block_is_a_block() {
    let (stores, _dir) = stores().await;
    for store in stores {
        let block = store.stage(new_block_id(NOW).unwrap(), Bytes::new()).await.unwrap();
        assert_eq!(store.read(&block.path, 0..0, block.checksum).await.unwrap(), "");
    }
}

#[tokio::test]
async fn staging_again_succeeds_with_the_same_bytes_only() {
    let (stores, _dir) = stores().await;
    for store in stores {
        let id = new_block_id(NOW).unwrap();
        let first = store.stage(id, rows()).await.unwrap();
        assert_eq!(store.stage(id, rows()).await.unwrap(), first);
        let error = store.stage(id, Bytes::from_static(b"other")).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::BlockTaken { found_length: 26, length: 5, found, .. } if *found == first.checksum)
        );
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert_eq!(store.read(&first.path, 0..26, first.checksum).await.unwrap(), rows());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_of_one_name_one_wins() {
    let (stores, _dir) = stores().await;
    for store in stores {
        let id = new_block_id(NOW).unwrap();
        let writers: Vec<_> = (0..8_u8)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move { store.stage(id, vec![writer; 1000].into()).await })
            })
            .collect();
        let mut winners = Vec::new();
        for writer in writers {
            match writer.await.unwrap() {
                Ok(block) => winners.push(block),
                Err(error) => assert!(matches!(error, StoreError::BlockTaken { .. }), "{error}"),
            }
        }
        assert_eq!(winners.len(), 1);
        store.read(&winners[0].path, 0..1000, winners[0].checksum).await.unwrap();
        assert_eq!(store.list().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_crash_while_a_block_is_written_leaves_no_block() {
    let dir = tempfile::tempdir().unwrap();
    let store = BlockStore::open_local(dir.path()).await.unwrap();
    let id = new_block_id(NOW).unwrap();
    // What the local store has written before it gives the file its name.
    fs::write(dir.path().join(format!("{}#1", id.path())), b"some ro").unwrap();

    let store_again = BlockStore::open_local(dir.path()).await.unwrap();
    for store in [&store, &store_again] {
        assert_eq!(store.list().await.unwrap(), []);
        let error = store.read(&id.path(), 0..7, checksum(b"some ro")).await.unwrap_err();
        assert!(matches!(error, StoreError::Missing { .. }));
    }
    let block = store.stage(id, rows()).await.unwrap();
    assert_eq!(store_again.read(&block.path, 0..26, block.checksum).await.unwrap(), rows());
}

#[tokio::test]
async fn changed_bytes_are_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let store = BlockStore::open_local(dir.path()).await.unwrap();
    let block = store.stage(new_block_id(NOW).unwrap(), rows()).await.unwrap();
    let file = dir.path().join(&block.path);
    let mut bytes = fs::read(&file).unwrap();
    bytes[3] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let error = store.read(&block.path, 0..26, block.checksum).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Corrupt { begin: 0, end: 26, expected, .. } if expected == block.checksum)
    );
    assert_eq!(error.kind(), ErrorKind::Corrupt);

    fs::write(&file, &bytes[..20]).unwrap();
    for begin in [0, 10, 20, 25] {
        let error = store.read(&block.path, begin..26, block.checksum).await.unwrap_err();
        assert!(matches!(error, StoreError::TooShort { end: 26, length: 20, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn deleting_is_idempotent_and_listing_is_in_order() {
    let (stores, _dir) = stores().await;
    for store in stores {
        let mut ids = Vec::new();
        for later in [2, 0, 1] {
            let id = new_block_id(NOW + later).unwrap();
            store.stage(id, rows()).await.unwrap();
            ids.push(id);
        }
        ids.sort();
        let listed = store.list().await.unwrap();
        assert_eq!(listed.iter().map(|block| block.id).collect::<Vec<_>>(), ids);
        assert!(listed.iter().all(|block| block.length == 26 && block.written_ms > 0));
        assert_eq!(listed[0].age_ms(listed[0].written_ms as u64 + 5), 5);
        assert_eq!(listed[0].age_ms(0), 0);
        for _ in 0..2 {
            store.delete(&ids[0].path()).await.unwrap();
        }
        assert_eq!(store.list().await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn only_names_of_blocks_are_read_and_deleted() {
    let (stores, _dir) = stores().await;
    let good = BlockId(7).path();
    let upper = good.replace('7', "A");
    let paths = [
        "",
        "stage",
        "stage/",
        "stage/../secret",
        "/etc/passwd",
        "probe/1",
        upper.as_str(),
        &good[..37],
        "stage/+7",
    ];
    for store in stores {
        for path in paths {
            let error = store.read(path, 0..1, 0).await.unwrap_err();
            assert!(matches!(error, StoreError::BadPath { .. }), "{path}");
            assert!(matches!(store.delete(path).await.unwrap_err(), StoreError::BadPath { .. }));
        }
        let backwards = std::ops::Range { start: 2, end: 1 };
        assert!(matches!(store.read(&good, backwards, 0).await.unwrap_err(), StoreError::BadRange { .. }));
    }
}

#[test]
fn ids_grow_with_time_and_differ() {
    let mut ids: Vec<BlockId> = (0..1000).map(|later| new_block_id(NOW + later).unwrap()).collect();
    assert!(ids.is_sorted());
    assert!(ids.iter().enumerate().all(|(later, id)| id.time_ms() == NOW + later as u64));
    assert!(ids.iter().all(|id| (id.0 >> 76) & 0xf == 7 && (id.0 >> 62) & 3 == 2));
    ids.extend((0..1000).map(|_| new_block_id(NOW).unwrap()));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2000);
    assert_eq!(BlockId::from_path(&ids[0].path()).unwrap(), ids[0]);
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = BlockStore::open_local(file.join("objects")).await.unwrap_err();
    assert!(matches!(&error, StoreError::Folder { path, .. } if path.starts_with(&file)));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[test]
fn messages_say_what_and_where() {
    let corrupt =
        StoreError::Corrupt { path: "stage/7".to_owned(), begin: 0, end: 9, found: 0xab, expected: 0xcd };
    assert_eq!(
        corrupt.to_string(),
        "block stage/7, bytes 0 to 9: checksum 00000000000000ab, expected 00000000000000cd; restore it from a copy"
    );
}
