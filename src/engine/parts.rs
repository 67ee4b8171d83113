//! Everything that the engine touches outside itself: one node's live cluster, or a world made for a test.

use jiff::Timestamp;

use super::observe::Sources;
use crate::cilium::{AgentConfig, Allocations, CallError, Disconnected};
use crate::domain::{
    AgentPod, CiliumVersion, DisconnectTarget, NodeState, PodName, PodUid, Read, RemedyKind, Rollout,
};
use crate::kube::{DeleteOutcome, Held, NamespaceFacts, NoLease, PodStore};

/// The parts of one node's cluster, for reading and for acting.
pub trait Parts: Sources {
    /// The wall clock: all that is compared with the cluster's own times.
    fn now(&self) -> Timestamp;
    /// This node's pods, as the watch tells them.
    fn store(&self) -> &PodStore;
    /// Whether the agent accepts connections.
    fn reachable(&self) -> impl Future<Output = Result<(), String>>;
    /// The agent's configuration.
    fn config(&self) -> impl Future<Output = Read<AgentConfig>>;
    /// The agent's version.
    fn version(&self) -> impl Future<Output = Read<CiliumVersion>>;
    /// What the agent's IPAM has given to whom.
    fn allocations(&self) -> impl Future<Output = Read<Allocations>>;
    /// Disconnects one endpoint.
    fn disconnect(&self, target: &DisconnectTarget) -> impl Future<Output = Result<Disconnected, CallError>>;
    /// Deletes a pod, if it is still this object in this version.
    fn delete_pod(
        &self,
        name: &PodName,
        uid: &PodUid,
        resource_version: &str,
    ) -> impl Future<Output = DeleteOutcome>;
    /// What people say about a namespace: opt-out and pause.
    fn namespace(&self, name: &str) -> impl Future<Output = Read<Option<NamespaceFacts>>>;
    /// A place among the acts of this kind that may be in flight in the cluster.
    fn acquire(&self, remedy: RemedyKind) -> impl Future<Output = Result<Held, NoLease>>;
    /// Gives the place back.
    fn release(&self, remedy: RemedyKind, held: Held) -> impl Future<Output = Read<()>>;
    /// The agent's pods on this node, from a fresh list.
    fn agent_pods(&self) -> impl Future<Output = Read<Vec<AgentPod>>>;
    /// How far a DaemonSet is rolled out; `None`: there is none of this name.
    fn rollout(&self, namespace: &str, daemon_set: &str) -> impl Future<Output = Read<Option<Rollout>>>;
    /// This node's own object.
    fn node(&self) -> impl Future<Output = Read<Option<NodeState>>>;
}
