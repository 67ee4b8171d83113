//! HTTP/1.1 plumbing that both simulated servers share, and the small client of the simulated kubelet.
//!
//! Must not know: Kubernetes, Cilium.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};

use super::clock::lock;
use super::exec::Upgrade;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Go's server sends a known length up to this size, and chunks beyond.
const CHUNKED_FROM: usize = 2048;

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by the simulation")]
pub(crate) struct Reset;

/// What a server answers.
pub(crate) type Answer = Result<Response<Body>, Reset>;

/// A request whose body was read.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// For the answer that takes the connection over.
    pub upgrade: Upgrade,
}

impl Call {
    /// The body as JSON; an empty body is `null`.
    pub(crate) fn json(&self) -> Result<Value, serde_json::Error> {
        if self.body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&self.body) }
    }

    /// A header's text, or the empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Answers the calls of one server.
pub(crate) type Service = Arc<dyn Fn(Call) -> BoxFuture<'static, Answer> + Send + Sync>;

/// An answer with a body in one piece.
pub(crate) fn answer(status: u16, content_type: &str, body: impl Into<Bytes>) -> Response<Body> {
    let bytes: Bytes = body.into();
    let body = if bytes.len() > CHUNKED_FROM {
        stream_body(futures::stream::once(async { Ok(bytes) }))
    } else {
        Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let (false, Ok(value)) = (content_type.is_empty(), HeaderValue::from_str(content_type)) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response
}

/// An answer in JSON, with the line feed that Go's encoder writes.
pub(crate) fn json_line(status: u16, value: &Value) -> Response<Body> {
    answer(status, "application/json", format!("{value}\n"))
}

/// A body in chunks.
pub(crate) fn stream_body(chunks: impl futures::Stream<Item = io::Result<Bytes>> + Send + 'static) -> Body {
    use futures::TryStreamExt as _;
    StreamBody::new(chunks.map_ok(Frame::data)).boxed_unsync()
}

/// The pieces of a body, as they come.
pub(crate) fn pieces(body: Body) -> impl futures::Stream<Item = io::Result<Bytes>> + Send + Unpin {
    let frames = futures::stream::unfold(body, |mut body| async { Some((body.frame().await?, body)) });
    let data = |frame: io::Result<Frame<Bytes>>| frame.map(|frame| frame.into_data().ok()).transpose();
    Box::pin(futures::StreamExt::filter_map(frames, move |frame| std::future::ready(data(frame))))
}

/// The first half of a body, after which the connection breaks.
pub(crate) async fn break_in_half(response: Response<Body>) -> Answer {
    let (parts, body) = response.into_parts();
    let whole = body.collect().await.map_err(|_| Reset)?.to_bytes();
    let half = whole.slice(..whole.len() / 2);
    let chunks = futures::stream::iter([
        Ok(half),
        Err(io::Error::new(io::ErrorKind::ConnectionReset, "cut by the simulation")),
    ]);
    // A break between the chunks, so that the first one is on its way when the connection goes.
    let chunks = futures::StreamExt::then(chunks, |chunk| async {
        tokio::task::yield_now().await;
        chunk
    });
    Ok(Response::from_parts(parts, stream_body(chunks)))
}

/// A listener in memory, without the system's sockets: on paused time, nothing waits for the system then.
#[derive(Debug, Default)]
pub(crate) struct Door(Mutex<Option<UnboundedSender<DuplexStream>>>);

impl Door {
    /// Bytes that are under way in one direction.
    const WINDOW: usize = 256 * 1024;

    /// Listens anew.
    pub(crate) fn open(&self) -> UnboundedReceiver<DuplexStream> {
        let (sender, receiver) = unbounded_channel();
        *lock(&self.0) = Some(sender);
        receiver
    }

    /// Connects, if anybody listens.
    pub(crate) fn dial(&self) -> io::Result<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(Self::WINDOW);
        let sent = lock(&self.0).as_ref().is_some_and(|door| door.send(theirs).is_ok());
        if sent { Ok(ours) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
    }
}

/// Where a server listens.
pub(crate) enum Listener {
    /// In memory.
    Door(UnboundedReceiver<DuplexStream>),
    /// A TCP port.
    Tcp(TcpListener),
    /// A unix socket.
    Unix(UnixListener),
}

/// A running server; dropping it closes the listener and every connection.
#[derive(Debug)]
pub(crate) struct Server(JoinHandle<()>);

impl Server {
    pub(crate) fn start(listener: Listener, service: Service) -> Self {
        Self(tokio::spawn(accept(listener, service)))
    }

    /// Stops and waits until the port or socket is free.
    pub(crate) async fn stop(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn accept(mut listener: Listener, service: Service) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            match &mut listener {
                Listener::Door(door) => match door.recv().await {
                    Some(stream) => Ok(serve(stream, service.clone()).boxed()),
                    // Opened anew by somebody else: nobody comes here any more.
                    None => std::future::pending().await,
                },
                Listener::Tcp(listener) => {
                    listener.accept().await.map(|(stream, _)| serve(stream, service.clone()).boxed())
                }
                Listener::Unix(listener) => {
                    listener.accept().await.map(|(stream, _)| serve(stream, service.clone()).boxed())
                }
            }
        };
        tokio::select! {
            biased;
            connection = accepted => match connection {
                Ok(connection) => { connections.spawn(connection); }
                // Out of descriptors and the like: others may be freed soon.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, service: Service) {
    let handler = service_fn(move |mut request: Request<Incoming>| {
        let service = service.clone();
        async move {
            let upgrade = Upgrade::new(hyper::upgrade::on(&mut request));
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| Reset)?.to_bytes();
            let path = parts.uri.path().to_owned();
            if !escapes_are_whole(&path) {
                return Ok(answer(400, "text/plain; charset=utf-8", "400 Bad Request"));
            }
            let query = parts.uri.query().unwrap_or_default().to_owned();
            let headers = parts.headers;
            service(Call { method: parts.method, path, query, headers, body, upgrade }).await
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        // As Go's server writes them.
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), handler)
        .with_upgrades();
    // A client that goes away, or a fault that was asked for: both are part of the play.
    let _ = connection.await;
}

/// Go refuses a path with a broken percent escape before any handler sees it.
fn escapes_are_whole(path: &str) -> bool {
    path.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().iter().take(2).filter(|byte| byte.is_ascii_hexdigit());
        digits.count() == 2
    })
}

/// What the simulation's own client got.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub status: u16,
    #[cfg_attr(not(test), allow(dead_code, reason = "the kubelet looks at status and body only"))]
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Where the simulation's own client connects.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer<'a> {
    /// A unix socket.
    Unix(&'a Path),
    /// An address.
    Tcp(SocketAddr),
}

/// One request on a connection of its own. The error's text is as Go's client words it, as far as anyone reads it.
pub(crate) async fn request(
    peer: Peer<'_>,
    method: Method,
    uri: &str,
    headers: &[(HeaderName, &str)],
    body: Option<&Value>,
) -> io::Result<Response<Incoming>> {
    match peer {
        Peer::Unix(path) => send(UnixStream::connect(path).await?, method, uri, headers, body).await,
        Peer::Tcp(address) => send(TcpStream::connect(address).await?, method, uri, headers, body).await,
    }
}

/// As [`request`], with the whole body.
pub(crate) async fn call(
    peer: Peer<'_>,
    method: Method,
    uri: &str,
    headers: &[(HeaderName, &str)],
    body: Option<&Value>,
) -> io::Result<Reply> {
    whole(request(peer, method, uri, headers, body).await?).await
}

/// Reads the whole of an answer.
pub(crate) async fn whole(response: Response<Incoming>) -> io::Result<Reply> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
}

/// One request on a connection that is there.
pub(crate) async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    uri: &str,
    headers: &[(HeaderName, &str)],
    body: Option<&Value>,
) -> io::Result<Response<Incoming>> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let mut request = Request::builder().method(method).uri(uri);
    if !headers.iter().any(|(name, _)| name == HOST) {
        request = request.header(HOST, "localhost");
    }
    if body.is_some() && !headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let request = request.body(Full::new(bytes)).map_err(io::Error::other)?;
    sender.send_request(request).await.map_err(io::Error::other)
}
