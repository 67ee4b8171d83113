//! A snapshot as the sources of a decision: each answer is what a live read would have given at that instant.
//!
//! Everything is indexed once, so that a wedge costs the same in a cluster of ten pods and of a hundred thousand.

use std::collections::HashMap;
use std::net::IpAddr;

use jiff::Timestamp;

use super::field::{CallName, Resource};
use super::format::{Agent, Snapshot, Unread};
use crate::cilium::{CiliumEndpointObject, CiliumEndpointSliceObject};
use crate::domain::{
    CiliumEndpoint, CiliumNode, EndpointId, Event, Events, Holder, IpamMode, Lookup, NodeName, Pod, PodName,
    Read, ReadFailure, SliceEntry, Unreadable, parse_ip,
};
use crate::engine::Sources;

/// A snapshot, decoded and indexed.
pub struct View<'a> {
    /// What it is a view of.
    pub snapshot: &'a Snapshot,
    /// All pods that could be decoded, in the order of the file.
    pub pods: Vec<Pod>,
    /// A pod that could not be decoded: no list of pods is whole then.
    malformed: Option<Unreadable>,
    by_name: HashMap<(&'a str, &'a str), Vec<usize>>,
    by_address: HashMap<IpAddr, Vec<usize>>,
    /// Pods with an address that is none: each may have any address.
    unparsed: Vec<usize>,
    by_node: HashMap<NodeName, Vec<usize>>,
    events: HashMap<String, Vec<Event>>,
    endpoints: HashMap<EndpointId, Vec<CiliumEndpoint>>,
    slices: HashMap<PodName, Vec<SliceEntry>>,
    agents: HashMap<&'a str, HashMap<IpAddr, usize>>,
}

/// The snapshot as the watchdog of one node sees it.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    view: &'a View<'a>,
    node: &'a NodeName,
}

impl<'a> View<'a> {
    /// Decodes and indexes a snapshot.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let cluster = &snapshot.cluster;
        let mut view = Self {
            snapshot,
            pods: Vec::with_capacity(cluster.pods.len()),
            malformed: None,
            by_name: HashMap::with_capacity(cluster.pods.len()),
            by_address: HashMap::with_capacity(cluster.pods.len()),
            unparsed: Vec::new(),
            by_node: HashMap::new(),
            events: HashMap::new(),
            endpoints: HashMap::new(),
            slices: HashMap::new(),
            agents: HashMap::new(),
        };
        view.index_pods();
        for event in cluster.events.iter().filter_map(crate::kube::EventObject::to_domain) {
            view.events.entry(event.object_uid.clone()).or_default().push(event);
        }
        for endpoint in cluster.cilium_endpoints.iter().flatten().filter_map(CiliumEndpointObject::to_domain)
        {
            // The rules look at an endpoint of the holder's number only.
            if let Some(id) = endpoint.id {
                view.endpoints.entry(id).or_default().push(endpoint);
            }
        }
        for entry in
            cluster.cilium_endpoint_slices.iter().flatten().flat_map(CiliumEndpointSliceObject::to_domain)
        {
            view.slices.entry(entry.name.clone()).or_default().push(entry);
        }
        for (node, agent) in &snapshot.agents {
            view.agents.insert(node, index_addresses(agent));
        }
        view
    }

    fn index_pods(&mut self) {
        for object in &self.snapshot.cluster.pods {
            let pod = match object.to_domain() {
                Ok(pod) => pod,
                Err(error) => {
                    self.malformed = Some(Unreadable {
                        what: "LIST pods".to_owned(),
                        why: ReadFailure::Undecodable(error.to_string()),
                    });
                    continue;
                }
            };
            let at = self.pods.len();
            let key = (object.metadata.namespace.as_deref(), object.metadata.name.as_deref());
            if let (Some(namespace), Some(name)) = key {
                self.by_name.entry((namespace, name)).or_default().push(at);
            }
            for ip in &pod.ips {
                self.by_address.entry(*ip).or_default().push(at);
            }
            if pod.unparsed_ips {
                self.unparsed.push(at);
            }
            if let Some(node) = &pod.node {
                self.by_node.entry(node.clone()).or_default().push(at);
            }
            self.pods.push(pod);
        }
    }

    /// One node's part of it.
    pub fn node(&'a self, node: &'a NodeName) -> NodeView<'a> {
        NodeView { view: self, node }
    }

    /// Failed reads of a resource.
    pub(super) fn failed(&self, resource: Resource) -> impl Iterator<Item = &'a Unread> {
        self.snapshot.cluster.unreadable.iter().filter(move |unread| unread.resource == resource)
    }

    /// Why no list of pods is whole, where one pod could not be decoded.
    pub(super) fn malformed(&self) -> Option<&Unreadable> {
        self.malformed.as_ref()
    }

    /// The list of all pods, or of any namespace's, failed.
    fn pod_list(&self) -> Read<()> {
        if let Some(why) = &self.malformed {
            return Err(why.clone());
        }
        refuse(self.failed(Resource::Pods).find(|unread| unread.name.is_none()))
    }

    /// Whether a single object of this name could not be read.
    fn failed_get(&self, resource: Resource, namespace: Option<&str>, name: &str) -> Option<&'a Unread> {
        self.failed(resource).find(|unread| {
            unread.name.as_deref() == Some(name) && covers(unread.namespace.as_deref(), namespace)
        })
    }

    /// Whether the list in which an object of this namespace would be failed.
    fn failed_list(&self, resource: Resource, namespace: Option<&str>) -> Option<&'a Unread> {
        self.failed(resource)
            .find(|unread| unread.name.is_none() && covers(unread.namespace.as_deref(), namespace))
    }

    fn pods_at(&self, at: &[usize]) -> Vec<Pod> {
        at.iter().filter_map(|at| self.pods.get(*at)).cloned().collect()
    }

    /// A call of an agent, with the id that it is about.
    pub(super) fn call(&self, node: &str, call: CallName, id: Option<&str>) -> Read<&'a Agent> {
        let what = || match (call, id) {
            (CallName::GetEndpoint, Some(id)) => format!("GET endpoint/{id}"),
            (CallName::GetEndpoint | CallName::ListEndpoints, _) => "GET endpoint".to_owned(),
            (CallName::GetConfig, _) => "GET config".to_owned(),
            (CallName::GetHealthz, _) => "GET healthz".to_owned(),
            (CallName::DeleteEndpoint, _) => "DELETE endpoint".to_owned(),
        };
        let Some(agent) = self.snapshot.agents.get(node) else {
            let why = ReadFailure::Connection(format!("the snapshot has no agent of node {node}"));
            return Err(Unreadable { what: what(), why });
        };
        let failure = agent.failures.iter().find(|failure| {
            failure.call == call && (failure.id.is_none() || same_id(failure.id.as_deref(), id))
        });
        failure.map_or(Ok(agent), |failure| Err(Unreadable { what: what(), why: failure.why() }))
    }
}

