//! What a scan found, in the form that `-o json` prints. The form is versioned; its JSON Schema is in `docs/schema`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::field::SchemaVersion;
use crate::domain::{
    Anomaly, AnomalyKind, Evidence, Finding, NodeName, Outcome, Pod, Remedy, Subject, Verdict,
};

/// Where the facts came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A cluster.
    Live,
    /// A file.
    Replay,
}

/// `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReportKind {
    /// The only one.
    ScanReport,
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScanReport {
    /// Always `ScanReport`.
    pub kind: ReportKind,
    /// The version of this form.
    pub schema_version: SchemaVersion,
    /// The instant that was judged.
    pub taken_at: Timestamp,
    /// Where the facts came from.
    pub mode: Mode,
    /// Counts.
    pub summary: Summary,
    /// The findings, the heaviest first.
    pub findings: Vec<ReportFinding>,
}

/// Counts of what was looked at and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Summary {
    /// Pods that were looked at.
    pub pods: usize,
    /// Nodes that were looked at.
    pub nodes: usize,
    /// Findings on wedges.
    pub wedged: usize,
    /// All findings.
    pub findings: usize,
    /// Findings by verdict.
    pub by_verdict: BTreeMap<String, usize>,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportFinding {
    /// What it is about.
    pub subject: ReportSubject,
    /// The node, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The address, where one is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The verdict, or the kind of finding without a wedge.
    #[schemars(with = "VerdictWord")]
    pub verdict: String,
    /// What heal mode would do next with every remedy allowed.
    #[schemars(with = "RemedyWord")]
    pub remedy: String,
    /// The agent's id of the endpoint to disconnect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// One sentence that a person understands.
    pub reason: String,
    /// Every check that was made.
    pub evidence: Vec<EvidenceLine>,
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportSubject {
    /// `Pod`, `CiliumEndpoint` or `CiliumNode`.
    pub kind: String,
    /// Absent for what is in no namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// One check with the value that it saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EvidenceLine {
    /// What was looked at.
    pub check: String,
    /// How it came out.
    #[schemars(with = "OutcomeWord")]
    pub outcome: String,
    /// The value seen, for people.
    pub observed: String,
}

/// A closed set of words, for the schema only: the domain has the words, and is not to know this form.
macro_rules! words {
    ($name:ident, $words:expr) => {
        struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).trim_end_matches("Word").into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let words: Vec<&str> = $words;
                json_schema!({"type": "string", "enum": words})
            }
        }
    };
}

words!(VerdictWord, {
    let wedges = Verdict::ALL.into_iter().map(Verdict::as_str);
    wedges.chain(AnomalyKind::ALL.into_iter().map(AnomalyKind::as_str)).collect()
});
words!(RemedyWord, vec!["disconnect-endpoint", "delete-pod", DELETE_CEP, "restart-agent", "none"]);
words!(OutcomeWord, vec![Outcome::Pass.as_str(), Outcome::Fail.as_str(), Outcome::Unknown.as_str()]);

const DELETE_CEP: &str = "delete-cep";

impl fmt::Display for ReportSubject {
    /// `KIND NAMESPACE/NAME`, or `KIND NAME`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

impl From<&Evidence> for EvidenceLine {
    fn from(evidence: &Evidence) -> Self {
        Self {
            check: evidence.check.to_string(),
            outcome: evidence.outcome.as_str().to_owned(),
            observed: evidence.observed.clone(),
        }
    }
}

impl ReportFinding {
    /// A finding on a wedge.
    pub fn on_wedge(pod: &Pod, node: &NodeName, finding: &Finding) -> Self {
        Self {
            subject: ReportSubject {
                kind: "Pod".to_owned(),
                namespace: Some(pod.name.namespace().to_owned()),
                name: pod.name.name().to_owned(),
                uid: Some(pod.uid.to_string()),
            },
            node: Some(node.to_string()),
            ip: finding.ip.map(|ip| ip.to_string()),
            verdict: finding.verdict.to_string(),
            remedy: finding.remedy.as_str().to_owned(),
            target: match &finding.remedy {
                Remedy::DisconnectEndpoint(target) => Some(target.to_string()),
                Remedy::None | Remedy::DeletePod => None,
            },
            reason: finding.reason.clone(),
            evidence: finding.evidence.iter().map(EvidenceLine::from).collect(),
        }
    }

