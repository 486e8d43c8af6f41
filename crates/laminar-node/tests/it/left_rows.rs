//! Streams whose machine lets records go once a snapshot has what it needs of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use laminar_client::{CutOptions, ErrorClass, NewStream, ReadOptions, Start};
use laminar_core::ids::PartitionId;
use laminar_log::machine::{Applying, MachineError, PartitionStateMachine};
use laminar_log::verdict::AcceptedRecord;
use laminar_node::{ApplicationMachines, NodeConfig};
use tokio::time::Instant;

use crate::support::{open_with, orders, read_ids, rows};

/// Keeps how many records there were, and needs none of them.
struct Counting(u64);

impl PartitionStateMachine for Counting {
    fn apply<'a>(&'a mut self, _record: &'a AcceptedRecord) -> Applying<'a> {
        self.0 += 1;
        Applying::Done(Ok(()))
    }

    fn snapshot(&self) -> Vec<Bytes> {
        vec![Bytes::copy_from_slice(&self.0.to_le_bytes())]
    }

    fn restore(&mut self, state: &[Bytes]) -> Result<(), MachineError> {
        let bytes = state.concat().try_into();
        let bytes = bytes.map_err(|_| MachineError { reason: "a count has 8 bytes".to_owned() })?;
        self.0 = u64::from_le_bytes(bytes);
        Ok(())
    }

    fn state_hash(&self) -> u64 {
        self.0
    }

    fn keeps_rows(&self) -> bool {
        false
    }
}

struct Machines;

impl ApplicationMachines for Machines {
    fn make(&self, name: &str, _partition: PartitionId) -> Option<Box<dyn PartitionStateMachine>> {
        (name == "counting").then(|| Box::new(Counting(0)) as Box<dyn PartitionStateMachine>)
    }

    fn names(&self) -> Vec<String> {
        vec!["counting".to_owned()]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_read_from_what_a_snapshot_left_of_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open_with(folder.path(), NodeConfig::default(), Arc::new(Machines));
    let counting = NewStream { machine: "counting".to_owned(), ..orders(1) };
    let stream = opened.cluster.create_stream(counting).await.unwrap();
    for id in 0..10 {
        stream.append(&[rows(id..id + 1)]).await.unwrap();
    }
    opened.cluster.snapshot("data").await.unwrap();
    let none = BTreeMap::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut found = stream.cut(&none, CutOptions::default()).await.unwrap();
    while found.starts[&0] == 0 {
        assert!(Instant::now() < deadline, "the snapshot left the whole log");
        tokio::time::sleep(Duration::from_millis(5)).await;
        found = stream.cut(&none, CutOptions::default()).await.unwrap();
    }
    let left = 10 - found.starts[&0];
    assert_eq!((found.rows, found.ends[&0]), (left, 10));
    assert_eq!(stream.offsets().await.unwrap()[&0].start, found.starts[&0]);
    assert_eq!(read_ids(&stream).await.len() as u64, left);
    let verified = stream.verify(0, 0, None).await.unwrap();
    assert_eq!((verified.rows, verified.fault), (left, None));
    let gone = ReadOptions { start: Start::Offsets(BTreeMap::from([(0, 0)])), ..Default::default() };
    let failure = stream.read(gone).await.unwrap().next().await.unwrap_err();
    assert_eq!(
        (failure.class, failure.number("start_offset")),
        (ErrorClass::Invalid, Some(10 - left)),
        "{failure}"
    );
    opened.connector.close().await.unwrap();
}
