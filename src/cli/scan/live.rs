//! The live sources of a decision, each answer written down as it comes: what is recorded is what was judged.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;

use jiff::Timestamp;
use tokio::sync::OnceCell;

use super::agents::{Agents, nobody};
use super::record::Record;
use crate::cilium::{
    CiliumEndpointObject, CiliumEndpointSliceObject, CiliumNodeObject, ConfigModel, DbgCall, EndpointModel,
    dbg_endpoint, dbg_endpoint_log, dbg_ipam_mode,
};
use crate::domain::{
    CiliumEndpoint, CiliumNode, Events, Holder, IpamMode, Lookup, NodeName, Pod, PodName, Read, ReadFailure,
    SliceEntry, Unreadable,
};
use crate::engine::Sources;
use crate::kube::{EventObject, ListScope, MalformedPod, PodObject, Reader};
use crate::snapshot::{CallName, Resource};

/// All that a scan reads from, and the record of it.
pub(super) struct Live<'a> {
    pub(super) reader: &'a Reader,
    pub(super) agents: Agents<'a>,
    pub(super) record: RefCell<Record>,
    /// What was looked up: one agent is asked once for one address.
    lookups: RefCell<HashMap<(NodeName, IpAddr), Lookup>>,
    modes: RefCell<HashMap<NodeName, Read<IpamMode>>>,
    slices: OnceCell<Read<()>>,
    /// Some pod lists an IPv4 address first, some pod an IPv6 address.
    first_families: Cell<(bool, bool)>,
}

/// One node's part of it.
pub(super) struct LiveNode<'a> {
    pub(super) live: &'a Live<'a>,
    pub(super) node: &'a NodeName,
}

fn undecodable(what: &str, why: &str) -> Unreadable {
    Unreadable { what: what.to_owned(), why: ReadFailure::Undecodable(why.to_owned()) }
}

impl<'a> Live<'a> {
    pub(super) fn new(reader: &'a Reader, agents: Agents<'a>) -> Self {
        Self {
            reader,
            agents,
            record: RefCell::new(Record::new()),
            lookups: RefCell::default(),
            modes: RefCell::default(),
            slices: OnceCell::new(),
            first_families: Cell::default(),
        }
    }

    /// Whether CiliumEndpoints are served; where nobody knows, their list has failed.
    pub(super) async fn serves_endpoints(&self) -> Read<bool> {
        let serves = self.reader.serves("cilium.io/v2", "ciliumendpoints").await;
        let mut record = self.record.borrow_mut();
        match &serves {
            Ok(true) => {}
            Ok(false) => record.no_endpoints_served(),
            Err(why) => record.unread(Resource::CiliumEndpoints, None, None, why),
        }
        serves
    }

    /// All slices, read once.
    pub(super) async fn read_slices(&self) -> Read<()> {
        self.slices
            .get_or_init(|| async {
                let read = self.list_slices().await;
                let mut record = self.record.borrow_mut();
                match read {
                    Ok(slices) => {
                        record.set_slices(slices);
                        Ok(())
                    }
                    Err(why) => {
                        record.unread(Resource::CiliumEndpointSlices, None, None, &why);
                        Err(why)
                    }
                }
            })
            .await
            .clone()
    }

    async fn list_slices(&self) -> Read<Option<Vec<CiliumEndpointSliceObject>>> {
        if !self.reader.serves("cilium.io/v2alpha1", "ciliumendpointslices").await? {
            return Ok(None);
        }
        let mut all = Vec::new();
        self.reader
            .list_cluster::<CiliumEndpointSliceObject>(|mut slice| {
                crate::metadata::prune(&mut slice.metadata);
                all.push(slice);
                Ok(())
            })
            .await?;
        Ok(Some(all))
    }

    /// A pod by name, read now.
    pub(super) async fn pod(&self, name: &PodName) -> Read<Option<Pod>> {
        let what = format!("GET pods/{name}");
        let read = self.reader.get_namespaced::<PodObject>(name).await;
        let read = read.and_then(|object| match object {
            None => Ok(None),
            Some(object) => {
                let pod = object.to_domain().map_err(|error| undecodable(&what, &error.to_string()))?;
                Ok(Some((object, pod)))
            }
        });
        let mut record = self.record.borrow_mut();
        match read {
            Ok(Some((object, pod))) => {
                record.put_pod(object);
                Ok(Some(pod))
            }
            Ok(None) => {
                record.remove_pod(name);
                Ok(None)
            }
            Err(why) => {
                record.unread(Resource::Pods, Some(name.namespace()), Some(name.name()), &why);
                Err(why)
            }
        }
    }

