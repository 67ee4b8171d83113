//! Endpoints that are left over are disconnected, and the pods that waited for their addresses get a sandbox.

use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::harness::{
    Daemon, EventForm, Mode, Node, PATIENCE, Rights, container_id, endpoint, eventually, say,
};

const HEALED: &str = r#"cilium_leak_healer_acts_total{remedy="disconnect-endpoint",outcome="healed"}"#;

#[tokio::test]
async fn without_the_daemon_the_pod_waits_until_somebody_disconnects_the_endpoint() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let leaked = node.agent.api().holder(ip).await.expect("a leaked endpoint");
    let (pod, tries) = node.waiting_pod("waits", ip).await;
    node.refused(&pod).await;
    assert_eq!(node.agent.api().holder(ip).await, Some(leaked.clone()));
    assert_eq!(node.agent.api().delete_endpoint(&leaked).await.status, 200);
    node.runs(&pod, ip).await;
    tries.await.expect("the kubelet's tries");
}

#[tokio::test]
async fn the_endpoint_of_a_deleted_pod_is_disconnected() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let leaked = node.agent.api().holder(ip).await.expect("a leaked endpoint");
    let (pod, tries) = node.waiting_pod("waits", ip).await;
    let daemon = node.healer().await;
    daemon.judged("waits", "stale-endpoint").await;
    daemon.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    tries.await.expect("the kubelet's tries");
    assert_ne!(node.agent.api().holder(ip).await, Some(leaked));
    daemon.metric_reaches(HEALED, 1.0).await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_endpoint_of_the_former_pod_of_a_stateful_set_is_disconnected() {
    let node = Node::new().await;
    let daemon = node.healer().await;
    of_a_former_pod(&node, &daemon).await;
    daemon.stop().await;
}

pub async fn of_a_former_pod(node: &Node, daemon: &Daemon) {
    let ip = node.ip(50);
    let database = node.workload("StatefulSet", "db").await;
    let former = database.pod(None).await;
    node.kubelet.start(&former, ip).await;
    let leaked = node.agent.api().holder(ip).await;
    node.kubelet.confirm_deleted(&former).await;
    let pod = database.pod(Some(&former)).await;
    let tries = node.kubelet.keep_trying(&pod, ip);
    daemon.judged("db-0", "stale-endpoint").await;
    daemon.acted("db-0", "healed").await;
    node.runs(&pod, ip).await;
    tries.await.expect("the kubelet's tries");
    assert_ne!(node.agent.api().holder(ip).await, leaked);
}

#[tokio::test]
async fn an_endpoint_that_the_agent_removes_with_clean_up_errors_is_healed_too() {
    let node = Node::new().await;
    let ip = node.ip(50);
    let gone = node.create_pod("gone").await;
    let mut body = endpoint(&gone, &container_id(), ip);
    // An ordinary endpoint, for whose removal the agent misses the policy map: DELETE answers 206.
    body["properties"] = json!({});
    assert_eq!(node.agent.api().put_endpoint(&body).await.status, 201);
    node.kubelet.run(&gone, ip).await;
    node.kubelet.confirm_deleted(&gone).await;
    let (pod, _) = node.waiting_pod("waits", ip).await;
    let daemon = node.healer().await;
    let freed = daemon.acted("waits", "freed").await;
    assert!(freed.to_string().contains("with 1 clean-up error"), "{freed}");
    daemon.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_ipv6_address_is_freed_too() {
    let node = Node::new().await;
    let ip = node.ipv6(0xa50);
    node.leak("gone", ip).await;
    let (pod, _) = node.waiting_pod("waits", ip).await;
    let daemon = node.healer().await;
    daemon.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_refusal_in_an_event_of_the_newer_form_is_understood() {
    let mut node = Node::new().await;
    node.kubelet.event_form = EventForm::Series;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let (pod, _) = node.waiting_pod("waits", ip).await;
    let daemon = node.healer().await;
    daemon.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_address_that_the_agents_ipam_has_given_to_another_pod_is_left_alone() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let leaked = node.agent.api().holder(ip).await;
    // As between the two calls of a CNI plugin that is not quick.
    let (agent, other) = (node.agent.api(), format!("{}/other", node.namespace));
    let allocation = format!("/v1/ipam/{ip}?pool=default");
    let allocate = format!("{allocation}&owner={}", other.replace('/', "%2F"));
    assert_eq!(agent.call(Method::POST, &allocate, None).await.expect("allocate").status, 200);
    eventually("the agent to show the allocation, which it does every 5 s", async || {
        let health = agent.call(Method::GET, "/v1/healthz", None).await.expect("ask for its health").json();
        (health["ipam"]["allocations"][ip.to_string()] == other).then_some(())
    })
    .await;
    node.waiting_pod("waits", ip).await;
    let daemon = node.healer().await;
    let aborted = daemon.acted("waits", "aborted").await;
    assert!(aborted.to_string().contains(&other), "{aborted}");
    assert_eq!(agent.holder(ip).await, leaked);
    // The plugin cannot give it back while an endpoint holds it: it expires.
    assert_eq!(agent.call(Method::DELETE, &allocation, None).await.expect("release").status, 500);
    daemon.stop().await;
}

/// With the settings that a cluster has, and a kubelet as slow as a real one.
#[tokio::test]
async fn a_stale_endpoint_is_gone_ten_seconds_after_the_first_refusal() {
    let mut node = Node::new().await;
    node.kubelet.retry = Duration::from_secs(12);
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let leaked = node.agent.api().holder(ip).await;
    let daemon = node.daemon(Mode::Heal, Rights::Heal, &[]).await;
    // A daemon keeps quiet after its start; this one has started long before the wedge.
    sleep(Duration::from_secs(11)).await;
    let (pod, _) = node.waiting_pod("waits", ip).await;
    node.refused(&pod).await;
    let refused = Instant::now();
    eventually("the stale endpoint to be gone", async || {
        sleep(Duration::from_millis(400)).await;
        (node.agent.api().holder(ip).await != leaked).then_some(())
    })
    .await;
    let took = refused.elapsed();
    say(&format!("from the first refusal to the end of the stale endpoint: {took:.1?}"));
    assert!(took <= Duration::from_secs(10), "{took:?}");
    node.runs(&pod, ip).await;
    say(&format!(
        "to the pod's sandbox, with a try each {:?}: {:.1?}",
        node.kubelet.retry,
        refused.elapsed()
    ));
    daemon.acted("waits", "healed").await;
    assert!(refused.elapsed() < PATIENCE);
    daemon.stop().await;
}
