//! Cilium's own addresses: nothing is disconnected, and at most one pod of a controller is moved, once.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::Value;

use crate::harness::{Daemon, Node, eventually};

/// A pod of a controller waits for that address: it is moved, but what comes after it is not.
async fn moved_once(node: &Node, daemon: &Daemon, ip: IpAddr) {
    let web = node.workload("ReplicaSet", "web").await;
    let first = web.pod(None).await;
    let tries = node.kubelet.keep_trying(&first, ip);
    daemon.judged(&first.name_any(), "reserved-holder").await;
    deleted(node, &first).await;
    tries.abort();
    node.kubelet.confirm_deleted(&first).await;

    let second = web.pod(Some(&first)).await;
    let tries = node.kubelet.keep_trying(&second, ip);
    let judged = daemon.judged(&second.name_any(), "reserved-holder").await;
    let of_second =
        |line: &Value| line["message"] == "held back" && line["correlation_id"] == judged["correlation_id"];
    daemon.line("the second pod is not moved", of_second).await;
    tries.abort();
    // Its next try gets another address, as from an IPAM that goes on.
    let other = node.ip(200);
    assert!(node.kubelet.try_sandbox(&second, other).await);
    node.runs(&second, other).await;
}

async fn deleted(node: &Node, pod: &Pod) {
    eventually(&format!("{} to be deleted", pod.name_any()), async || {
        match node.pod(&pod.name_any()).await {
            Some(now) if now.metadata.deletion_timestamp.is_none() => None,
            _ => Some(()),
        }
    })
    .await;
}

#[tokio::test]
async fn the_ingress_address() {
    let node = Node::with_ingress().await;
    let daemon = node.healer().await;
    on_the_ingress_address(&node, &daemon).await;
    daemon.stop().await;
}

pub async fn on_the_ingress_address(node: &Node, daemon: &Daemon) {
    let ip = node.ingress_address().await;
    // A pod that nothing would make again is left alone.
    let (bare, tries) = node.waiting_pod("bare", ip).await;
    let judged = daemon.judged("bare", "reserved-holder").await;
    assert_eq!(judged["remedy"], "none", "{judged}");
    moved_once(node, daemon, ip).await;
    tries.abort();
    let now = node.pod("bare").await.expect("the bare pod");
    assert!(now.uid() == bare.uid() && now.metadata.deletion_timestamp.is_none());
    assert_eq!(
        node.agent.api().holder(ip).await.as_deref(),
        Some(""),
        "reserved:ingress has no attachment id"
    );
    nothing_disconnected(daemon);
}

/// Held by an endpoint that any other rule would call stale.
#[tokio::test]
async fn the_health_address() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let leaked = node.agent.api().holder(ip).await;
    node.set_health_address(ip).await;
    let daemon = node.healer().await;
    moved_once(&node, &daemon, ip).await;
    assert_eq!(node.agent.api().holder(ip).await, leaked);
    nothing_disconnected(&daemon);
    daemon.stop().await;
}

fn nothing_disconnected(daemon: &Daemon) {
    let acts = daemon.acts();
    assert!(acts.iter().all(|act| act["remedy"] != "disconnect-endpoint"), "{acts:?}");
}
