//! `GET /metrics` and `GET /health` for whoever watches the node. Nothing else is answered, and nothing can be changed.
//!
//! One request a connection, whose head must be short and come soon: whatever else is sent here costs a small buffer for
//! a few seconds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use laminar_rpc::Failure;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::listener::Listener;
use crate::node::Node;

/// Connections at once; more are closed.
const CONNECTIONS_MAX: usize = 32;
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long the head may take to come.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// How long whoever asked may take for the answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How long it is waited for the other end to close, so that the answer is not lost.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// How long nobody is let in after the system could not.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const FIGURES: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers at an address until the node stops.
///
/// # Errors
///
/// Invalid, if nothing can listen there.
pub(crate) fn answer(node: Node, wanted: SocketAddr) -> Result<(SocketAddr, JoinHandle<()>), Failure> {
    // Trying again does not help: another program has the port.
    let refused = |error: std::io::Error| {
        let message = format!(
            "metrics_address is {wanted}, where the node cannot listen: {error}; choose another port, or 0 for any"
        );
        Failure::invalid(message)
    };
    let (listener, address) = Listener::bind(wanted).map_err(refused)?;
    Ok((address, tokio::spawn(accept(node, listener))))
}

async fn accept(node: Node, listener: Listener) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            () = node.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok(stream) = accepted else {
            tokio::time::sleep(ACCEPT_WAIT).await;
            continue;
        };
        if let Ok(place) = Arc::clone(&room).try_acquire_owned() {
            let node = node.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = node.stopped() => {}
                    // Whoever is gone before the answer does not want it.
                    answered = converse(&node, stream) => drop(answered),
                }
                drop(place);
            });
        }
    }
}

async fn converse(node: &Node, mut stream: TcpStream) -> std::io::Result<()> {
    let head = match tokio::time::timeout(HEAD_WAIT, read_head(&mut stream)).await {
        Ok(head) => head?,
        Err(_) => None,
    };
    let response = match head.as_deref().map_or(Asked::Nothing, asked) {
        Asked::Metrics => match node.metrics().await {
            Ok(text) => response("200 OK", FIGURES, "", &text),
            Err(failure) => response("503 Service Unavailable", TEXT, "", &format!("{}\n", failure.message)),
        },
        Asked::Health => match node.health() {
            Ok(()) => response("200 OK", TEXT, "", "the node serves\n"),
            Err(failure) => response("503 Service Unavailable", TEXT, "", &format!("{}\n", failure.message)),
        },
        Asked::OtherPath => response("404 Not Found", TEXT, "", "there are /metrics and /health\n"),
        Asked::OtherMethod => {
            response("405 Method Not Allowed", TEXT, "allow: GET\r\n", "only GET is answered\n")
        }
        Asked::Nothing => response("400 Bad Request", TEXT, "", "this is no request of HTTP/1\n"),
    };
    let sent = tokio::time::timeout(ANSWER_WAIT, async {
        stream.write_all(&response).await?;
        stream.shutdown().await
    });
    sent.await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
    // What was sent and not read would have the system take the answer back.
    let rest = async { while matches!(stream.read(&mut [0; 1024]).await, Ok(read) if read > 0) {} };
    drop(tokio::time::timeout(CLOSE_WAIT, rest).await);
    Ok(())
}

/// The head of a request, up to the empty line; none if it is too long or does not end.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = Vec::with_capacity(1024);
    loop {
        let mut part = [0; 1024];
        let read = stream.read(&mut part).await?;
        head.extend_from_slice(&part[..read]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
        if read == 0 || head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Health,
    OtherPath,
    OtherMethod,
    Nothing,
}

/// What the first line of a head asks for.
fn asked(head: &[u8]) -> Asked {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return Asked::Nothing };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words.as_slice() else { return Asked::Nothing };
    if !version.starts_with("HTTP/1.") || method.is_empty() || !method.bytes().all(|c| c.is_ascii_uppercase())
    {
        return Asked::Nothing;
    }
    if *method != "GET" {
        return Asked::OtherMethod;
    }
    match target.split('?').next() {
        Some("/metrics") => Asked::Metrics,
        Some("/health") => Asked::Health,
        _ => Asked::OtherPath,
    }
}

fn response(status: &str, kind: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{headers}connection: close\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pages_are_there_and_only_to_be_read() {
        let of = |line: &str| asked(format!("{line}\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(of("GET /metrics HTTP/1.1"), Asked::Metrics);
        assert_eq!(of("GET /metrics?name[]=a HTTP/1.0"), Asked::Metrics);
        assert_eq!(of("GET /health HTTP/1.1"), Asked::Health);
        for path in ["/", "/metrics/", "/healthy", "http://a/metrics", "*"] {
            assert_eq!(of(&format!("GET {path} HTTP/1.1")), Asked::OtherPath, "{path}");
        }
        for method in ["POST", "HEAD", "DELETE", "OPTIONS"] {
            assert_eq!(of(&format!("{method} /metrics HTTP/1.1")), Asked::OtherMethod, "{method}");
        }
        for garbage in
            ["", "GET", "GET /metrics", "GET  /metrics HTTP/1.1", "PRI * HTTP/2.0", "get / HTTP/1.1"]
        {
            assert_eq!(of(garbage), Asked::Nothing, "{garbage:?}");
        }
        assert_eq!(asked(b"\xff\xfe\r\n\r\n"), Asked::Nothing);
    }

    #[tokio::test]
    async fn a_head_that_is_too_long_or_cut_short_is_none() {
        let read = async |bytes: &[u8]| read_head(&mut &*bytes).await.unwrap();
        assert_eq!(read(b"GET / HTTP/1.1\r\n\r\n").await.unwrap(), b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(read(b"GET / HTTP/1.1\r\n").await, None);
        assert_eq!(read(&[b'a'; 100_000]).await, None);
    }
}
