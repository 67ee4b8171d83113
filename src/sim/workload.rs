//! The controllers that tests and the demo need: pods that come back when they are deleted, and the agent's own pod.
//!
//! Must not know: HTTP, the kubelet.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::agent::Agent;
use super::apiserver::ApiServer;
use super::cni::IP_ANNOTATION;
use super::resource::{
    DAEMON_SETS, LEASES, NAMESPACES, NODES, PODS, REPLICA_SETS, Resource, STATEFUL_SETS, text,
};
use super::status::Status;

/// What kind of controller looks after the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// A deleted pod is replaced at once by one of another name; a fixed address (`sim/ip`) is the first pod's only.
    ReplicaSet,
    /// A deleted pod is replaced, once it is gone, by one of the same name and with the same fixed address.
    StatefulSet,
}

/// A set of pods that a controller keeps.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The kind of controller.
    pub kind: WorkloadKind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Number of pods.
    pub replicas: usize,
    /// The pod template: `metadata` (labels, annotations) and `spec`, with `nodeName`: there is no scheduler.
    pub template: Value,
}

impl Workload {
    fn resource(&self) -> &'static Resource {
        match self.kind {
            WorkloadKind::ReplicaSet => &REPLICA_SETS,
            WorkloadKind::StatefulSet => &STATEFUL_SETS,
        }
    }

    /// Makes the controller's object.
    pub(crate) fn create(&self, api: &ApiServer) -> Result<Value, Status> {
        let spec = json!({"replicas": self.replicas, "selector": {"matchLabels": self.template.pointer("/metadata/labels")}, "template": self.template});
        api.create(
            self.resource(),
            json!({"metadata": {"name": self.name, "namespace": self.namespace}, "spec": spec}),
        )
    }

    /// Keeps the pods, for ever.
    pub(crate) async fn run(self, api: ApiServer, controller: Value) {
        let mut changed = api.0.lifecycle.store.subscribe();
        let mut made = 0_usize;
        loop {
            changed.mark_unchanged();
            for name in self.missing(&api, &controller) {
                // Lost a race, or the namespace is going: the next change tries again.
                if api.create(&PODS, self.pod(&controller, &name, made >= self.replicas)).is_ok() {
                    made += 1;
                }
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// The pods to make; an empty name for one that the server is to name.
    fn missing(&self, api: &ApiServer, controller: &Value) -> Vec<String> {
        match self.kind {
            WorkloadKind::StatefulSet => {
                let names = (0..self.replicas).map(|ordinal| format!("{}-{ordinal}", self.name));
                names.filter(|name| api.get(&PODS, &self.namespace, name).is_err()).collect()
            }
            WorkloadKind::ReplicaSet => {
                let uid = text(controller, "/metadata/uid");
                let active = |pod: &&Value| {
                    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
                    owners.is_some_and(|owners| owners.iter().any(|owner| text(owner, "/uid") == uid))
                        && pod.pointer("/metadata/deletionTimestamp").is_none()
                        && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
                };
                let pods = api.list(&PODS, &self.namespace, "", "").unwrap_or_default();
                let missing = self.replicas.saturating_sub(pods.iter().filter(active).count());
                vec![String::new(); missing]
            }
        }
    }

    fn pod(&self, controller: &Value, name: &str, replacement: bool) -> Value {
        let mut pod = self.template.clone();
        if !pod.get("metadata").is_some_and(Value::is_object) {
            pod["metadata"] = json!({});
        }
        pod["metadata"]["namespace"] = self.namespace.as_str().into();
        if name.is_empty() {
            pod["metadata"]["generateName"] = format!("{}-", self.name).into();
        } else {
            pod["metadata"]["name"] = name.into();
        }
        let resource = self.resource();
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": resource.api_version(), "kind": resource.kind, "name": self.name, "uid": text(controller, "/metadata/uid"),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        if self.kind == WorkloadKind::ReplicaSet
            && replacement
            && let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        {
            annotations.remove(IP_ANNOTATION);
        }
        pod
    }
}

/// Makes what a cluster has of the watchdog besides its rights, and its pod on a node; gives the pod's namespace and name.
pub(crate) fn ensure_watchdog(api: &ApiServer, node: &str) -> Result<(String, String), Status> {
    let (namespace, app) = ("cilium-leak-healer", "cilium-leak-healer");
    let ensure = |resource: &'static Resource, namespace: &str, object: Value| {
        let name = text(&object, "/metadata/name").to_owned();
        api.get(resource, namespace, &name).or_else(|_| api.create(resource, object))
    };
    let labels = json!({"app.kubernetes.io/name": app});
    let named = |name: &str| json!({"name": name, "namespace": namespace, "labels": labels});
    let own = json!({"name": namespace, "labels": {"kubernetes.io/metadata.name": namespace}});
    ensure(&NAMESPACES, "", json!({"metadata": own, "status": {"phase": "Active"}}))?;
    for lease in ["delete-pod-0", "delete-pod-1", "delete-pod-2", "restart-agent"] {
        let lease = json!({"metadata": named(&format!("{app}-{lease}")), "spec": {}});
        ensure(&LEASES, namespace, lease)?;
    }
    let spec = json!({"selector": {"matchLabels": labels}});
    let daemon_set = ensure(&DAEMON_SETS, namespace, json!({"metadata": named(app), "spec": spec}))?;
    let name = format!("{app}-{node}");
    let address = api.get(&NODES, "", node)?.pointer("/status/addresses/0/address").cloned();
    let mut pod = json!({
        "metadata": named(&name),
        "spec": {
            "nodeName": node, "hostNetwork": true, "serviceAccountName": app, "serviceAccount": app,
            "containers": [{"name": app, "image": "cilium-leak-healer:0.1.0"}],
        },
        "status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "containerStatuses": [{"name": app, "ready": true, "started": true, "restartCount": 0, "state": {"running": {}}}],
        },
    });
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": app, "uid": text(&daemon_set, "/metadata/uid"), "controller": true,
    }]);
    ensure(&PODS, namespace, pod)?;
    Ok((namespace.to_owned(), name))
}

