//! What is done about a wedge, and what it came to.

use std::fmt;
use std::net::IpAddr;

use super::ids::{PodName, PodUid};
use super::pod::{Controller, Pod};

/// The remedies that the watchdog has, without what they are aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RemedyKind {
    /// Disconnect one endpoint from the agent.
    DisconnectEndpoint,
    /// Delete the wedged pod.
    DeletePod,
    /// Delete the pod of this node's agent.
    RestartAgent,
}

impl RemedyKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::DisconnectEndpoint, Self::DeletePod, Self::RestartAgent];

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DisconnectEndpoint => "disconnect-endpoint",
            Self::DeletePod => "delete-pod",
            Self::RestartAgent => "restart-agent",
        }
    }

    /// The remedy of that word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for RemedyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How an act ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActOutcome {
    /// The address is free and the pod got its sandbox.
    Healed,
    /// The address is free; the pod went before its sandbox was seen.
    Disconnected,
    /// The pod was deleted and is gone.
    Deleted,
    /// The last look before the act showed a change: nothing was done.
    Aborted,
    /// The call failed.
    Failed,
    /// The call went well and the wedge is still there.
    NotHealed,
    /// The process ended in the middle, and what came of it could not be found out.
    Interrupted,
}

impl ActOutcome {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Healed,
        Self::Disconnected,
        Self::Deleted,
        Self::Aborted,
        Self::Failed,
        Self::NotHealed,
        Self::Interrupted,
    ];

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healed => "healed",
            Self::Disconnected => "disconnected",
            Self::Deleted => "deleted",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
            Self::NotHealed => "not-healed",
            Self::Interrupted => "interrupted",
        }
    }

    /// The outcome of that word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }

    /// Whether it helped; `None` where it says nothing about whether the judgement was right.
    pub fn helped(self) -> Option<bool> {
        match self {
            Self::Healed | Self::Deleted => Some(true),
            Self::Failed | Self::NotHealed | Self::Interrupted => Some(false),
            Self::Disconnected | Self::Aborted => None,
        }
    }
}

impl fmt::Display for ActOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an act is against: whose pods wait for which address on this node. No pod is deleted twice for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause {
    /// The pod's controller as `Kind/namespace/name/uid`, or `Pod/namespace/name/uid` where it has none.
    pub of: String,
    /// The disputed address.
    pub ip: IpAddr,
}

impl Cause {
    /// The cause of a wedge.
    pub fn of(pod: &Pod, ip: IpAddr) -> Self {
        Self { of: whose(&pod.name, &pod.uid, pod.controller.as_ref()), ip }
    }

    /// The controller, where there is one.
    pub fn controller(&self) -> Option<Controller> {
        let mut parts = self.of.splitn(4, '/').map(str::to_owned);
        let (kind, _namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        (kind != "Pod").then_some(Controller { kind, name, uid })
    }
}

fn whose(name: &PodName, uid: &PodUid, controller: Option<&Controller>) -> String {
    match controller {
        Some(it) => format!("{}/{}/{}/{}", it.kind, name.namespace(), it.name, it.uid),
        None => format!("Pod/{name}/{uid}"),
    }
}
