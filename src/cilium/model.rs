//! The agent's models, as far as the rules look at them, and what they mean to the domain.
//!
//! Pure: bytes or JSON in, domain values out; snapshots are decoded by the same code. Unknown fields, nulls and missing
//! parts are tolerated; a part of a wrong type makes the answer unreadable, for an answer half understood proves nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::lenient::{Object, list, object, objects, some_objects};
use crate::domain::{
    AttachmentId, ContainerId, EndpointId, EndpointState, Holder, IpamMode, LogEntry, PodName, parse_ip,
};

/// The owner text of an address that was allocated again after an agent start ends with this.
const RESTORED: &str = " [restored]";

/// An answer that is not the model it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoModel(pub String);

impl From<serde_json::Error> for NoModel {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// `GET /endpoint/{id}`. Serialised, it holds what the rules read and nothing else.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Endpoint")]
pub struct EndpointModel {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    #[serde(deserialize_with = "object")]
    status: StatusModel,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case")]
#[schemars(rename = "EndpointModelStatus")]
struct StatusModel {
    #[serde(deserialize_with = "object")]
    external_identifiers: Identifiers,
    #[serde(deserialize_with = "objects")]
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "telling_controllers")]
    controllers: Vec<Controller>,
    #[serde(deserialize_with = "object")]
    identity: Identity,
    #[serde(deserialize_with = "object")]
    labels: Labels,
    #[serde(deserialize_with = "object")]
    networking: Networking,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(deserialize_with = "some_objects", skip_serializing_if = "Option::is_none")]
    log: Option<Vec<Option<LogModel>>>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case")]
struct Identifiers {
    #[serde(skip_serializing_if = "Option::is_none")]
    cni_attachment_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    k8s_namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    k8s_pod_name: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Controller {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Identity {
    #[serde(deserialize_with = "list")]
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "telling_labels")]
    labels: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case")]
struct Labels {
    #[serde(deserialize_with = "list")]
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "telling_labels")]
    security_relevant: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Networking {
    #[serde(deserialize_with = "objects")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addressing: Vec<Addressing>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Addressing {
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv4: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6: Option<String>,
}

/// An entry of `GET /endpoint/{id}/log`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LogModel {
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
}

/// Labels of an identity are the pod's own; only those that a rule reads are kept.
fn telling_labels<S: Serializer>(labels: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(labels.iter().filter(|label| is_telling(label)))
}

fn is_telling(label: &str) -> bool {
    label.starts_with("reserved:") || label.starts_with("k8s:io.kubernetes.pod.namespace=")
}

impl Controller {
    fn names_the_pod(&self) -> bool {
        self.name.as_deref().is_some_and(|name| name.starts_with("resolve-labels-"))
    }
}

/// Of the controllers, only the one that names the pod is read.
fn telling_controllers<S: Serializer>(controllers: &[Controller], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(controllers.iter().filter(|controller| controller.names_the_pod()))
}

impl EndpointModel {
    /// Decodes an answer.
    pub fn from_slice(body: &[u8]) -> Result<Self, NoModel> {
        Ok(serde_json::from_slice::<Object<Self>>(body)?.0)
    }

    /// Decodes a stored answer.
    pub fn from_value(value: Value) -> Result<Self, NoModel> {
        Ok(serde_json::from_value::<Object<Self>>(value)?.0)
    }

    /// The same endpoint with another log in `status.log`: the whole one, or none where it could not be read.
    #[must_use]
    pub fn with_log(mut self, log: Option<Vec<LogModel>>) -> Self {
        self.status.log = log.map(|entries| entries.into_iter().map(Some).collect());
        self
    }

    /// `id`, where there is one.
    pub fn id(&self) -> Option<EndpointId> {
        self.id.map(EndpointId)
    }

    /// Drops what no rule reads: the labels of an identity, and all controllers but the one that names the pod.
    pub fn prune(&mut self) {
        self.status.identity.labels.retain(|label| is_telling(label));
        self.status.labels.security_relevant.retain(|label| is_telling(label));
        self.status.controllers.retain(Controller::names_the_pod);
    }

