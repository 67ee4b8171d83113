//! What a test wants a world to answer at certain calls.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;

use crate::cilium::{AgentConfig, Allocations, CallError, Disconnected};
use crate::domain::{AgentPod, CiliumVersion, IpamMode, Lookup, NodeState, Pod, Read, Rollout};
use crate::kube::{DeleteOutcome, Held, NamespaceFacts, NoLease};

/// Answers instead of the world's own. Of those in a row the next one first, `None`: the world's own.
#[derive(Default)]
pub(super) struct Answers {
    /// To look-ups by address.
    pub(super) lookups: VecDeque<Option<Lookup>>,
    /// To reads of one pod.
    pub(super) pods: VecDeque<Option<Read<Option<Pod>>>>,
    /// To lists of the pods with an address.
    pub(super) users: VecDeque<Option<Read<Vec<Pod>>>>,
    /// When the agent started.
    pub(super) starts: VecDeque<Option<Timestamp>>,
    /// To who asks for a place in the cluster.
    pub(super) leases: VecDeque<Result<Held, NoLease>>,
    /// Whether the agent's socket takes connections, from now on.
    pub(super) reachable: Option<Result<(), String>>,
    /// The agent's configuration, from now on.
    pub(super) config: Option<Read<AgentConfig>>,
    /// Its IPAM mode, from now on.
    pub(super) ipam_mode: Option<Read<IpamMode>>,
    /// The agent's version, from now on.
    pub(super) version: Option<Read<CiliumVersion>>,
    /// What the agent's IPAM has given away, from now on.
    pub(super) allocations: Option<Read<Allocations>>,
    /// Namespaces by name, from now on.
    pub(super) namespaces: HashMap<String, Read<Option<NamespaceFacts>>>,
    /// The pods of this node's agent, from now on.
    pub(super) agent_pods: Option<Read<Vec<AgentPod>>>,
    /// Their DaemonSet, from now on.
    pub(super) rollout: Option<Read<Option<Rollout>>>,
    /// The Node, from now on.
    pub(super) node: Option<Read<Option<NodeState>>>,
    /// To the next disconnect, which then has no effect.
    pub(super) disconnect: Option<Result<Disconnected, CallError>>,
    /// To the next deletion of a pod, which then has no effect.
    pub(super) deletion: Option<DeleteOutcome>,
}

/// The world's own answers first.
pub(super) fn after<T>(own: usize, then: impl IntoIterator<Item = T>) -> VecDeque<Option<T>> {
    std::iter::repeat_with(|| None).take(own).chain(then.into_iter().map(Some)).collect()
}
