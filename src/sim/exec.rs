//! `pods/exec` as far as a scan uses it: a WebSocket with the channels of `v5.channel.k8s.io`, no standard input.
//!
//! What runs in a container is the cluster's: the API server only carries it. Must not know: agents.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures::SinkExt as _;
use futures::future::BoxFuture;
use hyper::Response;
use hyper::header::{CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::apiserver::Shared;
use super::clock::lock;
use super::http::{Body, Call, answer};
use super::resource::{PODS, Target, key, text};
use super::routes::{Query, Result};
use super::status::Status;

const PROTOCOL: &str = "v5.channel.k8s.io";
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;

/// What somebody wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// The pod's node.
    pub node: String,
    /// The container.
    pub container: String,
    /// Program and arguments.
    pub argv: Vec<String>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecReply {
    /// It ran.
    Ended {
        /// Exit status.
        code: i32,
        /// Standard output.
        stdout: Vec<u8>,
        /// Standard error.
        stderr: Vec<u8>,
    },
    /// Nothing was started; the runtime's words.
    NotStarted(String),
    /// The connection breaks before an exit status comes.
    Broken,
}

type Run = Arc<dyn Fn(ExecRequest) -> BoxFuture<'static, ExecReply> + Send + Sync>;

/// Runs programs in containers.
#[derive(Clone)]
pub struct Executor(Run);

impl Executor {
    /// From a function.
    pub fn new(run: impl Fn(ExecRequest) -> BoxFuture<'static, ExecReply> + Send + Sync + 'static) -> Self {
        Self(Arc::new(run))
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Executor")
    }
}

/// The connection's other half, for the one answer that takes it over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Upgrade(Arc<Mutex<Option<OnUpgrade>>>);

impl Upgrade {
    pub(crate) fn new(upgrade: OnUpgrade) -> Self {
        Self(Arc::new(Mutex::new(Some(upgrade))))
    }

    pub(crate) fn take(&self) -> Option<OnUpgrade> {
        lock(&self.0).take()
    }
}

/// Answers a request for `pods/{name}/exec`.
pub(crate) fn answer_exec(
    shared: &Shared,
    target: &Target,
    call: &Call,
    query: &Query,
) -> Result<Response<Body>> {
    let pod = shared.lifecycle.store.get(PODS.storage, &key(&target.namespace, &target.name));
    let pod = pod.ok_or_else(|| Status::not_found(&PODS, &target.name))?;
    let container = query.get("container");
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    if !containers.into_iter().flatten().any(|it| it["name"] == container) {
        let why = format!("container {container} is not valid for pod {}", target.name);
        return Err(Status::bad_request(why));
    }
    let (Some(executor), Some(upgrade)) = (lock(&shared.executor).clone(), call.upgrade.take()) else {
        return Err(Status::for_code(500));
    };
    let request = ExecRequest {
        namespace: target.namespace.clone(),
        pod: target.name.clone(),
        node: text(&pod, "/spec/nodeName").to_owned(),
        container: container.to_owned(),
        argv: query.all("command"),
    };
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else {
            return;
        };
        // A client that went away is part of the play.
        let _ = talk(socket(upgraded).await, executor.0(request).await).await;
    });
    Ok(switching(call, PROTOCOL))
}

/// The answer after which the connection speaks a protocol of channels.
pub(crate) fn switching(call: &Call, protocol: &'static str) -> Response<Body> {
    let mut response = answer(101, "", "");
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    let accept = derive_accept_key(call.header("sec-websocket-key").as_bytes());
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(HeaderName::from_static("sec-websocket-accept"), accept);
    }
    response
}

/// The server's side of a WebSocket.
pub(crate) type Socket = WebSocketStream<TokioIo<Upgraded>>;

pub(crate) async fn socket(upgraded: Upgraded) -> Socket {
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await
}

async fn talk(mut socket: Socket, reply: ExecReply) -> std::result::Result<(), Error> {
    let status = match reply {
        ExecReply::Broken => return Ok(()),
        ExecReply::NotStarted(why) => {
            let message = format!("Internal error occurred: {why}");
            json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500})
        }
        ExecReply::Ended { code, stdout, stderr } => {
            for (channel, bytes) in [(STDOUT, stdout), (STDERR, stderr)] {
                for part in bytes.chunks(32 * 1024) {
                    socket.send(frame(channel, part)).await?;
                }
            }
            if code == 0 {
                json!({"metadata": {}, "status": "Success"})
            } else {
                json!({
                    "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                    "message": format!("command terminated with non-zero exit code: exit status {code}"),
                    "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
                })
            }
        }
    };
    socket.send(frame(STATUS, status.to_string().as_bytes())).await?;
    socket.close(None).await
}

/// Bytes of one channel.
pub(crate) fn frame(channel: u8, bytes: &[u8]) -> Message {
    Message::binary([&[channel], bytes].concat())
}
