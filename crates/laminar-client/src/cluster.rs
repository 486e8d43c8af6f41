//! A handle of a cluster.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use laminar_rows::StreamSchema;
use laminar_rpc::proto::{
    AlterStreamRequest, CreateStreamRequest, DescribeStreamRequest, DropStreamRequest, HelloResponse,
    ListStreamsRequest, MetadataRequest, MetricsRequest, NodeStatus, PartitionStory, ResumeRequest,
    Retention, SkipRequest, SnapshotRequest, StatusRequest, StatusResponse, StreamLimits, WhyRequest,
};
use laminar_rpc::{Failure, Field};

use crate::chance;
use crate::codec;
use crate::config::ClientConfig;
use crate::connector::Connector;
use crate::description::StreamInfo;
use crate::retry::Repeat;
use crate::session::{Limit, Session};
use crate::stream::StreamHandle;

/// A cluster, or the node of a folder. Clones share the connection.
#[derive(Clone)]
pub struct Cluster {
    session: Arc<Session>,
    timeout: Duration,
}

/// What a new stream is to be.
#[derive(Debug, Clone, Default)]
pub struct NewStream {
    /// Its name: a path such as `/shop/orders`.
    pub path: String,
    /// How many partitions.
    pub partitions: u32,
    /// Its columns; none: keys and values are bytes.
    pub schema: Option<arrow_schema::SchemaRef>,
    /// The columns that say which partition a row goes to.
    pub key: Vec<String>,
    /// `log`, `kv`, or the name of an application's machine.
    pub machine: String,
    /// How long rows are kept.
    pub retention: Retention,
    /// Limits of its rows.
    pub limits: StreamLimits,
}

/// What to change about a stream; what is none stays.
#[derive(Debug, Clone, Default)]
pub struct Alteration {
    /// How many partitions, not fewer than there are. Keys then go to other partitions than before, so the order of rows
    /// of one key holds before and after, not across.
    pub partitions: Option<u32>,
    /// How long rows are kept.
    pub retention: Option<Retention>,
    /// Limits of its rows.
    pub limits: Option<StreamLimits>,
}

/// The metadata as a node knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataSnapshot {
    /// What `DeltaMetadata::restore` takes.
    pub snapshot: Bytes,
    /// As of this index.
    pub metadata_index: u64,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("at", &self.session.describe()).finish_non_exhaustive()
    }
}

/// Calls the node with a copy of a message each time.
macro_rules! ask {
    ($cluster:ident, $limit:ident, $repeat:expr, $call:ident($message:expr)) => {{
        let (message, limit) = ($message, $limit);
        $cluster
            .session
            .call(limit, $repeat, |live| {
                let message = message.clone();
                async move { live.transport.$call(message, limit.deadline).await }
            })
            .await
    }};
}

impl Cluster {
    /// A handle that connects on first use.
    pub fn new(connector: Arc<dyn Connector>, config: ClientConfig) -> Self {
        let timeout = config.timeout;
        Cluster { session: Session::new(connector, config), timeout }
    }

