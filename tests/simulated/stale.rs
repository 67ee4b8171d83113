//! Endpoints that are left over, and healed.

use std::net::Ipv4Addr;

use cilium_leak_healer::sim::{
    AgentVersion, CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS, DeleteOptions, EndpointSpec, Fault, PODS,
    WorkloadKind,
};
use serde_json::{Value, json};

use crate::scene::{GONE, IP, Scene, acted, healed, judged, old_endpoint};

async fn left_behind(version: AgentVersion, prefix: &str) {
    let scene = Scene::of_version(version).await;
    let daemon = scene.heal().await;
    let pod = scene.wedge();
    let judged = judged(&daemon, pod, "stale-endpoint").await;
    assert_eq!(judged["remedy"], "disconnect-endpoint");
    assert_eq!(judged["owner"], "backup/agent-old");
    let id = judged["correlation_id"].clone();
    for (message, outcome) in [("acting", None), ("acted", Some("freed")), ("acted", Some("healed"))] {
        let is_it = |line: &Value| {
            line["message"] == message && outcome.is_none_or(|outcome| line["outcome"] == outcome)
        };
        let line = daemon.line(message, is_it).await;
        assert_eq!(line["correlation_id"], id, "{line}");
    }
    let disconnects = scene.disconnects();
    assert_eq!(disconnects.len(), 1, "{disconnects:?}");
    let path = &disconnects[0].path;
    assert!(path.starts_with(&format!("/v1/endpoint/{prefix}:")), "{path}");
    let took = "cilium_leak_healer_heal_latency_seconds";
    daemon.metric_reaches(&format!("{took}_count"), 1.0).await;
    // It judged twice before: a heal takes longer than the gap between.
    assert!(daemon.metric(&format!("{took}_sum")).await > 0.0);
    healed(&scene, daemon).await;
    let writes = scene.writes();
    assert_eq!(writes.len(), 1, "only the endpoint was touched: {writes:?}");
}

pub(crate) async fn left_behind_on_1_14() {
    // Its endpoints name their pod by identifiers only, and know no attachment id.
    left_behind(AgentVersion::V1_14, "container-id").await;
}

pub(crate) async fn left_behind_on_1_18() {
    left_behind(AgentVersion::V1_18, "cni-attachment-id").await;
}

pub(crate) async fn left_behind_on_1_20() {
    left_behind(AgentVersion::V1_20, "cni-attachment-id").await;
}

pub(crate) async fn nameless_on_1_20() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    scene.leak(GONE.0, "", IP);
    scene.pod("shop", "cart", IP);
    let judged = judged(&daemon, "shop/cart", "stale-endpoint").await;
    assert!(evidence(&judged).contains("proof 6"), "{judged}");
    assert!(judged["owner"].is_null(), "{judged}");
    healed(&scene, daemon).await;
}

pub(crate) async fn previous_incarnation_of_a_statefulset_pod() {
    let scene = Scene::new().await;
    scene.workload(WorkloadKind::StatefulSet, "shop", "cart", IP);
    scene.runs("shop", "cart-0").await;
    let former = scene.uid_of("shop", "cart-0").expect("its UID");
    // The CiliumEndpoint goes with its pod; where slices are served they tell the endpoint's UID for longer.
    let networking = json!({"addressing": [{"ipv4": IP}], "node": "192.168.77.10"});
    let slice = json!({
        "metadata": {"name": "ces-1"}, "namespace": "shop",
        "endpoints": [{"name": "cart-0", "id": 1, "networking": networking, "pod-uid": former}],
    });
    let api = scene.cluster.api();
    api.create(&CILIUM_ENDPOINT_SLICES, slice).expect("a slice");
    let daemon = scene.heal().await;
    scene.node.kubelet().lose_next_del("shop", "cart-0");
    scene.delete("shop", "cart-0", &DeleteOptions::default());
    let judged = judged(&daemon, "shop/cart-0", "stale-endpoint").await;
    assert_ne!(judged["pod_uid"], former.as_str());
    assert_eq!(judged["owner"], "shop/cart-0");
    acted(&daemon, "healed").await;
    assert_eq!(scene.runs("shop", "cart-0").await, IP);
    daemon.stop().await;
}

pub(crate) async fn earlier_sandbox_of_the_wedged_pod() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    // The first try fails otherwise, so that the pod is there before the endpoint that stands for it.
    let first = scene.node.agent().inject(Fault::status(503).on("PUT").once());
    let uid = scene.pod("shop", "cart", IP);
    scene.wait("the first try", |_| first.hits() == 1).await;
    let made = scene.node.agent().put_endpoint(old_endpoint("shop", "cart", IP));
    made.expect("an endpoint");
    let judged = judged(&daemon, "shop/cart", "stale-endpoint").await;
    assert_eq!(judged["pod_uid"], uid.as_str());
    assert!(evidence(&judged).contains("proof 5"), "{judged}");
    let cep = scene.cluster.api().get(&CILIUM_ENDPOINTS, "shop", "cart");
    let owner = cep.expect("its CiliumEndpoint")["metadata"]["ownerReferences"][0]["uid"].clone();
    assert_eq!(owner, uid.as_str(), "the same pod, not an earlier one");
    healed(&scene, daemon).await;
}

pub(crate) async fn owner_that_has_ended() {
    let scene = Scene::new().await;
    let job = json!({
        "metadata": {"namespace": "backup", "name": "job"}, "spec": {"nodeName": "worker-1"},
        "status": {"phase": "Succeeded"},
    });
    scene.cluster.api().create(&PODS, job).expect("a pod");
    let ip: Ipv4Addr = IP.parse().expect("an address");
    let endpoint = EndpointSpec::new("backup", "job", "cd".repeat(32), ip);
    scene.node.agent().leak(endpoint).expect("an endpoint");
    let daemon = scene.heal().await;
    scene.pod("shop", "cart", IP);
    let judged = judged(&daemon, "shop/cart", "stale-endpoint").await;
    assert!(evidence(&judged).contains("proof 2"), "{judged}");
    healed(&scene, daemon).await;
}

fn evidence(judged: &Value) -> &str {
    judged["evidence"].as_str().unwrap_or_default()
}
