//! A pod, as far as the rules look at it.

use std::net::IpAddr;

use jiff::Timestamp;

use super::ids::{NodeName, PodName, PodUid, is_link_local};

/// `status.phase`. A phase that is absent or new to us is `Unknown`, which counts as alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Accepted, not all containers made.
    Pending,
    /// Bound, all containers made.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, at least one badly; also evicted pods.
    Failed,
    /// Nobody knows: the node does not report, or the phase is absent.
    Unknown,
}

impl Phase {
    /// Whether the pod has ended by its phase.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// The word of the Kubernetes API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}

/// What the statuses of all containers (init, sidecar, ephemeral and ordinary ones) say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Containers {
    /// One is running now.
    pub running: bool,
    /// One has ended (state or last state `terminated`).
    pub ended: bool,
    /// One runs, has ended, was started before, or was restarted.
    pub ever_ran: bool,
}

/// The owner reference with `controller: true`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Controller {
    /// Kind, such as `ReplicaSet`.
    pub kind: String,
    /// Name within the pod's namespace.
    pub name: String,
    /// UID, which tells apart two controllers of one name.
    pub uid: String,
}

/// The annotations of kube-ovn (`ovn.kubernetes.io/…`) that the rules read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OvnAddress {
    /// `ip_address`: a list of addresses, separated by commas.
    pub ip_address: Vec<IpAddr>,
    /// `vpc`.
    pub vpc: Option<String>,
    /// `logical_switch`.
    pub logical_switch: Option<String>,
    /// `allocated` is there: the address survives the pod where its owner is sticky.
    pub allocated: bool,
}

/// A pod as the API server served it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the API, and stands for itself")]
pub struct Pod {
    /// Namespace and name.
    pub name: PodName,
    /// `metadata.uid`.
    pub uid: PodUid,
    /// `metadata.resourceVersion`; empty where the source has none.
    pub resource_version: String,
    /// `spec.nodeName`.
    pub node: Option<NodeName>,
    /// `status.phase`.
    pub phase: Phase,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// A deletion timestamp is set.
    pub deleting: bool,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `status.startTime`: when the kubelet first saw the pod.
    pub started: Option<Timestamp>,
    /// `status.podIP` and `status.podIPs`, each once, in order.
    pub ips: Vec<IpAddr>,
    /// One of them is no address: the list proves nothing then.
    pub unparsed_ips: bool,
    /// Condition `PodReadyToStartContainers` (older: `PodHasNetwork`); `None` where there is none.
    pub sandbox_ready: Option<bool>,
    /// What the container statuses say.
    pub containers: Containers,
    /// Since when a container of it runs: the earliest start of those that run now.
    pub running_since: Option<Timestamp>,
    /// The owner reference with `controller: true`.
    pub controller: Option<Controller>,
    /// The annotation `kubernetes.io/config.mirror`: the UID at the kubelet of a static pod. UIDs of the two differ.
    pub mirror: Option<String>,
    /// Labels `kubevirt.io/vm` and `vm.kubevirt.io/name` with a value.
    pub vm_labels: Vec<(&'static str, String)>,
    /// kube-ovn's annotations.
    pub ovn: OvnAddress,
    /// The label `cilium-leak-healer/opt-out`, with any value but `false`: nothing is done for or to this pod.
    pub opt_out: bool,
}

impl Pod {
    /// Live: any phase but `Succeeded` and `Failed`, or any container running.
    pub fn is_live(&self) -> bool {
        !self.phase.is_terminal() || self.containers.running
    }

    /// The UID that the kubelet's Events carry: of a static pod, the value of its mirror annotation.
    pub fn event_uid(&self) -> &str {
        self.mirror.as_deref().unwrap_or(self.uid.as_str())
    }

    /// Why the pod does not wait for its first sandbox (or for a new one after it lost it), if so.
    pub fn not_waiting(&self) -> Option<&'static str> {
        if self.host_network {
            Some("it uses the host's network")
        } else if self.phase.is_terminal() {
            Some("it has ended")
        } else if self.deleting {
            Some("it is being deleted")
        } else if !self.ips.is_empty() || self.unparsed_ips {
            Some("it has an address")
        } else if self.sandbox_ready == Some(true) {
            Some("its sandbox is ready (PodReadyToStartContainers)")
        } else if self.containers.running {
            Some("a container of it is running")
        } else if self.containers.ended && self.sandbox_ready != Some(false) {
            Some("a container of it has ended, so it had a sandbox")
        } else {
            None
        }
    }

    /// Whether the pod lists the address.
    pub fn lists(&self, ip: IpAddr) -> bool {
        self.ips.contains(&ip)
    }

    /// Lists others: the pod lists addresses of the disputed one's family, none of which is it.
    ///
    /// A link-local address is never proof, and neither is a list that could not be read as a whole.
    pub fn lists_others(&self, ip: IpAddr) -> bool {
        let family = |other: &&IpAddr| other.is_ipv4() == ip.is_ipv4() && !is_link_local(**other);
        !self.unparsed_ips
            && !is_link_local(ip)
            && !self.lists(ip)
            && self.ips.iter().any(|other| family(&other))
    }

    /// Why the pod may not be moved (deleted, for its controller to make it again), if so.
    pub fn not_movable(&self) -> Option<&'static str> {
        let Some(controller) = &self.controller else {
            return Some("it has no controller that would make it again");
        };
        if self.mirror.is_some() {
            Some("it is a mirror pod: the kubelet would make it again as it is")
        } else if self.phase != Phase::Pending || self.containers.ever_ran {
            Some("a container of it may have run")
        } else if self.ovn.allocated
            && matches!(controller.kind.as_str(), "StatefulSet" | "VirtualMachineInstance")
        {
            Some("its address is sticky (kube-ovn): it would come back to the same one")
        } else {
            None
        }
    }
}
