//! The events, each with its form. The words are those of the domain.

use std::net::IpAddr;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::snapshot::EvidenceLine;

/// Declares the kinds: the word of each, its version, what it says, and the form of its data.
macro_rules! events {
    ($($(#[doc = $doc:literal])+ $kind:ident $word:literal $version:literal),+ $(,)?) => {
        /// An event with its data.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        pub enum Event {
            $($(#[doc = $doc])+ $kind($kind),)+
        }

        /// An event without its data.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EventKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl EventKind {
            /// All of them, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// The word for it: in `?types=`, in metrics, in the text output.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $word),+ }
            }

            /// All words, for people.
            pub fn words() -> String {
                Self::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
            }

            /// `type` of the CloudEvent: it ends with the version of the form.
            pub fn type_name(self) -> &'static str {
                match self { $(Self::$kind => concat!("cilium-leak-healer.", $word, ".v", $version)),+ }
            }

            /// The kind of that word or `type`.
            pub fn of_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.as_str() == word || kind.type_name() == word)
            }

            /// The first sentence of its documentation.
            pub(super) fn meaning(self) -> &'static str {
                match self { $(Self::$kind => concat!($($doc),+).trim_ascii()),+ }
            }

            /// The JSON Schema of the whole CloudEvent.
            pub(super) fn schema(self, generator: schemars::SchemaGenerator) -> schemars::Schema {
                match self {
                    $(Self::$kind => generator.into_root_schema_for::<super::CloudEvent<$kind>>()),+
                }
            }
        }

        impl Event {
            /// Its kind.
            pub fn kind(&self) -> EventKind {
                match self { $(Self::$kind(_) => EventKind::$kind),+ }
            }

            /// Reads the data of an event of that kind.
            pub fn read(kind: EventKind, data: serde_json::Value) -> serde_json::Result<Self> {
                match kind { $(EventKind::$kind => serde_json::from_value(data).map(Self::$kind)),+ }
            }
        }
    };
}

events! {
    /// The watchdog of a node has started.
    Started "started" "1",
    /// It is about to end; the stream ends after this.
    Stopping "stopping" "1",
    /// The judgement on a pod that waits for its sandbox is another one than before.
    Judged "judged" "1",
    /// Two judgements agreed on a remedy, and something holds it back.
    HeldBack "held-back" "1",
    /// A remedy is on its way; it is on record in the ledger already.
    Acting "acting" "1",
    /// A remedy came to its end, or to a step on the way.
    Acted "acted" "1",
    /// A pod that was told about waits no more.
    Over "over" "1",
    /// A health check came out otherwise than before.
    CheckChanged "check" "1",
    /// Nothing happened for a while, and the stream is alive.
    Heartbeat "heartbeat" "1",
    /// Events were lost to this reader, and how many, if that is known.
    Gap "gap" "1",
}

/// Which wedge an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct About {
    /// The node.
    pub node: String,
    /// The pod that waits, as `namespace/name`.
    pub pod: String,
    /// Its UID.
    pub pod_uid: String,
    /// Its controller, as `Kind/name`, where it has one and it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The disputed address, where a single one is disputed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// The verdict at this time; absent where the pod is no wedge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// One id for all that is told of this wedge, in the log and the ledger as well.
    pub correlation_id: String,
}

/// Data of `started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// The node.
    pub node: String,
    /// The version of the program.
    pub version: String,
    /// `observe` or `heal`.
    pub mode: String,
    /// The remedies that the mode `heal` may use.
    pub remedies: Vec<String>,
}

/// Data of `stopping`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stopping {
    /// The node.
    pub node: String,
}

/// Data of `judged`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Judged {
    /// The wedge.
    #[serde(flatten)]
    pub about: About,
    /// What the mode `heal` would do next with every remedy allowed, or `none`.
    pub remedy: String,
    /// The agent's id of the endpoint to disconnect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Why a remedy is withheld, in a word, where one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// The pod that the holder of the address was made for, as `namespace/name`, where one is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Since when the pod is known to wait.
    pub waiting_since: Timestamp,
    /// One sentence for people.
    pub reason: String,
    /// Every check that was made.
    pub evidence: Vec<EvidenceLine>,
}

/// Data of `held-back`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldBack {
    /// The wedge.
    #[serde(flatten)]
    pub about: About,
    /// The remedy.
    pub remedy: String,
    /// What holds it back, in a word: a label value of the metric `held_back_total`, or the word of a bound.
    pub by: String,
    /// One sentence for people.
    pub reason: String,
}

/// Data of `acting`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Acting {
    /// The wedge.
    #[serde(flatten)]
    pub about: About,
    /// The remedy.
    pub remedy: String,
    /// What it is aimed at: the agent's id of an endpoint, or the pod of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Why, for people.
    pub reason: String,
}

/// Data of `acted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Acted {
    /// The wedge.
    #[serde(flatten)]
    pub about: About,
    /// The remedy.
    pub remedy: String,
    /// How it ended, by the words of the ledger; or a step: `freed`, `accepted`, `unanswered`.
    pub outcome: String,
    /// Whether this is the end of it.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Seconds from the first sight of the waiting pod to its sandbox; with the outcome `healed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heal_latency_seconds: Option<u64>,
    /// One sentence for people.
    pub reason: String,
}

/// Data of `over`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Over {
    /// The wedge; its verdict is the last one.
    #[serde(flatten)]
    pub about: About,
    /// Why it waits no more.
    pub reason: String,
}

/// How a health check stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// It is well.
    Ok,
    /// The watchdog watches and tells, and does not act.
    Degraded,
    /// The watchdog cannot watch.
    Failed,
}

/// Data of `check`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckChanged {
    /// The node.
    pub node: String,
    /// The check, as `/readyz?verbose` names it.
    pub check: String,
    /// How it stands.
    pub state: CheckState,
    /// Why it is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Data of `heartbeat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// The node.
    pub node: String,
    /// The id of the latest event that the reader has been offered: what it can resume after.
    pub last: String,
}

/// Why events were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GapReason {
    /// The watchdog was restarted since; the ledger has its acts.
    Restarted,
    /// They are older than what is kept.
    Overwritten,
    /// The id to resume after is none that this watchdog gave.
    UnknownId,
    /// The reader was too slow; the stream ends after this.
    Slow,
}

/// Data of `gap`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// The node.
    pub node: String,
    /// Why.
    pub reason: GapReason,
    /// How many; absent where nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

impl Event {
    /// The wedge that it is about, if it is about one.
    pub fn about(&self) -> Option<&About> {
        match self {
            Self::Judged(Judged { about, .. })
            | Self::HeldBack(HeldBack { about, .. })
            | Self::Acting(Acting { about, .. })
            | Self::Acted(Acted { about, .. })
            | Self::Over(Over { about, .. }) => Some(about),
            Self::Started(_)
            | Self::Stopping(_)
            | Self::CheckChanged(_)
            | Self::Heartbeat(_)
            | Self::Gap(_) => None,
        }
    }

    /// `subject` of the CloudEvent.
    pub(super) fn subject(&self) -> Option<String> {
        match self {
            Self::CheckChanged(changed) => Some(format!("check/{}", changed.check)),
            event => event.about().map(|about| format!("pod/{}", about.pod)),
        }
    }
}
