//! What people apply, as the real API server takes it.

use crate::harness::{Node, Rights, dry_run};

#[tokio::test]
async fn the_api_server_accepts_every_manifest_and_knows_each_field() {
    let node = Node::new().await;
    for file in Rights::RestartAgent.manifests().iter().chain(&["rbac/auth.yaml", "deploy/daemonset.yaml"]) {
        dry_run(&node.client, file).await;
    }
}
