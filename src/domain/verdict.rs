//! What was judged, and what may be done about it.

use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;

use super::act::RemedyKind;
use super::evidence::Evidence;
use super::failure::Failure;
use super::holder::Holder;
use super::ids::{ContainerId, EndpointId, PodName};
use super::proof::Proof;

/// The verdicts on a wedge. The words are fixed: outputs, metrics and docs use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// The look-up gave no answer that says who holds the address.
    AgentUnknown,
    /// The address or its holder is Cilium's own.
    ReservedHolder,
    /// Nobody holds the address.
    NotHeld,
    /// Something is on its way: look again.
    Settling,
    /// Something that has to be known could not be read, or proves nothing.
    InsufficientEvidence,
    /// The holder stands for no pod that anybody can name.
    UnmanagedHolder,
    /// Two pods have the address on purpose.
    SharedByDesign,
    /// The owner, or another pod with the address, is alive.
    LiveDuplicate,
    /// The holder is left over, by one of the proofs.
    StaleEndpoint,
}

impl Verdict {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::AgentUnknown,
        Self::ReservedHolder,
        Self::NotHeld,
        Self::Settling,
        Self::InsufficientEvidence,
        Self::UnmanagedHolder,
        Self::SharedByDesign,
        Self::LiveDuplicate,
        Self::StaleEndpoint,
    ];

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentUnknown => "agent-unknown",
            Self::ReservedHolder => "reserved-holder",
            Self::NotHeld => "not-held",
            Self::Settling => "settling",
            Self::InsufficientEvidence => "insufficient-evidence",
            Self::UnmanagedHolder => "unmanaged-holder",
            Self::SharedByDesign => "shared-by-design",
            Self::LiveDuplicate => "live-duplicate",
            Self::StaleEndpoint => "stale-endpoint",
        }
    }

    /// Whether it says that nobody knows yet whose the address is: such a verdict mostly passes by itself.
    pub fn mostly_passes(self) -> bool {
        match self {
            Self::Settling | Self::NotHeld | Self::AgentUnknown | Self::InsufficientEvidence => true,
            Self::ReservedHolder
            | Self::UnmanagedHolder
            | Self::SharedByDesign
            | Self::LiveDuplicate
            | Self::StaleEndpoint => false,
        }
    }

    /// The verdict of that word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == word)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The one endpoint that may be disconnected, by an id that is never used again.
///
/// Only the rule of `stale-endpoint` makes one: whoever holds it holds the proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisconnectTarget {
    id: String,
    endpoint: EndpointId,
    container: ContainerId,
}

impl DisconnectTarget {
    /// By the attachment id that the agent shows, else by container id; `None` where the holder shows neither.
    pub(super) fn of(holder: &Holder) -> Option<Self> {
        let id = match (&holder.attachment, &holder.container_field) {
            (Some(attachment), _) => format!("cni-attachment-id:{attachment}"),
            (None, Some(container)) => format!("container-id:{container}"),
            (None, None) => return None,
        };
        Some(Self { id, endpoint: holder.id, container: holder.container()?.clone() })
    }

    /// The id for `DELETE /v1/endpoint/{id}`, not percent-encoded.
    pub fn as_str(&self) -> &str {
        &self.id
    }

    /// The endpoint's number, for people.
    pub fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    /// The container that the endpoint was made for.
    pub fn container(&self) -> &ContainerId {
        &self.container
    }
}

impl fmt::Display for DisconnectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

/// What heal mode would do next, with every remedy allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing.
    None,
    /// Disconnect this one endpoint from the agent.
    DisconnectEndpoint(DisconnectTarget),
    /// Delete the wedged pod, so that its controller makes it again with another address.
    DeletePod,
}

impl Remedy {
    /// The word for it in all outputs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::DisconnectEndpoint(_) => RemedyKind::DisconnectEndpoint.as_str(),
            Self::DeletePod => RemedyKind::DeletePod.as_str(),
        }
    }

    /// The remedy without its target; `None`: nothing is to be done.
    pub fn kind(&self) -> Option<RemedyKind> {
        match self {
            Self::None => None,
            Self::DisconnectEndpoint(_) => Some(RemedyKind::DisconnectEndpoint),
            Self::DeletePod => Some(RemedyKind::DeletePod),
        }
    }
}

/// Why a verdict that could have a remedy has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Withheld {
    /// On this IPAM mode a disconnect could harm the address's new owner.
    IpamMode,
    /// The IPAM mode could not be read.
    IpamModeUnknown,
    /// The holder shows no id by which it could be disconnected.
    NoIdentifier,
    /// The wedged pod may not be moved.
    NotMovable,
    /// A rule about the agent's start or the failure's age says: not now.
    Timing,
}

impl Withheld {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::IpamMode, Self::IpamModeUnknown, Self::NoIdentifier, Self::NotMovable, Self::Timing];

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IpamMode => "ipam-mode",
            Self::IpamModeUnknown => "ipam-mode-unknown",
            Self::NoIdentifier => "no-identifier",
            Self::NotMovable => "not-movable",
            Self::Timing => "timing",
        }
    }
}

/// A verdict on a wedge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The disputed address; `None` where no single one is disputed.
    pub ip: Option<IpAddr>,
    /// The verdict.
    pub verdict: Verdict,
    /// The remedy.
    pub remedy: Remedy,
    /// Why a remedy is withheld, where one is.
    pub withheld: Option<Withheld>,
    /// The proof, where the verdict is `stale-endpoint`.
    pub proof: Option<Proof>,
    /// The owner, where one is named.
    pub owner: Option<PodName>,
    /// One sentence that a person understands.
    pub reason: String,
    /// Every check that was made.
    pub evidence: Vec<Evidence>,
    /// The newest failure, where it could be read.
    pub failure: Option<Failure>,
    /// When a rule about time may come out otherwise.
    pub look_again: Option<Timestamp>,
}

/// There is no finding on this pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotWedged {
    /// One sentence that a person understands.
    pub reason: String,
    /// Every check that was made.
    pub evidence: Vec<Evidence>,
}

/// What the rules say about one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// No finding.
    NotWedged(NotWedged),
    /// A finding.
    Wedged(Box<Finding>),
}

impl Judgement {
    /// The finding, if there is one.
    pub fn finding(&self) -> Option<&Finding> {
        match self {
            Self::NotWedged(_) => None,
            Self::Wedged(finding) => Some(finding),
        }
    }
}
