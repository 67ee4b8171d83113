//! The live sources: this node's agent and the API server.

use std::net::IpAddr;

use jiff::Timestamp;
use tokio::sync::Mutex;

use super::observe::Sources;
use crate::cilium::{
    AgentClient, AgentConfig, CiliumEndpointObject, CiliumEndpointSliceObject, CiliumNodeObject,
};
use crate::domain::{
    CiliumEndpoint, CiliumNode, Events, Holder, IpamMode, Lookup, NodeName, Pod, PodName, Read, ReadFailure,
    SliceEntry, Unreadable,
};
use crate::kube::{AgentStart, PodStore, Reader};

/// The parts of one node's cluster.
pub struct Live {
    /// The node.
    pub node: NodeName,
    /// The agent.
    pub agent: AgentClient,
    /// The API server.
    pub reader: Reader,
    /// The watch's store: tells the start of the agent's container.
    pub store: PodStore,
    /// The agent's configuration, for as long as the agent that told it runs.
    config: Mutex<Option<(Timestamp, AgentConfig)>>,
}

impl Live {
    /// All of one node.
    pub fn new(node: NodeName, agent: AgentClient, reader: Reader, store: PodStore) -> Self {
        Self { node, agent, reader, store, config: Mutex::default() }
    }

    /// The agent's configuration. It does not change while the agent runs.
    pub async fn config(&self) -> Read<AgentConfig> {
        let mut known = self.config.lock().await;
        let started = self.start();
        if let (Some((of, config)), Some(started)) = (known.as_ref(), started)
            && *of == started
        {
            return Ok(config.clone());
        }
        let config = self.agent.config().await?;
        *known =
            started.filter(|started| self.start() == Some(*started)).map(|started| (started, config.clone()));
        Ok(config)
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

fn undecodable(what: &str, why: &str) -> Unreadable {
    Unreadable { what: what.to_owned(), why: ReadFailure::Undecodable(why.to_owned()) }
}
