//! `restart-agent`, whole: a history on the real agent, the Lease, the fence, the delete, and the new agent.

use std::time::Duration;

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{Node as ApiNode, Pod},
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::harness::{ApiServer, Daemon, Mode, Node, Rights, apply, eventually};

/// The settings of a daemon that restarts; the container of the pods that a test makes is `app`.
pub const RESTARTS: &[&str] = &[
    "--startup-quiet",
    "1s",
    "--confirm-gap",
    "1s",
    "--restart-quiet",
    "1s",
    "--agent-container",
    "app",
    "--remedies",
    "disconnect-endpoint,delete-pod,restart-agent",
];

/// One of its own: with a Node there the controller counts the agents of all of them.
#[tokio::test]
async fn an_agent_that_refuses_an_address_that_nobody_holds_is_restarted_once() {
    let server = ApiServer::start("restart-agent");
    if !server.controllers {
        // Nobody counts the agents there.
        return;
    }
    let mut node = Node::of(&server, false).await;
    let daemon = node.daemon(Mode::Heal, Rights::RestartAgent, RESTARTS).await;
    of_a_hidden_holder(&mut node, &daemon).await;
    daemon.stop().await;
}

/// The kubelet tells of refusals, and the agent says each time that nobody holds the address.
pub async fn of_a_hidden_holder(node: &mut Node, daemon: &Daemon) {
    let agent = ready_agent(node).await;
    let ip = node.ip(90);
    let pod = node.create_pod("refused").await;
    node.kubelet.admit(&pod).await;
    let (kubelet, refused) = (node.kubelet.clone(), pod.clone());
    let refusals = tokio::spawn(async move {
        loop {
            kubelet.refuse(&refused, ip).await;
            sleep(Duration::from_secs(3)).await;
        }
    });
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), "kube-system");
    let name = agent.metadata.name.clone().expect("a name");
    eventually("the agent's pod to be deleted", async || {
        let now = pods.get(&name).await.expect("the agent's pod");
        now.metadata.deletion_timestamp.map(|_| ())
    })
    .await;
    refusals.abort();
    node.kubelet.confirm_deleted(&agent).await;
    node.agent.stop().await;
    node.agent.launch();
    node.kubelet.keep_trying(&pod, ip).await.expect("the kubelet's tries");
    node.runs(&pod, ip).await;
    let healed = |line: &Value| {
        line["message"] == "acted" && line["remedy"] == "restart-agent" && line["outcome"] == "healed"
    };
    daemon.line("the restart to have healed", healed).await;
    let timeline = daemon.timeline();
    let deleted: Vec<_> =
        timeline.iter().filter(|(_, it)| it.verb == "delete" && !it.dry_run && it.status == 200).collect();
    assert_eq!(deleted.len(), 1, "{deleted:?}");
    let given = || {
        let leases = daemon.timeline().into_iter().filter(|(_, it)| it.resource == "leases");
        let updates: Vec<_> = leases.filter(|(_, it)| it.verb == "update" && it.status == 200).collect();
        let named = updates.iter().all(|(_, it)| it.name == "cilium-leak-healer-restart-agent");
        (updates.len() == 2 && named).then_some(())
    };
    eventually("the Lease to be given back", async || given()).await;
}

/// The agent's pod, long running, on a Node that is well, of a DaemonSet that is rolled out.
async fn ready_agent(node: &Node) -> Pod {
    let nodes: Api<ApiNode> = Api::all(node.client.clone());
    apply(&node.client, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}})).await;
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is",
        "lastHeartbeatTime": Timestamp::now(), "lastTransitionTime": Timestamp::now(),
    });
    let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    nodes.patch_status(&node.name, &PatchParams::default(), &status).await.expect("the Node's status");
    // The API server puts one on each Node that is new.
    let spec = Patch::Merge(json!({"spec": {"taints": null}}));
    nodes.patch(&node.name, &PatchParams::default(), &spec).await.expect("the Node's taints");
    let pod = node.agent_pod().await;
    let ago = Timestamp::now() - SignedDuration::from_mins(10);
    let container = json!({
        "name": "app", "image": "app", "imageID": "", "restartCount": 0, "ready": true, "started": true,
        "state": {"running": {"startedAt": ago}},
    });
    node.kubelet.patch_status(&pod, json!({"containerStatuses": [container]})).await;
    let sets: Api<DaemonSet> = Api::namespaced(node.client.clone(), "kube-system");
    eventually("the DaemonSet to count the agent", async || {
        let set = sets.get("cilium").await.expect("the DaemonSet");
        let status = set.status?;
        let observed = status.observed_generation == set.metadata.generation;
        let all = status.updated_number_scheduled == Some(status.desired_number_scheduled);
        (observed && all && status.desired_number_scheduled > 0).then_some(())
    })
    .await;
    pod
}
