//! Answers other processes: a loopback port, a socket in the folder, and a secret that only this user can read.
//!
//! The socket is the same service without TCP, which takes a third of the time of a small call's way there and back.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, io};

use futures_util::{Stream, StreamExt};
use laminar_rpc::proto::laminar_server::LaminarServer;
use laminar_rpc::{AUTHORIZATION, Failure, LocalSocket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::{Connected, TcpIncoming};
use tonic::{Request, Status};

use crate::error::with_causes;
use crate::folder::Endpoint;
use crate::metrics;
use crate::node::{Node, lock};
use crate::random;

/// The largest message that is taken. An append is far below.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// What a client may send before it waits for the node to take it: in one call, and over one connection.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;
/// The largest frame that is taken.
const FRAME_BYTES: u32 = 1 << 20;

/// Begins to listen, and tells in the folder where.
///
/// # Errors
///
/// Unavailable, if the port cannot be had or the folder cannot be written. Invalid, if the one for figures cannot.
pub(crate) async fn serve(node: &Node) -> Result<Endpoint, Failure> {
    if let Some(wanted) = node.inner.config.metrics_address {
        let answering = metrics::http::answer(node.clone(), wanted)?;
        *lock(&node.inner.metrics_server) = Some(answering);
    }
    let wanted: SocketAddr = node.inner.config.listen;
    let unavailable =
        |error: std::io::Error| Failure::unavailable(format!("cannot listen on {wanted}: {error}"));
    let listener = TcpListener::bind(wanted).await.map_err(unavailable)?;
    let address = listener.local_addr().map_err(unavailable)?;
    let folder_epoch = node.folder().identity().folder_epoch;
    let socket = listen_in_folder(node.folder().path(), folder_epoch);
    let endpoint = Endpoint {
        address: address.to_string(),
        socket: socket.as_ref().map(|(name, _)| name.clone()),
        secret: format!("{:032x}{:032x}", random::bits128(), random::bits128()),
        pid: std::process::id(),
        folder_epoch,
    };
    // The server's own setting is only for sockets that it binds itself; without it small answers wait 40 ms.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    answer(node, &endpoint.secret, incoming);
    if let Some((_, socket)) = socket {
        let sockets = UnixListenerStream::new(socket);
        answer(node, &endpoint.secret, sockets.map(|stream| LocalSocket::new(stream?.into_std()?)));
    }
    endpoint.write(node.folder().path())?;
    Ok(endpoint)
}

/// Listens on a socket in the folder. A file system may have none, and a path may be too long for one; the port is there.
fn listen_in_folder(folder: &Path, folder_epoch: u64) -> Option<(String, UnixListener)> {
    let name = Endpoint::socket_name(folder, folder_epoch)?;
    let path = folder.join(&name);
    let listener = UnixListener::bind(&path);
    let private = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
    match listener.and_then(|listener| private.map(|()| listener)) {
        Ok(listener) => Some((name, listener)),
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "no socket in the folder");
            None
        }
    }
}

/// Answers what comes in until the node stops.
fn answer<I, C>(node: &Node, secret: &str, incoming: I)
where
    I: Stream<Item = io::Result<C>> + Send + 'static,
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    C::ConnectInfo: Clone + Send + Sync + 'static,
{
    let service = LaminarServer::new(node.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let service = InterceptedService::new(service, secret_check(secret));
    let stopped = node.clone();
    // An append of a megabyte goes up in one piece, not in rounds of 64 KiB.
    let server = tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .add_service(service);
    tokio::spawn(async move {
        let until = async move { stopped.stopped().await };
        if let Err(error) = server.serve_with_incoming_shutdown(incoming, until).await {
            tracing::error!(error = with_causes(&error), "the node does not answer other processes any more");
        }
    });
}

/// Refuses a call that does not bring the secret.
fn secret_check(secret: &str) -> impl FnMut(Request<()>) -> Result<Request<()>, Status> + Clone + use<> {
    let expected = format!("Bearer {secret}");
    move |request: Request<()>| {
        let given = request.metadata().get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        if same(given, expected.as_bytes()) {
            Ok(request)
        } else {
            Err(Failure::invalid(
                "call refused, it does not bring the node's secret; connect through the folder",
            )
            .into())
        }
    }
}

/// Compares in a time that does not tell where two secrets differ.
fn same(given: &[u8], expected: &[u8]) -> bool {
    let differences = given.iter().zip(expected).fold(0, |seen, (a, b)| seen | (a ^ b));
    given.len() == expected.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_the_secret_is_refused() {
        let mut check = secret_check("abc");
        let with = |value: Option<&'static str>| {
            let mut request = Request::new(());
            if let Some(value) = value {
                request.metadata_mut().insert(AUTHORIZATION, value.parse().unwrap());
            }
            request
        };
        assert!(check(with(Some("Bearer abc"))).is_ok());
        for wrong in [None, Some("Bearer abd"), Some("Bearer ab"), Some("Bearer abcd"), Some("abc"), Some("")]
        {
            assert!(check(with(wrong)).is_err(), "{wrong:?}");
        }
    }
}
