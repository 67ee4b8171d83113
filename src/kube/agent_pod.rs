//! The agent's own pod on this node, its DaemonSet and its node: what `restart-agent` looks at.
//!
//! It must not know when a restart is right.

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::labels::LabelMatch;
use super::lister::ListScope;
use super::pod::PodObject;
use super::reader::{Reader, undecodable};
use crate::domain::{AgentPod, NodeName, NodeState, PodName, Read, Rollout};

#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = apps::DaemonSet)]
struct DaemonSetObject {
    #[serde(default)]
    metadata: ObjectMeta,
    status: Option<DaemonSetStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DaemonSetStatus {
    observed_generation: Option<i64>,
    desired_number_scheduled: Option<i64>,
    updated_number_scheduled: Option<i64>,
}

#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = core::Node)]
struct NodeObject {
    #[serde(default)]
    metadata: ObjectMeta,
    spec: Option<NodeSpec>,
    status: Option<NodeStatus>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeSpec {
    unschedulable: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
struct NodeStatus {
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Clone, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Reader {
    /// The agent's pods on this node, from a fresh list: those with the labels. `container` is the agent's in them.
    pub async fn agent_pods(
        &self,
        node: &NodeName,
        labels: &LabelMatch,
        container: &str,
    ) -> Read<Vec<AgentPod>> {
        let scope = ListScope {
            fields: format!("spec.nodeName={node}"),
            labels: labels.to_string(),
            ..ListScope::default()
        };
        let mut objects = Vec::new();
        self.list(&scope, |object: PodObject| objects.push(object)).await?;
        objects.iter().map(|object| agent_pod(object, container)).collect()
    }

    /// How far a DaemonSet is; `None`: 404.
    pub async fn rollout(&self, namespace: &str, daemon_set: &str) -> Read<Option<Rollout>> {
        let name = PodName::new(namespace, daemon_set)
            .map_err(|error| undecodable("GET daemonsets", &error.to_string()))?;
        let Some(object) = self.get_namespaced::<DaemonSetObject>(&name).await? else { return Ok(None) };
        let status = object.status.unwrap_or_default();
        Ok(Some(Rollout {
            uid: object.metadata.uid.unwrap_or_default(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            generation: object.metadata.generation,
            observed_generation: status.observed_generation,
            desired: status.desired_number_scheduled,
            updated: status.updated_number_scheduled,
        }))
    }

    /// Whether the node takes pods; `None`: 404. A node without the condition `Ready` is not ready.
    pub async fn node_state(&self, node: &NodeName) -> Read<Option<NodeState>> {
        let object = self.get_cluster::<NodeObject>(node.as_str()).await?;
        Ok(object.map(|object| {
            let mut conditions = object.status.iter().flat_map(|status| status.conditions.iter().flatten());
            NodeState {
                schedulable: !object.spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
                ready: conditions.any(|it| it.kind == "Ready" && it.status == "True"),
            }
        }))
    }
}

fn agent_pod(object: &PodObject, container: &str) -> Read<AgentPod> {
    let pod =
        object.to_domain().map_err(|error| undecodable("LIST pods of the agent", &error.to_string()))?;
    let daemon_set = pod.controller.as_ref().filter(|controller| controller.kind == "DaemonSet");
    Ok(AgentPod {
        daemon_set: daemon_set.map(|it| (it.name.clone(), it.uid.clone())),
        name: pod.name,
        uid: pod.uid,
        resource_version: pod.resource_version,
        node: pod.node,
        deleting: pod.deleting,
        started: object.container_started(container),
        opt_out: pod.opt_out,
    })
}
