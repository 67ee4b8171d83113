//! What `/metrics` serves: names, labels and values.

use std::collections::{BTreeMap, BTreeSet};

use cilium_leak_healer::metrics::Metrics;

use crate::promql::Selector;
use crate::promtool;

/// The labels of each series' name, with the values that are there from the start.
pub struct Served(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

/// What Prometheus and the scrape add to each series.
const ADDED: [&str; 5] = ["instance", "node", "job", "namespace", "pod"];

impl Served {
    pub fn now() -> Self {
        let mut served: BTreeMap<_, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        let text = Metrics::new().encode_text().expect("metrics");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, _) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let entry = served.entry(name.to_owned()).or_default();
            for pair in labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty()) {
                let (label, value) = pair.split_once('=').expect("a label");
                entry.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
            }
        }
        served.insert("up".to_owned(), BTreeMap::new());
        Self(served)
    }

    /// Why no series can ever match this selector.
    pub fn fault(&self, selector: &Selector) -> Option<String> {
        let Some(labels) = self.0.get(&selector.name) else {
            return Some(format!("no metric is called {}", selector.name));
        };
        selector.matchers.iter().find_map(|(label, value)| {
            if ADDED.contains(&label.as_str()) {
                return None;
            }
            let Some(values) = labels.get(label) else {
                return Some(format!("{} has no label {label}", selector.name));
            };
            let unknown = value.split('|').find(|value| !values.contains(*value))?;
            Some(format!("{}: no {label} is {unknown}", selector.name))
        })
    }

    /// Whether series of that name can have this label.
    pub fn has_label(&self, name: &str, label: &str) -> bool {
        ADDED.contains(&label) || self.0.get(name).is_some_and(|labels| labels.contains_key(label))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

#[test]
fn the_metrics_are_as_prometheus_wants_them() {
    let text = Metrics::new().encode_text().unwrap();
    promtool::must_pass(&["check", "metrics"], &crate::path("."), &text);
}

#[rstest::rstest]
#[case::of_ours("cilium_leak_healer_wedges{verdict=\"settling\"}", None)]
#[case::two_values("cilium_leak_healer_acts_total{outcome!~\"failed|aborted\"}", None)]
#[case::label_of_the_scrape("up{job=~\"(.+/)?x\"}", None)]
#[case::typo_in_the_name("cilium_leak_healer_wedge", Some("no metric is called cilium_leak_healer_wedge"))]
#[case::counter_without_its_end(
    "cilium_leak_healer_acts",
    Some("no metric is called cilium_leak_healer_acts")
)]
#[case::unknown_label(
    "cilium_leak_healer_wedges{reason=\"settling\"}",
    Some("cilium_leak_healer_wedges has no label reason")
)]
#[case::unknown_value(
    "cilium_leak_healer_acts_total{outcome=~\"failed|not_healed\"}",
    Some("cilium_leak_healer_acts_total: no outcome is not_healed")
)]
fn faults_are_seen(#[case] expr: &str, #[case] want: Option<&str>) {
    let selectors = crate::promql::selectors(expr);
    assert_eq!(selectors.len(), 1, "{selectors:?}");
    assert_eq!(Served::now().fault(&selectors[0]).as_deref(), want);
}
