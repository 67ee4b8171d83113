//! The Kubernetes Events of the watchdogs: what is left to read where the watchdogs are gone, or have forgotten.
//!
//! One telling is written on up to three objects, and a repetition is counted in its Event: here it is one again. Must not
//! know: what becomes of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};

use crate::domain::Read;
use crate::engine::{NoteReason, NoteTail};
use crate::kube::{ListScope, REPORTER, Reader};

/// What the watchdogs told on the objects of the cluster.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// About wedges, in the order in which they were told last.
    pub(super) noted: Vec<Noted>,
    /// What the self-tests said against a node, by node.
    pub(super) faults: BTreeMap<String, String>,
    /// Events by node, without those whose form is not known.
    pub(super) by_node: BTreeMap<String, usize>,
    /// Events whose form is not known.
    pub(super) unknown: usize,
}

/// One telling about a wedge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) pod: String,
    pub(super) pod_uid: String,
    pub(super) controller: Option<String>,
    /// The pod that the address belongs to.
    pub(super) owner: Option<String>,
    pub(super) reason: NoteReason,
    pub(super) tail: NoteTail,
    pub(super) sentence: String,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u32,
}

/// All Events by the watchdogs, in all namespaces.
pub(super) async fn list(reader: &Reader) -> Read<Vec<Event>> {
    let scope = ListScope { fields: format!("reportingComponent={REPORTER}"), ..ListScope::default() };
    let mut events = Vec::new();
    reader.list(&scope, |event: Event| events.push(event)).await?;
    Ok(events)
}

/// A telling on one object.
struct OnObject {
    noted: Noted,
    object: String,
}

impl Notes {
    /// Those of Events, as far as they are of these nodes (empty: all) and not older than that.
    pub(super) fn of(events: &[Event], nodes: &[String], since: Option<Timestamp>) -> Self {
        let mut all = Self::default();
        let mut groups: BTreeMap<_, Vec<OnObject>> = BTreeMap::new();
        for event in events.iter().filter(|event| times(event).is_none_or(|(_, last)| Some(last) >= since)) {
            let told = OnObject::of(event);
            let node = match &told {
                Some(told) => told.noted.tail.node.clone(),
                None => event.reporting_instance.clone().unwrap_or_default(),
            };
            if !nodes.is_empty() && !nodes.contains(&node) {
                continue;
            }
            let reason = event.reason.as_deref().and_then(NoteReason::of_word);
            match told {
                Some(told) => {
                    *all.by_node.entry(node).or_insert(0) += 1;
                    let Noted { pod_uid, reason, tail, .. } = &told.noted;
                    let key = (pod_uid.clone(), *reason as usize, tail.to_string());
                    groups.entry(key).or_default().push(told);
                }
                None if reason == Some(NoteReason::FenceMissing) => {
                    *all.by_node.entry(node.clone()).or_insert(0) += 1;
                    all.faults.insert(node, event.message.clone().unwrap_or_default());
                }
                None => all.unknown += 1,
            }
        }
        all.noted = groups.into_values().filter_map(one).collect();
        // A series is one Event, which stands where it was seen last.
        all.noted.sort_by_key(|noted| (noted.last, noted.reason.act().is_some_and(|(_, done)| !done)));
        all
    }
}

/// One telling of what was written on several objects. On one of them all count, of several objects the fullest.
fn one(all: Vec<OnObject>) -> Option<Noted> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for OnObject { noted, object } in &all {
        let count = counts.entry(object).or_insert(0);
        *count = count.saturating_add(noted.count);
    }
    let count = counts.into_values().max()?;
    all.into_iter().map(|on| on.noted).reduce(Noted::with).map(|noted| Noted { count, ..noted })
}

impl Noted {
    fn with(self, other: Self) -> Self {
        // The longer one was cut less.
        let (longer, shorter) =
            if other.sentence.len() > self.sentence.len() { (other, self) } else { (self, other) };
        Self {
            controller: longer.controller.or(shorter.controller),
            owner: longer.owner.or(shorter.owner),
            first: longer.first.min(shorter.first),
            last: longer.last.max(shorter.last),
            ..longer
        }
    }
}

impl OnObject {
    fn of(event: &Event) -> Option<Self> {
        let reason = NoteReason::of_word(event.reason.as_deref()?)?;
        let regarding = &event.involved_object;
        let kind = regarding.kind.as_deref()?;
        let (pod, owner) = if kind == "Pod" {
            (regarding, event.related.as_ref().and_then(pod_name))
        } else {
            (event.related.as_ref()?, None)
        };
        let (pod, pod_uid) = (pod_name(pod)?, pod.uid.clone().filter(|uid| !uid.is_empty())?);
        let (tail, text) = NoteTail::read(event.message.as_deref()?)?;
        let (first, last) = times(event)?;
        let name = regarding.name.as_deref().unwrap_or_default();
        let controller = (kind != "Pod" && kind != "Node").then(|| format!("{kind}/{name}"));
        let count = event.series.as_ref().and_then(|series| series.count).max(event.count).unwrap_or(1);
        let sentence = NoteTail::sentence(&pod, text).to_owned();
        let count = u32::try_from(count).unwrap_or(1).max(1);
        let noted = Noted { pod, pod_uid, controller, owner, reason, tail, sentence, first, last, count };
        Some(Self { noted, object: format!("{kind}/{name}") })
    }
}

