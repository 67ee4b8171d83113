//! The watchdog beside one loop over the cluster's Events: what both cost, how fast they are, what they do wrong.

use std::time::Duration;

use cilium_leak_healer::sim::{Node, RateLimits, RequestRecord};
use serde_json::json;

use crate::baseline::NAME;
use crate::cores::on_all_cores;
use crate::corpus;
use crate::in_memory::on_paused_time;
use crate::latency::{Took, wedges};
use crate::numbers::{float, grouped, middle_and_tail, ratio, table};
use crate::stage::{Stage, Who, address};
use crate::wrong_acts;

const NODES: u16 = 50;
const PODS: u8 = 10;
const TIME: Duration = Duration::from_mins(15);

/// What goes on in the cluster while the load is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    Quiet,
    /// Five leaks in the first minute, each on a node of its own.
    Leaks,
    /// Five pods wait for addresses of pods that live, all the time.
    Duplicates,
}

#[derive(Debug, Clone, Copy)]
struct Cost {
    requests: usize,
    bytes: u64,
    agent: usize,
}

fn sum(requests: &[RequestRecord]) -> (usize, u64) {
    (requests.len(), requests.iter().map(|it| it.bytes).sum())
}

fn cost(who: Who, going: Going) -> Cost {
    on_paused_time(1, async {
        let stage = Stage::new(5, |options| options.history = 100_000).await;
        let nodes: Vec<Node> = (0..NODES)
            .map(|number| {
                stage.node(number, |options| {
                    options.agent.rate_limits = RateLimits::off();
                    options.agent.resync_interval = None;
                    options.with_agent_pod = true;
                })
            })
            .collect();
        for (number, node) in (0..NODES).zip(&nodes) {
            for pod in 0..PODS {
                stage.pod(node, &format!("web-{number}-{pod}"), address(number, 20 + pod));
            }
        }
        for number in 0..NODES {
            stage.until_runs(&format!("web-{number}-{}", PODS - 1), Duration::from_mins(5)).await;
        }
        pad(&stage);
        let healers = stage.heal(who);
        tokio::time::sleep(Duration::from_mins(2)).await;
        let api = stage.cluster.api();
        let (before, bytes_before) = sum(&api.requests());
        for node in &nodes {
            drop(node.agent().take_requests());
        }
        let wrong: Vec<(u16, &Node)> = (0..5).zip(&nodes).filter(|_| going != Going::Quiet).collect();
        for (number, node) in &wrong {
            if going == Going::Leaks {
                stage.leak(node, &format!("old-{number}"), address(*number, 200)).await;
            }
            let host = if going == Going::Leaks { 200 } else { 20 };
            stage.pod(node, &format!("new-{number}"), address(*number, host));
        }
        tokio::time::sleep(TIME).await;
        for (number, _) in &wrong {
            let runs = stage.runs(&format!("new-{number}"));
            assert_eq!(runs, going == Going::Leaks, "{who:?}: new-{number} runs where a leak was healed");
        }
        let (after, bytes_after) = sum(&api.requests());
        let theirs = |it: &RequestRecord| it.user_agent.is_empty() || it.user_agent == NAME;
        let agent =
            nodes.iter().map(|node| node.agent().take_requests().iter().filter(|it| theirs(it)).count());
        let agent = agent.sum();
        drop(healers);
        stage.end();
        Cost { requests: after - before, bytes: bytes_after - bytes_before, agent }
    })
}

/// Gives each pod as many bytes as real ones have, about 8 KB.
fn pad(stage: &Stage) {
    let api = stage.cluster.api();
    for pod in api.list(&cilium_leak_healer::sim::PODS, crate::stage::NAMESPACE, "", "").expect("pods") {
        let (namespace, name) = (pod["metadata"]["namespace"].as_str(), pod["metadata"]["name"].as_str());
        let (namespace, name) = (namespace.expect("a namespace"), name.expect("a name"));
        let filler = "x".repeat(6_500);
        let patch = json!({"metadata": {"annotations": {"example.org/filler": filler}}});
        api.patch_merge(&cilium_leak_healer::sim::PODS, namespace, name, &patch).expect("a pod");
    }
}

pub(crate) fn section() {
    corpus::tables();
    wrong_acts::tables();
    latencies();
    costs();
}

fn costs() {
    let cases = [
        (Going::Quiet, "quiet"),
        (Going::Leaks, "5 leaks"),
        (Going::Duplicates, "5 duplicates of living pods"),
    ];
    let plans: Vec<(Who, Going)> =
        cases.iter().flat_map(|(going, _)| [(Who::Watchdog, *going), (Who::Baseline, *going)]).collect();
    let made = on_all_cores(plans.len(), |at| cost(plans[at].0, plans[at].1));
    let minutes = TIME.as_secs_f64() / 60.0;
    let mut rows = Vec::new();
    for ((_, name), pair) in cases.iter().zip(made.chunks(2)) {
        let [watchdog, baseline] = pair else { panic!("two of each case") };
        for (who, cost) in [("50 watchdogs", watchdog), ("baseline", baseline)] {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            let (bytes, least) = (cost.bytes as f64, baseline.bytes as f64);
            assert!(cost.requests > 0 && cost.bytes > 0, "{who}: {cost:?}");
            rows.push(vec![
                format!("{name}: {who}"),
                format!("{:.1}", float(cost.requests) / minutes),
                ratio(float(cost.requests), float(baseline.requests)),
                format!("{:.1}", bytes / minutes / 1024.0),
                ratio(bytes, least),
                format!("{:.1}", float(cost.agent) / minutes),
            ]);
        }
    }
    println!(
        "{NODES} nodes with {PODS} pods each, {} simulated minutes; bytes are those of the answers' bodies:\n",
        TIME.as_secs() / 60
    );
    table(
        &["", "API requests a minute", "/ baseline", "KiB a minute", "/ baseline", "agent calls a minute"],
        &rows,
    );
    let total: Vec<String> = made.iter().map(|cost| grouped(cost.requests)).collect();
    println!("(requests in all, in this order: {})\n", total.join(", "));
}

fn latencies() {
    const EACH: usize = if cfg!(debug_assertions) { 10 } else { 100 };
    let plans = [(11, Who::Watchdog), (12, Who::Watchdog), (11, Who::Baseline), (12, Who::Baseline)];
    let made = on_all_cores(plans.len(), |at| wedges(plans[at].0, "delegated-plugin", plans[at].1, EACH));
    let times = |who: Who, time: fn(&Took) -> Duration| -> Vec<Duration> {
        let of = plans.iter().zip(&made).filter(|(plan, _)| plan.1 == who);
        of.flat_map(|(_, took)| took.iter().map(time)).collect()
    };
    let row = |name: &str, who: Who| {
        let disconnects = times(who, |it| it.disconnect);
        let [middle, tail] = middle_and_tail(&disconnects);
        let [sandbox, late] = middle_and_tail(&times(who, |it| it.sandbox));
        vec![name.to_owned(), grouped(disconnects.len()), middle, tail, sandbox, late]
    };
    let rows = [row("watchdog", Who::Watchdog), row("baseline", Who::Baseline)];
    println!("Seconds of simulated time from the first refusal:\n");
    table(
        &["", "wedges", "disconnect, median", "99th percentile", "sandbox, median", "99th percentile"],
        &rows,
    );
}
