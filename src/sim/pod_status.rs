//! The status that a kubelet writes for a pod on its way: creating, with a sandbox, running.
//!
//! Must not know: who asks.

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::clock::seconds;
use super::resource::text;

/// Field path, image and name of each container.
pub(crate) fn containers(pod: &Value) -> Vec<(String, String, String)> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    containers
        .map(|container| {
            let name = text(container, "/name").to_owned();
            (format!("spec.containers{{{name}}}"), text(container, "/image").to_owned(), name)
        })
        .collect()
}

fn conditions(sandbox: bool, ready: bool, at: &str) -> Value {
    let word = |yes: bool| if yes { "True" } else { "False" };
    let mut list = json!([
        {"type": "PodReadyToStartContainers", "status": word(sandbox), "lastProbeTime": null, "lastTransitionTime": at},
        {"type": "Initialized", "status": "True", "lastProbeTime": null, "lastTransitionTime": at},
        {"type": "Ready", "status": word(ready), "lastProbeTime": null, "lastTransitionTime": at},
        {"type": "ContainersReady", "status": word(ready), "lastProbeTime": null, "lastTransitionTime": at},
        {"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": at},
    ]);
    if !ready {
        for index in [2, 3] {
            list[index]["reason"] = "ContainersNotReady".into();
            list[index]["message"] = "containers with unready status".into();
        }
    }
    list
}

fn container_statuses(pod: &Value, state: &Value, ready: bool) -> Vec<Value> {
    let status = |(_, image, name): (String, String, String)| {
        json!({
            "name": name, "image": image, "imageID": "", "ready": ready, "started": ready, "restartCount": 0, "state": state, "lastState": {},
        })
    };
    containers(pod).into_iter().map(status).collect()
}

fn start_time(pod: &Value, at: &str) -> String {
    let present = text(pod, "/status/startTime");
    if present.is_empty() { at.to_owned() } else { present.to_owned() }
}

fn ips(addresses: &[IpAddr]) -> Vec<Value> {
    addresses.iter().map(|address| json!({"ip": address.to_string()})).collect()
}

/// `Pending`, the container waits for a sandbox.
pub(crate) fn creating(pod: &Value, node: IpAddr, at: Timestamp) -> Value {
    let at = seconds(at);
    json!({
        "phase": "Pending", "hostIP": node.to_string(), "hostIPs": [{"ip": node.to_string()}], "startTime": start_time(pod, &at),
        "conditions": conditions(false, false, &at), "qosClass": "BestEffort",
        "containerStatuses": container_statuses(pod, &json!({"waiting": {"reason": "ContainerCreating"}}), false),
    })
}

/// `Pending` with a sandbox and its addresses, the container not yet started.
pub(crate) fn sandboxed(pod: &Value, node: IpAddr, addresses: &[IpAddr], at: Timestamp) -> Value {
    let text = seconds(at);
    let mut status = creating(pod, node, at);
    status["conditions"] = conditions(true, false, &text);
    status["podIP"] = addresses.first().map(ToString::to_string).unwrap_or_default().into();
    status["podIPs"] = ips(addresses).into();
    status
}

/// `Running`.
pub(crate) fn running(pod: &Value, node: IpAddr, addresses: &[IpAddr], at: Timestamp) -> Value {
    let text = seconds(at);
    let mut status = sandboxed(pod, node, addresses, at);
    status["phase"] = "Running".into();
    status["conditions"] = conditions(true, true, &text);
    status["containerStatuses"] =
        container_statuses(pod, &json!({"running": {"startedAt": text}}), true).into();
    status
}
