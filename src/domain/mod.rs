//! The words and the decision: what a wedge is, who holds its address, who owns the holder, and what may be done.
//!
//! Everything here is pure: no I/O, no clock, no tokio, kube or hyper. Observations come in, judgements go out,
//! and the instant "now" is part of the observation. Nothing here may import the other modules of this crate
//! (`tests/layout.rs` holds that).
//!
//! The way of a value: an [`Observation`] is filled by whoever can read (the engine from a live cluster, a snapshot
//! from a file); [`judge()`] turns it into a [`Judgement`] with its evidence.

mod act;
mod compatibility;
mod evidence;
mod failure;
mod history;
mod holder;
mod ids;
mod judge;
mod limits;
mod objects;
mod observation;
mod pod;
mod proof;
mod restart;
mod signature;
mod survey;
mod verdict;

pub use act::{ActOutcome, Cause, RemedyKind};
pub use compatibility::{
    CiliumVersion, Fix, Gate, IPAM_MODES, IpamRow, VERSIONS, VersionRow, document as compatibility_document,
    fix, gate, known_mode, known_version, known_versions,
};
pub use evidence::{Check, Evidence, Outcome};
pub use failure::{Event, Failure, NewestFailure, SandboxEvents};
pub use history::{Histories, HistoryLimits, RestartCase, RestartKind};
pub use holder::{EndpointState, Holder, LogEntry, OwnerName};
pub use ids::{
    AttachmentId, ContainerId, EndpointId, IdError, NodeName, PodName, PodUid, canonical_ip, is_link_local,
    parse_ip,
};
pub use judge::judge;
pub use limits::Limits;
pub use objects::{CiliumEndpoint, CiliumNode, IpamMode, ReservedUse, SliceEntry};
pub use observation::{Events, Lookup, Observation, Read, ReadFailure, Unreadable};
pub use pod::{Containers, Controller, OvnAddress, Phase, Pod};
pub use proof::Proof;
pub use restart::{AgentPod, NodeState, RestartFacts, Rollout, may_restart};
pub use signature::{Refusal, refusal, sandbox_ids};
pub use survey::{Anomaly, AnomalyKind, Disputed, Subject, Survey, SurveyedEndpoint, SurveyedNode, survey};
pub use verdict::{DisconnectTarget, Finding, Judgement, NotWedged, Remedy, Verdict, Withheld};

#[cfg(test)]
mod tests;
