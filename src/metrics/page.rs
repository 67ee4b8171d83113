//! The page on the metrics, from what is registered. Only tests make it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use super::*;
use crate::ledger::Bound;
use crate::stored::{Made, is_stored};

/// What to make of a metric, where its help does not say it.
const ADVICE: [(&str, &str); 22] = [
    ("wedges", "The first to look at. `stale-endpoint` is what is healed; set in the mode `observe` too."),
    ("oldest_wedge_seconds", "From the first sight of this process: it starts anew with a restart."),
    ("judgements_total", "A wedge is judged again and again: it is no count of wedges."),
    ("refusals_total", "A change counts, not each look."),
    ("acts_total", "`failed`, `not-healed` and `interrupted` open the breaker."),
    ("heal_latency_seconds", "What the hanging pod felt. Heals that a later process finds are not in it."),
    (
        "held_back_total",
        "A change of reason counts, not each look. See [`bounds.md`](bounds.md#after-a-bound-is-reached).",
    ),
    ("budget_tokens", "All at 0 for minutes: the ledger cannot be used."),
    ("breaker", "Compare with `budget_tokens`: without a ledger it is open as well."),
    ("fence", "`not-tested` in the mode `observe`, and until the first self-test has ended."),
    (
        "agent_requests_total",
        "`ok` and `not-found` are answers; `too-many-requests` and `timeout` are a busy agent.",
    ),
    ("api_requests_total", "Watches count when they begin."),
    ("kubernetes_events_total", "`dropped`: more to tell than the API server took in time."),
    ("malformed_objects_total", "Not 0: another version of Cilium or Kubernetes than the program knows."),
    ("watch_restarts_total", "Some are normal; a steady rate is an API server that cuts watches."),
    ("check_ok", "The words of `/readyz?verbose`. `ledger` is 0 while the breaker is open as well."),
    ("stream_clients_dropped_total", "A client that does not read; nobody else waits for it."),
    ("auth_decisions_total", "`error`: the API server could not be asked."),
    (
        "ledger_write_errors_total",
        "Not 0: look at space and rights of the ledger's directory. Nothing is done meanwhile.",
    ),
    ("process_resident_memory_bytes", "Compare with the limit in the DaemonSet, 64 MiB."),
    ("process_start_time_seconds", "A change is a restart."),
    ("process_max_fds", "The soft limit."),
];

const HEAD: &str = "\
# Metrics

This page is made from what the program registers; `UPDATE_DOCS=1 cargo test --lib metrics` writes it anew.

`/metrics` answers in the text format of Prometheus (0.0.4), and in OpenMetrics where `Accept` asks for
`application/openmetrics-text`. All label sets are closed. A value with `*` appears with its first event; all others are there
from the start. [`monitoring.md`](monitoring.md) has alerts and a dashboard.
";

/// One metric as it is served.
#[derive(Debug, Default)]
struct Entry {
    kind: String,
    unit: String,
    help: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// The metrics of a text, by the names that queries use.
fn entries(open_metrics: &str) -> BTreeMap<String, Entry> {
    let mut found: BTreeMap<String, Entry> = BTreeMap::new();
    for line in open_metrics.lines() {
        if let Some(about) = line.strip_prefix("# ") {
            let mut words = about.splitn(3, ' ');
            let (Some(what), Some(name), Some(text)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let entry = found.entry(name.to_owned()).or_default();
            match what {
                "HELP" => text.trim_end_matches('.').clone_into(&mut entry.help),
                "TYPE" => text.clone_into(&mut entry.kind),
                _ => text.clone_into(&mut entry.unit),
            }
            continue;
        }
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let stem = ["_total", "_bucket", "_sum", "_count", "_info"]
            .iter()
            .find_map(|end| name.strip_suffix(end).filter(|stem| found.contains_key(*stem)));
        let entry = found.get_mut(stem.unwrap_or(name)).unwrap();
        for (label, value) in labels.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='))
        {
            entry.labels.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
        }
    }
    let full = |(name, entry): (String, Entry)| match entry.kind.as_str() {
        "counter" => (format!("{name}_total"), entry),
        "info" => (format!("{name}_info"), entry),
        _ => (name, entry),
    };
    found.into_iter().map(full).collect()
}

/// Metrics where everything that can be counted was.
fn with_every_series() -> Metrics {
    let metrics = Metrics::new();
    for word in Bound::WORDS {
        metrics.held_back(word);
    }
    for call in AgentCall::ALL {
        for outcome in AGENT_OUTCOMES {
            metrics.agent_request(call, outcome, Duration::ZERO);
        }
    }
    for resource in ApiResource::ALL {
        for verb in ApiVerb::ALL {
            for outcome in ApiOutcome::ALL {
                metrics.api_request(verb, resource, outcome, Duration::ZERO);
            }
        }
    }
    metrics
}

fn page() -> String {
    let at_start = entries(&Metrics::new().encode().unwrap());
    let mut advice: BTreeMap<&str, &str> = ADVICE.into();
    let mut out = HEAD.to_owned();
    for (title, ours) in [("The watchdog's own", true), ("The process", false)] {
        let _ = write!(out, "\n## {title}\n\n");
        if ours {
            out.push_str("All begin with `cilium_leak_healer_`.\n\n");
        }
        out.push_str("| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
        for (name, entry) in entries(&with_every_series().encode().unwrap()) {
            let short = name.strip_prefix("cilium_leak_healer_");
            if short.is_some() != ours {
                continue;
            }
            let short = short.unwrap_or(&name);
            let Entry { kind, unit, help, labels } = &entry;
            let each = labels.iter().map(|(label, values)| {
                let early = at_start[&name].labels.get(label);
                let each = values.iter().map(|value| {
                    let late = if early.is_some_and(|early| early.contains(value)) { "" } else { "*" };
                    format!("`{value}`{late}")
                });
                let each: Vec<String> = match label.as_str() {
                    "version" => vec!["the version".to_owned()],
                    "le" => return String::new(),
                    _ => each.collect(),
                };
                format!("`{label}`: {}", each.join(", "))
            });
            let each: Vec<String> = each.filter(|text| !text.is_empty()).collect();
            let more = advice.remove(short).map(|more| format!(" {more}")).unwrap_or_default();
            let _ = writeln!(out, "| `{short}` | {kind} | {unit} | {} | {help}.{more} |", each.join("<br>"));
        }
    }
    assert!(advice.is_empty(), "advice on what is not there: {advice:?}");
    out
}

/// `UPDATE_DOCS=1` writes it anew.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "the process shows less of itself here")]
fn the_page_on_metrics_is_that_of_the_registry() {
    is_stored("metrics.md", &page(), Made::Page);
}
