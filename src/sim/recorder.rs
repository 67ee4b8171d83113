//! The kubelet's Events: made, counted, aggregated and dropped as client-go's `EventCorrelator` does it.
//!
//! Numbers and rules are those of `tools/record/events_cache.go`. Must not know: why an Event is written.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::apiserver::ApiServer;
use super::clock::{lock, seconds};
use super::resource::{EVENTS, text};

/// From so many messages on, similar Events become one.
const MAX_SIMILAR: usize = 10;
/// Similar Events are forgotten after so long without one.
const FORGET_AFTER: SignedDuration = SignedDuration::from_secs(600);
/// A source may send so many Events about an object at once, and then one every five minutes.
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;

#[derive(Debug)]
pub(crate) struct Recorder {
    api: ApiServer,
    host: String,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    /// Messages of similar Events, by everything but the message.
    similar: HashMap<String, (BTreeSet<String>, Timestamp)>,
    /// Written Events, by key: name, count, first time.
    written: HashMap<String, Written>,
    /// Tokens by source and object.
    budget: HashMap<String, (f64, Timestamp)>,
    /// The last number in a name; on paused time several Events have one time.
    last_number: i128,
}

#[derive(Debug, Clone)]
struct Written {
    name: String,
    count: u64,
    first: Timestamp,
}

impl Recorder {
    pub(crate) fn new(api: ApiServer, host: &str) -> Self {
        Self { api, host: host.to_owned(), memory: Mutex::default() }
    }

    /// Records that something happened to a pod.
    pub(crate) fn record(&self, pod: &Value, field_path: &str, kind: &str, reason: &str, message: &str) {
        let now = self.api.clock().now();
        let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        // The kubelet knows a static pod by its own UID, which its mirror carries as an annotation.
        let mirrored = pod
            .pointer("/metadata/annotations")
            .and_then(|all| all.get("kubernetes.io/config.mirror"))
            .and_then(Value::as_str);
        let uid = mirrored.unwrap_or_else(|| text(pod, "/metadata/uid"));
        let object = format!("{namespace}/{name}/{uid}/{kind}");
        let similar = format!("{object}/{reason}");

        let mut memory = lock(&self.memory);
        let aggregated = memory.aggregates(&similar, message, now);
        let key = if aggregated { similar } else { format!("{similar}/{field_path}/{message}") };
        memory.last_number = now.as_nanosecond().max(memory.last_number + 1);
        let fresh = Written { name: format!("{name}.{:x}", memory.last_number), count: 0, first: now };
        let written = memory.written.entry(key).or_insert(fresh);
        written.count += 1;
        let written = written.clone();
        if !memory.affords(&object, now) {
            return;
        }
        drop(memory);

        let message = if aggregated {
            format!("(combined from similar events): {message}")
        } else {
            message.to_owned()
        };
        let last = seconds(now);
        if written.count > 1 {
            let patch = json!({"count": written.count, "lastTimestamp": last, "message": message});
            if self.api.patch_merge(&EVENTS, namespace, &written.name, &patch).is_ok() {
                return;
            }
        }
        let mut involved = json!({
            "kind": "Pod", "namespace": namespace, "name": name, "uid": uid, "apiVersion": "v1",
            "resourceVersion": text(pod, "/metadata/resourceVersion"),
        });
        if !field_path.is_empty() {
            involved["fieldPath"] = field_path.into();
        }
        // The aggregate is made without the reporting fields.
        let (component, instance) = if aggregated { ("", "") } else { ("kubelet", self.host.as_str()) };
        let event = json!({
            "metadata": {"name": written.name, "namespace": namespace},
            "involvedObject": involved, "reason": reason, "message": message,
            "source": {"component": "kubelet", "host": self.host},
            "firstTimestamp": seconds(written.first), "lastTimestamp": last, "count": written.count, "type": kind,
            "eventTime": null, "reportingComponent": component, "reportingInstance": instance,
        });
        // A namespace that is going away takes no Events.
        let _ = self.api.create(&EVENTS, event);
    }
}

impl Memory {
    fn aggregates(&mut self, similar: &str, message: &str, now: Timestamp) -> bool {
        let (messages, last) =
            self.similar.entry(similar.to_owned()).or_insert_with(|| (BTreeSet::new(), now));
        if now.duration_since(*last) > FORGET_AFTER {
            messages.clear();
        }
        messages.insert(message.to_owned());
        *last = now;
        if messages.len() < MAX_SIMILAR {
            return false;
        }
        messages.pop_first();
        true
    }

    fn affords(&mut self, object: &str, now: Timestamp) -> bool {
        let (tokens, last) = self.budget.entry(object.to_owned()).or_insert((BURST, now));
        *tokens = (*tokens + now.duration_since(*last).as_secs_f64() / REFILL_SECONDS).min(BURST);
        *last = now;
        if *tokens < 1.0 {
            return false;
        }
        *tokens -= 1.0;
        true
    }
}