    /// `status.networking.addressing[]`.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.status.networking.addresses()
    }

    /// `status.log`: of a live agent only the latest entry, in a snapshot the whole log; `None` where it is absent or unreadable.
    pub fn log_entries(&self) -> Option<Vec<LogEntry>> {
        log_entries(self.status.log.as_deref()?)
    }

    /// The holder, with this log. A model without `id` is none.
    pub fn to_holder(&self, log: Option<Vec<LogEntry>>) -> Result<Holder, NoModel> {
        let id = self.id.map(EndpointId).ok_or_else(|| NoModel("an endpoint without id".to_owned()))?;
        let status = &self.status;
        let (attachment, container_field) = status.external_identifiers.ids();
        let mut labels: Vec<String> = Vec::new();
        for label in status.identity.labels.iter().chain(&status.labels.security_relevant) {
            if !labels.contains(label) {
                labels.push(label.clone());
            }
        }
        Ok(Holder {
            id,
            attachment,
            container_field,
            named: status.external_identifiers.named(),
            controllers: status.controllers.iter().filter_map(|controller| controller.name.clone()).collect(),
            labels,
            addresses: status.networking.addresses(),
            state: EndpointState::from_api(status.state.as_deref().unwrap_or_default()),
            log,
        })
    }
}

impl Identifiers {
    fn ids(&self) -> (Option<AttachmentId>, Option<ContainerId>) {
        let container = self.container_id.as_deref().and_then(|id| id.parse().ok());
        match self.cni_attachment_id.as_deref().filter(|id| !id.is_empty()).map(str::parse) {
            Some(Ok(attachment)) => (Some(attachment), container),
            // An attachment id that is not understood: a container may have several, so its id is no substitute.
            Some(Err(_)) => (None, None),
            None => (None, container),
        }
    }

    fn named(&self) -> Option<PodName> {
        PodName::new(self.k8s_namespace.as_deref()?, self.k8s_pod_name.as_deref()?).ok()
    }
}

impl Networking {
    fn addresses(&self) -> Vec<IpAddr> {
        let texts = self.addressing.iter().flat_map(|pair| [pair.ipv4.as_deref(), pair.ipv6.as_deref()]);
        texts.flatten().filter_map(parse_ip).collect()
    }
}

/// Entries of a log. Go's zero time says nothing and is left out; a time that cannot be read makes the whole log unknown,
/// for the entry could be the newest one.
pub fn log_entries(log: &[Option<LogModel>]) -> Option<Vec<LogEntry>> {
    let mut entries = Vec::with_capacity(log.len());
    for entry in log.iter().flatten() {
        let text = entry.timestamp.as_deref().unwrap_or_default();
        if text.is_empty() || text.starts_with("0001-01-01T") {
            continue;
        }
        let at = text.parse::<Timestamp>().ok()?;
        entries.push(LogEntry {
            at,
            state: EndpointState::from_api(entry.state.as_deref().unwrap_or_default()),
        });
    }
    Some(entries)
}

/// Decodes the answer of `GET /endpoint/{id}/log`; an answer of `null` is no log.
pub(super) fn log_from_slice(body: &[u8]) -> Option<Vec<LogEntry>> {
    let log = serde_json::from_slice::<Vec<Option<Object<LogModel>>>>(body).ok()?;
    log_entries(&log.into_iter().map(|entry| entry.map(|Object(entry)| entry)).collect::<Vec<_>>())
}

/// `GET /config`, as far as the rules read it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "AgentConfig")]
pub struct ConfigModel {
    #[serde(deserialize_with = "object")]
    status: ConfigStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case")]
struct ConfigStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    ipam_mode: Option<String>,
}

impl ConfigModel {
    /// One that shows this mode.
    pub fn new(ipam_mode: Option<&IpamMode>) -> Self {
        Self { status: ConfigStatus { ipam_mode: ipam_mode.map(|mode| mode.0.clone()) } }
    }

    /// `status.ipam-mode`; `None` where it is absent or empty.
    pub fn ipam_mode(&self) -> Option<IpamMode> {
        self.status.ipam_mode.clone().filter(|mode| !mode.is_empty()).map(IpamMode)
    }
}

