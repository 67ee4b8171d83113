//! What a scan has read so far: a snapshot that grows. A later read of a thing replaces an earlier one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

use jiff::Timestamp;
use kube::api::ObjectMeta;

use super::notes::Notes;
use crate::cilium::{CiliumEndpointObject, CiliumEndpointSliceObject, CiliumNodeObject};
use crate::domain::{PodName, ReadFailure, Unreadable};
use crate::kube::{EventObject, PodObject};
use crate::snapshot::{Agent, AgentFailure, CallName, Cluster, Resource, Snapshot, Unread};

/// The record.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// By namespace and name, in that order.
    pods: Vec<PodObject>,
    /// By the UID of their object.
    events: BTreeMap<String, Vec<EventObject>>,
    cilium_nodes: Vec<CiliumNodeObject>,
    /// As `pods`; `None`: not served.
    endpoints: Option<Vec<CiliumEndpointObject>>,
    slices: Option<Vec<CiliumEndpointSliceObject>>,
    unreadable: Vec<Unread>,
    agents: BTreeMap<String, Agent>,
    /// Agents whose list was read, or was tried to.
    listed: BTreeSet<String>,
    /// What a person should know.
    pub(super) notes: Notes,
}

fn key(meta: &ObjectMeta) -> (&str, &str) {
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// Puts an object where it belongs, in place of the one of its name.
fn put<T>(all: &mut Vec<T>, object: T, meta: impl Fn(&T) -> &ObjectMeta) {
    match all.binary_search_by(|known| key(meta(known)).cmp(&key(meta(&object)))) {
        Ok(at) => {
            if let Some(known) = all.get_mut(at) {
                *known = object;
            }
        }
        Err(at) => all.insert(at, object),
    }
}

fn remove<T>(all: &mut Vec<T>, name: (&str, &str), meta: impl Fn(&T) -> &ObjectMeta) {
    if let Ok(at) = all.binary_search_by(|known| key(meta(known)).cmp(&name)) {
        all.remove(at);
    }
}

impl Record {
    /// Empty; CiliumEndpoints and slices count as served until somebody knows better.
    pub(super) fn new() -> Self {
        Self { endpoints: Some(Vec::new()), slices: Some(Vec::new()), ..Self::default() }
    }

    /// All pods of a list.
    pub(super) fn set_pods(&mut self, mut pods: Vec<PodObject>) {
        pods.sort_by(|a, b| key(&a.metadata).cmp(&key(&b.metadata)));
        pods.shrink_to_fit();
        self.pods = pods;
    }

    pub(super) fn pods(&self) -> &[PodObject] {
        &self.pods
    }

    pub(super) fn put_pod(&mut self, mut pod: PodObject) {
        pod.prune();
        put(&mut self.pods, pod, |pod| &pod.metadata);
    }

    pub(super) fn remove_pod(&mut self, name: &PodName) {
        remove(&mut self.pods, (name.namespace(), name.name()), |pod| &pod.metadata);
    }

    /// An Event, beside those that are known of its object.
    pub(super) fn add_event(&mut self, mut event: EventObject) {
        crate::metadata::prune(&mut event.metadata);
        if let Some(known) = event.to_domain() {
            self.events.entry(known.object_uid).or_default().push(event);
        }
    }

    /// Forgets what is known of an object: all its Events are read anew.
    pub(super) fn forget_events(&mut self, uid: &str) {
        self.events.remove(uid);
    }

    pub(super) fn events_of(&self, uid: &str) -> &[EventObject] {
        self.events.get(uid).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn put_cilium_node(&mut self, mut node: CiliumNodeObject) {
        crate::metadata::prune(&mut node.metadata);
        put(&mut self.cilium_nodes, node, |node| &node.metadata);
    }

    pub(super) fn remove_cilium_node(&mut self, name: &str) {
        remove(&mut self.cilium_nodes, ("", name), |node| &node.metadata);
    }

    /// All addresses that Cilium uses itself.
    pub(super) fn reserved(&self) -> HashSet<IpAddr> {
        let nodes = self.cilium_nodes.iter().filter_map(|node| node.to_domain().ok());
        nodes.flat_map(|node| node.reserved).map(|(_, ip)| ip).collect()
    }

    /// Names of the nodes that have a CiliumNode.
    pub(super) fn cilium_nodes(&self) -> impl Iterator<Item = &str> {
        self.cilium_nodes.iter().filter_map(|node| node.metadata.name.as_deref())
    }

    /// All CiliumEndpoints of a list.
    pub(super) fn set_endpoints(&mut self, mut endpoints: Vec<CiliumEndpointObject>) {
        endpoints.sort_by(|a, b| key(&a.metadata).cmp(&key(&b.metadata)));
        endpoints.shrink_to_fit();
        self.endpoints = Some(endpoints);
    }

    pub(super) fn put_endpoint(&mut self, mut endpoint: CiliumEndpointObject) {
        crate::metadata::prune(&mut endpoint.metadata);
        put(self.endpoints.get_or_insert_default(), endpoint, |endpoint| &endpoint.metadata);
    }

    pub(super) fn remove_endpoint(&mut self, name: &PodName) {
        if let Some(all) = &mut self.endpoints {
            remove(all, (name.namespace(), name.name()), |endpoint| &endpoint.metadata);
        }
    }

    pub(super) fn no_endpoints_served(&mut self) {
        self.endpoints = None;
    }

    /// The slices as a whole; `None`: not served.
    pub(super) fn set_slices(&mut self, slices: Option<Vec<CiliumEndpointSliceObject>>) {
        self.slices = slices;
    }

    /// Slices, where they are served and were read.
    pub(super) fn slices(&self) -> Option<&[CiliumEndpointSliceObject]> {
        self.slices.as_deref()
    }

    /// A read of the API server failed: carried, and told.
    pub(super) fn unread(
        &mut self,
        resource: Resource,
        namespace: Option<&str>,
        name: Option<&str>,
        why: &Unreadable,
    ) {
        self.carry(resource, namespace, name, &why.why);
        self.notes.unread(why);
    }

    /// Carries a failed read that is told otherwise.
    pub(super) fn carry(
        &mut self,
        resource: Resource,
        namespace: Option<&str>,
        name: Option<&str>,
        why: &ReadFailure,
    ) {
        let unread = Unread::new(resource, namespace, name, why);
        if !self.unreadable.contains(&unread) {
            self.unreadable.push(unread);
        }
    }

    /// What one agent said; from now on it counts as one that was reached.
    pub(super) fn agent(&mut self, node: &str) -> &mut Agent {
        self.agents.entry(node.to_owned()).or_default()
    }

    /// A call of an agent failed: carried, and told.
    pub(super) fn failed(&mut self, node: &str, call: CallName, id: Option<&str>, why: &Unreadable) {
        let failure = AgentFailure::new(call, id, &why.why);
        let agent = self.agent(node);
        if !agent.failures.contains(&failure) {
            agent.failures.push(failure);
        }
        match &why.why {
            // Whatever was asked, it is the same right.
            ReadFailure::Status { status: 401 | 403, message } if message.contains("pods/exec") => {
                self.notes.on_node(node, message);
            }
            _ => self.notes.on_node(node, &why.to_string()),
        }
    }

    /// The agent's list was asked for.
    pub(super) fn listed(&mut self, node: &str) {
        self.listed.insert(node.to_owned());
    }

    /// The snapshot. A list that nobody asked an agent for is a list that failed: it must not look empty.
    pub(super) fn into_snapshot(mut self, taken_at: Timestamp) -> (Snapshot, Notes) {
        for (node, agent) in &mut self.agents {
            if !self.listed.contains(node) {
                agent.failures.push(AgentFailure::new(CallName::ListEndpoints, None, &ReadFailure::NotAsked));
            }
        }
        let snapshot = Snapshot {
            schema_version: crate::snapshot::SchemaVersion,
            description: None,
            source: None,
            taken_at,
            cluster: Cluster {
                pods: self.pods,
                events: self.events.into_values().flatten().collect(),
                nodes: Vec::new(),
                cilium_nodes: self.cilium_nodes,
                cilium_endpoints: self.endpoints,
                cilium_endpoint_slices: self.slices,
                unreadable: self.unreadable,
            },
            agents: self.agents,
            expect: None,
        };
        (snapshot, self.notes)
    }
}
