//! A slim Pod: only what the rules read is kept, everything else is skipped while decoding.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{Containers, Controller, IdError, OvnAddress, Phase, Pod, PodName, parse_ip};
use crate::metadata::{self, Metadata};

/// Keeps the watchdog away from a pod, or from all pods of a namespace.
pub const OPT_OUT: &str = "cilium-leak-healer/opt-out";
const MIRROR: &str = "kubernetes.io/config.mirror";
const VM_LABELS: [&str; 2] = ["kubevirt.io/vm", "vm.kubevirt.io/name"];
/// The condition's name since Kubernetes 1.28, and before.
const SANDBOX_CONDITIONS: [&str; 2] = ["PodReadyToStartContainers", "PodHasNetwork"];

/// A core/v1 Pod, as far as it is decoded. Serialised, it holds what the rules read and nothing else.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Pod")]
pub struct PodObject {
    /// Standard metadata.
    #[serde(default, serialize_with = "metadata::serialize")]
    #[schemars(with = "Metadata<'_>")]
    pub metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<Spec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PodSpec")]
struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    node_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_network: Option<bool>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PodStatus")]
struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    pod_ip: Option<String>,
    #[serde(rename = "podIPs", skip_serializing_if = "Option::is_none")]
    pod_ips: Option<Vec<PodIp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<Vec<Condition>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_statuses: Option<Vec<ContainerStatus>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    init_container_statuses: Option<Vec<ContainerStatus>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ephemeral_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct PodIp {
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    #[serde(default)]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<ContainerState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_state: Option<ContainerState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restart_count: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct ContainerState {
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<Running>,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Running {
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
}

/// That a container has ended is read, how it ended is not.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Terminated {}

impl Resource for PodObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        core::Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        core::Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        core::Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        core::Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl PodObject {
    /// The pod as the rules see it. A pod without name or UID is an error: nothing can be said about it.
    pub fn to_domain(&self) -> Result<Pod, IdError> {
        let meta = &self.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let status = self.status.as_ref();
        let (ips, unparsed_ips) = status.map(Status::ips).unwrap_or_default();
        let annotations = meta.annotations.as_ref();
        Ok(Pod {
            name: PodName::new(&text(&meta.namespace), &text(&meta.name))?,
            uid: text(&meta.uid).parse()?,
            resource_version: text(&meta.resource_version),
            node: match self.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
                None | Some("") => None,
                Some(name) => Some(name.parse()?),
            },
            phase: status.map_or(Phase::Unknown, Status::phase),
            host_network: self.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false),
            deleting: meta.deletion_timestamp.is_some(),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            started: status.and_then(|status| status.start_time),
            ips,
            unparsed_ips,
            sandbox_ready: status.and_then(Status::sandbox_ready),
            containers: status.map(Status::containers).unwrap_or_default(),
            running_since: status.and_then(Status::running_since),
            controller: meta
                .owner_references
                .iter()
                .flatten()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| Controller {
                    kind: owner.kind.clone(),
                    name: owner.name.clone(),
                    uid: owner.uid.clone(),
                }),
            mirror: annotations.and_then(|all| all.get(MIRROR)).cloned(),
            vm_labels: VM_LABELS
                .into_iter()
                .filter_map(|key| {
                    Some((key, meta.labels.as_ref()?.get(key).filter(|value| !value.is_empty())?.clone()))
                })
                .collect(),
            ovn: annotations.map(ovn_address).unwrap_or_default(),
            opt_out: is_opted_out(meta),
        })
    }

    /// Drops what no rule reads: a list of all pods of a large cluster has to stay small.
    pub fn prune(&mut self) {
        metadata::prune(&mut self.metadata);
        if let Some(conditions) = self.status.as_mut().and_then(|status| status.conditions.as_mut()) {
            conditions.retain(|condition| SANDBOX_CONDITIONS.contains(&condition.kind.as_str()));
        }
    }

    /// When the container of this name started, or the latest of all that run where none has the name.
    /// `None`: none of them runs.
    pub fn container_started(&self, container: &str) -> Option<Timestamp> {
        let statuses = self.status.as_ref()?.container_statuses.as_deref()?;
        let started = |status: &ContainerStatus| status.state.as_ref()?.running.as_ref()?.started_at;
        match statuses.iter().find(|status| status.name == container) {
            Some(status) => started(status),
            None => statuses.iter().filter_map(started).max(),
        }
    }
}

/// Whether the label that keeps the watchdog away is set. Any value but `false` counts.
pub(super) fn is_opted_out(meta: &ObjectMeta) -> bool {
    let value = meta.labels.as_ref().and_then(|labels| labels.get(OPT_OUT));
    value.is_some_and(|value| value != "false")
}

fn ovn_address(annotations: &BTreeMap<String, String>) -> OvnAddress {
    let get = |key: &str| annotations.get(&format!("ovn.kubernetes.io/{key}")).cloned();
    OvnAddress {
        ip_address: get("ip_address")
            .iter()
            .flat_map(|list| list.split(','))
            .filter_map(|ip| parse_ip(ip.trim()))
            .collect(),
        vpc: get("vpc").filter(|vpc| !vpc.is_empty()),
        logical_switch: get("logical_switch").filter(|switch| !switch.is_empty()),
        allocated: get("allocated").is_some(),
    }
}

impl Status {
    fn phase(&self) -> Phase {
        match self.phase.as_deref() {
            Some("Pending") => Phase::Pending,
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Unknown,
        }
    }

    /// Each address once, and whether one of the texts is none.
    fn ips(&self) -> (Vec<std::net::IpAddr>, bool) {
        let texts =
            self.pod_ip.iter().chain(self.pod_ips.iter().flatten().filter_map(|entry| entry.ip.as_ref()));
        let mut ips = Vec::new();
        let mut unparsed = false;
        for text in texts.filter(|text| !text.is_empty()) {
            match parse_ip(text).map(|ip| ip.to_canonical()) {
                Some(ip) if ips.contains(&ip) => {}
                Some(ip) => ips.push(ip),
                None => unparsed = true,
            }
        }
        (ips, unparsed)
    }

    fn sandbox_ready(&self) -> Option<bool> {
        let condition =
            self.conditions.iter().flatten().find(|it| SANDBOX_CONDITIONS.contains(&it.kind.as_str()))?;
        match condition.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        }
    }

    fn all_containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        let all =
            [&self.init_container_statuses, &self.container_statuses, &self.ephemeral_container_statuses];
        all.into_iter().flatten().flatten()
    }

    fn running_since(&self) -> Option<Timestamp> {
        self.all_containers().filter_map(|status| status.state.as_ref()?.running.as_ref()?.started_at).min()
    }

    fn containers(&self) -> Containers {
        let mut seen = Containers::default();
        for status in self.all_containers() {
            let running = status.state.as_ref().is_some_and(|state| state.running.is_some());
            let ended = status.state.as_ref().is_some_and(|state| state.terminated.is_some());
            let before = status
                .last_state
                .as_ref()
                .is_some_and(|state| state.terminated.is_some() || state.running.is_some());
            seen.running |= running;
            seen.ended |= ended || before;
            seen.ever_ran |= running
                || ended
                || before
                || status.restart_count.is_some_and(|n| n > 0)
                || status.started == Some(true);
        }
        seen
    }
}
