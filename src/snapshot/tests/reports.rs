//! What a report looks like, and that the schemas tell the same.

use serde_json::Value;

use super::{case, cases, judged, load};
use crate::snapshot::{ReportFinding, ScanReport, report_schema, snapshot_schema};
use crate::stored::schema_is_stored;

#[test]
fn each_case_loads_and_its_report_is_written_and_read() {
    for path in cases() {
        let report = judged(&load(&path));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<ScanReport>(&text).unwrap(), report, "{}", path.display());
        assert_eq!(report.summary.findings, report.findings.len());
        assert_eq!(report.summary.by_verdict.values().sum::<usize>(), report.findings.len());
        assert!(report.findings.iter().all(|it| !it.reason.is_empty() && !it.evidence.is_empty()));
    }
}

#[test]
fn the_form() {
    let mut value = serde_json::to_value(judged(&case("stale-owner-gone.yaml"))).unwrap();
    for evidence in value["findings"][0]["evidence"].as_array_mut().unwrap() {
        assert!(evidence["observed"].is_string());
        assert!(["pass", "fail", "unknown"].contains(&evidence["outcome"].as_str().unwrap()));
    }
    value["findings"][0]["evidence"] = Value::Null;
    insta::assert_snapshot!(serde_json::to_string_pretty(&value).unwrap());
}

#[test]
fn the_heaviest_comes_first() {
    let mut all: Vec<ReportFinding> = cases().iter().flat_map(|path| judged(&load(path)).findings).collect();
    all.reverse();
    let report =
        ScanReport::new("2026-06-18T10:05:00Z".parse().unwrap(), super::super::Mode::Live, 0, 0, all);
    let healable = |it: &ReportFinding| it.is_on_wedge() && it.remedy != "none";
    let first_other = report.findings.iter().position(|it| !healable(it)).unwrap();
    assert!(first_other > 10 && report.findings[first_other..].iter().all(|it| !healable(it)));
    assert_eq!(report.findings[0].verdict, "stale-endpoint");
}

/// `UPDATE_SCHEMAS=1` writes them anew.
#[test]
fn the_stored_schemas_are_those_of_the_types() {
    schema_is_stored("snapshot-v1.json", &snapshot_schema());
    schema_is_stored("scan-report-v1.json", &report_schema());
}
