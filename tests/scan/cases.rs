//! Every case file through `scan --from FILE -o json`: exactly the findings that it expects, and the exit status.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::run::scan;

#[derive(Deserialize)]
struct Case {
    expect: Expect,
}

#[derive(Deserialize)]
struct Expect {
    findings: Vec<Expected>,
    #[serde(default)]
    optional: Vec<Expected>,
}

#[derive(Debug, Deserialize)]
struct Expected {
    subject: String,
    node: Option<String>,
    ip: Option<String>,
    verdict: String,
    remedy: Option<String>,
    target: Option<String>,
}

fn files() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let further = std::env::var_os("CILIUM_LEAK_HEALER_CASES").map(PathBuf::from);
    let dirs = [Some(own), further].into_iter().flatten();
    let entries = dirs.flat_map(|dir| fs::read_dir(dir).expect("a directory"));
    let files = entries.map(|entry| entry.expect("an entry").path());
    let is_case = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "yaml" || ext == "json");
    let files: Vec<PathBuf> = files.filter(is_case).collect();
    assert!(files.len() > 50, "only {} case files", files.len());
    files
}

impl Expected {
    /// A field that the expectation leaves out is not compared.
    fn is_met_by(&self, finding: &Value) -> bool {
        let subject = &finding["subject"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let place = [text(&subject["namespace"]), text(&subject["name"])];
        let place: Vec<String> = place.into_iter().flatten().collect();
        let subject = format!("{} {}", text(&subject["kind"]).unwrap_or_default(), place.join("/"));
        let same = |want: &Option<String>, key: &str| want.is_none() || *want == text(&finding[key]);
        self.subject == subject
            && Some(&self.verdict) == text(&finding["verdict"]).as_ref()
            && same(&self.node, "node")
            && same(&self.ip, "ip")
            && same(&self.remedy, "remedy")
            && same(&self.target, "target")
    }
}

#[tokio::test]
async fn each_case_gets_its_findings_from_the_binary() {
    let mut wrong = Vec::new();
    for file in files() {
        let text = fs::read_to_string(&file).expect("a file");
        let case: Case = serde_saphyr::from_str(&text).expect("a case");
        let run = scan(&["--from", &file.display().to_string(), "-o", "json"]).await;
        let json = run.json();
        let found = json["findings"].as_array().expect("findings");
        let missing: Vec<_> = case
            .expect
            .findings
            .iter()
            .filter(|want| !found.iter().any(|have| want.is_met_by(have)))
            .collect();
        let surplus: Vec<_> = found
            .iter()
            .filter(|have| !case.expect.findings.iter().any(|want| want.is_met_by(have)))
            .filter(|have| {
                have["remedy"] != "none" || !case.expect.optional.iter().any(|want| want.is_met_by(have))
            })
            .collect();
        let code = if found.is_empty() { Some(0) } else { Some(2) };
        if !missing.is_empty() || !surplus.is_empty() || run.code != code {
            wrong.push(format!(
                "{}: exit {:?}\n  missing {missing:#?}\n  surplus {surplus:#?}",
                file.display(),
                run.code
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
