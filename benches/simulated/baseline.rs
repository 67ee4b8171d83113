//! What is compared with: one loop for the whole cluster, as scripts against this failure go.
//!
//! A model, not somebody's program. Every 15 s it lists the cluster's `FailedCreatePodSandBox` Events; for each refused pod that still
//! waits it asks for the pods of the address and for the CiliumEndpoints; where neither names a living pod, the agent. An answer: it
//! disconnects by address. None, be it a 404 or a time-out: it takes the address for held by nobody, and restarts the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use cilium_leak_healer::sim::{Agent, ApiServer, Local, Node};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tower::Service as _;

/// Its name at both servers.
pub(crate) const NAME: &str = "baseline";
/// Between two rounds.
pub(crate) const EVERY: Duration = Duration::from_secs(15);
/// How long it waits for the agent.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Baseline {
    api: Local,
    agents: BTreeMap<String, Agent>,
}

/// What it reads, of a cluster or of a case file. What cannot be read is nothing to it.
pub(crate) trait Reads {
    /// All Events for the reason `FailedCreatePodSandBox`.
    async fn events(&mut self) -> Vec<Value>;
    async fn pod(&mut self, namespace: &str, name: &str) -> Option<Value>;
    async fn pods_with(&mut self, ip: &str) -> Vec<Value>;
    async fn endpoints(&mut self) -> Vec<Value>;
    /// Whether a node's agent tells, in time, of an endpoint with that address.
    async fn is_held(&mut self, node: &str, ip: &str) -> bool;
}

/// A pod that was refused an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) ip: String,
}

/// What it does about a refusal, on which node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Does {
    Disconnect(String),
    Restart(String),
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is_live(pod: &Value) -> bool {
    !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// `… "IP ipv4:10.244.1.12 is already in use"`.
fn refused_address(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("IP ipv4:")?;
    let (ip, _) = rest.split_once(" is already in use")?;
    Some(ip.to_owned())
}

impl Baseline {
    pub(crate) fn new(api: &ApiServer, nodes: &[Node]) -> Self {
        let agents = nodes.iter().map(|node| (node.name().to_owned(), node.agent().clone())).collect();
        Self { api: api.local("sim-token"), agents }
    }

    pub(crate) async fn run(mut self) {
        loop {
            self.round().await;
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn round(&mut self) {
        let mut restarted = BTreeSet::new();
        for refusal in refusals(self).await {
            match decide(self, &refusal).await {
                Some(Does::Disconnect(node)) => {
                    let Some(agent) = self.agents.get(&node) else { continue };
                    drop(tokio::time::timeout(PATIENCE, ask(agent, Method::DELETE, &refusal.ip)).await);
                }
                Some(Does::Restart(node)) if restarted.insert(node.clone()) => self.restart(&node).await,
                Some(Does::Restart(_)) | None => {}
            }
        }
    }

    /// Deletes the agent's pod on a node.
    async fn restart(&mut self, node: &str) {
        let query = format!("labelSelector=k8s-app%3Dcilium&fieldSelector=spec.nodeName%3D{node}");
        for pod in self.list("/api/v1/namespaces/kube-system/pods", &query).await {
            let path = format!("/api/v1/namespaces/kube-system/pods/{}", text(&pod, "/metadata/name"));
            drop(self.call(Method::DELETE, &path).await);
        }
    }

    /// A list in pages of 500, as kubectl reads one.
    async fn list(&mut self, path: &str, query: &str) -> Vec<Value> {
        let (mut items, mut token) = (Vec::new(), String::new());
        loop {
            let uri = format!("{path}?limit=500&{query}&continue={token}");
            let Some(mut page) = self.call(Method::GET, &uri).await else { return items };
            if let Some(more) = page["items"].as_array_mut() {
                items.append(more);
            }
            text(&page, "/metadata/continue").clone_into(&mut token);
            if token.is_empty() {
                return items;
            }
        }
    }

    async fn call(&mut self, method: Method, uri: &str) -> Option<Value> {
        let request = Request::builder().method(method).uri(uri).header("user-agent", NAME);
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        let answer = self.api.call(request).await.ok()?;
        let good = answer.status().is_success();
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        good.then(|| serde_json::from_slice(&body).ok()).flatten()
    }
}

impl Reads for Baseline {
    async fn events(&mut self) -> Vec<Value> {
        self.list("/api/v1/events", "fieldSelector=reason%3DFailedCreatePodSandBox").await
    }

    async fn pod(&mut self, namespace: &str, name: &str) -> Option<Value> {
        self.call(Method::GET, &format!("/api/v1/namespaces/{namespace}/pods/{name}")).await
    }

    async fn pods_with(&mut self, ip: &str) -> Vec<Value> {
        self.list("/api/v1/pods", &format!("fieldSelector=status.podIP%3D{ip}")).await
    }

    async fn endpoints(&mut self) -> Vec<Value> {
        self.list("/apis/cilium.io/v2/ciliumendpoints", "").await
    }

    async fn is_held(&mut self, node: &str, ip: &str) -> bool {
        let Some(agent) = self.agents.get(node) else { return false };
        let found = tokio::time::timeout(PATIENCE, ask(agent, Method::GET, ip)).await;
        matches!(found, Ok(Ok(StatusCode::OK)))
    }
}

/// Pods that were refused, by their Events.
pub(crate) async fn refusals(reads: &mut impl Reads) -> BTreeSet<Refusal> {
    let of = |event: &Value| {
        Some(Refusal {
            namespace: text(event, "/involvedObject/namespace").to_owned(),
            pod: text(event, "/involvedObject/name").to_owned(),
            ip: refused_address(text(event, "/message"))?,
        })
    };
    // Several Events of one pod are one wedge.
    reads.events().await.iter().filter_map(of).collect()
}

pub(crate) async fn decide(reads: &mut impl Reads, refusal: &Refusal) -> Option<Does> {
    let Refusal { namespace, pod, ip } = refusal;
    let waiting = reads.pod(namespace, pod).await?;
    if text(&waiting, "/status/phase") != "Pending" || !text(&waiting, "/status/podIP").is_empty() {
        return None;
    }
    if reads.pods_with(ip).await.iter().any(is_live) {
        return None;
    }
    for endpoint in reads.endpoints().await {
        if text(&endpoint, "/status/networking/addressing/0/ipv4") != ip {
            continue;
        }
        let (namespace, name) = (text(&endpoint, "/metadata/namespace"), text(&endpoint, "/metadata/name"));
        if reads.pod(namespace, name).await.as_ref().is_some_and(is_live) {
            return None;
        }
    }
    let node = text(&waiting, "/spec/nodeName").to_owned();
    Some(if reads.is_held(&node, ip).await { Does::Disconnect(node) } else { Does::Restart(node) })
}

/// GET or DELETE of the endpoint with that address.
async fn ask(agent: &Agent, method: Method, ip: &str) -> io::Result<StatusCode> {
    let (mut client, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(agent.dial()?)).await.map_err(io::Error::other)?;
    let request = Request::builder()
        .method(method)
        .uri(format!("/v1/endpoint/ipv4:{ip}"))
        .header("host", "agent")
        .header("user-agent", NAME);
    let request = request.body(Full::new(Bytes::new())).expect("a request");
    let asking = async {
        let answer = client.send_request(request).await.map_err(io::Error::other)?;
        Ok(answer.status())
    };
    tokio::select! {
        answer = asking => answer,
        ended = connection => Err(ended.err().map_or_else(|| io::ErrorKind::UnexpectedEof.into(), io::Error::other)),
    }
}
