//! What the process tells of itself, and the way from the engine to the stream and the cluster's own Events.

use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;

use crate::admin::{Check, Health};
use crate::domain::NodeName;
use crate::engine::{EngineOptions, NoteSink};
use crate::kube::Recorder;
use crate::metrics::Metrics;
use crate::stream::{CheckChanged, Event, Hub, Started, Stopping};

/// The events of this process.
pub(super) fn hub(options: &EngineOptions, metrics: &Arc<Metrics>, now: Timestamp) -> Hub {
    let started = Started {
        node: options.node.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: options.mode.as_str().to_owned(),
        remedies: options.remedies.iter().map(ToString::to_string).collect(),
    };
    Hub::new(options.node.clone(), started, Arc::clone(metrics), now)
}

/// Where it serves.
pub(super) fn serving(addresses: &[SocketAddr], options: &EngineOptions) {
    let (mode, node, version) = (options.mode.as_str(), &options.node, env!("CARGO_PKG_VERSION"));
    for (number, address) in addresses.iter().enumerate() {
        if number == 0 {
            tracing::info!(%address, mode, %node, version, "serving");
        } else {
            tracing::info!(%address, "serving here too");
        }
    }
}

/// Tells each change of a health check.
pub(super) fn checks(health: &Health, hub: &Hub, node: &NodeName) {
    let (hub, node) = (hub.clone(), node.to_string());
    health.listen(move |check, outcome| {
        let changed = CheckChanged {
            node: node.clone(),
            check: check.as_str().to_owned(),
            state: check.state(outcome),
            reason: outcome.as_ref().err().cloned(),
        };
        hub.tell(Event::CheckChanged(changed), Timestamp::now());
    });
}

/// Where the engine's Kubernetes Events go.
pub(super) fn notes(recorder: &Arc<Recorder>) -> NoteSink {
    let recorder = Arc::clone(recorder);
    Arc::new(move |note| recorder.publish(note))
}

/// The last event; then each stream comes to its end.
pub(super) fn stopping(hub: &Hub, node: &NodeName) {
    hub.tell(Event::Stopping(Stopping { node: node.to_string() }), Timestamp::now());
    hub.close();
}

/// Hears whether the watch works, tells readiness, and logs each change.
pub(super) fn watch(health: Health, node: NodeName) -> impl Fn(Result<(), String>) {
    move |state| {
        if !health.set(Check::PodWatch, state.clone()) {
            return;
        }
        match state {
            Ok(()) => tracing::info!(%node, "watching the pods of this node"),
            Err(reason) => {
                tracing::warn!(%node, reason, "the watch on pods does not work; it is tried again");
            }
        }
    }
}
