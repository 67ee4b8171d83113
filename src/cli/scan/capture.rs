//! Reads a cluster into a snapshot: an overview in pages, then live reads for each wedge, in the order of the rules.
//!
//! It decides nothing: which reads a wedge needs is [`crate::engine::observe`]'s word, and the snapshot is judged by
//! [`crate::snapshot::replay`]. What was not read must never look as if it was not there.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Result, bail};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;

use super::agents::{AgentOptions, Agents};
use super::live::{Live, LiveNode, decoded};
use super::notes::Notes;
use super::progress::Progress;
use super::scope::Scope;
use crate::cilium::{CiliumEndpointObject, CiliumNodeObject, DbgCall, dbg_endpoints};
use crate::domain::{
    Event, NewestFailure, NodeName, Pod, PodName, PodUid, Read, ReadFailure, SandboxEvents, Unreadable,
};
use crate::engine::{Sources as _, observe};
use crate::kube::{EventObject, ListScope, PodObject, Reader};
use crate::snapshot::{CallName, Resource, Snapshot};

/// Nodes that are asked at once.
const PARALLEL: usize = 8;

/// What is to be read.
#[derive(Debug, Clone)]
pub(super) struct CaptureOptions {
    /// Which pods are meant.
    pub(super) scope: Scope,
    /// All agents' lists, all CiliumEndpoints and slices.
    pub(super) hygiene: bool,
    /// Everything of the API server, for a file.
    pub(super) whole: bool,
    /// How the agents are reached.
    pub(super) agents: AgentOptions,
}

/// What was read.
pub(super) struct Captured {
    pub(super) snapshot: Snapshot,
    pub(super) notes: Notes,
    /// The pods that were meant by a label selector; `None`: no selector.
    pub(super) selected: Option<HashSet<PodUid>>,
    /// Pods and nodes that were looked at, where the snapshot has only those of them that matter.
    pub(super) counts: Option<(usize, usize)>,
    /// What a person should know was not looked at.
    pub(super) left_out: Vec<String>,
}

/// Reads it.
pub(super) async fn capture(
    reader: &Reader,
    client: Client,
    options: &CaptureOptions,
    progress: &Progress,
) -> Result<Captured> {
    let live = Live::new(reader, Agents::new(reader, client, &options.agents));
    let all = options.whole || options.hygiene;
    let capture = Capture {
        live,
        options,
        progress,
        all,
        seen_pods: Cell::default(),
        seen_nodes: RefCell::default(),
        events_only_here: Cell::default(),
    };
    // Before the pods: those with an address of Cilium's own are known as they pass by.
    capture.read_cilium_nodes().await;
    let (selected, (), ()) =
        futures::join!(capture.read_pods(), capture.read_events(), capture.read_endpoints());
    let selected = selected?;
    capture.tell_unread_events();
    if options.hygiene {
        capture.read_agents().await;
    }
    // Asked before the reads that decide: what changes later shows as later.
    let now = Timestamp::now();
    capture.read_wedges(now, selected.as_ref()).await;
    let mut left_out = Vec::new();
    if !options.hygiene {
        left_out.push("CiliumEndpoints against the agents' own lists (--hygiene)".to_owned());
    }
    let counts = (!all).then(|| (capture.seen_pods.get(), capture.seen_nodes.borrow().len()));
    let (snapshot, notes) = capture.live.record.into_inner().into_snapshot(now);
    Ok(Captured { snapshot, notes, selected, counts, left_out })
}

struct Capture<'a> {
    live: Live<'a>,
    options: &'a CaptureOptions,
    progress: &'a Progress,
    /// Everything is kept. Otherwise of the pods only those that wait, or have an address of Cilium's own: what else a
    /// wedge needs is read with it, so a cluster of any size fits into the same memory.
    all: bool,
    seen_pods: Cell<usize>,
    seen_nodes: RefCell<HashSet<NodeName>>,
    /// Why the Events of other namespaces than the scope's could not be read.
    events_only_here: Cell<Option<ReadFailure>>,
}

/// A pod that hangs over the refusal, by the Events of the overview.
struct Candidate {
    name: PodName,
    uid: PodUid,
}

