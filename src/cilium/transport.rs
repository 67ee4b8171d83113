//! One HTTP/1.1 exchange over a unix socket, whole or not at all: connected, answered and read within one time limit.
//!
//! It must not know what the agent's paths mean. A connection is made for each call: calls are rare, the agent has no
//! idle time-out, and a connection kept over an agent's restart would fail the next call.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{ACCEPT, CONNECTION, HOST};
use http::{Method, Request};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::call_error::CallError;

/// How a connection to the agent is made.
#[derive(Clone, Default)]
pub enum Wire {
    /// Over its unix socket.
    #[default]
    Socket,
    /// By a function, in memory: for the simulated agent on paused time.
    #[cfg(feature = "sim")]
    Memory(Dial),
}

/// Makes a connection in memory.
#[cfg(feature = "sim")]
pub type Dial = std::sync::Arc<dyn Fn() -> io::Result<tokio::io::DuplexStream> + Send + Sync>;

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Socket => "Socket",
            #[cfg(feature = "sim")]
            Self::Memory(_) => "Memory",
        })
    }
}

/// Where the agent is, and how to get there.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) socket: PathBuf,
    pub(super) wire: Wire,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// What a call may cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// For connect, request and the whole body together.
    pub(super) timeout: Duration,
    /// Bytes of the body.
    pub(super) body: usize,
}

/// A header that one call has besides those of all.
pub(super) type Extra = Option<(&'static str, &'static str)>;

/// Sends one request without a body and reads the whole answer.
pub(super) async fn exchange(
    place: &Place,
    method: Method,
    path: &str,
    extra: Extra,
    bounds: Bounds,
) -> Result<Reply, CallError> {
    tokio::time::timeout(bounds.timeout, exchange_unbounded(place, method, path, extra, bounds.body))
        .await
        .unwrap_or(Err(CallError::Timeout(bounds.timeout)))
}

/// Connects and closes.
pub(super) async fn connect_only(place: &Place, timeout: Duration) -> Result<(), CallError> {
    let socket = &place.socket;
    let connected = async {
        match &place.wire {
            Wire::Socket => connect(socket).await.map(drop),
            #[cfg(feature = "sim")]
            Wire::Memory(dial) => dial().map(drop).map_err(|error| unconnected(socket, &error)),
        }
    };
    tokio::time::timeout(timeout, connected).await.unwrap_or(Err(CallError::Timeout(timeout)))
}

async fn connect(socket: &Path) -> Result<UnixStream, CallError> {
    UnixStream::connect(socket).await.map_err(|error| unconnected(socket, &error))
}

fn unconnected(socket: &Path, error: &io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::NotFound => CallError::NoSocket(socket.to_owned()),
        io::ErrorKind::ConnectionRefused => CallError::ConnectionRefused(socket.to_owned()),
        _ => CallError::Connection(error.to_string()),
    }
}

async fn exchange_unbounded(
    place: &Place,
    method: Method,
    path: &str,
    extra: Extra,
    limit: usize,
) -> Result<Reply, CallError> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .header(ACCEPT, "application/json")
        .header(CONNECTION, "close");
    if let Some((name, value)) = extra {
        request = request.header(name, value);
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|error| CallError::Connection(format!("no request: {error}")))?;
    let socket = &place.socket;
    match &place.wire {
        Wire::Socket => over(connect(socket).await?, request, limit).await,
        #[cfg(feature = "sim")]
        Wire::Memory(dial) => {
            over(dial().map_err(|error| unconnected(socket, &error))?, request, limit).await
        }
    }
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
    limit: usize,
) -> Result<Reply, CallError> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| of_hyper(&error))?;
    // Dropping the set, by a time-out too, ends the task and closes the connection.
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        // The same failure reaches the sender.
        let _ = connection.await;
    });
    let response = sender.send_request(request).await.map_err(|error| of_hyper(&error))?;
    let status = response.status().as_u16();
    let body = match read(response.into_body(), limit).await {
        // Of a failure the status matters more than its words.
        Err(CallError::BodyTooLarge(_)) if status != 200 => Bytes::from_static(b"(a body too large to read)"),
        other => other?,
    };
    Ok(Reply { status, body })
}

async fn read(body: Incoming, limit: usize) -> Result<Bytes, CallError> {
    let collected = Limited::new(body, limit).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            CallError::BodyTooLarge(limit)
        } else {
            error
                .downcast_ref::<hyper::Error>()
                .map_or_else(|| CallError::Connection(error.to_string()), of_hyper)
        }
    })?;
    Ok(collected.to_bytes())
}

fn of_hyper(error: &hyper::Error) -> CallError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    let text = format!("{error}{cause}");
    if error.is_parse() { CallError::Undecodable(text) } else { CallError::Connection(text) }
}
