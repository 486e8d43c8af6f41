//! Answers other processes: a loopback port, a socket in the folder, and a secret that only this user can read.
//!
//! The socket is the same service without TCP, which takes a third of the time of a small call's way there and back.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures_util::StreamExt;
use laminar_rpc::{Failure, LocalSocket};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};

use crate::connection;
use crate::folder::Endpoint;
use crate::metrics;
use crate::node::{Node, lock};
use crate::random;

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
    let incoming = TcpListenerStream::new(listener).map(|stream| {
        let stream = stream?;
        // Without it small answers wait 40 ms.
        stream.set_nodelay(true)?;
        Ok(stream)
    });
    tokio::spawn(connection::accept(node.clone(), incoming, endpoint.secret.clone()));
    if let Some((_, socket)) = socket {
        let incoming = UnixListenerStream::new(socket).map(|stream| LocalSocket::new(stream?.into_std()?));
        tokio::spawn(connection::accept(node.clone(), incoming, endpoint.secret.clone()));
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
