//! Cilium's Kubernetes objects and settings, as far as the rules look at them.

use std::net::IpAddr;

use super::compatibility::known_mode;
use super::ids::{AttachmentId, ContainerId, EndpointId, PodName, PodUid};

/// What Cilium itself uses an address for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReservedUse {
    /// `CiliumNode.spec.ingress`.
    Ingress,
    /// `CiliumNode.spec.health`.
    Health,
    /// `CiliumNode.spec.addresses[type=CiliumInternalIP]`: the router.
    Router,
}

impl ReservedUse {
    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Health => "health",
            Self::Router => "router (CiliumInternalIP)",
        }
    }
}

/// A `CiliumNode` (cilium.io/v2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CiliumNode {
    /// Addresses that Cilium uses itself.
    pub reserved: Vec<(ReservedUse, IpAddr)>,
    /// All of `spec.addresses`: how other objects refer to the node.
    pub addresses: Vec<IpAddr>,
}

impl CiliumNode {
    /// What Cilium uses the address for on this node, if it does.
    pub fn reserved_use(&self, ip: IpAddr) -> Option<ReservedUse> {
        self.reserved.iter().find(|(_, reserved)| *reserved == ip).map(|(used, _)| *used)
    }
}

/// A `CiliumEndpoint` (cilium.io/v2): a hint, not proof, except for the owner's UID when id and container match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiliumEndpoint {
    /// Namespace and name: the pod's, or `<pod>-<interface>`.
    pub name: PodName,
    /// `status.id`.
    pub id: Option<EndpointId>,
    /// `status.external-identifiers.cni-attachment-id`.
    pub attachment: Option<AttachmentId>,
    /// `status.external-identifiers.container-id`.
    pub container: Option<ContainerId>,
    /// The owner references of kind `Pod`: name and UID of each.
    pub owners: Vec<(String, PodUid)>,
}

impl CiliumEndpoint {
    /// The container: the part of the attachment id before the first colon, else the container id.
    pub fn container(&self) -> Option<&ContainerId> {
        self.attachment.as_ref().map(AttachmentId::container).or(self.container.as_ref())
    }
}

/// One endpoint within a `CiliumEndpointSlice` (cilium.io/v2alpha1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceEntry {
    /// Namespace and name of the pod.
    pub name: PodName,
    /// `networking.addressing[]`.
    pub ips: Vec<IpAddr>,
    /// `networking.node`: the address of the node.
    pub node: Option<IpAddr>,
    /// `pod-uid` (newest versions).
    pub uid: Option<PodUid>,
}

/// `status.ipam-mode` of the agent's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpamMode(pub String);

impl IpamMode {
    /// On these modes the teardown of an old endpoint can remove the new owner's rules (released versions).
    pub fn forbids_disconnect(&self) -> bool {
        known_mode(self).is_some_and(|row| !row.disconnect)
    }

    /// Whether another CNI plugin allocates the addresses.
    pub fn is_delegated(&self) -> bool {
        self.0 == "delegated-plugin"
    }
}
