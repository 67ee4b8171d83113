//! The newest-failure rule: what the Events of a pod say about its sandbox.

use std::net::IpAddr;

use jiff::Timestamp;

use super::ids::{ContainerId, NodeName};
use super::pod::Pod;
use super::signature::{Refusal, refusal, sandbox_ids};

const FAILED: &str = "FailedCreatePodSandBox";
/// Reasons that say that the sandbox came up.
const CAME_UP: [&str; 5] = ["Pulling", "Pulled", "Created", "Started", "AddedInterface"];

/// An Event, of core/v1 or as events.k8s.io/v1 leaves it behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `involvedObject.uid`.
    pub object_uid: String,
    /// The node of the kubelet that wrote it: `source.host`, else the reporting instance of a kubelet.
    pub node: Option<NodeName>,
    /// `reason`.
    pub reason: String,
    /// `message` (`note` in events.k8s.io/v1).
    pub message: String,
    /// The latest of `lastTimestamp`, `series.lastObservedTime` and `eventTime`; without any, the creation.
    pub at: Option<Timestamp>,
    /// How often it was seen: the larger of `count` and `series.count`, at least 1.
    pub count: u32,
}

/// The newest failure, where it is the refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// When; `None` where the Event carries no time at all.
    pub at: Option<Timestamp>,
    /// The addresses that it says are in use; more than one dispute none.
    pub addresses: Vec<IpAddr>,
    /// The sandboxes that it names.
    pub sandboxes: Vec<ContainerId>,
    /// The sandboxes of the pod's older failures.
    pub earlier_sandboxes: Vec<ContainerId>,
    /// It is the pod's only failure and was counted once.
    pub lone: bool,
    /// How often failures of this pod were counted.
    pub count: u32,
}

impl Failure {
    /// The one sandbox that was refused, where exactly one is named.
    pub fn sandbox(&self) -> Option<&ContainerId> {
        match self.sandboxes.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }
}

/// What the newest failure of a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewestFailure {
    /// No failure of this pod on this node.
    Nothing,
    /// The newest one says something else; its message.
    Other(String),
    /// An Event that is not older says that the sandbox came up; its reason.
    CameUp(String),
    /// The refusal.
    Refusal(Failure),
}

/// The Events that are this pod's, on this node.
#[derive(Debug)]
pub struct SandboxEvents<'a> {
    failures: Vec<&'a Event>,
    came_up: Vec<&'a Event>,
}

impl<'a> SandboxEvents<'a> {
    /// Keeps the Events of the pod's UID and, where an Event tells its node, of this node.
    pub fn of(pod: &Pod, node: &NodeName, events: &'a [Event]) -> Self {
        let own = |event: &&Event| {
            event.object_uid == pod.event_uid() && event.node.as_ref().is_none_or(|other| other == node)
        };
        let own: Vec<&Event> = events.iter().filter(own).collect();
        Self {
            failures: own.iter().copied().filter(|event| event.reason == FAILED).collect(),
            came_up: own.iter().copied().filter(|event| CAME_UP.contains(&event.reason.as_str())).collect(),
        }
    }

    /// Whether each failure that is not older than `since` refuses this one address. One without a time may be later.
    pub(super) fn only_refusals_of(&self, ip: IpAddr, since: Timestamp) -> bool {
        let mut later = self.failures.iter().filter(|event| event.at.is_none_or(|at| at >= since));
        later.all(|event| refusal(&event.message) == Refusal::Of(ip))
    }

    /// Applies the rule: the latest counts; on a tie, one that is not the refusal decides.
    pub fn newest(&self) -> NewestFailure {
        let at = self.failures.iter().filter_map(|event| event.at).max();
        // An undated failure may be the newest: it takes part in the tie.
        let newest: Vec<&Event> =
            self.failures.iter().copied().filter(|event| event.at.is_none() || event.at == at).collect();
        let Some(first) = newest.first() else {
            return NewestFailure::Nothing;
        };
        // While no failure has a time (`None`), no such Event is older.
        if let Some(up) = self.came_up.iter().find(|up| up.at.is_none() || up.at >= at) {
            return NewestFailure::CameUp(up.reason.clone());
        }
        let mut addresses = Vec::new();
        let mut sandboxes = Vec::new();
        for event in &newest {
            match refusal(&event.message) {
                Refusal::None => return NewestFailure::Other(event.message.clone()),
                Refusal::Of(ip) => push_new(&mut addresses, ip),
                Refusal::Several(several) => several.into_iter().for_each(|ip| push_new(&mut addresses, ip)),
            }
            for id in sandbox_ids(&event.message) {
                push_new(&mut sandboxes, id);
            }
        }
        let older = self.failures.iter().filter(|event| event.at.is_some() && event.at < at);
        NewestFailure::Refusal(Failure {
            at: if newest.iter().all(|event| event.at.is_some()) { at } else { None },
            addresses,
            sandboxes,
            earlier_sandboxes: older.flat_map(|event| sandbox_ids(&event.message)).collect(),
            lone: self.failures.len() == 1 && first.count <= 1,
            count: self.failures.iter().fold(0, |sum, event| sum.saturating_add(event.count.max(1))),
        })
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}
