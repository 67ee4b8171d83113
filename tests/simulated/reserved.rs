//! Addresses of Cilium's own: told, and at most moved once.

use cilium_leak_healer::sim::{Cluster, PODS, RequestRecord, WorkloadKind};
use serde_json::Value;

use crate::scene::{INGRESS, Scene, acted, judged};

/// The one pod of a namespace that is not this one.
fn other_pod(cluster: &Cluster, namespace: &str, than: &str) -> Option<Value> {
    let pods = cluster.api().list(&PODS, namespace, "", "").expect("the pods");
    pods.into_iter().find(|pod| pod["metadata"]["uid"] != than)
}

/// What was written, but for the Lease that an act takes and gives back.
fn deletes(scene: &Scene) -> Vec<RequestRecord> {
    scene.writes().into_iter().filter(|request| !request.path.contains("/leases/")).collect()
}

/// Before that it is told without remedy, while the failure is the only one and fresh.
fn to_be_moved(line: &Value) -> bool {
    line["message"] == "judged" && line["verdict"] == "reserved-holder" && line["remedy"] == "delete-pod"
}

pub(crate) async fn a_replicas_pod_on_the_ingress_address_is_moved_once() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    scene.workload(WorkloadKind::ReplicaSet, "tenant-b", "api", INGRESS);
    let judged = daemon.line("to be moved", to_be_moved).await;
    let deleted = acted(&daemon, "deleted").await;
    assert_eq!(deleted["correlation_id"], judged["correlation_id"]);
    let first = judged["pod_uid"].as_str().expect("its UID");
    let address = |cluster: &Cluster| {
        let pod = other_pod(cluster, "tenant-b", first)?;
        Some(pod.pointer("/status/podIP")?.as_str()?.to_owned())
    };
    scene.wait("the replacement to run", |cluster| address(cluster).is_some_and(|ip| !ip.is_empty())).await;
    assert_ne!(address(&scene.cluster).as_deref(), Some(INGRESS));
    let writes = deletes(&scene);
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert!(writes[0].path.starts_with("/api/v1/namespaces/tenant-b/pods/api-"));
    let options: Value = serde_json::from_str(&writes[0].body).expect("delete options");
    assert_eq!(options["preconditions"]["uid"], first);
    assert!(options["preconditions"]["resourceVersion"].is_string(), "{options}");
    assert!(options["gracePeriodSeconds"].is_null(), "the pod's own grace period: {options}");
    assert!(scene.is_held(INGRESS));
    daemon.stop().await;
}

pub(crate) async fn a_statefulset_that_gets_the_address_again_is_moved_once_and_then_told() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    scene.workload(WorkloadKind::StatefulSet, "tenant-b", "api", INGRESS);
    acted(&daemon, "deleted").await;
    let second = daemon.nth_line("the replacement judged", 2, to_be_moved).await;
    let held_back = daemon.line("held back", |line| line["message"] == "held back").await;
    assert_eq!(held_back["correlation_id"], second["correlation_id"]);
    let reason = held_back["reason"].as_str().expect("a reason");
    assert!(reason.contains("tried against the same cause"), "{reason}");
    assert_eq!(held_back["by"], "futile");
    let writes = deletes(&scene);
    assert_eq!(writes.len(), 1, "{writes:?}");
    daemon.stop().await;
}

pub(crate) async fn a_pod_without_controller_is_told_only() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    scene.pod("tenant-b", "alone", INGRESS);
    // While the failure is the only one, that is the reason; then that nobody would make the pod again.
    let is_it = |line: &Value| {
        line["message"] == "judged"
            && line["pod"] == "tenant-b/alone"
            && line["reason"].as_str().is_some_and(|reason| reason.contains("not moved"))
    };
    let judged = daemon.line("told", is_it).await;
    assert_eq!(judged["verdict"], "reserved-holder");
    assert_eq!(judged["remedy"], "none");
    scene.nothing_done(&daemon);
    daemon.stop().await;
}

pub(crate) async fn a_pod_on_the_health_address_is_never_disconnected() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let health = "10.244.1.251";
    scene.pod("tenant-b", "alone", health);
    let judged = judged(&daemon, "tenant-b/alone", "reserved-holder").await;
    assert_eq!(judged["remedy"], "none");
    assert!(scene.is_held(health));
    scene.nothing_done(&daemon);
    daemon.stop().await;
}
