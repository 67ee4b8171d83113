//! The way to a watchdog's HTTP: through a port-forward, or through the API server's proxy.
//!
//! Must not know: what is read over it, nor who tries again.

use std::pin::Pin;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _};
use http::header::HOST;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Collected, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Portforwarder;
use kube::client::Body as KubeBody;
use kube::{Api, Client};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::KEPT;
use super::ask::{Ask, STATE};
use super::lines::Lines;
use super::trouble::{Trouble, forbidden, refusal};
use crate::kube::chain;

/// How long the kubelet's word on a broken forward is waited for: it comes beside the break.
const WORD: Duration = Duration::from_secs(2);
/// How long it is waited for before anything is asked.
const FIRST_WORD: Duration = Duration::from_millis(150);
/// By this name a watchdog lets itself be called, whoever asks.
const OWN_HOST: &str = "localhost";
/// Bytes of a refusal that are read.
const REFUSAL: usize = 16 * 1024;

/// The bytes of an answer, as they come.
pub(in crate::cli) type Source = Pin<Box<dyn Stream<Item = Result<Bytes, String>> + Send>>;

/// How watchdogs are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli) enum Via {
    /// A connection to the port on the pod's loopback address, as kubectl port-forward makes one.
    PortForward,
    /// The API server asks the pod's own address: for watchdogs that listen there, with --auth=none.
    Proxy,
}

/// The way to all watchdogs.
pub(in crate::cli) struct Wire {
    pub(in crate::cli) client: Client,
    pub(in crate::cli) namespace: String,
    pub(in crate::cli) port: u16,
    pub(in crate::cli) via: Via,
    /// Bound on each answer's head.
    pub(in crate::cli) timeout: Duration,
}

/// A connection to one watchdog, for one request after the other.
pub(in crate::cli) enum Link<'a> {
    Forwarded { wire: &'a Wire, sender: SendRequest<Empty<Bytes>>, tunnel: Tunnel },
    Proxied { wire: &'a Wire, pod: String },
}

/// What carries a forwarded connection; it ends with this.
pub(in crate::cli) struct Tunnel {
    forwarder: Portforwarder,
    /// The kubelet's word on why the port cannot be used.
    word: Option<BoxFuture<'static, Option<String>>>,
    _tasks: JoinSet<()>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

impl Tunnel {
    async fn explain(&mut self, why: String) -> Trouble {
        let word = match self.word.take() {
            Some(word) => timeout(WORD, word).await.ok().flatten(),
            None => None,
        };
        Trouble::passing(&word.unwrap_or(why))
    }
}

impl Wire {
    /// Opens a connection to a pod.
    pub(in crate::cli) async fn open(&self, pod: &str) -> Result<Link<'_>, Trouble> {
        match self.via {
            Via::Proxy => Ok(Link::Proxied { wire: self, pod: pod.to_owned() }),
            Via::PortForward => self.forward(pod).await,
        }
    }

    async fn forward(&self, pod: &str) -> Result<Link<'_>, Trouble> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let opened = api.portforward(pod, &[self.port]).await;
        let mut forwarder = opened.map_err(|error| self.refused(&error))?;
        let word = forwarder.take_error(self.port);
        let mut word = word.map(|word| Box::pin(word) as BoxFuture<'static, Option<String>>);
        // A request on its way to a port that nobody listens at can drown the kubelet's word.
        if let Some(said) = &mut word
            && let Ok(said) = timeout(FIRST_WORD, said).await
        {
            return Err(Trouble::passing(said.as_deref().unwrap_or("the forward was closed")));
        }
        let stream = forwarder.take_stream(self.port);
        let stream = stream.ok_or_else(|| Trouble::passing("the forward has no stream"))?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| Trouble::passing(&chain(&error)))?;
        let mut tasks = JoinSet::new();
        // Its end shows in the answer.
        tasks.spawn(async move { drop(connection.await) });
        Ok(Link::Forwarded { wire: self, sender, tunnel: Tunnel { forwarder, word, _tasks: tasks } })
    }

    /// What the API server says against it.
    fn refused(&self, error: &kube::Error) -> Trouble {
        match error {
            kube::Error::Api(status) => self.said(status.code, &status.message),
            other => Trouble::passing(&chain(other)),
        }
    }

    fn said(&self, code: u16, message: &str) -> Trouble {
        let right = match self.via {
            Via::PortForward => "get and create pods/portforward",
            Via::Proxy => "get pods/proxy",
        };
        match code {
            401 | 403 => forbidden(code, right, &self.namespace, message),
            _ => Trouble::passing(&format!("{code} {message}")),
        }
    }
}