/// By address, the first endpoint that carries it: the agent's registry has one of each.
fn index_addresses(agent: &Agent) -> HashMap<IpAddr, usize> {
    let mut index = HashMap::with_capacity(agent.endpoints.len());
    for (at, endpoint) in agent.endpoints.iter().enumerate() {
        for ip in endpoint.addresses() {
            index.entry(ip).or_insert(at);
        }
    }
    index
}

/// The scope of a failed read covers a namespace; a namespace that is not known may be any.
fn covers(scope: Option<&str>, namespace: Option<&str>) -> bool {
    scope.is_none() || namespace.is_none() || scope == namespace
}

/// Ids by address are equal if their addresses are, however they are written.
fn same_id(ours: Option<&str>, theirs: Option<&str>) -> bool {
    let address = |id: Option<&str>| {
        let (family, text) = id?.split_once(':')?;
        matches!(family, "ipv4" | "ipv6").then(|| parse_ip(text))?
    };
    ours == theirs || address(ours).is_some_and(|ip| address(theirs) == Some(ip))
}

fn refuse(unread: Option<&Unread>) -> Read<()> {
    unread.map_or(Ok(()), |unread| Err(unreadable(unread)))
}

/// A failed read in the words of a request.
pub(super) fn unreadable(unread: &Unread) -> Unreadable {
    let plural = unread.resource.as_str();
    let what = match (&unread.namespace, &unread.name) {
        (Some(namespace), Some(name)) => format!("GET {plural}/{namespace}/{name}"),
        (None, Some(name)) => format!("GET {plural}/{name}"),
        (Some(namespace), None) => format!("LIST {plural} in {namespace}"),
        (None, None) => format!("LIST {plural}"),
    };
    Unreadable { what, why: unread.why() }
}

fn undecodable(what: &str, why: &str) -> Unreadable {
    Unreadable { what: what.to_owned(), why: ReadFailure::Undecodable(why.to_owned()) }
}

impl NodeView<'_> {
    /// Whether a CiliumEndpoint that may be the holder's could not be read.
    fn failed_endpoints(&self, holder: &Holder, pods: &[PodName]) -> Option<&Unread> {
        let nameless = holder.owner_by_agent().pod().is_none();
        let interface = holder.attachment.as_ref().and_then(|id| id.interface());
        // What an endpoint's owner is called tells its namespace: by the label, else by the pods that are asked for.
        let namespaces: Vec<&str> = match holder.namespace_label() {
            Some(label) if nameless => vec![label],
            label => label.into_iter().chain(pods.iter().map(PodName::namespace)).collect(),
        };
        self.view.failed(Resource::CiliumEndpoints).find(|unread| {
            let namespace = unread.namespace.as_deref();
            let in_scope =
                namespaces.is_empty() || namespaces.iter().any(|ours| covers(namespace, Some(ours)));
            // The CiliumEndpoint of a named owner is called as the pod, or as the pod and the interface.
            let of_owner = |name: &str| {
                pods.iter().any(|pod| {
                    let rest =
                        name.strip_prefix(pod.name()).map(|rest| rest.strip_prefix('-').unwrap_or(rest));
                    rest.is_some_and(|rest| rest.is_empty() || Some(rest) == interface)
                })
            };
            in_scope && (nameless || unread.name.as_deref().is_none_or(of_owner))
        })
    }
}

