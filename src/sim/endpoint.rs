//! An endpoint of an agent: what the CNI plugin told of it, its identity and its log.
//!
//! Must not know: HTTP, how endpoints are found.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use jiff::{SignedDuration, Timestamp};

use super::clock::seconds;
use super::resource::text;

/// The versions of the Cilium agent whose API differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgentVersion {
    /// No `cni-attachment-id`, no `cep-name:`, no controller that names the pod.
    V1_14,
    /// Attachment ids and the legacy identifiers.
    V1_18,
    /// Only `cni-attachment-id`.
    V1_20,
}

impl AgentVersion {
    /// Whether its command line is called `cilium-dbg`; up to 1.14 it was `cilium`.
    pub(crate) fn has_dbg(self) -> bool {
        self != Self::V1_14
    }
}

/// Cilium's own endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// The node itself, without an address.
    Host,
    /// The health endpoint.
    Health,
    /// The ingress (Gateway API) endpoint.
    Ingress,
}

/// What the CNI plugin tells the agent about an endpoint, and what a test may add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Numeric id; `None` lets the agent choose.
    pub id: Option<u16>,
    /// Namespace of the pod, empty for none.
    pub namespace: String,
    /// Name of the pod, empty for none.
    pub pod: String,
    /// UID of the pod; the API never shows it.
    pub uid: String,
    /// Container id of the sandbox.
    pub container_id: String,
    /// Interface in the container, `eth0`; empty gives an attachment id without one.
    pub container_interface: String,
    /// Interface on the host.
    pub interface: String,
    /// IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// Further labels (`k8s:app=db`).
    pub labels: Vec<String>,
    /// `disable-legacy-identifiers`: up to 1.19 such an endpoint shows no pod name.
    pub legacy_identifiers: bool,
    /// When it was made; `None` for now.
    pub created: Option<Timestamp>,
    /// Errors that its removal meets: the DELETE answers 206 with this number.
    pub cleanup_errors: u32,
}

impl EndpointSpec {
    /// An endpoint of a pod with one IPv4 address, on `eth0`.
    pub fn new(
        namespace: impl Into<String>,
        pod: impl Into<String>,
        container_id: impl Into<String>,
        ipv4: Ipv4Addr,
    ) -> Self {
        let container_id = container_id.into();
        let interface = format!("lxc{}", container_id.get(..8).unwrap_or(&container_id));
        Self {
            id: None,
            namespace: namespace.into(),
            pod: pod.into(),
            uid: String::new(),
            container_id,
            container_interface: "eth0".to_owned(),
            interface,
            ipv4: Some(ipv4),
            ipv6: None,
            labels: Vec::new(),
            legacy_identifiers: true,
            created: None,
            cleanup_errors: 0,
        }
    }

    /// The id of the CNI attachment, or the empty text.
    #[must_use]
    pub fn attachment_id(&self) -> String {
        if self.container_id.is_empty() || self.container_interface.is_empty() {
            self.container_id.clone()
        } else {
            format!("{}:{}", self.container_id, self.container_interface)
        }
    }

    /// Its addresses, IPv4 first.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let v4 = self.ipv4.map(IpAddr::V4);
        v4.into_iter().chain(self.ipv6.map(IpAddr::V6)).collect()
    }

    /// `namespace/pod`, or the empty text.
    #[must_use]
    pub fn pod_key(&self) -> String {
        if self.pod.is_empty() { String::new() } else { format!("{}/{}", self.namespace, self.pod) }
    }
}

/// An entry of an endpoint's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// When, shown with whole seconds.
    pub at: Timestamp,
    /// `OK`, `Failure` and the like.
    pub code: String,
    /// Message.
    pub message: String,
    /// State that the endpoint was in.
    pub state: String,
}

/// An endpoint in the registry.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub id: u16,
    pub spec: EndpointSpec,
    pub reserved: Option<Reserved>,
    pub identity: u32,
    pub labels: Vec<String>,
    pub state: String,
    /// Oldest first.
    pub log: Vec<LogEntry>,
    pub created: Timestamp,
    pub restored: bool,
    /// The agent never found the pod.
    pub pod_unknown: bool,
    pub cep_uid: Option<String>,
    pub cep_failures: u64,
    pub mac: String,
    pub controller_uuids: [String; 4],
    pub next_regeneration: Timestamp,
}

