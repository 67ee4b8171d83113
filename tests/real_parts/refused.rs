//! What is not proven is not touched.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::harness::{Node, container_id, endpoint};

/// The pod of `owner` is alive: nothing happens until it is not, and then the same daemon heals.
async fn refused_while_the_owner_lives(node: &Node, owner: &Pod) {
    let ip = node.ip(50);
    let held = node.agent.api().holder(ip).await;
    let (pod, _) = node.waiting_pod("waits", ip).await;
    let daemon = node.healer().await;
    daemon.judged("waits", "live-duplicate").await;
    daemon.metric_reaches(r#"cilium_leak_healer_wedges{verdict="live-duplicate"}"#, 1.0).await;
    daemon.metric_reaches(r#"cilium_leak_healer_refusals_total{reason="live-duplicate"}"#, 1.0).await;
    assert_eq!(daemon.acts(), Vec::<Value>::new());
    assert_eq!(node.agent.api().holder(ip).await, held);
    node.kubelet.confirm_deleted(owner).await;
    daemon.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_address_of_a_running_pod() {
    let node = Node::new().await;
    let owner = node.running_pod("owner", node.ip(50)).await;
    refused_while_the_owner_lives(&node, &owner).await;
}

#[tokio::test]
async fn the_address_of_a_pod_that_starts_and_has_told_none_yet() {
    let node = Node::new().await;
    let owner = node.create_pod("owner").await;
    node.kubelet.admit(&owner).await;
    let body = endpoint(&owner, &container_id(), node.ip(50));
    assert_eq!(node.agent.api().put_endpoint(&body).await.status, 201);
    refused_while_the_owner_lives(&node, &owner).await;
}

#[tokio::test]
async fn an_agent_that_has_just_started_is_given_time() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let leaked = node.agent.api().holder(ip).await;
    node.agent.started_now();
    let (pod, _) = node.waiting_pod("waits", ip).await;
    let daemon = node.healer().await;
    daemon.judged("waits", "settling").await;
    assert_eq!(daemon.acts(), Vec::<Value>::new());
    assert_eq!(node.agent.api().holder(ip).await, leaked);
    node.agent.started_long_ago();
    daemon.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    daemon.stop().await;
}
