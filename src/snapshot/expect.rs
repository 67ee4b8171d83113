//! What a case file says is right. The program ignores it; tests compare it with what a replay gives.

use schemars::JsonSchema;
use serde::Deserialize;

use super::report::ReportFinding;

/// The findings that are right for a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Exactly these, in any order.
    pub findings: Vec<ExpectedFinding>,
    /// Findings that may be there too, with remedy none.
    #[serde(default)]
    pub optional: Vec<ExpectedFinding>,
}

/// A finding, as far as it is compared: a field that is left out is not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedFinding {
    /// `KIND NAMESPACE/NAME`, or `CiliumNode NAME`.
    pub subject: String,
    /// The node.
    pub node: Option<String>,
    /// The address.
    pub ip: Option<String>,
    /// The verdict.
    pub verdict: Option<String>,
    /// The remedy.
    pub remedy: Option<String>,
    /// The agent's id of the endpoint to disconnect.
    pub target: Option<String>,
}

impl ExpectedFinding {
    /// Whether this finding is the one that is meant.
    pub fn is_met_by(&self, found: &ReportFinding) -> bool {
        let same = |want: &Option<String>, have: Option<&str>| want.is_none() || want.as_deref() == have;
        self.subject == found.subject.to_string()
            && same(&self.node, found.node.as_deref())
            && same(&self.ip, found.ip.as_deref())
            && same(&self.verdict, Some(&found.verdict))
            && same(&self.remedy, Some(&found.remedy))
            && same(&self.target, found.target.as_deref())
    }
}

impl Expect {
    /// What is wrong with these findings: expected ones that are missing, and ones that nobody expects.
    pub fn differences(&self, found: &[ReportFinding]) -> Vec<String> {
        let missing = self.findings.iter().filter(|want| !found.iter().any(|have| want.is_met_by(have)));
        let expected = |have: &ReportFinding| self.findings.iter().any(|want| want.is_met_by(have));
        let optional = |have: &ReportFinding| {
            have.remedy == "none" && self.optional.iter().any(|want| want.is_met_by(have))
        };
        let surplus = found.iter().filter(|have| !expected(have) && !optional(have));
        let matched = found.iter().filter(|have| expected(have)).count();
        let count = (matched != self.findings.len())
            .then(|| format!("{matched} findings where {} are expected", self.findings.len()));
        missing
            .map(|want| format!("missing: {want:?}"))
            .chain(surplus.map(|have| format!("surplus: {}", have.line())))
            .chain(count)
            .collect()
    }
}
