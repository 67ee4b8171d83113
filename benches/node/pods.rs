//! Pods of the size of real ones.

use cilium_leak_healer::sim::IP_ANNOTATION;
use serde_json::{Value, json};

use crate::ballast;

/// The node of all of them.
pub(crate) const NODE: &str = "worker-1";

/// A running pod of about 8 KB as JSON, with environment, volumes and managed fields.
pub(crate) fn running(number: u32) -> Value {
    let ip = format!("10.244.{}.{}", 1 + number / 250, number % 250);
    let mut pod = made(&format!("tenant-{}", number % 20), &format!("app-{number}-6f9b8c7d5-n4xvp"), number);
    pod["status"] = json!({
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "startTime": "2026-06-18T10:03:45Z",
        "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}, {"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "app", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-06-18T10:03:50Z"}}}],
    });
    pod
}

/// One that the kubelet has yet to start, on this address.
pub(crate) fn new(namespace: &str, name: &str, ip: &str) -> Value {
    let mut pod = made(namespace, name, 0);
    pod["metadata"]["annotations"] = json!({IP_ANNOTATION: ip});
    pod["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
    pod
}

fn made(namespace: &str, name: &str, number: u32) -> Value {
    let mut pod = json!({
        "metadata": {
            "namespace": namespace, "name": name,
            "labels": {"app": "app", "pod-template-hash": "6f9b8c7d5", "team": "platform"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-6f9b8c7d5", "uid": format!("a7820e12-1f36-4dcd-bd38-{number:012}"), "controller": true}],
        },
        "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "registry/app:1"}]},
    });
    ballast::load(&mut pod);
    pod
}