    /// Pods of a scope, read now; one that cannot be decoded makes the list unreadable.
    async fn pods(&self, scope: &ListScope) -> Read<Vec<Pod>> {
        let mut objects = Vec::new();
        let mut bad = None;
        let read = self
            .reader
            .list_pods(scope, |object| match object.and_then(decoded) {
                Ok(pod) => objects.push(pod),
                Err(malformed) => bad = Some(malformed),
            })
            .await;
        read?;
        if let Some(malformed) = bad {
            return Err(undecodable(&format!("LIST pods {}", scope.fields), &malformed.why));
        }
        let mut record = self.record.borrow_mut();
        Ok(objects
            .into_iter()
            .map(|(object, pod)| {
                record.put_pod(object);
                pod
            })
            .collect())
    }

    /// Whether each pod of the overview lists an address of this family first: the API server selects by the first one only.
    fn is_first_family(&self, ip: IpAddr) -> bool {
        let (v4, v6) = self.first_families.get();
        if ip.is_ipv4() { v4 && !v6 } else { v6 && !v4 }
    }

    /// A pod of the overview: its first address tells which family the cluster lists first.
    pub(super) fn saw(&self, pod: &Pod) {
        if let Some(first) = pod.ips.first() {
            self.first_families.update(|(v4, v6)| (v4 || first.is_ipv4(), v6 || first.is_ipv6()));
        }
    }
}

/// A pod with what the rules see of it.
pub(super) fn decoded(object: PodObject) -> Result<(PodObject, Pod), MalformedPod> {
    match object.to_domain() {
        Ok(pod) => Ok((object, pod)),
        Err(error) => Err(MalformedPod {
            namespace: object.metadata.namespace,
            name: object.metadata.name,
            why: error.to_string(),
        }),
    }
}

impl LiveNode<'_> {
    async fn ask_holder(&self, ip: IpAddr) -> Lookup {
        let pod = match self.live.agents.pod(self.node).await {
            Ok(pod) => pod,
            Err(why) => {
                self.live.record.borrow_mut().notes.on_node(self.node.as_str(), &why);
                return Lookup::Unknown(nobody(self.node, &why));
            }
        };
        let call = DbgCall::Endpoint(ip);
        let answer = self.live.agents.call(self.node, &pod, call, |output| dbg_endpoint(ip, output)).await;
        match answer {
            Ok(None) => {
                self.live.record.borrow_mut().agent(self.node.as_str()).endpoints.retain(lists_not(ip));
                Lookup::NotHeld
            }
            Ok(Some(model)) => {
                let log = DbgCall::EndpointLog(ip);
                let log = self.live.agents.call(self.node, &pod, log, dbg_endpoint_log).await;
                let mut record = self.live.record.borrow_mut();
                if let Err(why) = &log {
                    record.notes.on_node(self.node.as_str(), &why.to_string());
                }
                let model = model.with_log(log.ok());
                let holder = model.to_holder(model.log_entries());
                let agent = record.agent(self.node.as_str());
                agent.endpoints.retain(lists_not(ip));
                agent.endpoints.retain(|other| other.id() != model.id());
                agent.endpoints.push(model);
                match holder {
                    Ok(holder) => Lookup::Held(Box::new(holder)),
                    Err(error) => Lookup::Unknown(undecodable("endpoint", &error.0)),
                }
            }
            Err(why) => {
                let id = call.id();
                self.live.record.borrow_mut().failed(
                    self.node.as_str(),
                    CallName::GetEndpoint,
                    id.as_deref(),
                    &why,
                );
                Lookup::Unknown(why)
            }
        }
    }

    async fn ask_mode(&self) -> Read<IpamMode> {
        let pod = self.live.agents.pod(self.node).await.map_err(|why| nobody(self.node, &why))?;
        let mode = self.live.agents.call(self.node, &pod, DbgCall::Config, dbg_ipam_mode).await;
        let mut record = self.live.record.borrow_mut();
        match &mode {
            Ok(mode) => {
                record.agent(self.node.as_str()).config = Some(ConfigModel::new(Some(mode)));
            }
            Err(why) => record.failed(self.node.as_str(), CallName::GetConfig, None, why),
        }
        mode
    }
}

/// Whether an endpoint does not carry the address.
fn lists_not(ip: IpAddr) -> impl Fn(&EndpointModel) -> bool {
    move |model| !model.addresses().contains(&ip)
}

