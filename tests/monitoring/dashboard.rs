//! The dashboard: its expressions parse and name what is there, and its panels fit on a screen.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::promql::{grouped_by, selectors};
use crate::served::Served;
use crate::{promtool, text};

const COLUMNS: u64 = 24;
/// Rows of 38 pixels below the bars of Grafana, on 1080 of them.
const ROWS: u64 = 24;

fn dashboard() -> Value {
    serde_json::from_str(&text("deploy/grafana/dashboard.json")).expect("JSON")
}

fn panels() -> Vec<Value> {
    dashboard()["panels"].as_array().expect("panels").clone()
}

fn title(panel: &Value) -> &str {
    panel["title"].as_str().expect("a title")
}

/// The targets of a panel: expression and legend.
fn targets(panel: &Value) -> Vec<(String, String)> {
    let text = |target: &Value, key: &str| target[key].as_str().expect("a text").to_owned();
    let targets = panel["targets"].as_array().expect("targets").iter();
    targets.map(|target| (text(target, "expr"), text(target, "legendFormat"))).collect()
}

/// What Grafana sends: its variables replaced.
fn sent(expr: &str) -> String {
    let expr = expr.replace("$__rate_interval", "5m").replace("$instance", ".*");
    assert!(!expr.contains('$'), "a variable that the dashboard does not have: {expr}");
    expr
}

#[test]
fn each_expression_parses() {
    let mut rules = Vec::new();
    for panel in panels() {
        for (expr, _) in targets(&panel) {
            rules.push(json!({"record": format!("panel:expr:{}", rules.len()), "expr": sent(&expr)}));
        }
    }
    assert!(rules.len() > 20);
    let dir = TempDir::new().unwrap();
    let groups = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    fs::write(dir.path().join("rules.json"), groups.to_string()).unwrap();
    promtool::must_pass(&["check", "rules", "rules.json"], dir.path(), "");
}

#[test]
fn each_expression_names_only_what_is_served() {
    let served = Served::now();
    for panel in panels() {
        let all = targets(&panel);
        assert!(!all.is_empty(), "{}", title(&panel));
        for (expr, legend) in all {
            let selectors = selectors(&expr);
            assert!(!selectors.is_empty(), "{expr}");
            for selector in &selectors {
                assert_eq!(served.fault(selector), None, "{}", title(&panel));
                let follows = |(label, value): &(String, String)| label == "instance" && value == "$instance";
                assert!(
                    selector.matchers.iter().any(follows),
                    "{} ignores the choice: {expr}",
                    title(&panel)
                );
                // Every exporter has metrics of its process.
                let named = |(label, _): &(String, String)| label == "job";
                let ours = selector.name.starts_with("cilium_leak_healer_");
                assert!(ours || selector.matchers.iter().any(named), "{expr}");
            }
            let groups = grouped_by(&expr);
            for label in &groups {
                assert!(selectors.iter().any(|it| served.has_label(&it.name, label)), "{expr}: {label}");
            }
            // A legend can name only what the grouping left.
            for label in legend.split("{{").skip(1).filter_map(|part| part.split("}}").next()) {
                assert!(groups.iter().any(|group| group == label), "{}: {legend}", title(&panel));
            }
        }
    }
}

#[test]
fn the_panels_fill_one_screen_without_overlap() {
    let mut taken = BTreeSet::new();
    for panel in panels() {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(
            w > 0 && h > 0 && x + w <= COLUMNS && y + h <= ROWS,
            "{}: {}",
            title(&panel),
            panel["gridPos"]
        );
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{} lies on another one", title(&panel));
        }
    }
    let whole = usize::try_from(COLUMNS * ROWS).unwrap();
    assert_eq!(taken.len(), whole, "a hole");
}

#[test]
fn each_panel_says_what_it_is_and_asks_the_chosen_source() {
    let mut seen = BTreeSet::new();
    let chosen = json!({"type": "prometheus", "uid": "${datasource}"});
    for panel in panels() {
        assert!(panel["description"].as_str().unwrap().len() > 30, "{}", title(&panel));
        assert!(seen.insert(title(&panel).to_owned()), "{} twice", title(&panel));
        assert!(seen.insert(panel["id"].to_string()), "{} has another one's id", title(&panel));
        assert_eq!(panel["datasource"], chosen, "{}", title(&panel));
        assert!(panel["targets"].as_array().unwrap().iter().all(|it| it["datasource"] == chosen));
    }
}

#[test]
fn it_is_of_grafana_12_and_has_its_variables() {
    let dashboard = dashboard();
    assert_eq!(dashboard["schemaVersion"], 41);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "instance"]);
    let query = variables[1]["query"]["query"].as_str().unwrap();
    assert_eq!(variables[1]["definition"], query);
    let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
    let (metric, label) = inner.split_once(", ").unwrap();
    assert!(Served::now().has(metric) && label == "instance", "{query}");
}
