//! The report, in the form that `--format json` prints. The form is versioned; its JSON Schema is in `docs/schema`.
//!
//! Must not know: where the facts come from, nor how a report looks to people.

use jiff::Timestamp;
use schemars::JsonSchema;
#[cfg(test)]
use schemars::{Schema, generate::SchemaSettings};
use serde::Serialize;

use crate::snapshot::EvidenceLine;

/// What the watchdogs of a cluster healed, refused and left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HealReport {
    /// Always `HealReport`.
    pub(super) kind: &'static str,
    /// The version of this form: 1.
    pub(super) schema_version: u64,
    /// When it was made.
    pub(super) time: Timestamp,
    /// Nothing that ended before this is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Timestamp>,
    /// Whether all that should be read could be, from one source or another. Where it is false, more may have happened.
    pub(super) complete: bool,
    /// What is missing, and what else a reader must know of the sources, for people.
    pub(super) remarks: Vec<String>,
    /// The endings on which the caller lets the report fail.
    pub(super) fail_on: Vec<FailOn>,
    /// Counts.
    pub(super) summary: Summary,
    /// The nodes, each with what could be read of it.
    pub(super) nodes: Vec<NodeRead>,
    /// The Kubernetes Events of the watchdogs.
    pub(super) kubernetes_events: EventsRead,
    /// One a wedge, which is a pod and an address; what needs a person first.
    pub(super) findings: Vec<HealFinding>,
}

/// Counts of findings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// All.
    pub(super) findings: usize,
    /// With the ending `unhealed`.
    pub(super) unhealed: usize,
    /// With the ending `refused`.
    pub(super) refused: usize,
    /// With the ending `open`.
    pub(super) open: usize,
    /// With the ending `healed`.
    pub(super) healed: usize,
    /// With the ending `passed`.
    pub(super) passed: usize,
    /// Those that meet `failOn`.
    pub(super) failed: usize,
}

/// How a wedge ended. The order is that of the findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ending {
    /// An endpoint was proven to be left over, and was not disconnected, or that did not help.
    Unhealed,
    /// The watchdog left it alone, by its rules.
    Refused,
    /// It is not over, and nobody knows yet how it ends.
    Open,
    /// A remedy was applied and it worked: a fault of the cluster is behind this all the same.
    Healed,
    /// It was over before anything was proven.
    Passed,
}

impl Ending {
    pub(super) const ALL: [Self; 5] = [Self::Unhealed, Self::Refused, Self::Open, Self::Healed, Self::Passed];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unhealed => "unhealed",
            Self::Refused => "refused",
            Self::Open => "open",
            Self::Healed => "healed",
            Self::Passed => "passed",
        }
    }
}

/// On what a report fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum FailOn {
    /// A remedy worked, whatever came later.
    Heal,
    /// The ending is `refused`.
    Refuse,
    /// The ending is `unhealed`.
    Unhealed,
    /// The ending is `open`.
    Open,
}

impl FailOn {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Heal => "heal",
            Self::Refuse => "refuse",
            Self::Unhealed => "unhealed",
            Self::Open => "open",
        }
    }

    /// Whether a finding meets it.
    pub(super) fn is_met(self, finding: &HealFinding) -> bool {
        match self {
            // A heal that did not last is one too.
            Self::Heal => finding.ending == Ending::Healed || finding.acts.iter().any(|act| act.worked),
            Self::Refuse => finding.ending == Ending::Refused,
            Self::Unhealed => finding.ending == Ending::Unhealed,
            Self::Open => finding.ending == Ending::Open,
        }
    }
}

/// How much of a node could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reading {
    /// All that its watchdog has told since it started; acts of earlier processes as well.
    Whole,
    /// Its watchdog answered, and has lost a part of what it told.
    Partial,
    /// Its watchdog could not be asked.
    NotRead,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRead {
    /// Its name.
    pub(super) node: String,
    /// How much of it could be read.
    pub(super) reading: Reading,
    /// Why not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// `observe` or `heal`, as its watchdog says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<String>,
    /// The version of its watchdog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// Since when its watchdog runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) started: Option<Timestamp>,
    /// How many Kubernetes Events of its watchdog there are.
    pub(super) kubernetes_events: usize,
}

