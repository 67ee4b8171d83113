//! Reads all that a report is made of: what each node's watchdog has kept, and the Kubernetes Events.
//!
//! Must not know: how a wedge ended, nor how a report looks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use tokio::time::{sleep, timeout};

use super::fold::{Fold, NodeState};
use super::form::{EventsRead, NodeRead, Reading};
use super::notes::{self, Notes};
use crate::cli::watchdogs::{Ask, Found, KEPT, Line, NO_POD, OPENING, Search, Trouble, Wire, directory};
use crate::domain::Read;
use crate::kube::Reader;
use crate::stream::{ACTS_SHOWN, CloudEvent, Event, EventKind};

/// Tries for each node, and the pause between them.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// A watchdog that takes longer is one that does not answer.
const NODE: Duration = Duration::from_mins(1);

/// All that was read.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) fold: Fold,
    pub(super) nodes: Vec<NodeRead>,
    pub(super) events: EventsRead,
    /// What a reader must know of the sources.
    pub(super) remarks: Vec<String>,
    pub(super) complete: bool,
}

/// What a watchdog answered.
struct Answer {
    fold: Fold,
    state: Meta,
    /// Events that it has kept no more.
    lost: u64,
    /// Events that this program cannot read.
    unknown: usize,
}

/// What its state says of itself.
struct Meta {
    version: String,
    mode: String,
    started: Timestamp,
    omitted: usize,
    acts: usize,
}

/// Reads the cluster. An error: neither pods nor Events can be listed.
pub(super) async fn gather(
    search: &Search,
    wire: &Wire,
    since: Option<Timestamp>,
) -> anyhow::Result<Gathered> {
    let (found, events) = tokio::join!(search.found(), notes::list(&search.reader));
    let (found, unlisted) = match (found, &events) {
        (Ok(found), _) => (found, None),
        (Err(why), Ok(_)) => (Vec::new(), Some(format!("The watchdogs' pods cannot be listed: {why}."))),
        (Err(pods), Err(events)) => {
            anyhow::bail!("neither the watchdogs' pods nor the Events can be listed: {pods}; {events}")
        }
    };
    let none = found.is_empty();
    let restarts: BTreeMap<String, i32> =
        found.iter().map(|pod: &Found| (pod.name.clone(), pod.restarts)).collect();
    let directory = directory(found, &search.nodes);
    let notes = events.as_ref().map(|all| Notes::of(all, &search.nodes, since)).unwrap_or_default();
    let mut gathered = Gathered { complete: true, ..Gathered::default() };
    gathered.events = EventsRead {
        read: events.is_ok(),
        why: events.as_ref().err().map(ToString::to_string),
        count: notes.by_node.values().sum(),
        unknown: notes.unknown,
    };

    let restarts = &restarts;
    let mut answers = stream::iter(directory)
        .map(|(node, pod)| async move {
            let answer = match &pod {
                Ok(pod) => ask(wire, &node, pod).await.map_err(|trouble| trouble.why),
                Err(why) => Err(why.clone()),
            };
            let restarts = pod.ok().and_then(|pod| restarts.get(&pod).copied());
            (node, answer, restarts.unwrap_or_default())
        })
        .buffer_unordered(OPENING);
    while let Some((node, answer, restarts)) = answers.next().await {
        gathered.node(&node, answer, restarts, &notes);
    }
    drop(answers);
    gathered.remarks.extend(unlisted);
    if none {
        gathered.without_watchdogs(search);
    } else if search.nodes.is_empty() {
        gathered.nodes_without_one(&search.reader, &notes).await;
    }
    gathered.also_known(&notes);
    for noted in &notes.noted {
        gathered.fold.note(noted);
    }
    gathered.nodes.sort_by(|a, b| a.node.cmp(&b.node));
    gathered.remark(&notes);
    Ok(gathered)
}

/// What a watchdog has kept, and its state.
async fn ask(wire: &Wire, node: &Arc<str>, pod: &str) -> Result<Answer, Trouble> {
    let mut tries = 1;
    loop {
        let asked = timeout(NODE, once(wire, node, pod)).await;
        match asked.unwrap_or_else(|_| Err(Trouble::lasting("it takes longer than a minute to answer"))) {
            Err(trouble) if !trouble.lasting && tries < TRIES => {
                tries += 1;
                sleep(PAUSE).await;
            }
            other => return other,
        }
    }
}

async fn once(wire: &Wire, node: &str, pod: &str) -> Result<Answer, Trouble> {
    let mut link = wire.open(pod).await?;
    let mut lines = link.ask(&Ask { since: None, follow: false, types: &[] }).await?;
    let (mut fold, mut lost, mut unknown) = (Fold::default(), 0, 0);
    let mut first = true;
    while let Some(came) = lines.next(wire.timeout).await? {
        let told = Line::parse(came)?;
        if told.kind != Some(EventKind::Gap) && std::mem::take(&mut first) {
            lost = told.place.map_or(0, |place| place.number.saturating_sub(1));
        }
        match CloudEvent::<Event>::parse(told.json.as_bytes()) {
            Ok(event) => fold.event(node, event.time, event.data),
            Err(_) => unknown += 1,
        }
    }
    let state = link.state().await?.whole(wire.timeout, KEPT).await?;
    let state: NodeState = serde_json::from_slice(&state)
        .map_err(|error| Trouble::lasting(&format!("its state cannot be read: {error}")))?;
    let meta = Meta {
        version: state.version.clone(),
        mode: state.mode.clone(),
        started: state.started,
        omitted: state.wedges_omitted,
        acts: state.acts.len(),
    };
    fold.state(node, state);
    Ok(Answer { fold, state: meta, lost, unknown })
}

