//! The service: one line a call. Other processes reach it through gRPC; the process that is the node calls it as it is.

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use laminar_core::ids::LogIndex;
use laminar_rpc::proto::laminar_server::Laminar;
use laminar_rpc::{Failure, proto};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::metrics::Call;
use crate::node::Node;

/// Appends of one open call that are on their way at once; the next are taken when one of them has ended.
const OPEN_APPENDS_MAX: usize = 1024;

type Answer<T> = Result<Response<T>, Status>;
type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Node {
    /// Counts a call, and answers it.
    fn answer<T>(&self, call: Call, outcome: Result<T, Failure>) -> Answer<T> {
        self.inner.figures.answered(call, &outcome);
        outcome.map(Response::new).map_err(Status::from)
    }

    /// Appends, and counts it as a call of its own, over whichever call it came.
    async fn counted_append(&self, request: proto::AppendRequest) -> Result<proto::AppendResponse, Failure> {
        let appending = self.inner.figures.appending(&request);
        let outcome = Node::append(self, request).await;
        appending.answered(&outcome);
        self.inner.figures.answered(Call::Append, &outcome);
        outcome
    }
}

#[tonic::async_trait]
impl Laminar for Node {
    type AppendEachStream = Pieces<proto::AppendAnswer>;
    type ReadStream = Pieces<proto::ReadResponse>;
    type ScanStream = Pieces<proto::ScanResponse>;
    type WatchStream = Pieces<proto::WatchResponse>;

    async fn hello(&self, request: Request<proto::HelloRequest>) -> Answer<proto::HelloResponse> {
        self.answer(Call::Hello, Ok(Node::hello(self, request.get_ref())))
    }

    async fn create_stream(
        &self,
        request: Request<proto::CreateStreamRequest>,
    ) -> Answer<proto::StreamDescription> {
        self.answer(Call::CreateStream, Node::create_stream(self, request.into_inner()).await)
    }

    async fn describe_stream(
        &self,
        request: Request<proto::DescribeStreamRequest>,
    ) -> Answer<proto::StreamDescription> {
        self.answer(Call::DescribeStream, Node::describe_stream(self, &request.get_ref().path).await)
    }

    async fn list_streams(
        &self,
        request: Request<proto::ListStreamsRequest>,
    ) -> Answer<proto::ListStreamsResponse> {
        self.answer(Call::ListStreams, Node::list_streams(self, &request.get_ref().prefix).await)
    }

    async fn alter_stream(
        &self,
        request: Request<proto::AlterStreamRequest>,
    ) -> Answer<proto::StreamDescription> {
        self.answer(Call::AlterStream, Node::alter_stream(self, request.into_inner()).await)
    }

    async fn drop_stream(
        &self,
        request: Request<proto::DropStreamRequest>,
    ) -> Answer<proto::DropStreamResponse> {
        self.answer(Call::DropStream, Node::drop_stream(self, request.into_inner()).await)
    }

    async fn mint_producer(
        &self,
        _: Request<proto::MintProducerRequest>,
    ) -> Answer<proto::MintProducerResponse> {
        self.answer(Call::MintProducer, Node::mint_producer(self).await)
    }

    async fn append(&self, request: Request<proto::AppendRequest>) -> Answer<proto::AppendResponse> {
        Ok(Response::new(self.counted_append(request.into_inner()).await?))
    }

    async fn append_each(
        &self,
        request: Request<Streaming<proto::AppendCall>>,
    ) -> Answer<Self::AppendEachStream> {
        let (node, stopped) = (self.clone(), self.clone());
        // What is on its way when the node stops is still answered.
        let calls = request.into_inner().take_until(async move { stopped.stopped().await });
        let answers = calls.map(move |call| {
            let node = node.clone();
            async move {
                let proto::AppendCall { call, request } = call?;
                let appended = node.counted_append(request.unwrap_or_default()).await;
                let outcome = match appended {
                    Ok(appended) => proto::append_answer::Outcome::Appended(appended),
                    Err(failure) => proto::append_answer::Outcome::Failed(failure.into()),
                };
                Ok(proto::AppendAnswer { call, outcome: Some(outcome) })
            }
        });
        self.answer(Call::AppendEach, Ok(answers.buffer_unordered(OPEN_APPENDS_MAX).boxed()))
    }

    async fn read(&self, request: Request<proto::ReadRequest>) -> Answer<Self::ReadStream> {
        let opened = Node::read(self, request.into_inner());
        self.answer(Call::Read, opened.map(|receiver| Box::pin(ReceiverStream::new(receiver)) as _))
    }

    async fn offsets(&self, request: Request<proto::OffsetsRequest>) -> Answer<proto::OffsetsResponse> {
        self.answer(Call::Offsets, Node::offsets(self, request.into_inner()).await)
    }

    async fn cut(&self, request: Request<proto::CutRequest>) -> Answer<proto::CutResponse> {
        self.answer(Call::Cut, Node::cut(self, request.into_inner()).await)
    }

