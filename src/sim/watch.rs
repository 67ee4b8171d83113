//! Watches: initial objects, changes by the selector, bookmarks, and the 410 for a version that is too old.
//!
//! Must not know: how requests are routed.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::beacon::Heard;
use super::resource::{EVENTS, NEW_EVENTS, PODS, Resource};
use super::selector::Selector;
use super::status::Status;
use super::store::{Change, Compacted, Store};

/// What a watch asks for.
#[derive(Debug, Clone)]
pub(crate) struct WatchRequest {
    pub resource: &'static Resource,
    pub selector: Selector,
    /// `resourceVersion`: empty or `0` for "from any state, with that state first".
    pub version: String,
    pub bookmarks: bool,
    /// `sendInitialEvents=true`: the state first, then a bookmark that says so.
    pub initial_events: bool,
    pub timeout: Duration,
}

/// Starts a watch. The stream ends at its time-out, when it is cut, or when it fell behind the history.
pub(crate) fn start(
    store: Arc<Store>,
    request: WatchRequest,
    bookmark_interval: Duration,
    cut: Heard,
) -> Result<impl futures::Stream<Item = io::Result<Bytes>> + Send + 'static, Status> {
    let mut lines = VecDeque::new();
    let mut cursor = 0;
    let mut ended = false;
    if request.initial_events || request.version.is_empty() || request.version == "0" {
        let (objects, revision) = store.snapshot(request.resource.storage);
        lines.extend(
            objects
                .values()
                .filter(|object| request.selector.matches(object))
                .map(|object| line("ADDED", &shown(request.resource, object))),
        );
        cursor = revision;
        // Since the streaming lists, also a watch from any state that allows bookmarks is told where that state ends.
        if request.initial_events || request.bookmarks {
            lines.push_back(bookmark(request.resource, revision, true));
        }
    } else {
        let version = request.version.as_str();
        let unreadable = || {
            // Not a 400: the server does not take this for the client's mistake.
            let why = format!("strconv.ParseUint: parsing \"{version}\": invalid syntax");
            Status::new(500, "", format!("resourceVersion: Invalid value: \"{version}\": {why}"))
        };
        let revision: u64 = version.parse().map_err(|_| unreadable())?;
        match store.changes_since(request.resource.storage, revision) {
            Ok(_) => cursor = revision,
            Err(Compacted { oldest }) => {
                // A watch is accepted before its version is looked at: the refusal is its only event.
                let status = Status::expired(format!("too old resource version: {revision} ({oldest})"));
                lines.push_back(line("ERROR", &status.to_value()));
                ended = true;
            }
        }
    }
    let mut ticks = tokio::time::interval_at(Instant::now() + bookmark_interval, bookmark_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let deadline = Instant::now() + request.timeout;
    let changed = store.subscribe();
    let running = Running { store, request, lines, cursor, ended, ticks, deadline, changed, cut };
    Ok(futures::stream::unfold(running, |mut running| async move {
        running.next().await.map(|chunk| (Ok(chunk), running))
    }))
}

struct Running {
    store: Arc<Store>,
    request: WatchRequest,
    lines: VecDeque<String>,
    cursor: u64,
    ended: bool,
    ticks: Interval,
    deadline: Instant,
    changed: Heard,
    cut: Heard,
}

impl Running {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.lines.is_empty() {
                return Some(Bytes::from(self.lines.drain(..).collect::<String>()));
            }
            if self.ended {
                return None;
            }
            // Seen before the history is read: a change in between wakes the next round.
            self.changed.mark_unchanged();
            match self.store.changes_since(self.request.resource.storage, self.cursor) {
                Err(Compacted { .. }) => return None,
                Ok((changes, revision)) => {
                    self.cursor = revision;
                    let events: Vec<String> =
                        changes.iter().filter_map(|change| self.event(change)).collect();
                    self.lines.extend(events);
                }
            }
            if !self.lines.is_empty() {
                continue;
            }
            tokio::select! {
                biased;
                changed = self.changed.changed() => if changed.is_err() { return None },
                _ = self.cut.changed() => return None,
                () = tokio::time::sleep_until(self.deadline) => return None,
                _ = self.ticks.tick(), if self.request.bookmarks => {
                    self.lines.push_back(bookmark(self.request.resource, self.cursor, false));
                }
            }
        }
    }

    /// The event that a change is for this selector: an object that leaves it is deleted, one that enters it is added.
    fn event(&self, change: &Change) -> Option<String> {
        let matches = |object: &Arc<Value>| self.request.selector.matches(object);
        let before = change.previous.as_ref().is_some_and(matches);
        let after = !change.removed && matches(&change.object);
        let kind = match (before, after) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        // An object that only left the selector is shown as it last was inside, under the new version.
        let object = match (kind, change.removed, &change.previous) {
            ("DELETED", false, Some(previous)) => {
                let mut last = Value::clone(previous);
                last["metadata"]["resourceVersion"] = change.revision.to_string().into();
                shown(self.request.resource, &last)
            }
            _ => shown(self.request.resource, &change.object),
        };
        Some(line(kind, &object))
    }
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn bookmark(resource: &Resource, revision: u64, initial: bool) -> String {
    let mut object = json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": {"resourceVersion": revision.to_string()}});
    if resource == &PODS {
        // As the real one: an empty pod, whose containers are null.
        object["spec"] = json!({"containers": null});
        object["status"] = json!({});
    }
    if initial {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    line("BOOKMARK", &object)
}

/// An object as a resource shows it: events have two faces.
pub(crate) fn shown(resource: &Resource, object: &Value) -> Value {
    if resource != &NEW_EVENTS {
        return object.clone();
    }
    rename(object, &NEW_EVENTS, |(old, new)| (*old, *new))
}

/// An event of events.k8s.io/v1 as core/v1 stores it.
pub(crate) fn stored(resource: &Resource, object: Value) -> Value {
    if resource != &NEW_EVENTS {
        return object;
    }
    rename(&object, &EVENTS, |(old, new)| (*new, *old))
}

const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn rename(
    object: &Value,
    resource: &Resource,
    pair: impl Fn(&(&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        for names in &EVENT_FIELDS {
            let (from, to) = pair(names);
            if let Some(value) = fields.remove(from) {
                fields.insert(to.to_owned(), value);
            }
        }
        fields.insert("apiVersion".to_owned(), resource.api_version().into());
    }
    object
}
