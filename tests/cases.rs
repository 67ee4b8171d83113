//! Public incidents, each with its right verdict: `tests/cases/FORMAT.md` tells the form.
#![allow(clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]

#[path = "support/case.rs"]
mod case;

use case::{Case, Expected, files};

/// Verdicts without a wedge are the scan's.
const WITHOUT_WEDGE: [&str; 4] = ["overlapping-ipam", "orphan-cep", "cep-mismatch", "cep-missing"];

#[tokio::test]
async fn each_case_gets_its_verdict() {
    let mut wrong = Vec::new();
    for file in files() {
        let case = Case::load(&file);
        let found = case.findings().await;
        let on_wedges = |expected: &&Expected| !WITHOUT_WEDGE.contains(&expected.verdict.as_str());
        let missing: Vec<_> = case
            .expect
            .findings
            .iter()
            .filter(on_wedges)
            .filter(|want| !found.iter().any(|have| want.is_met_by(have)))
            .collect();
        let surplus: Vec<_> = found
            .iter()
            .filter(|have| !case.expect.findings.iter().any(|want| want.is_met_by(have)))
            .filter(|have| {
                have.remedy.as_deref() != Some("none")
                    || !case.expect.optional.iter().any(|want| want.is_met_by(have))
            })
            .collect();
        if !missing.is_empty() || !surplus.is_empty() {
            wrong.push(format!("{}\n  missing {missing:#?}\n  surplus {surplus:#?}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
