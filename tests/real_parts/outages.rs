//! The agent and the API server go away and come back; the daemon stays.

use crate::harness::{ApiServer, Daemon, Node};

#[tokio::test]
async fn the_agent_restarts() {
    let mut node = Node::new().await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let (pod, tries) = node.waiting_pod("waits", ip).await;
    node.refused(&pod).await;
    tries.abort();
    node.agent.stop().await;
    let daemon = node.healer().await;
    daemon.judged("waits", "agent-unknown").await;
    let told = daemon.not_ready().await;
    assert!(told.contains("[-]agent failed") && told.contains("[+]pod-watch ok"), "{told}");

    node.agent.launch();
    daemon.ready().await;
    // This agent restores nothing, so the leak happens again.
    node.leak("gone-too", ip).await;
    let leaked = node.agent.api().holder(ip).await;
    node.kubelet.keep_trying(&pod, ip);
    daemon.judged("waits", "settling").await;
    assert_eq!(node.agent.api().holder(ip).await, leaked);
    node.agent.started_long_ago();
    daemon.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_api_server_restarts() {
    let mut server = ApiServer::start("restarts");
    let node = Node::of(&server, false).await;
    let daemon = node.healer().await;
    daemon.ready().await;
    server.stop();
    let told = daemon.not_ready().await;
    assert!(told.contains("[-]pod-watch failed") && told.contains("[+]agent ok"), "{told}");
    server.launch();
    daemon.ready().await;
    heals_after_an_outage(&node, daemon).await;
}

/// A leak is healed once all is back, and the daemon ends well.
pub async fn heals_after_an_outage(node: &Node, daemon: Daemon) {
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let (pod, _) = node.waiting_pod("waits", ip).await;
    daemon.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    // For a moment after its start the API server knows no roles, and refuses everything.
    daemon.stop_without_rights().await;
}