fn pod_name(reference: &ObjectReference) -> Option<String> {
    let is_pod = reference.kind.as_deref() == Some("Pod");
    is_pod.then(|| Some(format!("{}/{}", reference.namespace.as_ref()?, reference.name.as_ref()?)))?
}

/// When it was seen first and last.
fn times(event: &Event) -> Option<(Timestamp, Timestamp)> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let created = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let micro = [event.event_time.as_ref(), series].into_iter().flatten().map(|time| time.0);
    let whole = [event.first_timestamp.as_ref(), event.last_timestamp.as_ref()];
    let all: Vec<_> = micro.chain(whole.into_iter().flatten().map(|time| time.0)).collect();
    let first = all.iter().min().copied().or(created)?;
    Some((first, all.iter().max().copied().unwrap_or(first)))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// An Event of worker-1 about shop/web.
    pub(in super::super) fn event(
        on: &str,
        reason: &str,
        words: &str,
        times: [&str; 2],
        count: u32,
    ) -> Event {
        let pod = json!({"kind": "Pod", "namespace": "shop", "name": "web", "uid": "u1"});
        let (regarding, related) = match on {
            "Pod" => (pod, json!({"kind": "Node", "name": "worker-1", "uid": "worker-1"})),
            other => (json!({"kind": other, "name": "it", "uid": "c1"}), pod),
        };
        let prefix = if on == "Pod" { "" } else { "pod shop/web: " };
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "e"},
            "involvedObject": regarding, "related": related, "reason": reason,
            "message": format!("{prefix}a sentence [{words}] (node worker-1, correlation id 1f-1)"),
            "eventTime": times[0], "series": {"count": count, "lastObservedTime": times[1]},
            "reportingComponent": REPORTER, "reportingInstance": "worker-1",
        }))
        .unwrap()
    }

    const EARLY: &str = "2026-06-18T10:00:00.000000Z";
    const LATE: &str = "2026-06-18T10:05:00.000000Z";
    const STALE: &str = "verdict stale-endpoint, address 10.0.0.1";

    #[test]
    fn one_telling_on_three_objects_is_one() {
        let reason = "EndpointLeakDetected";
        let events = [
            event("Pod", reason, STALE, [EARLY, EARLY], 1),
            event("ReplicaSet", reason, STALE, [EARLY, LATE], 3),
            event("Node", reason, STALE, [LATE, LATE], 2),
        ];
        let notes = Notes::of(&events, &[], None);
        let [one] = &notes.noted[..] else { panic!("{notes:?}") };
        assert_eq!((one.pod.as_str(), one.controller.as_deref()), ("shop/web", Some("ReplicaSet/it")));
        assert_eq!((one.count, one.sentence.as_str()), (3, "a sentence"));
        assert_eq!((one.first, one.last), (EARLY.parse().unwrap(), LATE.parse().unwrap()));
        assert_eq!(notes.by_node["worker-1"], 3);
    }

    #[rstest::rstest]
    #[case::other_node(&["worker-9"], None, 0, 0)]
    #[case::its_node(&["worker-1"], None, 1, 1)]
    #[case::it_is_too_old(&[], Some("2026-06-18T10:06:00Z"), 0, 0)]
    #[case::seen_again_since(&[], Some("2026-06-18T10:04:00Z"), 1, 1)]
    fn which_of_them(
        #[case] nodes: &[&str],
        #[case] since: Option<&str>,
        #[case] noted: usize,
        #[case] counted: usize,
    ) {
        let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        let events = [event("Pod", "EndpointLeakDetected", STALE, [EARLY, LATE], 2)];
        let notes = Notes::of(&events, &nodes, since.map(|time| time.parse().unwrap()));
        assert_eq!((notes.noted.len(), notes.by_node.values().sum::<usize>()), (noted, counted));
    }

    #[test]
    fn what_cannot_be_read_is_counted() {
        let mut fence = event("Node", "FenceMissing", "", [EARLY, EARLY], 1);
        fence.message = Some("no fence".to_owned());
        let mut older = event("Pod", "EndpointLeakDetected", "", [EARLY, EARLY], 1);
        older.message = Some("10.0.0.1 is held (node n1, correlation id 1f-1)".to_owned());
        let notes = Notes::of(&[fence, older, event("Pod", "News", STALE, [EARLY, EARLY], 1)], &[], None);
        assert_eq!((notes.noted.len(), notes.unknown), (0, 2));
        assert_eq!(notes.faults["worker-1"], "no fence");
    }
}
