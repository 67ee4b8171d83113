//! The holder: the endpoint that the agent returns for the disputed address, and the pod that it stands for.

use std::net::IpAddr;

use jiff::Timestamp;

use super::ids::{AttachmentId, ContainerId, EndpointId, PodName};
use super::objects::CiliumEndpoint;

const NAMESPACE_LABEL: &str = "k8s:io.kubernetes.pod.namespace=";
const RESOLVE_LABELS: &str = "resolve-labels-";

/// `status.state` of an endpoint. A state that is new to us is `Other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointState {
    /// Programmed and in use.
    Ready,
    /// Being programmed.
    Regenerating,
    /// Read back from disk after an agent start.
    Restoring,
    /// Being torn down.
    Disconnecting,
    /// Its identity is being allocated.
    WaitingForIdentity,
    /// Queued for programming.
    WaitingToRegenerate,
    /// Any other: no rule looks at it.
    Other,
}

impl EndpointState {
    /// From the word of the agent's API.
    pub fn from_api(word: &str) -> Self {
        match word {
            "ready" => Self::Ready,
            "regenerating" => Self::Regenerating,
            "restoring" => Self::Restoring,
            "disconnecting" => Self::Disconnecting,
            "waiting-for-identity" => Self::WaitingForIdentity,
            "waiting-to-regenerate" => Self::WaitingToRegenerate,
            _ => Self::Other,
        }
    }

    /// The word of the agent's API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Regenerating => "regenerating",
            Self::Restoring => "restoring",
            Self::Disconnecting => "disconnecting",
            Self::WaitingForIdentity => "waiting-for-identity",
            Self::WaitingToRegenerate => "waiting-to-regenerate",
            Self::Other => "another state",
        }
    }
}

/// One line of an endpoint's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntry {
    /// When.
    pub at: Timestamp,
    /// The state it speaks of.
    pub state: EndpointState,
}

/// An endpoint of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// `id`.
    pub id: EndpointId,
    /// `status.external-identifiers.cni-attachment-id` (1.15 and newer).
    pub attachment: Option<AttachmentId>,
    /// `status.external-identifiers.container-id` (up to 1.19).
    pub container_field: Option<ContainerId>,
    /// `k8s-namespace` and `k8s-pod-name` of the external identifiers, both there (up to 1.19).
    pub named: Option<PodName>,
    /// Names of `status.controllers[]`.
    pub controllers: Vec<String>,
    /// Labels of the identity and the security-relevant ones.
    pub labels: Vec<String>,
    /// `status.networking.addressing[]`.
    pub addresses: Vec<IpAddr>,
    /// `status.state`.
    pub state: EndpointState,
    /// The whole log; `None` where it could not be read, empty where there is none.
    pub log: Option<Vec<LogEntry>>,
}

/// Who the holder stands for, and what says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerName {
    /// Its external identifiers (agents up to 1.19).
    ByIdentifiers(PodName),
    /// The name of its controller `resolve-labels-<namespace>/<pod>`.
    ByController(PodName),
    /// The Pod owner reference of a CiliumEndpoint with the same id and attachment.
    ByCiliumEndpoint(PodName),
    /// Nothing names it.
    Nameless,
}

impl OwnerName {
    /// The pod, where one is named.
    pub fn pod(&self) -> Option<&PodName> {
        match self {
            Self::ByIdentifiers(name) | Self::ByController(name) | Self::ByCiliumEndpoint(name) => Some(name),
            Self::Nameless => None,
        }
    }
}

impl Holder {
    /// The container: the part of the attachment id before the first colon, else the container id.
    pub fn container(&self) -> Option<&ContainerId> {
        self.attachment.as_ref().map(AttachmentId::container).or(self.container_field.as_ref())
    }

