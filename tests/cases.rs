//! Public incidents, each with its right verdict: `tests/cases/FORMAT.md` tells the form.
#![allow(clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

use cilium_leak_healer::domain::Limits;
use cilium_leak_healer::snapshot::{ScanReport, Snapshot, replay};

/// The case files of this tree, and of a further directory where one is named.
fn files() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let further = std::env::var_os("CILIUM_LEAK_HEALER_CASES").map(PathBuf::from);
    let is_case =
        |path: &PathBuf| path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml" || ext == "json");
    let mut files = Vec::new();
    for dir in [Some(own), further].into_iter().flatten() {
        let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        files.extend(entries.map(|entry| entry.expect("an entry").path()).filter(is_case));
    }
    files.sort();
    assert!(files.len() > 50, "only {} case files: is tests/cases whole?", files.len());
    files
}

async fn judged(file: &Path) -> (Snapshot, ScanReport) {
    let snapshot = Snapshot::load(file).unwrap_or_else(|error| panic!("{error}"));
    let report = replay(&snapshot, &Limits::default()).await;
    (snapshot, report)
}

#[tokio::test]
async fn each_case_gets_its_findings() {
    let mut wrong = Vec::new();
    for file in files() {
        let (snapshot, report) = judged(&file).await;
        let expect = snapshot.expect.unwrap_or_else(|| panic!("{}: no `expect`", file.display()));
        let differences = expect.differences(&report.findings);
        if !differences.is_empty() {
            wrong.push(format!("{}\n  {}", file.display(), differences.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
