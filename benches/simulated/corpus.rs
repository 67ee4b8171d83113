//! What the watchdog's judgement and the loop over the cluster's Events would do in each case of the corpus, beside what is right.

use std::collections::BTreeMap;
use std::path::Path;

use cilium_leak_healer::domain::Limits;
use cilium_leak_healer::snapshot::{ExpectedFinding, Snapshot, replay};
use serde_json::Value;

use crate::baseline::{Does, Reads, Refusal, decide, refusals, text};
use crate::cases;
use crate::in_memory::on_paused_time;
use crate::numbers::table;

/// A case file, read as the loop reads a cluster.
struct Case(Value);

impl Case {
    fn all(&self, pointer: &str) -> &[Value] {
        self.0.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the case says that this read failed; `name` is empty for a list.
    fn failed(&self, resource: &str, namespace: &str, name: &str) -> bool {
        self.all("/cluster/unreadable").iter().any(|it| {
            text(it, "/resource") == resource
                && text(it, "/namespace") == namespace
                && text(it, "/name") == name
        })
    }

    fn list(&self, resource: &str, key: &str) -> Vec<Value> {
        if self.failed(resource, "", "") { Vec::new() } else { self.all(key).to_vec() }
    }
}

impl Reads for Case {
    async fn events(&mut self) -> Vec<Value> {
        let mut events = self.list("events", "/cluster/events");
        events.retain(|event| text(event, "/reason") == "FailedCreatePodSandBox");
        events
    }

    async fn pod(&mut self, namespace: &str, name: &str) -> Option<Value> {
        if self.failed("pods", namespace, name) {
            return None;
        }
        let is_it = |pod: &&Value| {
            text(pod, "/metadata/namespace") == namespace && text(pod, "/metadata/name") == name
        };
        self.all("/cluster/pods").iter().find(is_it).cloned()
    }

    async fn pods_with(&mut self, ip: &str) -> Vec<Value> {
        let mut pods = self.list("pods", "/cluster/pods");
        pods.retain(|pod| text(pod, "/status/podIP") == ip);
        pods
    }

    async fn endpoints(&mut self) -> Vec<Value> {
        self.list("ciliumendpoints", "/cluster/ciliumEndpoints")
    }

    async fn is_held(&mut self, node: &str, ip: &str) -> bool {
        let fails = self.all(&format!("/agents/{node}/failures")).iter().any(|it| {
            text(it, "/call") == "get-endpoint" && ["", &format!("ipv4:{ip}")].contains(&text(it, "/id"))
        });
        let has = |endpoint: &Value| {
            let addresses = endpoint.pointer("/status/networking/addressing").and_then(Value::as_array);
            addresses.into_iter().flatten().any(|it| text(it, "/ipv4") == ip)
        };
        !fails && self.all(&format!("/agents/{node}/endpoints")).iter().any(has)
    }
}

/// What both do where one verdict is right.
#[derive(Debug, Default)]
struct Row {
    wedges: usize,
    watchdog: Acts,
    baseline: Acts,
}

#[derive(Debug, Default)]
struct Acts {
    right: usize,
    disconnects: usize,
    others: usize,
}

/// What is right for a pod that was refused an address: verdict and remedy.
fn right<'e>(expected: &'e [ExpectedFinding], subject: &str, ip: Option<&str>) -> (&'e str, &'e str) {
    let about = |it: &&ExpectedFinding| it.subject == subject && (it.ip.is_none() || it.ip.as_deref() == ip);
    expected.iter().find(about).map_or(("none: it is no wedge", "none"), |it| {
        (it.verdict.as_deref().unwrap_or("any"), it.remedy.as_deref().unwrap_or("none"))
    })
}

fn count(file: &Path, rows: &mut BTreeMap<String, Row>) {
    let text = std::fs::read_to_string(file).expect("a case");
    let snapshot = Snapshot::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let expect = snapshot.expect.clone().unwrap_or_else(|| panic!("{}: no `expect`", file.display()));
    let mut case = Case(serde_saphyr::from_str(&text).expect("a case"));
    let (report, does) = on_paused_time(1, async {
        let mut does: Vec<(Refusal, Does)> = Vec::new();
        for refusal in refusals(&mut case).await {
            does.extend(decide(&mut case, &refusal).await.map(|it| (refusal, it)));
        }
        (replay(&snapshot, &Limits::default()).await, does)
    });
    for finding in report.findings.iter().filter(|it| it.is_on_wedge()) {
        let (verdict, remedy) = right(&expect.findings, &finding.subject.to_string(), finding.ip.as_deref());
        let row = rows.entry(verdict.to_owned()).or_default();
        row.wedges += 1;
        let acts = &mut row.watchdog;
        match finding.remedy.as_str() {
            "none" => {}
            _ if finding.remedy == remedy => acts.right += 1,
            "disconnect-endpoint" => acts.disconnects += 1,
            _ => acts.others += 1,
        }
    }
    for (refusal, does) in does {
        let subject = format!("Pod {}/{}", refusal.namespace, refusal.pod);
        let (verdict, remedy) = right(&expect.findings, &subject, Some(&refusal.ip));
        let acts = &mut rows.entry(verdict.to_owned()).or_default().baseline;
        match does {
            Does::Disconnect(_) if remedy == "disconnect-endpoint" => acts.right += 1,
            Does::Disconnect(_) => acts.disconnects += 1,
            Does::Restart(_) => acts.others += 1,
        }
    }
}

pub(crate) fn tables() {
    let (mut by_verdict, files) = (BTreeMap::new(), cases::files());
    for file in &files {
        count(file, &mut by_verdict);
    }
    let mut all = Row::default();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (verdict, row) in &by_verdict {
        rows.push(cells(verdict, row));
        all.wedges += row.wedges;
        for (sum, part) in [(&mut all.watchdog, &row.watchdog), (&mut all.baseline, &row.baseline)] {
            sum.right += part.right;
            sum.disconnects += part.disconnects;
            sum.others += part.others;
        }
    }
    rows.push(cells("all", &all));
    println!(
        "What both would do in the {} cases of the corpus, by the verdict that is right:\n",
        files.len()
    );
    table(
        &[
            "",
            "wedges",
            "watchdog: right acts",
            "wrong disconnects",
            "wrong deletions",
            "baseline: right acts",
            "wrong disconnects",
            "wrong restarts",
        ],
        &rows,
    );
    assert_eq!(all.watchdog.disconnects + all.watchdog.others, 0, "the watchdog does nothing wrong");
    assert!(all.watchdog.right > 20, "the corpus has leaks: {all:?}");
    assert!(all.baseline.right > 10, "the baseline heals plain leaks: {all:?}");
}

fn cells(name: &str, row: &Row) -> Vec<String> {
    let (watchdog, baseline) = (&row.watchdog, &row.baseline);
    let numbers = [
        row.wedges,
        watchdog.right,
        watchdog.disconnects,
        watchdog.others,
        baseline.right,
        baseline.disconnects,
        baseline.others,
    ];
    std::iter::once(name.to_owned()).chain(numbers.iter().map(usize::to_string)).collect()
}
