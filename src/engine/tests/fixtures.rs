//! What the test world and its tests are made of: a pod that waits, the agent's pod, and reads without an answer.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use crate::domain::{
    AgentPod, Containers, Lookup, OvnAddress, Phase, Pod, Read, ReadFailure, Rollout, Unreadable,
};

pub(super) fn reserved() -> IpAddr {
    "10.0.0.1".parse().unwrap()
}

pub(super) fn start_of_time() -> Timestamp {
    "2026-06-18T00:00:00Z".parse().unwrap()
}

/// This node's agent, as its first life was made.
pub(super) fn agent_pod() -> AgentPod {
    AgentPod {
        name: "kube-system/cilium-x".parse().unwrap(),
        uid: "agent-1".parse().unwrap(),
        resource_version: "1".to_owned(),
        node: "n1".parse().ok(),
        daemon_set: Some(("cilium".to_owned(), "set".to_owned())),
        deleting: false,
        started: Some(start_of_time() - SignedDuration::from_hours(30)),
        opt_out: false,
    }
}

/// The DaemonSet of [`agent_pod`], rolled out.
pub(super) fn rollout() -> Rollout {
    Rollout {
        uid: "set".to_owned(),
        deleting: false,
        generation: Some(3),
        observed_generation: Some(3),
        desired: Some(2),
        updated: Some(2),
    }
}

/// A pod of this node that waits for its sandbox.
pub(in crate::engine) fn waiting_pod() -> Pod {
    Pod {
        name: "shop/waits".parse().unwrap(),
        uid: "waits".parse().unwrap(),
        resource_version: "1".to_owned(),
        node: Some("n1".parse().unwrap()),
        phase: Phase::Pending,
        host_network: false,
        deleting: false,
        created: Some(start_of_time()),
        started: Some(start_of_time()),
        ips: Vec::new(),
        unparsed_ips: false,
        sandbox_ready: Some(false),
        containers: Containers::default(),
        running_since: None,
        controller: None,
        mirror: None,
        vm_labels: Vec::new(),
        opt_out: false,
        ovn: OvnAddress::default(),
    }
}

pub(super) fn no_answer<T>(what: &str) -> Read<T> {
    Err(Unreadable { what: what.to_owned(), why: ReadFailure::Timeout })
}

/// A look-up that the agent did not answer.
pub(super) fn unanswered() -> Lookup {
    Lookup::Unknown(Unreadable { what: "GET endpoint".to_owned(), why: ReadFailure::Timeout })
}