impl Answer {
    /// What it has lost, for people.
    fn losses(&self, restarts: i32) -> Option<String> {
        let Meta { omitted, acts, started, .. } = &self.state;
        let mut losses = Vec::new();
        if self.lost > 0 {
            losses.push(format!("its {} earliest events are older than what it keeps", self.lost));
        }
        if restarts > 0 {
            let times = if restarts == 1 { "once".to_owned() } else { format!("{restarts} times") };
            losses.push(format!(
                "it was restarted {times}, at last at {started:.0}: of what it told before, only its acts are known"
            ));
        }
        if *omitted > 0 {
            losses.push(format!("{omitted} more wedges are not in its state"));
        }
        if *acts >= ACTS_SHOWN && (restarts > 0 || self.lost > 0) {
            losses.push(format!("it may have done more than its latest {ACTS_SHOWN} acts"));
        }
        if self.unknown > 0 {
            losses.push(format!(
                "{} of its events are of a form that this program does not know",
                self.unknown
            ));
        }
        (!losses.is_empty()).then(|| losses.join("; "))
    }
}

impl Gathered {
    fn node(&mut self, node: &str, answer: Result<Answer, String>, restarts: i32, notes: &Notes) {
        let kubernetes_events = notes.by_node.get(node).copied().unwrap_or_default();
        let mut read = not_read(node, String::new(), kubernetes_events);
        match answer {
            Ok(answer) => {
                let losses = answer.losses(restarts);
                read.reading = if losses.is_some() { Reading::Partial } else { Reading::Whole };
                read.why = losses;
                read.mode = Some(answer.state.mode);
                read.version = Some(answer.state.version);
                read.started = Some(answer.state.started);
                self.fold.add(answer.fold);
            }
            Err(why) => read.why = Some(why),
        }
        self.complete &= match read.reading {
            Reading::Whole => true,
            Reading::Partial => self.events.read,
            // No Event of it can mean as well that none was written, or none is left.
            Reading::NotRead => kubernetes_events > 0,
        };
        self.nodes.push(read);
    }

    /// No pod of a watchdog is there.
    fn without_watchdogs(&mut self, search: &Search) {
        let Search { namespace, selector, .. } = search;
        self.complete &= self.events.count > 0;
        self.remarks.push(if self.events.count > 0 {
            format!(
                "No watchdog's pod with the labels {selector} is in namespace {namespace}: this report is made from Kubernetes Events alone."
            )
        } else {
            format!(
                "No watchdog's pod with the labels {selector} is in namespace {namespace}, and there are no Kubernetes Events of one: nobody can tell whether anything happened."
            )
        });
    }

    /// Nodes of the cluster on which no watchdog has a pod.
    async fn nodes_without_one(&mut self, reader: &Reader, notes: &Notes) {
        let mut names = Vec::new();
        let listed: Read<()> = reader
            .list_cluster(|node: Node| {
                names.extend(node.metadata.name);
                Ok(())
            })
            .await;
        if let Err(why) = listed {
            self.remarks.push(format!(
                "The nodes cannot be listed, so one without a watchdog is not noticed: {why}."
            ));
            return;
        }
        for name in names {
            if !self.nodes.iter().any(|read| read.node == name) {
                self.node(&name, Err(NO_POD.to_owned()), 0, notes);
            }
        }
    }

    /// Nodes that only the Kubernetes Events know.
    fn also_known(&mut self, notes: &Notes) {
        for (node, events) in &notes.by_node {
            if !self.nodes.iter().any(|read| read.node == *node) {
                self.nodes.push(not_read(node, NO_POD.to_owned(), *events));
            }
        }
    }

    fn remark(&mut self, notes: &Notes) {
        if let Some(why) = &self.events.why {
            self.remarks.push(format!("The Kubernetes Events cannot be listed: {why}."));
        }
        if self.events.unknown > 0 {
            let unknown = self.events.unknown;
            self.remarks.push(format!(
                "Kubernetes Events whose form this program does not know: {unknown}. They are of another version, or of somebody else."
            ));
        }
        if self.events.read && self.nodes.iter().any(|read| read.reading != Reading::Whole) {
            self.remarks.push(
                "An API server keeps Kubernetes Events for some time only, mostly an hour: what is older is not in this report."
                    .to_owned(),
            );
        }
        let faults = notes.faults.iter();
        self.remarks.extend(faults.map(|(node, why)| format!("The self-test of {node} has failed: {why}")));
    }
}

fn not_read(node: &str, why: String, kubernetes_events: usize) -> NodeRead {
    NodeRead {
        node: node.to_owned(),
        reading: Reading::NotRead,
        why: Some(why),
        mode: None,
        version: None,
        started: None,
        kubernetes_events,
    }
}
