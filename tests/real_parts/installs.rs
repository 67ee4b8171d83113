//! What is installed without Helm, at work: each by itself on an API server of its own, applied before Cilium's CRDs exist.

use std::{env, process::Command};

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use serde_json::Value;

use crate::harness::{ApiServer, NAMESPACE, Node, QUICK, Rights, apply, documents, say};
use crate::outages::heals_after_an_outage;

/// What `kubectl kustomize` makes; `None` where there is no kubectl, which CI does not forgive.
fn built(overlay: &str) -> Option<Vec<Value>> {
    let path = format!("{}/{overlay}", env!("CARGO_MANIFEST_DIR"));
    let Ok(output) = Command::new("kubectl").args(["kustomize", &path]).output() else {
        assert!(env::var("CI").as_deref() != Ok("true"), "kubectl is not installed");
        say(&format!("!!! SKIPPED: {overlay}: there is no kubectl"));
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_saphyr::from_multiple(&String::from_utf8_lossy(&output.stdout)).expect("YAML"))
}

async fn with(server: &ApiServer, all: &[Value]) -> (Node, DaemonSet) {
    server
        .prepare_with(async || {
            let client = server.admin().await;
            for document in all {
                apply(&client, document).await;
            }
        })
        .await;
    let node = Node::of(server, false).await;
    let sets: Api<DaemonSet> = Api::namespaced(node.client.clone(), NAMESPACE);
    let set = sets.get("cilium-leak-healer").await.expect("the DaemonSet");
    (node, set)
}

async fn heals_a_wedge(name: &str, all: &[Value]) {
    let server = ApiServer::start(name);
    let (node, set) = with(&server, all).await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let (pod, tries) = node.waiting_pod("waits", ip).await;
    let daemon = node.daemon_of(&node.seat(Rights::Heal).await, &set, QUICK).await;
    daemon.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    tries.await.expect("the kubelet's tries");
    daemon.stop().await;
}

#[tokio::test]
async fn one_file_heals() {
    heals_a_wedge("one-file", &documents("deploy/install-heal.yaml")).await;
}

#[tokio::test]
async fn the_overlay_heals() {
    if let Some(all) = built("deploy/kustomize/overlays/heal") {
        heals_a_wedge("overlay", &all).await;
    }
}

/// No agent when it starts, an API server that goes away and comes back, and its own short times.
#[tokio::test]
async fn the_add_on_for_tests_is_there_before_everything_else() {
    let mut server = ApiServer::start("e2e");
    let (mut node, set) = with(&server, &documents("deploy/e2e/install.yaml")).await;
    node.agent.stop().await;
    let daemon = node.daemon_of(&node.seat(Rights::Heal).await, &set, &[]).await;
    let told = daemon.not_ready().await;
    assert!(told.contains("[-]agent failed"), "{told}");
    server.stop();
    let told = daemon.not_ready().await;
    assert!(told.contains("[-]agent failed"), "{told}");
    server.launch();
    node.agent.launch();
    node.agent.started_long_ago();
    daemon.ready().await;
    heals_after_an_outage(&node, daemon).await;
}
