mod documents;
mod hub;
mod state;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::domain::NodeName;

fn node() -> NodeName {
    "worker-1".parse().unwrap()
}

fn start() -> Timestamp {
    "2026-06-18T10:00:00Z".parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

fn started() -> Started {
    Started {
        node: "worker-1".to_owned(),
        version: "0.1.0".to_owned(),
        mode: "heal".to_owned(),
        remedies: vec!["delete-pod".to_owned()],
    }
}

fn new_hub() -> Hub {
    Hub::new(node(), started(), Arc::default(), start())
}

fn about(pod: &str, verdict: Option<&str>) -> About {
    About {
        node: "worker-1".to_owned(),
        pod: format!("shop/{pod}"),
        pod_uid: format!("uid-{pod}"),
        controller: None,
        ip: Some("10.0.0.9".parse().unwrap()),
        verdict: verdict.map(str::to_owned),
        correlation_id: format!("c-{pod}"),
    }
}

fn judged(pod: &str, verdict: Option<&str>, waiting_since: i64) -> Event {
    Event::Judged(Judged {
        about: about(pod, verdict),
        remedy: "none".to_owned(),
        target: None,
        withheld: None,
        owner: Some("shop/gone".to_owned()),
        waiting_since: at(waiting_since),
        reason: "because".to_owned(),
        evidence: Vec::new(),
    })
}

fn over(pod: &str) -> Event {
    Event::Over(Over { about: about(pod, Some("not-held")), reason: "it has its sandbox".to_owned() })
}

fn acting(pod: &str) -> Event {
    Event::Acting(Acting {
        about: about(pod, Some("stale-endpoint")),
        remedy: "disconnect-endpoint".to_owned(),
        target: Some("cni-attachment-id:x".to_owned()),
        reason: "left over".to_owned(),
    })
}

fn acted(pod: &str, outcome: &str, is_final: bool) -> Event {
    Event::Acted(Acted {
        about: about(pod, Some("stale-endpoint")),
        remedy: "disconnect-endpoint".to_owned(),
        outcome: outcome.to_owned(),
        is_final,
        heal_latency_seconds: None,
        reason: "so".to_owned(),
    })
}

fn check(state: CheckState, reason: Option<&str>) -> Event {
    Event::CheckChanged(CheckChanged {
        node: "worker-1".to_owned(),
        check: "agent".to_owned(),
        state,
        reason: reason.map(str::to_owned),
    })
}