impl Link<'_> {
    /// Asks for events; the answer before must have been read to its end. No credential goes to a watchdog: over loopback it asks
    /// for none, and the API server passes none on.
    pub(in crate::cli) async fn ask(&mut self, ask: &Ask<'_>) -> Result<Lines, Trouble> {
        let lines = self.get(&ask.path()).await?;
        Ok(if ask.follow { lines } else { lines.at_most(KEPT) })
    }

    /// Asks for what all events so far add up to, with the same care.
    pub(in crate::cli) async fn state(&mut self) -> Result<Lines, Trouble> {
        self.get(STATE).await
    }

    async fn get(&mut self, path: &str) -> Result<Lines, Trouble> {
        match self {
            Self::Forwarded { wire, sender, tunnel } => forwarded(wire, sender, tunnel, path).await,
            Self::Proxied { wire, pod } => proxied(wire, pod, path).await,
        }
    }
}

async fn forwarded(
    wire: &Wire,
    sender: &mut SendRequest<Empty<Bytes>>,
    tunnel: &mut Tunnel,
    path: &str,
) -> Result<Lines, Trouble> {
    let request = request(path, Some(OWN_HOST), Empty::new())?;
    let answer = async {
        sender.ready().await?;
        sender.send_request(request).await
    };
    match timeout(wire.timeout, answer).await {
        Ok(Ok(response)) => {
            let refused = |code, body: &[u8]| refusal(code, body);
            lines(wire, response.map(|body| body.map_err(|error| chain(&error)).boxed_unsync()), refused)
                .await
        }
        Ok(Err(error)) => Err(tunnel.explain(chain(&error)).await),
        Err(_) => Err(tunnel.explain(format!("no answer within {} s", wire.timeout.as_secs_f32())).await),
    }
}

async fn proxied(wire: &Wire, pod: &str, path: &str) -> Result<Lines, Trouble> {
    let Wire { namespace, port, .. } = wire;
    let uri = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}");
    let send = async |host| {
        let response = wire.client.send(request(&uri, host, KubeBody::empty())?).await;
        response.map_err(|error| wire.refused(&error))
    };
    let mut response = send(None).await?;
    // The API server's name comes through as the watchdog's, which takes no name but addresses and its own.
    if response.status() == StatusCode::MISDIRECTED_REQUEST {
        response = send(Some(OWN_HOST)).await?;
    }
    // The API server's own refusal is a `Status`, the watchdog's is text.
    let refused = |code, body: &[u8]| match serde_json::from_slice::<kube::core::Status>(body) {
        Ok(status) => wire.said(code, &status.message),
        Err(_) => refusal(code, body),
    };
    lines(wire, response.map(|body| body.map_err(|error| chain(&error)).boxed_unsync()), refused).await
}

fn request<B>(uri: &str, host: Option<&'static str>, body: B) -> Result<Request<B>, Trouble> {
    let host = host.map(|host| (HOST, HeaderValue::from_static(host)));
    let mut request = Request::get(uri).body(body).map_err(|error| Trouble::lasting(&error.to_string()))?;
    request.headers_mut().extend(host);
    Ok(request)
}

/// The lines of an answer, if it is one.
async fn lines(
    wire: &Wire,
    response: Response<UnsyncBoxBody<Bytes, String>>,
    refused: impl Fn(u16, &[u8]) -> Trouble,
) -> Result<Lines, Trouble> {
    let (parts, body) = response.into_parts();
    if parts.status == StatusCode::OK {
        return Ok(Lines::new(body.into_data_stream().boxed()));
    }
    let body = timeout(wire.timeout, Limited::new(body, REFUSAL).collect()).await;
    let body = body.ok().and_then(Result::ok).map(Collected::to_bytes).unwrap_or_default();
    Err(refused(parts.status.as_u16(), &body))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// An API server whose name comes through to the watchdog behind it, which takes no name but its own.
    #[tokio::test]
    async fn a_watchdog_that_takes_no_name_is_asked_by_its_own() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&asked);
        let server = tower::service_fn(move |request: Request<KubeBody>| {
            let host = request.headers().get(HOST).map(|host| host.to_str().unwrap().to_owned());
            let status = if host.is_some() { 200 } else { 421 };
            record.lock().unwrap().push((request.uri().to_string(), host));
            async move { Ok::<_, Infallible>(Response::builder().status(status).body(KubeBody::empty()).unwrap()) }
        });
        let wire = Wire {
            client: Client::new(server, "default"),
            namespace: "own".to_owned(),
            port: 9969,
            via: Via::Proxy,
            timeout: Duration::from_secs(1),
        };
        let ask = Ask { since: None, follow: false, types: &[] };
        let mut lines = wire.open("a-1").await.unwrap().ask(&ask).await.unwrap();
        assert_eq!(lines.next(wire.timeout).await, Ok(None));
        let path = "/api/v1/namespaces/own/pods/a-1:9969/proxy/v1/events?format=ndjson&follow=false";
        let asked = asked.lock().unwrap();
        assert!(asked.iter().all(|(uri, _)| uri.ends_with(path)), "{asked:?}");
        let hosts: Vec<Option<&str>> = asked.iter().map(|(_, host)| host.as_deref()).collect();
        assert_eq!(hosts, [None, Some("localhost")]);
    }
}