impl Sources for NodeView<'_> {
    async fn events(&self, pod: &Pod) -> Events {
        let failed = self
            .view
            .failed(Resource::Events)
            .find(|unread| covers(unread.namespace.as_deref(), Some(pod.name.namespace())));
        Events {
            known: self.view.events.get(pod.event_uid()).cloned().unwrap_or_default(),
            unreadable: failed.map(unreadable),
        }
    }

    async fn lookup(&self, ip: IpAddr) -> Lookup {
        let id = format!("{}:{ip}", if ip.is_ipv4() { "ipv4" } else { "ipv6" });
        let agent = match self.view.call(self.node.as_str(), CallName::GetEndpoint, Some(&id)) {
            Ok(agent) => agent,
            Err(why) => return Lookup::Unknown(why),
        };
        let at = self.view.agents.get(self.node.as_str()).and_then(|index| index.get(&ip));
        let Some(endpoint) = at.and_then(|at| agent.endpoints.get(*at)) else {
            return Lookup::NotHeld;
        };
        match endpoint.to_holder(Some(endpoint.log_entries().unwrap_or_default())) {
            Ok(holder) => Lookup::Held(Box::new(holder)),
            Err(error) => Lookup::Unknown(undecodable(&format!("GET endpoint/{id}"), &error.to_string())),
        }
    }

    async fn agent_started(&self) -> Option<Timestamp> {
        self.view.snapshot.agents.get(self.node.as_str())?.started_at
    }

    async fn ipam_mode(&self) -> Read<IpamMode> {
        let agent = self.view.call(self.node.as_str(), CallName::GetConfig, None)?;
        let mode = agent.config.as_ref().and_then(crate::cilium::ConfigModel::ipam_mode);
        mode.ok_or_else(|| undecodable("GET config", "no status.ipam-mode in it"))
    }

    async fn cilium_node(&self) -> Read<Option<CiliumNode>> {
        let name = self.node.as_str();
        // Which addresses are Cilium's own guards every act: a list that failed makes them unknown, whatever else is there.
        refuse(self.view.failed_get(Resource::CiliumNodes, None, name))?;
        refuse(self.view.failed_list(Resource::CiliumNodes, None))?;
        let mut nodes = self.view.snapshot.cluster.cilium_nodes.iter();
        let Some(object) = nodes.find(|node| node.metadata.name.as_deref() == Some(name)) else {
            return Ok(None);
        };
        let what = format!("GET ciliumnodes/{name}");
        object.to_domain().map(Some).map_err(|error| undecodable(&what, &error.to_string()))
    }

    async fn pod(&self, name: &PodName) -> Read<Option<Pod>> {
        let namespace = Some(name.namespace());
        refuse(self.view.failed_get(Resource::Pods, namespace, name.name()))?;
        match self.view.by_name.get(&(name.namespace(), name.name())).map(Vec::as_slice) {
            Some([at]) => Ok(self.view.pods.get(*at).cloned()),
            Some([_, ..]) => Err(undecodable(&format!("GET pods/{name}"), "it is in the snapshot twice")),
            Some([]) | None => {
                refuse(self.view.failed_list(Resource::Pods, namespace))?;
                self.view.malformed.clone().map_or(Ok(None), Err)
            }
        }
    }

    async fn pods_with_address(&self, ip: IpAddr) -> Read<Vec<Pod>> {
        self.view.pod_list()?;
        let listing = self.view.by_address.get(&ip).map(Vec::as_slice).unwrap_or_default();
        let mut at: Vec<usize> = listing.iter().chain(&self.view.unparsed).copied().collect();
        at.sort_unstable();
        at.dedup();
        Ok(self.view.pods_at(&at))
    }

    async fn pods_of_node(&self, namespace: &str) -> Read<Vec<Pod>> {
        let mut failed = self.view.failed(Resource::Pods);
        refuse(failed.find(|unread| covers(unread.namespace.as_deref(), Some(namespace))))?;
        if let Some(why) = &self.view.malformed {
            return Err(why.clone());
        }
        Ok(self.view.by_node.get(self.node).map(|at| self.view.pods_at(at)).unwrap_or_default())
    }

    async fn endpoints(&self, holder: &Holder, pods: &[PodName]) -> Read<Option<Vec<CiliumEndpoint>>> {
        refuse(self.failed_endpoints(holder, pods))?;
        let served = self.view.snapshot.cluster.cilium_endpoints.is_some();
        Ok(served.then(|| self.view.endpoints.get(&holder.id).cloned().unwrap_or_default()))
    }

    async fn slices(&self, pod: &PodName) -> Read<Option<Vec<SliceEntry>>> {
        refuse(self.view.failed(Resource::CiliumEndpointSlices).next())?;
        let served = self.view.snapshot.cluster.cilium_endpoint_slices.is_some();
        Ok(served.then(|| self.view.slices.get(pod).cloned().unwrap_or_default()))
    }
}
