//! What a story holds, and its JSON form.
//!
//! Must not know: the domain. The words in it are the domain's, put here by `story`.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::fill::Filled;

/// The version of the JSON form.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// What there is to tell about one pod.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Story {
    pub(super) kind: &'static str,
    pub(super) schema_version: u32,
    pub(super) taken_at: Timestamp,
    pub(super) mode: &'static str,
    pub(super) subject: Subject,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    pub(super) pod: PodFacts,
    pub(super) wedged: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<&'static str>,
    /// What that verdict means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meaning: Option<&'static str>,
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<FailureFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holder: Option<HolderFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<OwnerFacts>,
    pub(super) checks: Vec<CheckLine>,
    pub(super) rule: Rule,
    pub(super) heal: Heal,
    pub(super) changes: Vec<String>,
    /// What a person can do, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_short: Option<&'static str>,
    pub(super) steps: Vec<Filled>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) also_found: Vec<AlsoFound>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Subject {
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodFacts {
    pub(super) phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) controller: Option<String>,
    pub(super) addresses: Vec<IpAddr>,
}

/// A failure that the kubelet or another component told.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FailureFacts {
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Timestamp>,
    /// How often failures of this kind were counted.
    pub(super) count: u32,
    pub(super) message: String,
    /// What it means, where it is another failure that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meaning: Option<&'static str>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) sandboxes: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HolderFacts {
    /// `held`, `nobody`, `unknown` or `not-asked`.
    pub(super) answer: &'static str,
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) endpoint: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attachment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) oldest_log_entry: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) newest_log_entry: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) addresses: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) labels: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct OwnerFacts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<String>,
    /// What names it.
    pub(super) named_by: &'static str,
    /// What the API server says of it.
    pub(super) now: String,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct CheckLine {
    pub(super) check: &'static str,
    pub(super) outcome: &'static str,
    pub(super) observed: String,
}

/// What decided.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rule {
    /// The row of the table in `docs/verdicts.md`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) row: Option<usize>,
    pub(super) text: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) proof: Option<ProofFacts>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ProofFacts {
    pub(super) number: u8,
    pub(super) text: &'static str,
}

/// What heal mode would do next, with every remedy allowed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Heal {
    pub(super) remedy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) withheld: Option<WithheldFacts>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Call {
    pub(super) to: &'static str,
    pub(super) method: &'static str,
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) body: Option<Value>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct WithheldFacts {
    pub(super) why: &'static str,
    pub(super) text: &'static str,
}

/// A finding without a wedge that is about the same pod or address.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AlsoFound {
    pub(super) verdict: &'static str,
    pub(super) meaning: &'static str,
    pub(super) reason: String,
    pub(super) in_short: &'static str,
    pub(super) steps: Vec<Filled>,
}
