//! What changes between the judgement and the act stops the act.

use kube::ResourceExt;

use crate::harness::{Mode, Node, Rights};

/// Leaves time for a change between the two judgements.
const SLOW: &[&str] = &["--startup-quiet", "1s", "--confirm-gap", "5s"];

#[tokio::test]
async fn a_new_pod_of_the_owners_name_stops_the_disconnect() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.leak("owner", ip).await;
    let leaked = node.agent.api().holder(ip).await;
    let (pod, _) = node.waiting_pod("waits", ip).await;
    let daemon = node.daemon(Mode::Heal, Rights::Heal, SLOW).await;
    daemon.judged("waits", "stale-endpoint").await;
    let owner = node.create_pod("owner").await;
    node.kubelet.admit(&owner).await;
    daemon.judged("waits", "live-duplicate").await;
    assert_eq!(node.agent.api().holder(ip).await, leaked);
    assert!(daemon.acts().iter().all(|act| act["outcome"] != "healed"), "{:?}", daemon.acts());
    node.kubelet.confirm_deleted(&owner).await;
    daemon.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_new_pod_in_place_of_the_wedged_one_is_judged_anew() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let leaked = node.agent.api().holder(ip).await;
    let (first, tries) = node.waiting_pod("waits", ip).await;
    let daemon = node.daemon(Mode::Heal, Rights::Heal, SLOW).await;
    daemon.judged("waits", "stale-endpoint").await;
    tries.abort();
    node.kubelet.confirm_deleted(&first).await;
    // The Events of the first one are still there, and name it.
    let second = node.create_pod("waits").await;
    node.kubelet.admit(&second).await;
    assert_ne!(first.uid(), second.uid());
    // By the time that another pod is healed, the first judgement was long due.
    let other = node.ip(60);
    node.leak("gone-too", other).await;
    let (pod, _) = node.waiting_pod("waits-too", other).await;
    daemon.acted("waits-too", "healed").await;
    node.runs(&pod, other).await;
    assert_eq!(node.agent.api().holder(ip).await, leaked);
    node.kubelet.keep_trying(&second, ip).await.expect("the kubelet's tries");
    daemon.acted("waits", "healed").await;
    node.runs(&second, ip).await;
    daemon.stop().await;
}
