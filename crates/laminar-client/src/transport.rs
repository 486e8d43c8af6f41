//! One way to a node: a call inside this process, or gRPC.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use hyper_util::rt::TokioIo;
use laminar_crew::Crew;
use laminar_rpc::proto::laminar_client::LaminarClient;
use laminar_rpc::proto::laminar_server::Laminar;
use laminar_rpc::proto::{self, AppendAnswer, ReadResponse, ScanResponse, WatchResponse};
use laminar_rpc::{AUTHORIZATION, CrewExecutor, ErrorClass, Failure, LocalSocket};
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::codegen::{Service, http::Uri};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::open_appends::OpenAppends;

/// Parts of an answer as they come.
pub type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// A node in this process, called without the network.
pub type NodeService = dyn Laminar<
        AppendEachStream = Answers<AppendAnswer>,
        ReadStream = Answers<ReadResponse>,
        ScanStream = Answers<ScanResponse>,
        WatchStream = Answers<WatchResponse>,
    >;

/// The largest message, either way. Rows above the inline limit travel through the store.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);

/// A way to call a node.
#[derive(Clone)]
pub enum Transport {
    /// The node is in this process.
    Local(Arc<NodeService>),
    /// The node is in another process.
    Remote(RemoteNode, Arc<OpenAppends>),
}

/// Connects to a socket of this machine.
struct ToSocket(PathBuf);

impl Service<Uri> for ToSocket {
    type Response = TokioIo<LocalSocket>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<LocalSocket>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = self.0.clone();
        Box::pin(async move {
            let stream = UnixStream::connect(path).await?.into_std()?;
            Ok(TokioIo::new(LocalSocket::new(stream)?))
        })
    }
}

/// Calls of a node in another process.
pub type RemoteNode = LaminarClient<InterceptedService<Channel, Bearer>>;

/// Puts the secret into each call.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(secret) = &self.0 {
            request.metadata_mut().insert(AUTHORIZATION, secret.clone());
        }
        Ok(request)
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Transport::Local(_) => "Transport::Local",
            Transport::Remote(..) => "Transport::Remote",
        })
    }
}

impl Transport {
    /// Connects to a node at `host:port`, or at `unix:` and the path of its socket. With a crew callers that wait send and
    /// receive by themselves.
    ///
    /// # Errors
    /// Unavailable: nobody answers there. Invalid: the address or the secret cannot be sent.
    pub async fn remote(address: &str, secret: Option<&str>, crew: Option<&Crew>) -> Result<Self, Failure> {
        let socket = address.strip_prefix("unix:");
        // The name of the host does not matter where the way is known.
        let endpoint = Endpoint::from_shared(format!("http://{}", socket.map_or(address, |_| "laminar")))
            .map_err(|error| Failure::invalid(format!("address {address:?} cannot be used: {error}")))?
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(8 << 20)
            .initial_connection_window_size(32 << 20);
        let endpoint = match crew {
            Some(crew) => endpoint.executor(CrewExecutor(crew.clone())),
            None => endpoint,
        };
        let secret = secret.map(|secret| {
            let mut value = MetadataValue::try_from(format!("Bearer {secret}"))
                .map_err(|_| Failure::invalid("the secret has characters that a header cannot carry"))?;
            value.set_sensitive(true);
            Ok::<_, Failure>(value)
        });
        let bearer = Bearer(secret.transpose()?);
        let channel = match socket {
            Some(path) => endpoint.connect_with_connector(ToSocket(path.into())).await,
            None => endpoint.connect().await,
        };
        let channel = channel.map_err(|error| {
            let message = format!("node at {address}: no connection ({}); is it running?", chain(&error));
            Failure::new(ErrorClass::Network, message).with("address", address)
        })?;
        let client = LaminarClient::with_interceptor(channel, bearer)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Transport::Remote(client, Arc::new(OpenAppends::new(crew.cloned()))))
    }

    /// Appends rows as [`append`](Self::append) does, and over a call that stays open where the node is in another process.
    ///
    /// # Errors
    /// As `append`.
    pub async fn append_again(
        &self,
        message: proto::AppendRequest,
        deadline: Instant,
    ) -> Result<proto::AppendResponse, Failure> {
        let Transport::Remote(node, open) = self else {
            return self.append(message, deadline).await;
        };
        match tokio::time::timeout_at(deadline, open.append(node, message)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(silent()),
        }
    }

    /// What a failed call means. A status without our details is of the connection, or of something else on the port.
    fn failure(&self, status: &Status) -> Failure {
        match self {
            Transport::Local(_) => Failure::from(status),
            Transport::Remote(..) => remote_failure(status),
        }
    }
}

/// What a failed call of a node in another process means.
pub(crate) fn remote_failure(status: &Status) -> Failure {
    // hyper reports a connection that broke in the middle of an answer so.
    if status.code() == Code::Internal && status.details().is_empty() {
        return Failure::new(ErrorClass::Network, status.message()).unknown();
    }
    Failure::from(status)
}

