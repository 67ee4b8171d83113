//! The live sources: this node's agent and the API server.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::Mutex;

use super::observe::Sources;
use super::parts::Parts;
use crate::cilium::{
    AgentClient, AgentConfig, Allocations, CallError, CiliumEndpointObject, CiliumEndpointSliceObject,
    CiliumNodeObject, Disconnected,
};
use crate::clock::WallClock;
use crate::domain::{
    AgentPod, CiliumEndpoint, CiliumNode, CiliumVersion, DisconnectTarget, Events, Holder, IpamMode, Lookup,
    NodeName, NodeState, Pod, PodName, PodUid, Read, ReadFailure, RemedyKind, Rollout, SliceEntry,
    Unreadable,
};
use crate::kube::{
    AgentStart, DeleteOutcome, Held, LabelMatch, Leases, NamespaceFacts, NoLease, PodStore, Reader,
};

/// The parts of one node's cluster.
pub struct Live {
    /// The node.
    pub node: NodeName,
    /// The agent.
    pub agent: AgentClient,
    /// The API server.
    pub reader: Arc<Reader>,
    /// The watch's store: tells the start of the agent's container.
    pub store: PodStore,
    /// Labels of the agent's pod, and its container.
    pub agent_pod: (LabelMatch, String),
    /// The Leases for pods in deletion, and for the restart of an agent.
    pub leases: (Leases, Leases),
    /// The wall clock.
    pub clock: WallClock,
    config: Known<AgentConfig>,
    version: Known<CiliumVersion>,
}

/// What an agent said, for as long as the one that said it runs.
type Known<T> = Mutex<Option<(Timestamp, T)>>;

impl Live {
    /// All of one node.
    pub fn new(
        node: NodeName,
        agent: AgentClient,
        reader: Arc<Reader>,
        store: PodStore,
        agent_pod: (LabelMatch, String),
        leases: (Leases, Leases),
        clock: WallClock,
    ) -> Self {
        let (config, version) = (Mutex::default(), Mutex::default());
        Self { node, agent, reader, store, agent_pod, leases, clock, config, version }
    }

    /// Asks the agent for what does not change while it runs, once in its life.
    async fn once<T: Clone>(&self, known: &Known<T>, ask: impl Future<Output = Read<T>>) -> Read<T> {
        let mut known = known.lock().await;
        let started = self.start();
        if let (Some((of, value)), Some(started)) = (known.as_ref(), started)
            && *of == started
        {
            return Ok(value.clone());
        }
        let value = ask.await?;
        *known =
            started.filter(|started| self.start() == Some(*started)).map(|started| (started, value.clone()));
        Ok(value)
    }

    fn leases_of(&self, remedy: RemedyKind) -> &Leases {
        match remedy {
            RemedyKind::DisconnectEndpoint | RemedyKind::DeletePod => &self.leases.0,
            RemedyKind::RestartAgent => &self.leases.1,
        }
    }

    /// The later of the socket's time and the start of the agent's container, where its pod is known here.
    fn start(&self) -> Option<Timestamp> {
        let socket = self.agent.started().ok()?;
        match self.store.agent_start() {
            None => Some(socket),
            Some(AgentStart::Since(container)) => Some(container.max(socket)),
            Some(AgentStart::Stopped) => None,
        }
    }
}

impl Sources for Live {
    async fn events(&self, pod: &Pod) -> Events {
        self.reader.events(pod).await
    }

    async fn lookup(&self, ip: IpAddr) -> Lookup {
        self.agent.lookup(ip).await
    }

    async fn agent_started(&self) -> Option<Timestamp> {
        self.start()
    }

    async fn ipam_mode(&self) -> Read<IpamMode> {
        let mode = self.config().await?.ipam_mode;
        mode.ok_or_else(|| undecodable("GET config", "no status.ipam-mode in it"))
    }

    async fn cilium_node(&self) -> Read<Option<CiliumNode>> {
        let object = self.reader.get_cluster::<CiliumNodeObject>(self.node.as_str()).await?;
        let decoded = object.map(|object| object.to_domain()).transpose();
        decoded.map_err(|error| undecodable(&format!("GET ciliumnodes/{}", self.node), &error.to_string()))
    }

    async fn pod(&self, name: &PodName) -> Read<Option<Pod>> {
        self.reader.pod(name).await
    }

    async fn pods_with_address(&self, ip: IpAddr) -> Read<Vec<Pod>> {
        self.reader.pods_with_address(ip).await
    }

    async fn pods_of_node(&self, _namespace: &str) -> Read<Vec<Pod>> {
        self.reader.pods_of_node(&self.node).await
    }

    /// By name, each with a `get`: the pod's own, and that of another interface.
    async fn endpoints(&self, holder: &Holder, pods: &[PodName]) -> Read<Option<Vec<CiliumEndpoint>>> {
        if !self.reader.serves("cilium.io/v2", "ciliumendpoints").await? {
            return Ok(None);
        }
        let mut found = Vec::new();
        for name in holder.endpoint_names(pods) {
            let object = self.reader.get_namespaced::<CiliumEndpointObject>(&name).await?;
            found.extend(object.and_then(|object| object.to_domain()));
        }
        Ok(Some(found))
    }

    async fn slices(&self, pod: &PodName) -> Read<Option<Vec<SliceEntry>>> {
        if !self.reader.serves("cilium.io/v2alpha1", "ciliumendpointslices").await? {
            return Ok(None);
        }
        let mut found = Vec::new();
        self.reader
            .list_cluster::<CiliumEndpointSliceObject>(|slice| {
                found.extend(slice.to_domain().into_iter().filter(|entry| entry.name == *pod));
                Ok(())
            })
            .await?;
        Ok(Some(found))
    }
}

impl Parts for Live {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn store(&self) -> &PodStore {
        &self.store
    }

    async fn reachable(&self) -> Result<(), String> {
        self.agent.reachable().await.map_err(|why| why.to_string())
    }

    async fn config(&self) -> Read<AgentConfig> {
        self.once(&self.config, self.agent.config()).await
    }

    async fn version(&self) -> Read<CiliumVersion> {
        self.once(&self.version, self.agent.version()).await
    }

    async fn allocations(&self) -> Read<Allocations> {
        self.agent.allocations().await
    }

    async fn disconnect(&self, target: &DisconnectTarget) -> Result<Disconnected, CallError> {
        self.agent.disconnect(target).await
    }

    async fn delete_pod(&self, name: &PodName, uid: &PodUid, resource_version: &str) -> DeleteOutcome {
        self.reader.delete_pod(name, uid, resource_version).await
    }

    async fn namespace(&self, name: &str) -> Read<Option<NamespaceFacts>> {
        self.reader.namespace(name).await
    }

    async fn acquire(&self, remedy: RemedyKind) -> Result<Held, NoLease> {
        self.leases_of(remedy).acquire().await
    }

    async fn release(&self, remedy: RemedyKind, held: Held) -> Read<()> {
        self.leases_of(remedy).release(held).await
    }

    async fn agent_pods(&self) -> Read<Vec<AgentPod>> {
        let (labels, container) = &self.agent_pod;
        self.reader.agent_pods(&self.node, labels, container).await
    }

    async fn rollout(&self, namespace: &str, daemon_set: &str) -> Read<Option<Rollout>> {
        self.reader.rollout(namespace, daemon_set).await
    }

    async fn node(&self) -> Read<Option<NodeState>> {
        self.reader.node_state(&self.node).await
    }
}

fn undecodable(what: &str, why: &str) -> Unreadable {
    Unreadable { what: what.to_owned(), why: ReadFailure::Undecodable(why.to_owned()) }
}