    /// The same cluster with another limit for each call.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Cluster { session: self.session.clone(), timeout }
    }

    /// What it is connected to: a folder or addresses.
    pub fn describe(&self) -> String {
        self.session.describe()
    }

    fn limit(&self) -> Limit {
        Limit::of(self.timeout)
    }

    fn handle(&self, info: StreamInfo) -> StreamHandle {
        StreamHandle::new(self.session.clone(), info).with_timeout(self.timeout)
    }

    /// Who is there, and how its clients are to work; connects if there is no connection.
    ///
    /// # Errors
    /// Unavailable: nobody answers.
    pub async fn hello(&self) -> Result<HelloResponse, Failure> {
        Ok(self.session.live(self.limit()).await?.hello.clone())
    }

    /// Creates a stream.
    ///
    /// # Errors
    /// Invalid: there is one, or the schema, key, machine or path cannot be.
    pub async fn create_stream(&self, new: NewStream) -> Result<StreamHandle, Failure> {
        let limit = self.limit();
        let schema = match new.schema {
            None => Bytes::new(),
            Some(schema) => {
                let schema = StreamSchema::from_arrow(schema, &new.key).map_err(codec::failure)?;
                schema.form(new.machine == "kv").map_err(codec::failure)?;
                schema.to_bytes().map_err(codec::failure)?.into()
            }
        };
        let path = new.path.clone();
        let message = CreateStreamRequest {
            path: new.path,
            partitions: new.partitions,
            schema,
            key: new.key,
            machine: new.machine,
            retention: Some(new.retention),
            limits: Some(new.limits),
            request: Some(chance::request_id()?),
        };
        let described = ask!(self, limit, Repeat::Safe, create_stream(message));
        Ok(self.handle(StreamInfo::new(described.map_err(|failure| of_stream(failure, &path))?)?))
    }

    /// A stream that is there.
    ///
    /// # Errors
    /// Invalid: there is none of this name.
    pub async fn stream(&self, path: &str) -> Result<StreamHandle, Failure> {
        Ok(self.handle(self.describe_stream(path).await?))
    }

    async fn describe_stream(&self, path: &str) -> Result<StreamInfo, Failure> {
        let limit = self.limit();
        let message = DescribeStreamRequest { path: path.to_owned() };
        let described = ask!(self, limit, Repeat::Safe, describe_stream(message));
        StreamInfo::new(described.map_err(|failure| of_stream(failure, path))?)
    }

    /// The streams whose names begin so, in order. Owners of their partitions are not told.
    ///
    /// # Errors
    /// Unavailable.
    pub async fn streams(&self, prefix: &str) -> Result<Vec<StreamInfo>, Failure> {
        let limit = self.limit();
        let message = ListStreamsRequest { prefix: prefix.to_owned() };
        let listed = ask!(self, limit, Repeat::Safe, list_streams(message))?;
        listed.streams.into_iter().map(StreamInfo::new).collect()
    }

    /// Drops a stream with all its rows. Its partitions' ids are never used again.
    ///
    /// # Errors
    /// Invalid: there is none of this name.
    pub async fn drop_stream(&self, path: &str) -> Result<(), Failure> {
        let limit = self.limit();
        // The one that is there now: a repeated call must not drop one that is created meanwhile.
        let stream_id = self.describe_stream(path).await?.stream_id;
        let request = Some(chance::request_id()?);
        let message = DropStreamRequest { path: path.to_owned(), stream_id, request };
        let dropped = ask!(self, limit, Repeat::Safe, drop_stream(message));
        dropped.map(drop).map_err(|failure| of_stream(failure, path))
    }

    /// Changes a stream.
    ///
    /// # Errors
    /// Invalid: fewer partitions than there are, or there is no such stream.
    pub async fn alter(&self, stream: &StreamHandle, alteration: Alteration) -> Result<(), Failure> {
        let (limit, info) = (self.limit(), stream.info());
        let message = AlterStreamRequest {
            path: info.path.clone(),
            stream_id: info.stream_id,
            partitions: alteration.partitions,
            retention: alteration.retention,
            limits: alteration.limits,
            request: Some(chance::request_id()?),
        };
        let described = ask!(self, limit, Repeat::Safe, alter_stream(message));
        stream.learn(described.map_err(|failure| info.name(failure))?).map(drop)
    }

    /// What the node does; with partitions, of one stream or of all.
    ///
    /// # Errors
    /// Unavailable.
    pub async fn status(&self, partitions: bool, stream: Option<&str>) -> Result<StatusResponse, Failure> {
        let limit = self.limit();
        let message = StatusRequest { partitions, stream: stream.unwrap_or_default().to_owned() };
        ask!(self, limit, Repeat::Safe, status(message))
    }

    /// What the node counted, as text in the format that Prometheus reads.
    ///
    /// # Errors
    /// Unavailable.
    pub async fn metrics(&self) -> Result<String, Failure> {
        let limit = self.limit();
        let answer = ask!(self, limit, Repeat::Safe, metrics(MetricsRequest {}))?;
        Ok(answer.text)
    }

    /// The nodes of the cluster, servers and workers.
    ///
    /// # Errors
    /// Unavailable.
    pub async fn nodes(&self) -> Result<Vec<NodeStatus>, Failure> {
        Ok(self.status(false, None).await?.nodes)
    }

    /// The metadata.
    ///
    /// # Errors
    /// Unavailable.
    pub async fn metadata(&self, linearizable: bool) -> Result<MetadataSnapshot, Failure> {
        let limit = self.limit();
        let answer = ask!(self, limit, Repeat::Safe, metadata(MetadataRequest { linearizable }))?;
        Ok(MetadataSnapshot { snapshot: answer.snapshot, metadata_index: answer.metadata_index })
    }

    /// The story of a partition of a stream, or of all.
    ///
    /// # Errors
    /// Invalid: there is no such stream.
    pub async fn why(&self, path: &str, partition: Option<u32>) -> Result<Vec<PartitionStory>, Failure> {
        let limit = self.limit();
        let message = WhyRequest { path: path.to_owned(), partition };
        let answer = ask!(self, limit, Repeat::Safe, why(message));
        Ok(answer.map_err(|failure| of_stream(failure, path))?.partitions)
    }

    /// Lets a paused partition (the cluster's id) try again; false if it was not paused.
    ///
    /// # Errors
    /// Unknown partition.
    pub async fn resume(&self, partition_id: u32) -> Result<bool, Failure> {
        let limit = self.limit();
        Ok(ask!(self, limit, Repeat::Safe, resume(ResumeRequest { partition_id }))?.resumed)
    }

    /// Has every replica leave out a record that its machine cannot apply. The partition is the cluster's id, the index as
    /// the status tells it.
    ///
    /// # Errors
    /// Unknown partition. Invalid: there is no such record.
    pub async fn skip(&self, partition_id: u32, index: u64) -> Result<(), Failure> {
        let limit = self.limit();
        // A record that is skipped twice is skipped once.
        let message = SkipRequest { partition_id, index, owner: 0, epoch: 0 };
        ask!(self, limit, Repeat::Safe, skip(message)).map(drop)
    }

    /// Has a group (`metadata` or `data`) build a snapshot.
    ///
    /// # Errors
    /// Unavailable.
    pub async fn snapshot(&self, group: &str) -> Result<(), Failure> {
        let limit = self.limit();
        let message = SnapshotRequest { group: group.to_owned() };
        ask!(self, limit, Repeat::Safe, snapshot(message)).map(drop)
    }
}

/// Names the stream that a call was about.
fn of_stream(mut failure: Failure, path: &str) -> Failure {
    failure.fields.entry("stream".to_owned()).or_insert_with(|| Field::from(path));
    failure
}