    async fn barrier(&self, request: Request<proto::BarrierRequest>) -> Answer<proto::BarrierResponse> {
        self.answer(Call::Barrier, Node::barrier(self, request.into_inner()).await)
    }

    async fn get(&self, request: Request<proto::GetRequest>) -> Answer<proto::GetResponse> {
        self.answer(Call::Get, Node::get(self, request.into_inner()).await)
    }

    async fn scan(&self, request: Request<proto::ScanRequest>) -> Answer<Self::ScanStream> {
        let scanned = Node::scan(self, request.into_inner()).await;
        let pieces = scanned.map(|pieces| Box::pin(stream::iter(pieces.into_iter().map(Ok))) as _);
        self.answer(Call::Scan, pieces)
    }

    async fn trim(&self, request: Request<proto::TrimRequest>) -> Answer<proto::TrimResponse> {
        self.answer(Call::Trim, Node::trim(self, request.into_inner()).await)
    }

    async fn register_worker(
        &self,
        request: Request<proto::RegisterWorkerRequest>,
    ) -> Answer<proto::RegisterWorkerResponse> {
        self.answer(Call::RegisterWorker, Node::register_worker(self, request.into_inner()).await)
    }

    async fn heartbeat(&self, request: Request<proto::HeartbeatRequest>) -> Answer<proto::HeartbeatResponse> {
        self.answer(Call::Heartbeat, Ok(Node::heartbeat(self, request.get_ref())))
    }

    async fn claim(&self, request: Request<proto::ClaimRequest>) -> Answer<proto::ClaimResponse> {
        self.answer(Call::Claim, Node::claim(self, request.into_inner()).await)
    }

    async fn release(&self, request: Request<proto::ReleaseRequest>) -> Answer<proto::ReleaseResponse> {
        self.answer(Call::Release, Node::release(self, request.into_inner()).await)
    }

    async fn begin_batch(
        &self,
        request: Request<proto::BeginBatchRequest>,
    ) -> Answer<proto::BeginBatchResponse> {
        self.answer(Call::BeginBatch, Node::begin_batch(self, request.into_inner()).await)
    }

    async fn check_run(&self, request: Request<proto::CheckRunRequest>) -> Answer<proto::CheckRunResponse> {
        self.answer(Call::CheckRun, Node::check_run(self, request.into_inner()).await)
    }

    async fn last_batch(
        &self,
        request: Request<proto::LastBatchRequest>,
    ) -> Answer<proto::LastBatchResponse> {
        self.answer(Call::LastBatch, Node::last_batch(self, request.into_inner()).await)
    }

    async fn watch(&self, request: Request<proto::WatchRequest>) -> Answer<Self::WatchStream> {
        let watch = self.inner.metadata.watch(LogIndex(request.get_ref().after_index));
        let node = self.clone();
        let changes = stream::unfold((watch, node), |(mut watch, node)| async move {
            let event = tokio::select! {
                () = node.stopped() => return None,
                event = watch.next() => event?,
            };
            let changes = event.changes.iter().map(|(id, current)| proto::OwnershipChange {
                partition_id: id.0,
                owner: current.map_or(0, |current| current.node_id.0),
                epoch: current.map_or(0, |current| current.epoch.get()),
            });
            let told = proto::WatchResponse {
                metadata_index: event.index.0,
                whole: event.whole,
                changes: changes.collect(),
            };
            Some((Ok(told), (watch, node)))
        });
        self.answer(Call::Watch, Ok(changes.boxed()))
    }

    async fn why(&self, request: Request<proto::WhyRequest>) -> Answer<proto::WhyResponse> {
        self.answer(Call::Why, Node::why(self, request.get_ref()).await)
    }

    async fn status(&self, request: Request<proto::StatusRequest>) -> Answer<proto::StatusResponse> {
        self.answer(Call::Status, Node::status(self, request.get_ref()))
    }

    async fn metrics(&self, _: Request<proto::MetricsRequest>) -> Answer<proto::MetricsResponse> {
        let text = Node::metrics(self).await;
        self.answer(Call::Metrics, text.map(|text| proto::MetricsResponse { text }))
    }

    async fn metadata(&self, request: Request<proto::MetadataRequest>) -> Answer<proto::MetadataResponse> {
        self.answer(Call::Metadata, Node::metadata(self, request.get_ref().linearizable).await)
    }

    async fn resume(&self, request: Request<proto::ResumeRequest>) -> Answer<proto::ResumeResponse> {
        self.answer(Call::Resume, Node::resume(self, request.get_ref()))
    }

    async fn skip(&self, request: Request<proto::SkipRequest>) -> Answer<proto::SkipResponse> {
        self.answer(Call::Skip, Node::skip(self, request.into_inner()).await)
    }

    async fn snapshot(&self, request: Request<proto::SnapshotRequest>) -> Answer<proto::SnapshotResponse> {
        self.answer(Call::Snapshot, Node::snapshot(self, &request.get_ref().group).await)
    }
}
