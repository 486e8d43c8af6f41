//! Connections of other processes: HTTP/2 by hyper, the calls by tonic.
//!
//! A connection and its calls are one crew ([`Crew::apart`]), and so one task of tokio: a message that came in wakes its call,
//! and the call's answer the connection, and neither may wake a thread. tonic's own server has a task for each.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use laminar_client::MESSAGE_BYTES_MAX;
use laminar_crew::Crew;
use laminar_rpc::proto::laminar_server::LaminarServer;
use laminar_rpc::{AUTHORIZATION, CrewExecutor, ErrorClass, Failure};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderMap, Request, Response};

use crate::error::with_causes;
use crate::node::Node;

/// What a client may send before it waits for the node to take it: in one call, and over one connection. An append of a
/// megabyte goes up in one piece, not in rounds of 64 KiB.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;
/// The largest frame that is taken.
const FRAME_BYTES: u32 = 1 << 20;

/// The system has no room for another connection: so long is waited before the next is taken.
const ACCEPT_WAIT: Duration = Duration::from_millis(100);

/// The header with the time that a client gives its call.
const GRPC_TIMEOUT: &str = "grpc-timeout";

/// Answers those who bring the secret, until the node stops.
pub(crate) async fn accept<C>(node: Node, incoming: impl Stream<Item = io::Result<C>>, secret: String)
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let authorization: Arc<str> = format!("Bearer {secret}").into();
    let mut incoming = std::pin::pin!(incoming);
    loop {
        let accepted = tokio::select! {
            () = node.stopped() => return,
            accepted = incoming.next() => accepted,
        };
        match accepted {
            Some(Ok(socket)) => {
                let crew = Crew::apart();
                let executor = CrewExecutor(crew.clone());
                crew.spawn(converse(node.clone(), socket, Arc::clone(&authorization), executor));
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "a connection could not be taken");
                if !is_of_one_connection(&error) {
                    tokio::time::sleep(ACCEPT_WAIT).await;
                }
            }
            None => return,
        }
    }
}

/// Whether the next connection may be taken at once: whoever came was gone again.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, InvalidInput, NotConnected};
    // A socket that was reset takes no settings.
    matches!(error.kind(), ConnectionAborted | ConnectionReset | InvalidInput | NotConnected)
}

/// Answers the calls of one connection. When the node stops, no new ones.
async fn converse<C>(node: Node, socket: C, authorization: Arc<str>, executor: CrewExecutor)
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let server = LaminarServer::new(node.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let answer = service_fn(move |request: Request<Incoming>| {
        let allowed = is_allowed(request.headers(), &authorization);
        answer(server.clone(), request, allowed)
    });
    let connection = http2::Builder::new(executor)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .serve_connection(TokioIo::new(socket), answer);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = node.stopped() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = with_causes(&error), "a connection ended with an error");
    }
}

/// Answers one call within the time that its client gives it.
async fn answer(
    mut server: LaminarServer<Node>,
    request: Request<Incoming>,
    is_allowed: bool,
) -> Result<Response<Body>, Infallible> {
    if !is_allowed {
        let refused = "call refused, it does not bring the node's secret; connect through the folder";
        return Ok(Status::from(Failure::invalid(refused)).into_http());
    }
    let Some(limit) = limit(request.headers()) else { return server.call(request).await };
    let answered = tokio::time::timeout(limit, server.call(request)).await;
    answered.unwrap_or_else(|_| Ok(too_late(limit).into_http()))
}

/// Whether a call brings the secret. Takes a time that does not tell where two secrets differ.
fn is_allowed(headers: &HeaderMap, expected: &str) -> bool {
    let given = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    let differences = given.iter().zip(expected.as_bytes()).fold(0, |seen, (a, b)| seen | (a ^ b));
    given.len() == expected.len() && differences == 0
}

/// The client gave the call so much time, and does not wait any longer.
fn too_late(limit: Duration) -> Status {
    Failure::new(ErrorClass::Network, format!("the call took longer than the {limit:?} that it was given"))
        .unknown()
        .into()
}

/// The time that a client gives a call: up to eight digits and a unit. What is not that is passed over.
fn limit(headers: &HeaderMap) -> Option<Duration> {
    let (unit, digits) = headers.get(GRPC_TIMEOUT)?.as_bytes().split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_the_secret_is_refused() {
        let with = |value: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(AUTHORIZATION, value.parse().unwrap());
            }
            is_allowed(&headers, "Bearer abc")
        };
        assert!(with(Some("Bearer abc")));
        for wrong in [None, Some("Bearer abd"), Some("Bearer ab"), Some("Bearer abcd"), Some("abc"), Some("")]
        {
            assert!(!with(wrong), "{wrong:?}");
        }
    }

    fn limit_of(value: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_TIMEOUT, value.parse().unwrap());
        limit(&headers)
    }

    #[test]
    fn the_time_of_a_call_is_read_as_grpc_writes_it() {
        for (told, seconds, nanos) in [
            ("2H", 7_200, 0),
            ("3M", 180, 0),
            ("4S", 4, 0),
            ("500m", 0, 500_000_000),
            ("600u", 0, 600_000),
            ("99999999n", 0, 99_999_999),
            ("0S", 0, 0),
        ] {
            assert_eq!(limit_of(told), Some(Duration::new(seconds, nanos)), "{told}");
        }
        for other in ["", "S", "5", "5s", "-5S", "+5S", "1.5S", "123456789S", "5 S", "S5"] {
            assert_eq!(limit_of(other), None, "{other:?}");
        }
        assert_eq!(limit(&HeaderMap::new()), None);
    }
}
