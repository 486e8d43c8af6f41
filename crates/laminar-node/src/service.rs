//! The service: one line a call. Other processes reach it through gRPC; the process that is the node calls it as it is.

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use laminar_core::ids::LogIndex;
use laminar_rpc::proto::laminar_server::Laminar;
use laminar_rpc::{Failure, proto};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::node::Node;

type Answer<T> = Result<Response<T>, Status>;
type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn answer<T>(outcome: Result<T, Failure>) -> Answer<T> {
    outcome.map(Response::new).map_err(Status::from)
}

#[tonic::async_trait]
impl Laminar for Node {
    type ReadStream = Pieces<proto::ReadResponse>;
    type ScanStream = Pieces<proto::ScanResponse>;
    type WatchStream = Pieces<proto::WatchResponse>;

    async fn hello(&self, request: Request<proto::HelloRequest>) -> Answer<proto::HelloResponse> {
        answer(Ok(Node::hello(self, request.get_ref())))
    }

    async fn create_stream(
        &self,
        request: Request<proto::CreateStreamRequest>,
    ) -> Answer<proto::StreamDescription> {
        answer(Node::create_stream(self, request.into_inner()).await)
    }

    async fn describe_stream(
        &self,
        request: Request<proto::DescribeStreamRequest>,
    ) -> Answer<proto::StreamDescription> {
        answer(Node::describe_stream(self, &request.get_ref().path).await)
    }

    async fn list_streams(
        &self,
        request: Request<proto::ListStreamsRequest>,
    ) -> Answer<proto::ListStreamsResponse> {
        answer(Node::list_streams(self, &request.get_ref().prefix).await)
    }

    async fn alter_stream(
        &self,
        request: Request<proto::AlterStreamRequest>,
    ) -> Answer<proto::StreamDescription> {
        answer(Node::alter_stream(self, request.into_inner()).await)
    }

    async fn drop_stream(
        &self,
        request: Request<proto::DropStreamRequest>,
    ) -> Answer<proto::DropStreamResponse> {
        answer(Node::drop_stream(self, request.into_inner()).await)
    }

    async fn mint_producer(
        &self,
        _: Request<proto::MintProducerRequest>,
    ) -> Answer<proto::MintProducerResponse> {
        answer(Node::mint_producer(self).await)
    }

    async fn append(&self, request: Request<proto::AppendRequest>) -> Answer<proto::AppendResponse> {
        answer(Node::append(self, request.into_inner()).await)
    }

    async fn read(&self, request: Request<proto::ReadRequest>) -> Answer<Self::ReadStream> {
        let receiver = Node::read(self, request.into_inner())?;
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn offsets(&self, request: Request<proto::OffsetsRequest>) -> Answer<proto::OffsetsResponse> {
        answer(Node::offsets(self, request.into_inner()).await)
    }

    async fn cut(&self, request: Request<proto::CutRequest>) -> Answer<proto::CutResponse> {
        answer(Node::cut(self, request.into_inner()).await)
    }

    async fn barrier(&self, request: Request<proto::BarrierRequest>) -> Answer<proto::BarrierResponse> {
        answer(Node::barrier(self, request.into_inner()).await)
    }

    async fn get(&self, request: Request<proto::GetRequest>) -> Answer<proto::GetResponse> {
        answer(Node::get(self, request.into_inner()).await)
    }

    async fn scan(&self, request: Request<proto::ScanRequest>) -> Answer<Self::ScanStream> {
        let pieces = Node::scan(self, request.into_inner()).await?;
        Ok(Response::new(Box::pin(stream::iter(pieces.into_iter().map(Ok)))))
    }

    async fn trim(&self, request: Request<proto::TrimRequest>) -> Answer<proto::TrimResponse> {
        answer(Node::trim(self, request.into_inner()).await)
    }

    async fn register_worker(
        &self,
        request: Request<proto::RegisterWorkerRequest>,
    ) -> Answer<proto::RegisterWorkerResponse> {
        answer(Node::register_worker(self, request.into_inner()).await)
    }

    async fn heartbeat(&self, request: Request<proto::HeartbeatRequest>) -> Answer<proto::HeartbeatResponse> {
        answer(Ok(Node::heartbeat(self, request.get_ref())))
    }

    async fn claim(&self, request: Request<proto::ClaimRequest>) -> Answer<proto::ClaimResponse> {
        answer(Node::claim(self, request.into_inner()).await)
    }

    async fn release(&self, request: Request<proto::ReleaseRequest>) -> Answer<proto::ReleaseResponse> {
        answer(Node::release(self, request.into_inner()).await)
    }

    async fn begin_batch(
        &self,
        request: Request<proto::BeginBatchRequest>,
    ) -> Answer<proto::BeginBatchResponse> {
        answer(Node::begin_batch(self, request.into_inner()).await)
    }

    async fn check_run(&self, request: Request<proto::CheckRunRequest>) -> Answer<proto::CheckRunResponse> {
        answer(Node::check_run(self, request.into_inner()).await)
    }

    async fn last_batch(
        &self,
        request: Request<proto::LastBatchRequest>,
    ) -> Answer<proto::LastBatchResponse> {
        answer(Node::last_batch(self, request.into_inner()).await)
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
        Ok(Response::new(changes.boxed()))
    }

    async fn why(&self, request: Request<proto::WhyRequest>) -> Answer<proto::WhyResponse> {
        answer(Node::why(self, request.get_ref()).await)
    }

    async fn status(&self, request: Request<proto::StatusRequest>) -> Answer<proto::StatusResponse> {
        answer(Node::status(self, request.get_ref()))
    }

    async fn metadata(&self, request: Request<proto::MetadataRequest>) -> Answer<proto::MetadataResponse> {
        answer(Node::metadata(self, request.get_ref().linearizable).await)
    }

    async fn resume(&self, request: Request<proto::ResumeRequest>) -> Answer<proto::ResumeResponse> {
        answer(Node::resume(self, request.get_ref()))
    }

    async fn skip(&self, request: Request<proto::SkipRequest>) -> Answer<proto::SkipResponse> {
        answer(Node::skip(self, request.into_inner()).await)
    }

    async fn snapshot(&self, request: Request<proto::SnapshotRequest>) -> Answer<proto::SnapshotResponse> {
        answer(Node::snapshot(self, &request.get_ref().group).await)
    }
}
