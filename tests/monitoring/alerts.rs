//! The alerts: each fires and keeps quiet as its cases say, names what is there, and has its runbook.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::promql::{grouped_by, selectors};
use crate::served::Served;
use crate::{path, promtool, text};

const PREFIX: &str = "CiliumLeakHealer";
const SEVERITIES: [&str; 3] = ["critical", "warning", "info"];
/// What a runbook has, in this order.
const HEADINGS: [&str; 6] =
    ["Meaning", "Impact", "First three commands", "Mitigation", "Pause", "Send upstream"];

/// The alerts, as Prometheus reads them.
fn spec() -> Value {
    let manifest = text("deploy/prometheus/prometheusrule.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&manifest).expect("YAML");
    let [document] = documents.as_slice() else { panic!("one document") };
    assert_eq!(
        (document["apiVersion"].as_str(), document["kind"].as_str()),
        (Some("monitoring.coreos.com/v1"), Some("PrometheusRule"))
    );
    assert_eq!(document["metadata"]["namespace"], "cilium-leak-healer");
    document["spec"].clone()
}

fn rules() -> Vec<Value> {
    let spec = spec();
    let groups = spec["groups"].as_array().expect("groups").iter();
    groups.flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
}

fn name(rule: &Value) -> &str {
    rule["alert"].as_str().expect("a name")
}

/// The files of cases, by the alert that they are about.
fn cases() -> Vec<(String, Value)> {
    let dir = path("tests/monitoring/rules");
    let files = fs::read_dir(&dir).expect("the cases").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<(String, Value)> = files
        .map(|file| {
            let text = fs::read_to_string(&file).expect("a file of cases");
            let stem = file.file_stem().expect("a name").to_string_lossy();
            let cases = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{stem}: {error}"));
            (format!("{PREFIX}{stem}"), cases)
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// The text of an annotation for these labels, by the only templates that the rules use.
fn rendered(template: &str, labels: &Value) -> String {
    let label = |name: &str| labels[name].as_str();
    let place = label("node").or(label("instance")).unwrap_or("any node");
    let mut text = template
        .replace("{{ or $labels.node $labels.instance \"any node\" }}", place)
        .replace("{{ or $labels.node $labels.instance }}", place);
    for name in ["check", "remedy", "state"] {
        text = text.replace(&format!("{{{{ $labels.{name} }}}}"), label(name).unwrap_or_default());
    }
    text
}

/// Adds the annotations to what is expected to fire.
fn with_annotations(mut cases: Value, rule: &Value) -> Value {
    let each = cases["tests"].as_array_mut().expect("tests").iter_mut();
    let alerts = each.flat_map(|case| case["alert_rule_test"].as_array_mut().expect("alerts"));
    for expected in alerts.flat_map(|alert| alert["exp_alerts"].as_array_mut().expect("exp_alerts")) {
        let annotations = rule["annotations"].as_object().expect("annotations").iter();
        let texts = annotations.map(|(key, template)| {
            let text = rendered(template.as_str().expect("a text"), &expected["exp_labels"]);
            assert!(!text.contains("{{") && !text.contains("  "), "{}: {text}", name(rule));
            (key.clone(), Value::from(text))
        });
        let texts: Value = texts.collect::<serde_json::Map<_, _>>().into();
        expected["exp_annotations"] = texts;
    }
    cases
}

#[test]
fn each_alert_fires_and_keeps_quiet_as_its_cases_say() {
    let dir = TempDir::new().unwrap();
    let write = |file: &str, value: &Value| fs::write(dir.path().join(file), value.to_string()).unwrap();
    write("rules.json", &spec());
    promtool::must_pass(&["check", "rules", "rules.json"], dir.path(), "");
    let rules = rules();
    let mut files = Vec::new();
    for (alert, cases) in cases() {
        let rule = rules.iter().find(|rule| name(rule) == alert).expect("an alert of the cases' name");
        files.push(format!("{alert}.json"));
        write(&format!("{alert}.json"), &with_annotations(cases, rule));
    }
    let args: Vec<&str> = ["test", "rules"].into_iter().chain(files.iter().map(String::as_str)).collect();
    promtool::must_pass(&args, dir.path(), "");
}

#[test]
fn each_alert_has_cases_of_both_kinds() {
    let alerts: BTreeSet<String> = rules().iter().map(|rule| name(rule).to_owned()).collect();
    let mut seen = BTreeSet::new();
    for (alert, cases) in cases() {
        assert_eq!(cases["rule_files"], json!(["rules.json"]), "{alert}");
        let (mut fires, mut quiet) = (0, 0);
        for case in cases["tests"].as_array().unwrap() {
            assert!(!case["name"].as_str().unwrap().is_empty());
            assert!(!case["input_series"].as_array().unwrap().is_empty(), "{alert}: {case}");
            for expected in case["alert_rule_test"].as_array().unwrap() {
                assert_eq!(expected["alertname"], alert.as_str());
                let any = !expected["exp_alerts"].as_array().unwrap().is_empty();
                *(if any { &mut fires } else { &mut quiet }) += 1;
            }
        }
        assert!(fires > 0 && quiet > 0, "{alert}: {fires} cases fire, {quiet} do not");
        seen.insert(alert);
    }
    assert_eq!(seen, alerts);
}

#[test]
fn each_alert_names_only_what_is_served() {
    let served = Served::now();
    let mut names = BTreeSet::new();
    for rule in rules() {
        let expr = rule["expr"].as_str().unwrap();
        let selectors = selectors(expr);
        assert!(!selectors.is_empty(), "{expr}");
        for selector in &selectors {
            assert_eq!(served.fault(selector), None, "{}", name(&rule));
        }
        for label in grouped_by(expr) {
            assert!(
                selectors.iter().any(|it| served.has_label(&it.name, &label)),
                "{}: {label}",
                name(&rule)
            );
        }
        names.extend(selectors.into_iter().map(|it| it.name));
    }
    // The look itself finds something.
    assert!(names.contains("up") && names.contains("cilium_leak_healer_wedges"), "{names:?}");
}

/// The series of the cases have to be such as are served, or the cases prove nothing.
#[test]
fn the_cases_feed_what_is_served() {
    let served = Served::now();
    for (alert, cases) in cases() {
        let series = cases["tests"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|case| case["input_series"].as_array().unwrap());
        for series in series.map(|series| series["series"].as_str().unwrap()) {
            for selector in selectors(series) {
                assert_eq!(served.fault(&selector), None, "{alert}: {series}");
            }
        }
    }
}

#[test]
fn each_alert_says_how_bad_it_is_and_what_to_do_first() {
    for rule in rules() {
        let alert = name(&rule);
        let rest = alert.strip_prefix(PREFIX).unwrap();
        assert!(rest.starts_with(char::is_uppercase) && rest.chars().all(char::is_alphanumeric), "{alert}");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(SEVERITIES.contains(&severity), "{alert}: {severity}");
        let annotations = &rule["annotations"];
        assert!(annotations["summary"].as_str().unwrap().ends_with('.'), "{alert}");
        assert!(annotations["description"].as_str().unwrap().contains("First"), "{alert}");
        assert_eq!(annotations["runbook_url"], format!("docs/runbooks/{alert}.md"));
    }
}

#[test]
fn each_alert_has_a_runbook_and_each_runbook_an_alert() {
    let alerts: BTreeSet<String> = rules().iter().map(|rule| format!("{}.md", name(rule))).collect();
    let files = fs::read_dir(path("docs/runbooks")).unwrap();
    let mut books: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert!(books.remove("README.md"));
    assert_eq!(books, alerts);
    let index = text("docs/runbooks/README.md");
    for book in &books {
        let (alert, _) = book.split_once('.').unwrap();
        assert!(index.contains(&format!("[`{alert}`]({book})")), "the index has no {book}");
        let book = text(&format!("docs/runbooks/{book}"));
        assert!(book.starts_with(&format!("# {alert}\n")), "{alert}");
        let headings: Vec<&str> = book.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, HEADINGS, "{alert}");
        for (heading, body) in book.split("\n## ").skip(1).filter_map(|part| part.split_once('\n')) {
            assert!(body.trim().len() > 20, "{alert}: {heading} is empty");
        }
    }
}

/// Each command line of a runbook, without its indent.
fn commands(book: &str) -> Vec<&str> {
    let indented = book.lines().filter_map(|line| line.strip_prefix("    "));
    indented.map(str::trim_start).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_runbooks_commands_are_such_as_there_are() {
    for rule in rules() {
        let book = text(&format!("docs/runbooks/{}.md", name(&rule)));
        let (_, first) = book.split_once("## First three commands").unwrap();
        let (first, _) = first.split_once("\n## ").unwrap();
        assert_eq!(commands(first).len(), 3, "{}", name(&rule));
        for line in commands(&book) {
            let line = line.split(" #").next().unwrap().trim();
            assert!(line.starts_with("kubectl ") || line.starts_with("cilium-leak-healer "), "{line}");
            let own = line.split_once(" -- /cilium-leak-healer ").or(line.split_once("cilium-leak-healer "));
            if line.starts_with("cilium-leak-healer ") || line.contains(" -- /cilium-leak-healer ") {
                parses(own.unwrap().1);
            }
        }
    }
}

/// Whether the program takes these arguments: `--help` at the end makes it say so without doing anything.
fn parses(args: &str) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cilium-leak-healer"));
    let output = command.args(args.split_whitespace()).arg("--help").output().expect("it runs");
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
}