impl Sources for LiveNode<'_> {
    async fn events(&self, pod: &Pod) -> Events {
        let scope = ListScope {
            namespace: Some(pod.name.namespace().to_owned()),
            fields: format!("involvedObject.uid={}", pod.event_uid()),
            ..ListScope::default()
        };
        let mut objects: Vec<EventObject> = Vec::new();
        let read = self.live.reader.list(&scope, |event| objects.push(event)).await;
        let mut record = self.live.record.borrow_mut();
        match read {
            Ok(()) => {
                record.forget_events(pod.event_uid());
                let known = objects.iter().filter_map(EventObject::to_domain).collect();
                for event in objects {
                    record.add_event(event);
                }
                Events { known, unreadable: None }
            }
            Err(why) => {
                record.unread(Resource::Events, Some(pod.name.namespace()), None, &why);
                let known = record.events_of(pod.event_uid()).iter().filter_map(EventObject::to_domain);
                Events { known: known.collect(), unreadable: Some(why) }
            }
        }
    }

    async fn lookup(&self, ip: IpAddr) -> Lookup {
        let key = (self.node.clone(), ip);
        let known = self.live.lookups.borrow().get(&key).cloned();
        if let Some(known) = known {
            return known;
        }
        let answer = self.ask_holder(ip).await;
        self.live.lookups.borrow_mut().insert(key, answer.clone());
        answer
    }

    async fn agent_started(&self) -> Option<Timestamp> {
        self.live.agents.pod(self.node).await.ok()?;
        let started = self.live.agents.started(self.node).await;
        self.live.record.borrow_mut().agent(self.node.as_str()).started_at = started;
        started
    }

    async fn ipam_mode(&self) -> Read<IpamMode> {
        let known = self.live.modes.borrow().get(self.node).cloned();
        if let Some(known) = known {
            return known;
        }
        let mode = self.ask_mode().await;
        self.live.modes.borrow_mut().insert(self.node.clone(), mode.clone());
        mode
    }

    async fn cilium_node(&self) -> Read<Option<CiliumNode>> {
        let name = self.node.as_str();
        let read = self.live.reader.get_cluster::<CiliumNodeObject>(name).await;
        let mut record = self.live.record.borrow_mut();
        match read {
            Ok(Some(object)) => {
                let decoded = object.to_domain();
                record.put_cilium_node(object);
                let what = format!("GET ciliumnodes/{name}");
                decoded.map(Some).map_err(|error| undecodable(&what, &error.0))
            }
            Ok(None) => {
                record.remove_cilium_node(name);
                Ok(None)
            }
            Err(why) => {
                record.unread(Resource::CiliumNodes, None, Some(name), &why);
                Err(why)
            }
        }
    }

    async fn pod(&self, name: &PodName) -> Read<Option<Pod>> {
        self.live.pod(name).await
    }

    async fn pods_with_address(&self, ip: IpAddr) -> Read<Vec<Pod>> {
        let fields = if self.live.is_first_family(ip) { format!("status.podIP={ip}") } else { String::new() };
        let read = self.live.pods(&ListScope { fields, ..ListScope::default() }).await;
        let read =
            read.map(|pods| pods.into_iter().filter(|pod| pod.lists(ip) || pod.unparsed_ips).collect());
        if let Err(why) = &read {
            self.live.record.borrow_mut().unread(Resource::Pods, None, None, why);
        }
        read
    }

    async fn pods_of_node(&self, namespace: &str) -> Read<Vec<Pod>> {
        let fields = format!("spec.nodeName={}", self.node);
        let read = self.live.pods(&ListScope { fields, ..ListScope::default() }).await;
        if let Err(why) = &read {
            self.live.record.borrow_mut().unread(Resource::Pods, Some(namespace), None, why);
        }
        read
    }

    async fn endpoints(&self, holder: &Holder, pods: &[PodName]) -> Read<Option<Vec<CiliumEndpoint>>> {
        if !self.live.serves_endpoints().await? {
            return Ok(None);
        }
        let mut found = Vec::new();
        for name in holder.endpoint_names(pods) {
            let read = self.live.reader.get_namespaced::<CiliumEndpointObject>(&name).await;
            let mut record = self.live.record.borrow_mut();
            match read {
                Ok(Some(object)) => {
                    found.extend(object.to_domain());
                    record.put_endpoint(object);
                }
                Ok(None) => record.remove_endpoint(&name),
                Err(why) => {
                    let (namespace, name) = (Some(name.namespace()), Some(name.name()));
                    record.unread(Resource::CiliumEndpoints, namespace, name, &why);
                    return Err(why);
                }
            }
        }
        Ok(Some(found))
    }

    async fn slices(&self, pod: &PodName) -> Read<Option<Vec<SliceEntry>>> {
        self.live.read_slices().await?;
        let record = self.live.record.borrow();
        Ok(record.slices().map(|slices| {
            let entries = slices.iter().flat_map(CiliumEndpointSliceObject::to_domain);
            entries.filter(|entry| entry.name == *pod).collect()
        }))
    }
}
