//! One act: what was meant, that it was sent, how it ended; and what was refused. Must not know what is allowed.

use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::form::{CauseForm, parsed, parsed_option, word, word_option};
use super::text::kept;
use crate::domain::{ActOutcome, Cause, ContainerId, PodName, PodUid, RemedyKind, Verdict};

/// What is going to be done, and why. Texts are cut to 512 bytes where they are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Intent {
    /// The remedy.
    #[serde(with = "word")]
    #[schemars(with = "String")]
    pub remedy: RemedyKind,
    /// The wedged pod, as `namespace/name`.
    #[serde(with = "parsed")]
    #[schemars(with = "String")]
    pub pod: PodName,
    /// Its UID.
    #[serde(with = "parsed")]
    #[schemars(with = "String")]
    pub pod_uid: PodUid,
    /// What the act is against.
    #[serde(with = "CauseForm")]
    #[schemars(with = "CauseForm")]
    pub cause: Cause,
    /// What it is aimed at: the id of the endpoint, or the agent's pod.
    pub target: Option<String>,
    /// The container of the endpoint that is aimed at.
    #[serde(default, with = "parsed_option")]
    #[schemars(with = "Option<String>")]
    pub container: Option<ContainerId>,
    /// The verdict.
    #[serde(with = "word")]
    #[schemars(with = "String")]
    pub verdict: Verdict,
    /// Why, in a sentence that a person understands.
    pub reason: String,
    /// The id that joins the lines about one wedge.
    pub correlation_id: String,
}

impl Intent {
    pub(super) fn kept(self) -> Self {
        Self {
            target: self.target.map(|text| kept(&text)),
            reason: kept(&self.reason),
            correlation_id: kept(&self.correlation_id),
            ..self
        }
    }
}

/// The number of an act in one ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ActId(pub(super) u64);

impl fmt::Display for ActId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Note {
    /// When.
    pub at: Timestamp,
    /// What, in a sentence that a person understands.
    pub note: String,
}

/// How an act ended, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// The outcome.
    #[serde(with = "word")]
    #[schemars(with = "String")]
    pub outcome: ActOutcome,
    /// Why, in a sentence that a person understands.
    pub note: String,
}

/// How an act ended, as it is told to the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub(super) outcome: ActOutcome,
    pub(super) note: String,
    pub(super) nothing_done: bool,
}

impl Ending {
    /// An outcome. Of those only `Aborted` says that surely nothing was done.
    pub fn new(outcome: ActOutcome, note: impl Into<String>) -> Self {
        Self { outcome, note: note.into(), nothing_done: outcome == ActOutcome::Aborted }
    }

    /// The outcome.
    pub fn outcome(&self) -> ActOutcome {
        self.outcome
    }

    /// Why, in a sentence that a person understands.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Surely nothing was done, such as after a refusal by the server: the cause is not used up. Of no effect on an
    /// act that is known to have been sent.
    #[must_use]
    pub fn nothing_done(mut self) -> Self {
        self.nothing_done = true;
        self
    }
}

/// An act that began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Act {
    pub(super) id: ActId,
    pub(super) began: Timestamp,
    pub(super) intent: Intent,
    /// The call is known to have been taken.
    pub(super) sent: Option<Note>,
    /// How it ended; absent while that is not known.
    pub(super) ended: Option<End>,
}

impl Act {
    /// Its number.
    pub fn id(&self) -> ActId {
        self.id
    }

    /// What was meant.
    pub fn intent(&self) -> &Intent {
        &self.intent
    }

    /// When it began: the call was made no earlier.
    pub fn began(&self) -> Timestamp {
        self.began
    }

    /// The call is known to have been taken: the endpoint was disconnected, the deletion was accepted.
    pub fn sent(&self) -> Option<&Note> {
        self.sent.as_ref()
    }

    /// How it ended.
    pub fn ended(&self) -> Option<&End> {
        self.ended.as_ref()
    }

    /// It has no outcome yet.
    pub fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    /// Whether it helped, where that is known and says something.
    pub fn helped(&self) -> Option<bool> {
        self.ended.as_ref().and_then(|end| end.outcome.helped())
    }
}

/// Something that was not done, as it is told to the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refusal {
    /// The wedged pod, as `namespace/name`.
    #[serde(with = "parsed")]
    #[schemars(with = "String")]
    pub pod: PodName,
    /// Its UID.
    #[serde(with = "parsed")]
    #[schemars(with = "String")]
    pub pod_uid: PodUid,
    /// The disputed address, where a single one is.
    pub ip: Option<IpAddr>,
    /// The verdict.
    #[serde(with = "word")]
    #[schemars(with = "String")]
    pub verdict: Verdict,
    /// The remedy that was not applied, where the verdict has one.
    #[serde(default, with = "word_option")]
    #[schemars(with = "Option<String>")]
    pub remedy: Option<RemedyKind>,
    /// The reason in one word: a bound's, or why a remedy was withheld, or the verdict.
    pub word: String,
    /// The reason in a sentence that a person understands.
    pub why: String,
    /// The id that joins the lines about one wedge.
    pub correlation_id: String,
}

impl Refusal {
    pub(super) fn kept(self) -> Self {
        Self {
            word: kept(&self.word),
            why: kept(&self.why),
            correlation_id: kept(&self.correlation_id),
            ..self
        }
    }
}

/// Something that was not done. One and the same refusal is kept once, with how often it was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refused {
    pub(super) refusal: Refusal,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u64,
}

impl Refused {
    /// What was refused, as it was last told.
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// When it was first told.
    pub fn first(&self) -> Timestamp {
        self.first
    }

    /// When it was last told.
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// How often it was told.
    pub fn count(&self) -> u64 {
        self.count
    }
}
