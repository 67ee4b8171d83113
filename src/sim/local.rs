//! The API server for a client in the same process: no sockets, so that nothing waits for the system on paused time.
//!
//! Faults, rights, pauses and cut watches are as over a socket. Must not know: who the client is.

use std::io;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use hyper::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use hyper::{Request, Response};

use super::apiserver::{ApiServer, Shared, serve};
use super::beacon::Heard;
use super::exec::Upgrade;
use super::http::{Body, Call, pieces, stream_body};

/// The longest time that a request is under way to the server, and so is its answer.
const LATENCY_MILLIS: u64 = 5;

/// A client's side of the simulated API server, as a service.
#[derive(Debug, Clone)]
pub struct Local {
    shared: Weak<Shared>,
    token: String,
}

impl Local {
    pub(crate) fn new(api: &ApiServer, token: &str) -> Self {
        Self { shared: Arc::downgrade(&api.0), token: token.to_owned() }
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by the simulation")
}

impl<B> tower::Service<Request<B>> for Local
where
    B: hyper::body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<tower::BoxError>,
{
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Response<Body>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let (weak, token) = (self.shared.clone(), self.token.clone());
        Box::pin(async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let api = ApiServer(weak.upgrade().ok_or_else(refused)?);
            if !api.is_up() {
                return Err(refused());
            }
            let mut down = api.0.broken.subscribe();
            let random = Arc::clone(&api.0.lifecycle.random);
            drop(api);
            let pause = || tokio::time::sleep(Duration::from_millis(1 + random.below(LATENCY_MILLIS)));
            let upgrade = Upgrade::new(hyper::upgrade::on(&mut request));
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            let mut headers = parts.headers;
            if let Ok(value) = HeaderValue::from_str(&format!("Bearer {token}")) {
                headers.insert(AUTHORIZATION, value);
            }
            headers.entry(USER_AGENT).or_insert(HeaderValue::from_static("in-memory"));
            let query = parts.uri.query().unwrap_or_default().to_owned();
            let path = parts.uri.path().to_owned();
            let call = Call { method: parts.method, path, query, headers, body, upgrade };
            let answered = async {
                pause().await;
                let answer = serve(weak, call).await;
                pause().await;
                answer
            };
            let answer = tokio::select! {
                biased;
                answer = answered => answer.map_err(|_| broken())?,
                _ = down.changed() => return Err(broken()),
            };
            Ok(answer.map(|body| breaking(body, down)))
        })
    }
}

/// A body that breaks when the server goes down.
fn breaking(body: Body, down: Heard) -> Body {
    stream_body(futures::stream::unfold(Some((pieces(body), down)), |state| async {
        let (mut pieces, mut down) = state?;
        let piece = tokio::select! {
            biased;
            piece = pieces.next() => piece?,
            _ = down.changed() => Err(broken()),
        };
        let rest = piece.is_ok().then_some((pieces, down));
        Some((piece, rest))
    }))
}
