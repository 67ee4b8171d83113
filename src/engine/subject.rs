//! Whom a telling is about: the pod that waits, what it waits for, and the id that joins all that is told of it.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::domain::{Controller, NodeName, PodName, PodUid, Verdict};
use crate::ledger::Intent;
use crate::stream::About;

/// The subject of a telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) pod: PodName,
    pub(super) uid: PodUid,
    /// Unknown where the pod's object is not at hand.
    pub(super) controller: Option<Controller>,
    pub(super) ip: Option<IpAddr>,
    pub(super) verdict: Option<Verdict>,
    pub(super) correlation_id: String,
    /// Since when the pod is known to wait; unknown to another process than the one that saw it.
    pub(super) since: Option<Timestamp>,
}

impl Subject {
    /// That of an act, as the ledger knows it.
    pub(super) fn of(intent: &Intent) -> Self {
        Self {
            pod: intent.pod.clone(),
            uid: intent.pod_uid.clone(),
            controller: intent.cause.controller(),
            ip: Some(intent.cause.ip),
            verdict: Some(intent.verdict),
            correlation_id: intent.correlation_id.clone(),
            since: None,
        }
    }

    /// The part of each event that says what it is about.
    pub(super) fn about(&self, node: &NodeName) -> About {
        About {
            node: node.to_string(),
            pod: self.pod.to_string(),
            pod_uid: self.uid.to_string(),
            controller: self.controller.as_ref().map(|it| format!("{}/{}", it.kind, it.name)),
            ip: self.ip,
            verdict: self.verdict.map(|verdict| verdict.to_string()),
            correlation_id: self.correlation_id.clone(),
        }
    }
}