    /// A finding without a wedge.
    pub fn without_wedge(anomaly: &Anomaly) -> Self {
        let (kind, namespace, name, uid) = match &anomaly.subject {
            Subject::Pod(name, uid) => ("Pod", Some(name.namespace()), name.name(), uid.as_str()),
            Subject::CiliumEndpoint(name, uid) => {
                ("CiliumEndpoint", Some(name.namespace()), name.name(), uid.as_str())
            }
            Subject::CiliumNode(name) => ("CiliumNode", None, name.as_str(), ""),
        };
        Self {
            subject: ReportSubject {
                kind: kind.to_owned(),
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
                uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()),
            },
            node: anomaly.node.as_ref().map(NodeName::to_string),
            ip: anomaly.ip.map(|ip| ip.to_string()),
            verdict: anomaly.kind.as_str().to_owned(),
            remedy: if anomaly.may_delete { DELETE_CEP } else { Remedy::None.as_str() }.to_owned(),
            target: None,
            reason: anomaly.reason.clone(),
            evidence: anomaly.evidence.iter().map(EvidenceLine::from).collect(),
        }
    }

    /// Whether it is about a wedge.
    pub fn is_on_wedge(&self) -> bool {
        Verdict::of_word(&self.verdict).is_some()
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let target = self.target.as_deref().map(|target| format!(" {target}")).unwrap_or_default();
        let (node, ip) = (text(&self.node), text(&self.ip));
        format!("{} on {node}, {ip}: {}, {}{target}", self.subject, self.verdict, self.remedy)
    }

    /// What comes first: a wedge that can be healed, then the graver verdict.
    fn weight(&self) -> (bool, usize) {
        let can_be_healed = self.is_on_wedge() && self.remedy != Remedy::None.as_str();
        let rank = BY_WEIGHT.iter().position(|verdict| *verdict == self.verdict);
        (!can_be_healed, rank.unwrap_or(BY_WEIGHT.len()))
    }
}

/// The gravest first: who loses traffic now, who waits, who nobody can judge, what only wants tidying up.
const BY_WEIGHT: [&str; 13] = [
    "stale-endpoint",
    "reserved-holder",
    "live-duplicate",
    "insufficient-evidence",
    "unmanaged-holder",
    "agent-unknown",
    "shared-by-design",
    "settling",
    "not-held",
    "overlapping-ipam",
    "cep-mismatch",
    "cep-missing",
    "orphan-cep",
];

impl ScanReport {
    /// A report of these findings, sorted and counted.
    pub fn new(
        taken_at: Timestamp,
        mode: Mode,
        pods: usize,
        nodes: usize,
        mut findings: Vec<ReportFinding>,
    ) -> Self {
        findings.sort_by(|a, b| {
            let key = |finding: &ReportFinding| finding.weight();
            key(a)
                .cmp(&key(b))
                .then_with(|| a.node.cmp(&b.node))
                .then_with(|| a.subject.namespace.cmp(&b.subject.namespace))
                .then_with(|| a.subject.name.cmp(&b.subject.name))
                .then_with(|| a.ip.cmp(&b.ip))
        });
        let mut by_verdict = BTreeMap::new();
        for finding in &findings {
            *by_verdict.entry(finding.verdict.clone()).or_insert(0) += 1;
        }
        let summary = Summary {
            pods,
            nodes,
            wedged: findings.iter().filter(|finding| finding.is_on_wedge()).count(),
            findings: findings.len(),
            by_verdict,
        };
        Self {
            kind: ReportKind::ScanReport,
            schema_version: SchemaVersion,
            taken_at,
            mode,
            summary,
            findings,
        }
    }
}