/// An error with its causes: tonic's own text is only "transport error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The call's own limit, also told to the node.
fn request<T>(message: T, deadline: Instant) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    request
}

/// The deadline passed while the node had the call.
fn silent() -> Failure {
    Failure::new(ErrorClass::Network, "the node did not answer in time").unknown()
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident: $request:ident -> $response:ident;)*) => {
        impl Transport {
            $(
                $(#[$doc])*
                pub async fn $name(
                    &self,
                    message: proto::$request,
                    deadline: Instant,
                ) -> Result<proto::$response, Failure> {
                    let request = request(message, deadline);
                    let call = async {
                        match self {
                            Transport::Local(node) => node.$name(request).await,
                            Transport::Remote(client, _) => client.clone().$name(request).await,
                        }
                    };
                    match tokio::time::timeout_at(deadline, call).await {
                        Ok(Ok(response)) => Ok(response.into_inner()),
                        Ok(Err(status)) => Err(self.failure(&status)),
                        Err(_) => Err(silent()),
                    }
                }
            )*
        }
    };
}

unary! {
    /// Who is there.
    hello: HelloRequest -> HelloResponse;
    /// Creates a stream.
    create_stream: CreateStreamRequest -> StreamDescription;
    /// Describes a stream.
    describe_stream: DescribeStreamRequest -> StreamDescription;
    /// Lists streams.
    list_streams: ListStreamsRequest -> ListStreamsResponse;
    /// Changes a stream.
    alter_stream: AlterStreamRequest -> StreamDescription;
    /// Drops a stream.
    drop_stream: DropStreamRequest -> DropStreamResponse;
    /// Mints a producer.
    mint_producer: MintProducerRequest -> MintProducerResponse;
    /// Appends rows.
    append: AppendRequest -> AppendResponse;
    /// Where partitions begin and end.
    offsets: OffsetsRequest -> OffsetsResponse;
    /// How far a stream can be read consistently.
    cut: CutRequest -> CutResponse;
    /// Waits for a global index.
    barrier: BarrierRequest -> BarrierResponse;
    /// The newest row of a key.
    get: GetRequest -> GetResponse;
    /// Removes the oldest rows.
    trim: TrimRequest -> TrimResponse;
    /// Makes a run of a writer known.
    register_worker: RegisterWorkerRequest -> RegisterWorkerResponse;
    /// Says that runs are alive.
    heartbeat: HeartbeatRequest -> HeartbeatResponse;
    /// Takes partitions for a run.
    claim: ClaimRequest -> ClaimResponse;
    /// Gives a run's partitions back.
    release: ReleaseRequest -> ReleaseResponse;
    /// Begins a batch of a query.
    begin_batch: BeginBatchRequest -> BeginBatchResponse;
    /// Whether a run still has its partitions.
    check_run: CheckRunRequest -> CheckRunResponse;
    /// The last committed batch of a query.
    last_batch: LastBatchRequest -> LastBatchResponse;
    /// The story of partitions.
    why: WhyRequest -> WhyResponse;
    /// What the node does.
    status: StatusRequest -> StatusResponse;
    /// What the node counted.
    metrics: MetricsRequest -> MetricsResponse;
    /// The metadata's snapshot.
    metadata: MetadataRequest -> MetadataResponse;
    /// Lets a paused partition try again.
    resume: ResumeRequest -> ResumeResponse;
    /// Leaves a record out.
    skip: SkipRequest -> SkipResponse;
    /// Has a group build a snapshot.
    snapshot: SnapshotRequest -> SnapshotResponse;
}

macro_rules! streaming {
    ($($(#[$doc:meta])* $name:ident: $request:ident -> $response:ident;)*) => {
        impl Transport {
            $(
                $(#[$doc])*
                /// The deadline is for the beginning of the answer; its parts may take as long as they do.
                pub async fn $name(
                    &self,
                    message: proto::$request,
                    deadline: Instant,
                ) -> Result<BoxStream<'static, Result<proto::$response, Failure>>, Failure> {
                    let request = Request::new(message);
                    let call = async {
                        match self {
                            Transport::Local(node) => Ok(node.$name(request).await?.into_inner()),
                            Transport::Remote(client, _) => {
                                Ok(client.clone().$name(request).await?.into_inner().boxed())
                            }
                        }
                    };
                    let answers: Answers<proto::$response> = match tokio::time::timeout_at(deadline, call).await {
                        Ok(Ok(answers)) => answers,
                        Ok(Err(status)) => return Err(self.failure(&status)),
                        Err(_) => return Err(silent()),
                    };
                    let transport = self.clone();
                    Ok(answers.map(move |part| part.map_err(|status| transport.failure(&status))).boxed())
                }
            )*
        }
    };
}

streaming! {
    /// Rows of one partition.
    read: ReadRequest -> ReadResponse;
    /// The newest row of every key.
    scan: ScanRequest -> ScanResponse;
    /// Changes of ownership.
    watch: WatchRequest -> WatchResponse;
}