impl Capture<'_> {
    /// The pods, all or those of the scope. Without them nothing can be said.
    async fn read_pods(&self) -> Result<Option<HashSet<PodUid>>> {
        let scope = &self.options.scope;
        let narrow = scope.list_scope();
        let wide = if self.all { ListScope::default() } else { narrow.clone() };
        let mut read = self.list_pods(&wide).await;
        if let (Err(why), true) = (&read, wide != narrow && scope.namespace.is_some()) {
            // Other namespaces may be hidden from the caller; then nothing about them is known.
            self.live.record.borrow_mut().unread(Resource::Pods, None, None, why);
            read = self.list_pods(&narrow).await;
        }
        if let Err(why) = read {
            let mut notes = Notes::default();
            notes.unread(&why);
            let hint = if scope.namespace.is_none() { "; with -n only one namespace is needed" } else { "" };
            let hint = if is_forbidden(&why) { hint } else { "" };
            bail!("the pods cannot be read: {}{hint}", notes.lines().next().unwrap_or_default());
        }
        let Some(labels) = &scope.labels else {
            return Ok(None);
        };
        let mut selected = HashSet::new();
        let selection = self.live.reader.list_pods(&narrow, |pod| {
            selected.extend(pod.ok().and_then(|pod| pod.metadata.uid?.parse::<PodUid>().ok()));
        });
        match selection.await {
            Ok(()) => Ok(Some(selected)),
            Err(why) => bail!("--selector {labels}: {why}"),
        }
    }

    async fn list_pods(&self, scope: &ListScope) -> Read<()> {
        let mut pods: Vec<PodObject> = Vec::new();
        let mut malformed = Vec::new();
        let reserved = self.live.record.borrow().reserved();
        self.seen_pods.set(0);
        self.seen_nodes.borrow_mut().clear();
        let read = self.live.reader.list_pods(scope, |pod| {
            self.progress.add("pods");
            match pod.and_then(decoded) {
                Ok((mut object, pod)) => {
                    self.live.saw(&pod);
                    self.seen_pods.update(|count| count + 1);
                    if let Some(node) =
                        pod.node.as_ref().filter(|node| !self.seen_nodes.borrow().contains(*node))
                    {
                        self.seen_nodes.borrow_mut().insert(node.clone());
                    }
                    let waits = pod.node.is_some() && pod.not_waiting().is_none();
                    if self.all || waits || pod.ips.iter().any(|ip| reserved.contains(ip)) {
                        object.prune();
                        pods.push(object);
                    }
                }
                Err(bad) => malformed.push(bad),
            }
        });
        read.await?;
        let mut record = self.live.record.borrow_mut();
        record.set_pods(pods);
        for bad in malformed {
            let what = format!(
                "LIST pods: {}/{}",
                bad.namespace.as_deref().unwrap_or("?"),
                bad.name.as_deref().unwrap_or("?")
            );
            let why = Unreadable { what, why: ReadFailure::Undecodable(bad.why) };
            let namespace = bad.namespace.as_deref().filter(|_| bad.name.is_some());
            record.unread(Resource::Pods, namespace, bad.name.as_deref(), &why);
        }
        Ok(())
    }

    /// The sandbox failures of all pods in the scope.
    async fn read_events(&self) {
        let namespace = self.options.scope.namespace.clone().filter(|_| !self.all);
        let fields = "reason=FailedCreatePodSandBox".to_owned();
        let mut scope = ListScope { namespace, fields, ..ListScope::default() };
        let mut read = self.list_events(&scope).await;
        if let (Err(why), None, Some(namespace)) = (&read, &scope.namespace, &self.options.scope.namespace) {
            self.live.record.borrow_mut().notes.unread(why);
            self.events_only_here.set(Some(why.why.clone()));
            scope.namespace = Some(namespace.clone());
            read = self.list_events(&scope).await;
        }
        if let Err(why) = read {
            self.live.record.borrow_mut().unread(Resource::Events, scope.namespace.as_deref(), None, &why);
        }
    }

    /// Pods of other namespaces may be known while their Events are not.
    fn tell_unread_events(&self) {
        let Some(why) = self.events_only_here.take() else {
            return;
        };
        let mut record = self.live.record.borrow_mut();
        let own = self.options.scope.namespace.as_deref();
        let others: BTreeSet<String> = record
            .pods()
            .iter()
            .filter_map(|pod| pod.metadata.namespace.clone())
            .filter(|namespace| Some(namespace.as_str()) != own)
            .collect();
        for namespace in others {
            record.carry(Resource::Events, Some(&namespace), None, &why);
        }
    }

    async fn list_events(&self, scope: &ListScope) -> Read<()> {
        let each = |event: EventObject| {
            self.progress.add("Events");
            self.live.record.borrow_mut().add_event(event);
        };
        self.live.reader.list(scope, each).await
    }

    async fn read_cilium_nodes(&self) {
        let read = self.live.reader.list_cluster::<CiliumNodeObject>(|node| {
            self.progress.add("CiliumNodes");
            self.live.record.borrow_mut().put_cilium_node(node);
            Ok(())
        });
        if let Err(why) = read.await {
            self.live.record.borrow_mut().unread(Resource::CiliumNodes, None, None, &why);
        }
    }

    /// All CiliumEndpoints and slices, where all is wanted. Otherwise a wedge's own are read with it: then the agents'
    /// lists are unread as well, so nothing counts as missing, and the pods of those that were read are there.
    async fn read_endpoints(&self) {
        if !self.all {
            return;
        }
        if let Ok(true) = self.live.serves_endpoints().await {
            let mut all = Vec::new();
            let read = self.live.reader.list_cluster::<CiliumEndpointObject>(|mut endpoint| {
                self.progress.add("CiliumEndpoints");
                crate::metadata::prune(&mut endpoint.metadata);
                all.push(endpoint);
                Ok(())
            });
            let read = read.await;
            let mut record = self.live.record.borrow_mut();
            record.set_endpoints(all);
            if let Err(why) = read {
                record.unread(Resource::CiliumEndpoints, None, None, &why);
            }
        }
        // Its failure is in the record.
        drop(self.live.read_slices().await);
    }

    /// Each agent's list.
    async fn read_agents(&self) {
        let mut nodes: HashSet<NodeName> = HashSet::new();
        {
            let record = self.live.record.borrow();
            nodes.extend(record.cilium_nodes().filter_map(|name| name.parse().ok()));
            nodes.extend(record.pods().iter().filter_map(|pod| pod.to_domain().ok()?.node));
        }
        self.progress.expect("agents", nodes.len());
        self.live.agents.find(&nodes).await;
        futures::stream::iter(nodes).for_each_concurrent(PARALLEL, |node| self.read_agent(node)).await;
    }

    async fn read_agent(&self, node: NodeName) {
        match self.live.agents.pod(&node).await {
            Err(why) => self.live.record.borrow_mut().notes.on_node(node.as_str(), &why),
            Ok(pod) => {
                let list = self.live.agents.call(&node, &pod, DbgCall::Endpoints, dbg_endpoints).await;
                LiveNode { live: &self.live, node: &node }.agent_started().await;
                let mut record = self.live.record.borrow_mut();
                record.listed(node.as_str());
                match list {
                    Ok(list) => record.agent(node.as_str()).endpoints = list,
                    Err(why) => record.failed(node.as_str(), CallName::ListEndpoints, None, &why),
                }
            }
        }
        self.progress.add("agents");
    }

    /// Each wedge, as the watchdog of its node would look at it.
    async fn read_wedges(&self, now: Timestamp, selected: Option<&HashSet<PodUid>>) {
        let candidates = self.candidates(selected);
        self.progress.expect("wedges", candidates.values().map(Vec::len).sum());
        let nodes: HashSet<NodeName> = candidates.keys().cloned().collect();
        self.live.agents.find(&nodes).await;
        futures::stream::iter(candidates)
            .for_each_concurrent(PARALLEL, |(node, pods)| async move {
                for candidate in pods {
                    self.read_wedge(&node, &candidate, now).await;
                    self.progress.add("wedges");
                }
            })
            .await;
    }

    async fn read_wedge(&self, node: &NodeName, candidate: &Candidate, now: Timestamp) {
        let Ok(Some(pod)) = self.live.pod(&candidate.name).await else {
            return;
        };
        if pod.uid == candidate.uid && pod.node.as_ref() == Some(node) {
            observe(&LiveNode { live: &self.live, node }, node, pod, now, |_, _| None).await;
        }
    }

    /// Pods that wait and whose newest failure is the refusal, by node. For a file they are all meant.
    fn candidates(&self, selected: Option<&HashSet<PodUid>>) -> BTreeMap<NodeName, Vec<Candidate>> {
        let record = self.live.record.borrow();
        let mut found: BTreeMap<NodeName, Vec<Candidate>> = BTreeMap::new();
        for pod in record.pods().iter().filter_map(|pod| pod.to_domain().ok()) {
            let Some(node) = pod.node.clone().filter(|_| pod.not_waiting().is_none()) else {
                continue;
            };
            let meant = self.options.whole || self.options.scope.has_pod(&pod, selected);
            let events = record.events_of(pod.event_uid()).iter().filter_map(EventObject::to_domain);
            let events: Vec<Event> = events.collect();
            if meant && is_refused(&pod, &node, &events) {
                found.entry(node).or_default().push(Candidate { name: pod.name, uid: pod.uid });
            }
        }
        found
    }
}

fn is_refused(pod: &Pod, node: &NodeName, events: &[Event]) -> bool {
    matches!(SandboxEvents::of(pod, node, events).newest(), NewestFailure::Refusal(_))
}

fn is_forbidden(why: &Unreadable) -> bool {
    matches!(why.why, ReadFailure::Status { status: 403, .. })
}
