//! One run of the binary, and what it left behind.

use std::path::PathBuf;

use serde_json::Value;

use crate::daemon::run_to_end;

pub(crate) struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs `scan` with these arguments to its end.
pub(crate) async fn scan(args: &[&str]) -> Run {
    let all: Vec<&str> = ["scan"].into_iter().chain(args.iter().copied()).collect();
    let output = run_to_end(&all, &[]).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let run = Run { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
    assert!(!run.err.contains("panicked"), "{}", run.err);
    run
}

impl Run {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    /// Subject, verdict and remedy of each finding.
    pub(crate) fn findings(&self) -> Vec<(String, String, String)> {
        let json = self.json();
        let findings = json["findings"].as_array().expect("findings").iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        findings
            .map(|finding| {
                let subject = &finding["subject"];
                let place: Vec<String> =
                    ["namespace", "name"].iter().map(|key| text(&subject[*key])).collect();
                (place.join("/"), text(&finding["verdict"]), text(&finding["remedy"]))
            })
            .collect()
    }

    /// It could not be done: exit status 1, why on standard error, and nothing on standard output.
    pub(crate) fn failed(&self, why: &str) {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        assert_eq!(self.out, "", "{}", self.err);
        assert!(self.err.contains("error: ") && self.err.contains(why), "no {why:?} in {}", self.err);
    }
}

pub(crate) fn case(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name);
    path.display().to_string()
}