/// The Kubernetes Events as a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventsRead {
    /// Whether they could be listed.
    pub(super) read: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// How many there are of the watchdogs.
    pub(super) count: usize,
    /// Those that tell of a wedge in a form that this program does not know.
    pub(super) unknown: usize,
}

/// Where a finding is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Source {
    /// The event stream of the node's watchdog.
    Stream,
    /// Its state, which has the acts of its ledger.
    State,
    /// Kubernetes Events.
    KubernetesEvents,
}

impl Source {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::State => "state",
            Self::KubernetesEvents => "kubernetes-events",
        }
    }
}

/// A wedge, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HealFinding {
    /// The pod that waited, as `namespace/name`.
    pub(super) pod: String,
    /// Its UID.
    pub(super) pod_uid: String,
    /// The node.
    pub(super) node: String,
    /// Its controller, as `Kind/name`, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) controller: Option<String>,
    /// The disputed address, where a single one was disputed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ip: Option<String>,
    /// The pod that the holder of the address was made for, where one is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// The verdict that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<String>,
    /// How it ended.
    pub(super) ending: Ending,
    /// Why it ended so, in a sentence for people.
    pub(super) reason: String,
    /// Those of `failOn` that it meets.
    pub(super) fails: Vec<FailOn>,
    /// When it was told of first.
    pub(super) first_seen: Timestamp,
    /// When it was told of last.
    pub(super) last_seen: Timestamp,
    /// Whether the pod waited no more, and why; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) over: Option<String>,
    /// What was done, the earliest first.
    pub(super) acts: Vec<ActDone>,
    /// What held a remedy back, the earliest first.
    pub(super) held_back: Vec<HeldBackBy>,
    /// The checks that the verdict rests on; empty where only Kubernetes Events tell of it.
    pub(super) evidence: Vec<EvidenceLine>,
    /// What the Kubernetes Events say, where the finding rests on them.
    pub(super) notes: Vec<NoteSaid>,
    /// Where it is known from.
    pub(super) sources: Vec<Source>,
    /// The ids that join all that is told of it, in the log and the ledger as well.
    pub(super) correlation_ids: Vec<String>,
}

/// An act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ActDone {
    /// The remedy.
    pub(super) remedy: String,
    /// What it was aimed at, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    /// When it was begun, or first told of.
    pub(super) began: Timestamp,
    /// Its steps, the last of them the end of it, if it came to one.
    pub(super) steps: Vec<StepDone>,
    /// Whether it has come to its end, as far as is known.
    pub(super) ended: bool,
    /// Whether it worked: the address is free, or the pod was moved.
    pub(super) worked: bool,
    /// The id that joins all that is told of the wedge.
    pub(super) correlation_id: String,
}

/// A step of an act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepDone {
    /// When.
    pub(super) time: Timestamp,
    /// What came of it, in a word.
    pub(super) outcome: String,
    /// One sentence for people.
    pub(super) reason: String,
}

/// What held a remedy back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeldBackBy {
    /// The remedy, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
    /// What, in a word.
    pub(super) by: String,
    /// One sentence for people.
    pub(super) reason: String,
    /// When it was told last.
    pub(super) time: Timestamp,
}

/// What a Kubernetes Event says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NoteSaid {
    /// `reason` of the Event.
    pub(super) reason: String,
    /// Its sentence.
    pub(super) note: String,
    /// When it was seen first.
    pub(super) first: Timestamp,
    /// When it was seen last.
    pub(super) last: Timestamp,
    /// How often.
    pub(super) count: u32,
}

/// The schema of the report, as it is written.
#[cfg(test)]
pub(super) fn schema() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<HealReport>()
}