    /// A `reserved:` label other than `reserved:init`: an endpoint of Cilium's own.
    pub fn reserved_label(&self) -> Option<&str> {
        self.labels
            .iter()
            .map(String::as_str)
            .find(|label| label.starts_with("reserved:") && *label != "reserved:init")
    }

    /// The namespace that the identity label `k8s:io.kubernetes.pod.namespace=` gives; `None` where there is none
    /// or two that differ.
    pub fn namespace_label(&self) -> Option<&str> {
        let mut namespaces = self
            .labels
            .iter()
            .filter_map(|label| label.strip_prefix(NAMESPACE_LABEL))
            .filter(|ns| !ns.is_empty());
        let first = namespaces.next()?;
        namespaces.all(|other| other == first).then_some(first)
    }

    fn has_namespace_label(&self) -> bool {
        self.labels.iter().any(|label| label.starts_with(NAMESPACE_LABEL))
    }

    /// The owner as far as the agent's own answer names it.
    pub fn owner_by_agent(&self) -> OwnerName {
        if let Some(name) = &self.named {
            return OwnerName::ByIdentifiers(name.clone());
        }
        match self.resolve_labels() {
            Some(name) => OwnerName::ByController(name),
            None => OwnerName::Nameless,
        }
    }

    /// The owner by the first source that names one.
    pub fn owner(&self, endpoints: &[CiliumEndpoint]) -> OwnerName {
        match self.owner_by_agent() {
            OwnerName::Nameless => {
                self.owner_by_endpoint(endpoints).map_or(OwnerName::Nameless, OwnerName::ByCiliumEndpoint)
            }
            named => named,
        }
    }

    /// Exactly one controller name with both parts, whose namespace is that of the label if there is one.
    fn resolve_labels(&self) -> Option<PodName> {
        let mut names = self
            .controllers
            .iter()
            .filter_map(|name| name.strip_prefix(RESOLVE_LABELS)?.parse::<PodName>().ok());
        let name = names.next()?;
        if names.any(|other| other != name) {
            return None;
        }
        let fits = !self.has_namespace_label() || self.namespace_label() == Some(name.namespace());
        fits.then_some(name)
    }

    /// CiliumEndpoints whose id and attachment both match; one name among them, or none.
    fn owner_by_endpoint(&self, endpoints: &[CiliumEndpoint]) -> Option<PodName> {
        let attachment = self.attachment.as_ref()?;
        let mut names = endpoints
            .iter()
            .filter(|cep| cep.id == Some(self.id) && cep.attachment.as_ref() == Some(attachment))
            .flat_map(|cep| {
                cep.owners.iter().filter_map(|owner| PodName::new(cep.name.namespace(), &owner.0).ok())
            });
        let name = names.next()?;
        names.all(|other| other == name).then_some(name)
    }

    /// Names under which the CiliumEndpoints of these pods can be: the pod's own, and that of the holder's interface if it
    /// is not the first one.
    pub fn endpoint_names(&self, pods: &[PodName]) -> Vec<PodName> {
        let interface = self.attachment.as_ref().and_then(AttachmentId::interface);
        let second = interface.filter(|name| !matches!(*name, "" | "eth0"));
        let of_interface =
            |pod: &PodName| PodName::new(pod.namespace(), &format!("{}-{}", pod.name(), second?)).ok();
        pods.iter().flat_map(|pod| [Some(pod.clone()), of_interface(pod)]).flatten().collect()
    }

    /// The newest log entry.
    pub fn newest_entry(&self) -> Option<Timestamp> {
        self.log.as_ref()?.iter().map(|entry| entry.at).max()
    }

    /// The oldest log entry: the endpoint is at least that old.
    pub fn oldest_entry(&self) -> Option<Timestamp> {
        self.log.as_ref()?.iter().map(|entry| entry.at).min()
    }

    /// Whether the log says that the endpoint was ready once.
    pub fn was_ready(&self) -> bool {
        self.log.iter().flatten().any(|entry| entry.state == EndpointState::Ready)
    }
}
