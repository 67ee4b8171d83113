//! What was looked at, and what was seen: the part of a verdict that lets a person check it.

use std::fmt;

/// A thing that the rules look at. The set is closed: it is part of the output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Check {
    /// The pod waits for a sandbox.
    WaitingPod,
    /// The pod's Events could be read.
    PodEvents,
    /// The newest failure is the refusal.
    NewestFailure,
    /// The newest failure is neither too old nor in the future.
    FailureAge,
    /// The agent has been up long enough, and since before the failure.
    AgentStart,
    /// The look-up by address.
    AgentLookup,
    /// The CiliumNode of this node.
    CiliumNode,
    /// The address or the holder is reserved for Cilium itself.
    ReservedHolder,
    /// The wedged pod may be moved.
    MovablePod,
    /// The holder is neither on its way up nor down.
    HolderState,
    /// The answer carries the disputed address.
    HolderAddress,
    /// The holder names its owner.
    OwnerName,
    /// The CiliumEndpoints that may name the owner or its UID.
    CiliumEndpoints,
    /// The owner pod.
    OwnerPod,
    /// Other live pods that list the address.
    AddressUsers,
    /// Pods of this node that may own a nameless holder.
    NodePods,
    /// The address is shared on purpose.
    SharedByDesign,
    /// A proof of staleness.
    Staleness,
    /// The agent's IPAM mode allows a disconnect.
    IpamMode,
    /// The holder shows an id by which it can be disconnected.
    DisconnectTarget,
}

impl Check {
    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WaitingPod => "waiting-pod",
            Self::PodEvents => "pod-events",
            Self::NewestFailure => "newest-failure",
            Self::FailureAge => "failure-age",
            Self::AgentStart => "agent-start",
            Self::AgentLookup => "agent-lookup",
            Self::CiliumNode => "cilium-node",
            Self::ReservedHolder => "reserved-holder",
            Self::MovablePod => "movable-pod",
            Self::HolderState => "holder-state",
            Self::HolderAddress => "holder-address",
            Self::OwnerName => "owner-name",
            Self::CiliumEndpoints => "cilium-endpoints",
            Self::OwnerPod => "owner-pod",
            Self::AddressUsers => "address-users",
            Self::NodePods => "node-pods",
            Self::SharedByDesign => "shared-by-design",
            Self::Staleness => "staleness",
            Self::IpamMode => "ipam-mode",
            Self::DisconnectTarget => "disconnect-target",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a check came out. `Pass` means: on the way to a remedy; `Fail`: this stands against one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The check speaks for acting.
    Pass,
    /// The check speaks against acting.
    Fail,
    /// Nobody knows.
    Unknown,
}

impl Outcome {
    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
        }
    }
}

/// One check with the value that it saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// What was looked at.
    pub check: Check,
    /// How it came out.
    pub outcome: Outcome,
    /// The value seen, for people.
    pub observed: String,
}
