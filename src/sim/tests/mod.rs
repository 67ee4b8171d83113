//! The simulated servers, asked over their sockets.

mod agent;
mod api;
mod faults;
mod fence;
mod forward;
mod kubelet;
mod watches;

use std::net::IpAddr;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName};
use hyper::{Method, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::{Peer, Reply, call, request};
use super::*;

/// A cluster with one node whose agent has no limits and whose kubelet retries fast.
struct Bench {
    cluster: Cluster,
    node: Node,
    _dir: TempDir,
}

async fn cluster() -> Cluster {
    Cluster::start(ClusterOptions { seed: Some(1), ..ClusterOptions::default() }).await.unwrap()
}

async fn bench(change: impl FnOnce(&mut NodeOptions)) -> Bench {
    let cluster = cluster().await;
    let dir = tempfile::tempdir().unwrap();
    let mut options = NodeOptions::new("n1", 1, dir.path());
    options.agent.rate_limits = RateLimits::off();
    options.kubelet.retry = std::time::Duration::from_millis(20);
    options.kubelet.retry_jitter = std::time::Duration::ZERO;
    change(&mut options);
    let node = cluster.add_node(options).unwrap();
    Bench { cluster, node, _dir: dir }
}

fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "labels": {"app": "db"}}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn json_of(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

impl Bench {
    async fn agent(&self, method: &str, uri: &str, body: Option<Value>) -> Reply {
        ask_agent(&self.node, method, uri, body).await
    }

    fn running(&self, namespace: &str, name: &str) -> bool {
        self.cluster.api().get(&PODS, namespace, name).is_ok_and(|pod| pod["status"]["phase"] == "Running")
    }

    fn events(&self, reason: &str) -> Vec<Value> {
        self.cluster.api().list(&EVENTS, "", &format!("reason={reason}"), "").unwrap()
    }
}

async fn ask_agent(node: &Node, method: &str, uri: &str, body: Option<Value>) -> Reply {
    call(
        Peer::Unix(node.agent().socket()),
        Method::from_bytes(method.as_bytes()).unwrap(),
        uri,
        &[],
        body.as_ref(),
    )
    .await
    .unwrap()
}

async fn ask(cluster: &Cluster, method: &str, uri: &str, body: Option<Value>) -> Reply {
    ask_with(cluster, method, uri, &[], body).await.unwrap()
}

async fn ask_with(
    cluster: &Cluster,
    method: &str,
    uri: &str,
    headers: &[(HeaderName, &str)],
    body: Option<Value>,
) -> std::io::Result<Reply> {
    call(
        Peer::Tcp(cluster.api().address()),
        Method::from_bytes(method.as_bytes()).unwrap(),
        uri,
        headers,
        body.as_ref(),
    )
    .await
}

async fn patch(cluster: &Cluster, uri: &str, content_type: &str, body: Value) -> Reply {
    ask_with(cluster, "PATCH", uri, &[(CONTENT_TYPE, content_type)], Some(body)).await.unwrap()
}

/// A watch whose events are read one by one.
struct Watching {
    response: Response<Incoming>,
    buffer: Vec<u8>,
}

impl Watching {
    async fn start(cluster: &Cluster, uri: &str) -> Self {
        let response =
            request(Peer::Tcp(cluster.api().address()), Method::GET, uri, &[], None).await.unwrap();
        assert_eq!(response.status(), 200);
        Self { response, buffer: Vec::new() }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.response.body_mut().frame().await?.ok()?;
            self.buffer.extend_from_slice(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
        }
    }

    /// The type and the name of the next event.
    async fn step(&mut self) -> (String, String) {
        let event = self.next().await.unwrap();
        let text = |pointer| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/type"), text("/object/metadata/name"))
    }
}
