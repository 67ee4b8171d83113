//! The agent's own pod on this node, its DaemonSet and its node: what `restart-agent` looks at.
//!
//! It must not know when a restart is right.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::labels::LabelMatch;
use super::lister::ListScope;
use super::pod::PodObject;
use super::reader::{Reader, undecodable};
use crate::domain::{Controller, NodeName, Phase, PodName, PodUid, Read};

/// A pod of this node's agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPod {
    /// Namespace and name.
    pub name: PodName,
    /// `metadata.uid`.
    pub uid: PodUid,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `status.phase`.
    pub phase: Phase,
    /// Name and UID of the DaemonSet that made it, in the pod's namespace.
    pub daemon_set: Option<(String, String)>,
    /// The owner reference with `controller: true`.
    pub controller: Option<Controller>,
    /// A deletion timestamp is set.
    pub deleting: bool,
    /// Since when the agent's container runs; `None`: it does not.
    pub started: Option<Timestamp>,
    /// The pod's own label [`OPT_OUT`](super::OPT_OUT).
    pub opt_out: bool,
}

/// How far a DaemonSet is in rolling out its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// `metadata.uid`.
    pub uid: String,
    /// A deletion timestamp is set.
    pub deleting: bool,
    /// `metadata.generation`: the version of what is wanted.
    pub generation: Option<i64>,
    /// `status.observedGeneration`: the version that the counts are about.
    pub observed_generation: Option<i64>,
    /// `status.desiredNumberScheduled`: nodes that shall run a pod of it.
    pub desired: Option<i64>,
    /// `status.updatedNumberScheduled`: nodes that run one of the newest template.
    pub updated: Option<i64>,
    /// `status.numberUnavailable`; absent where there is none.
    pub unavailable: i64,
}

impl Rollout {
    /// Whether no rollout is going on, or why that cannot be said.
    ///
    /// `numberUnavailable` does not count: this node's agent, which is to be restarted, may be one of them, and so is
    /// the agent of each node that is down, for as long as it is.
    pub fn is_settled(&self) -> Result<(), String> {
        let Self { generation, observed_generation, desired, updated, .. } = self;
        if self.deleting {
            return Err("the DaemonSet is being deleted".to_owned());
        }
        if generation.is_none() || generation != observed_generation {
            return Err("the DaemonSet was changed, and its controller has not caught up".to_owned());
        }
        match (desired, updated.unwrap_or(0)) {
            (Some(desired), updated) if *desired > 0 && updated == *desired => Ok(()),
            (Some(desired), updated) => Err(format!(
                "the newest template runs on {updated} of {desired} nodes: a rollout is going on"
            )),
            (None, _) => Err("the DaemonSet does not say on how many nodes it shall run".to_owned()),
        }
    }
}

/// What a Node says about new pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeFacts {
    /// `spec.unschedulable`: it is cordoned.
    pub unschedulable: bool,
    /// The condition `Ready` is `True`.
    pub ready: bool,
}

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
    number_unavailable: Option<i64>,
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
            unavailable: status.number_unavailable.unwrap_or(0),
        }))
    }

    /// Whether the node takes pods; `None`: 404. A node without the condition `Ready` is not ready.
    pub async fn node_schedulable(&self, node: &NodeName) -> Read<Option<NodeFacts>> {
        let object = self.get_cluster::<NodeObject>(node.as_str()).await?;
        Ok(object.map(|object| {
            let mut conditions = object.status.iter().flat_map(|status| status.conditions.iter().flatten());
            NodeFacts {
                unschedulable: object.spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
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
        phase: pod.phase,
        controller: pod.controller,
        deleting: pod.deleting,
        started: object.container_started(container),
        opt_out: pod.opt_out,
    })
}