/// Keeps the agent's own pod on a node: when it is deleted the agent restarts, with the socket gone for a while.
pub(crate) async fn run_agent_pod(api: ApiServer, agent: Agent, node: String, restart_time: Duration) {
    let daemon_set = api.get(&DAEMON_SETS, "kube-system", "cilium").or_else(|_| {
        api.create(&DAEMON_SETS, json!({
            "metadata": {"name": "cilium", "namespace": "kube-system"},
            "spec": {"selector": {"matchLabels": {"k8s-app": "cilium"}}},
            "status": {"observedGeneration": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "updatedNumberScheduled": 1, "numberReady": 1},
        }))
    });
    let owner = daemon_set.map(|object| text(&object, "/metadata/uid").to_owned()).unwrap_or_default();
    let fields = format!("spec.nodeName={node}");
    let store = Arc::clone(&api.0.lifecycle.store);
    let mut changed = store.subscribe();
    let mut first = true;
    loop {
        changed.mark_unchanged();
        let there =
            api.list(&PODS, "kube-system", &fields, "k8s-app=cilium").is_ok_and(|pods| !pods.is_empty());
        if !there {
            if !first {
                agent.stop().await;
                tokio::time::sleep(restart_time).await;
                // The directory of the socket is gone: so is the node.
                if agent.start(api.clock().now()).is_err() {
                    return;
                }
            }
            first = false;
            let made = api.create(&PODS, json!({
                "metadata": {
                    "generateName": "cilium-", "namespace": "kube-system", "labels": {"k8s-app": "cilium"},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cilium", "uid": owner, "controller": true}],
                },
                "spec": {"nodeName": node, "hostNetwork": true, "terminationGracePeriodSeconds": 1, "containers": [{"name": "cilium-agent", "image": "quay.io/cilium/cilium:v1.20.2"}]},
            }));
            if made.is_err() {
                return;
            }
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}