/// The log holds this many entries; older ones are lost (`maxLogs` in Cilium's `pkg/endpoint`).
pub(crate) const MAX_LOGS: usize = 256;

/// Cilium's `endpoint-periodic-regeneration`.
pub(crate) const REGENERATION_EVERY: SignedDuration = SignedDuration::from_secs(120);

impl Endpoint {
    pub(crate) fn write_log(&mut self, at: Timestamp, state: &str, message: &str) {
        state.clone_into(&mut self.state);
        self.log.push(LogEntry {
            at,
            code: "OK".to_owned(),
            message: message.to_owned(),
            state: state.to_owned(),
        });
        if self.log.len() > MAX_LOGS {
            self.log.remove(0);
        }
    }

    /// Adds the periodic regenerations that are due, which only show in the log: after some hundred minutes they
    /// have pushed the creation out of it.
    pub(crate) fn catch_up(&mut self, now: Timestamp) {
        let every = REGENERATION_EVERY.as_secs();
        let late = now.duration_since(self.next_regeneration).as_secs();
        if late < 0 {
            return;
        }
        let due = late / every + 1;
        let at = |n: i64| {
            let after = SignedDuration::from_secs(every.saturating_mul(n));
            self.next_regeneration.checked_add(after).unwrap_or(now)
        };
        // No more than a full log is written.
        let times: Vec<Timestamp> = ((due - 60).max(0)..due).map(at).collect();
        self.next_regeneration = at(due);
        for at in times.into_iter().filter(|_| self.state == "ready").collect::<Vec<_>>() {
            self.regenerate(at, "PeriodicRegeneration", "PeriodicRegeneration");
        }
    }

    /// Logs one regeneration.
    pub(crate) fn regenerate(&mut self, at: Timestamp, reason: &str, trigger: &str) {
        let done = format!("Successfully regenerated endpoint program (Reason: {reason})");
        self.write_log(
            at,
            "waiting-to-regenerate",
            &format!("Triggering endpoint regeneration due to {trigger}"),
        );
        self.write_log(at, "regenerating", &format!("Regenerating endpoint: {reason}"));
        self.write_log(at, "ready", "Completed endpoint regeneration with no pending regeneration requests");
        self.write_log(at, "ready", &done);
        self.write_log(at, "ready", &done);
    }
}

/// The numeric identity and its labels.
pub(crate) fn identity(
    spec: &EndpointSpec,
    reserved: Option<Reserved>,
    pod: Option<&serde_json::Value>,
) -> (u32, Vec<String>) {
    match reserved {
        Some(Reserved::Host) => return (1, vec!["reserved:host".to_owned()]),
        Some(Reserved::Health) => return (4, vec!["reserved:health".to_owned()]),
        Some(Reserved::Ingress) => return (8, vec!["reserved:ingress".to_owned()]),
        None => {}
    }
    let mut labels = spec.labels.clone();
    if let Some(pod) = pod {
        let own = pod.pointer("/metadata/labels").and_then(serde_json::Value::as_object);
        labels.extend(
            own.into_iter()
                .flatten()
                .map(|(key, value)| format!("k8s:{key}={}", value.as_str().unwrap_or_default())),
        );
        let account = text(pod, "/spec/serviceAccountName");
        let account = if account.is_empty() { "default" } else { account };
        labels.push(format!(
            "k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name={}",
            spec.namespace
        ));
        labels.push("k8s:io.cilium.k8s.policy.cluster=default".to_owned());
        labels.push(format!("k8s:io.cilium.k8s.policy.serviceaccount={account}"));
        labels.push(format!("k8s:io.kubernetes.pod.namespace={}", spec.namespace));
    }
    labels.sort();
    labels.dedup();
    if labels.is_empty() {
        return (5, vec!["reserved:init".to_owned()]);
    }
    // The same labels have the same identity on every node.
    let hash = labels
        .iter()
        .flat_map(|label| label.bytes())
        .fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (256 + hash % 65_000, labels)
}

/// The log as the API shows it, newest first.
pub(crate) fn log_model(log: &[LogEntry]) -> Vec<serde_json::Value> {
    let entry = |entry: &LogEntry| serde_json::json!({"code": entry.code, "message": entry.message, "state": entry.state, "timestamp": seconds(entry.at)});
    log.iter().rev().map(entry).collect()
}