/// What `GET /config` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentConfig {
    /// `status.ipam-mode`; `None` where it is absent or empty.
    pub ipam_mode: Option<IpamMode>,
    /// The CNI chaining mode from `status.daemonConfigurationMap`. 1.20 does not show it there; `GET /healthz` does.
    pub chaining_mode: Option<String>,
    /// `status.installUplinkRoutesForDelegatedIPAM`: on the IPAM mode `delegated-plugin` the agent keeps routing rules by
    /// address, and removes them with the old endpoint, as on `eni`.
    pub uplink_routes: bool,
}

impl AgentConfig {
    /// Decodes an answer.
    pub fn from_slice(body: &[u8]) -> Result<Self, NoModel> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Config {
            #[serde(deserialize_with = "object")]
            status: Status,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            #[serde(rename = "daemonConfigurationMap", deserialize_with = "object")]
            daemon: Daemon,
            #[serde(rename = "installUplinkRoutesForDelegatedIPAM")]
            uplink_routes: Value,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Daemon {
            #[serde(rename = "CNIChainingMode", alias = "cni-chaining-mode")]
            chaining: Value,
            #[serde(rename = "InstallUplinkRoutesForDelegatedIPAM")]
            uplink_routes: Value,
        }
        let ipam_mode = serde_json::from_slice::<Object<ConfigModel>>(body)?.0.ipam_mode();
        let status = serde_json::from_slice::<Object<Config>>(body)?.0.status;
        // What is neither absent nor a plain "no" counts as on: then an act is held back, which harms nobody.
        let is_on = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
        Ok(Self {
            ipam_mode,
            uplink_routes: is_on(&status.uplink_routes) || is_on(&status.daemon.uplink_routes),
            chaining_mode: status.daemon.chaining.as_str().filter(|mode| !mode.is_empty()).map(str::to_owned),
        })
    }
}

/// What the long `GET /healthz` says about addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocations {
    owners: BTreeMap<IpAddr, Vec<String>>,
    /// `cni-chaining.mode`: `none` where Cilium is the only plugin.
    pub chaining: Option<String>,
}

impl Allocations {
    /// Decodes an answer. One without `ipam` (the short form) tells nothing and is an error; within it, no allocations are none.
    pub fn from_slice(body: &[u8]) -> Result<Self, NoModel> {
        #[derive(Deserialize)]
        struct Health {
            ipam: Option<Object<Ipam>>,
            #[serde(rename = "cni-chaining", default, deserialize_with = "object")]
            chaining: Chaining,
        }
        #[derive(Deserialize)]
        struct Ipam {
            #[serde(default, deserialize_with = "object")]
            allocations: BTreeMap<String, Option<String>>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Chaining {
            mode: Option<String>,
        }
        let health = serde_json::from_slice::<Object<Health>>(body)?.0;
        let Object(ipam) = health.ipam.ok_or_else(|| NoModel("no ipam in the answer".to_owned()))?;
        let mut owners: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
        for (key, owner) in ipam.allocations {
            // Keys of pools other than the default one are `<pool>/<address>`; two pools may overlap.
            let address = key.rsplit_once('/').map_or(key.as_str(), |(_, address)| address);
            if let Some(ip) = parse_ip(address) {
                owners.entry(ip).or_default().push(owner.unwrap_or_default());
            }
        }
        Ok(Self { owners, chaining: health.chaining.mode.filter(|mode| !mode.is_empty()) })
    }

    /// Owner texts of the address, as the agent writes them; more than one only where pools overlap. Empty: not allocated.
    pub fn owners(&self, ip: IpAddr) -> &[String] {
        self.owners.get(&ip).map_or(&[], Vec::as_slice)
    }

    /// Whether nothing is allocated.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Whether the agent read this allocation back at its start.
    pub fn is_restored(owner: &str) -> bool {
        owner.ends_with(RESTORED)
    }

    /// The pod that an owner text names: `<namespace>/<pod>`, with or without ` [restored]`. `router` and the like name none.
    pub fn pod(owner: &str) -> Option<PodName> {
        owner.strip_suffix(RESTORED).unwrap_or(owner).parse().ok()
    }
}
