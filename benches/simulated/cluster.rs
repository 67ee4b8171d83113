//! The load of many watchdogs on one API server: in the steady state, at a roll-out, after the API server was away.

use std::collections::BTreeMap;
use std::time::Duration;

use cilium_leak_healer::cli::InProcess;
use cilium_leak_healer::sim::{PODS, RequestRecord};
use serde_json::json;

use crate::cores::on_all_cores;
use crate::in_memory::on_paused_time;
use crate::numbers::{float, grouped, table};
use crate::stage::{NAMESPACE, Stage, address};

const SPREAD: Duration = Duration::from_mins(10);
const STEADY: Duration = Duration::from_mins(15);
const AWAY: Duration = Duration::from_secs(20);
/// After a start or an outage it takes no longer until all is as usual.
const AFTER: Duration = Duration::from_mins(2);

/// Requests within a time.
#[derive(Debug)]
struct Load {
    requests: usize,
    time: Duration,
    /// The most in one second.
    peak: usize,
    /// Seconds with a request at all.
    busy: usize,
}

fn load(requests: &[RequestRecord], time: Duration) -> Load {
    let mut seconds: BTreeMap<i64, usize> = BTreeMap::new();
    for request in requests {
        *seconds.entry(request.at.as_second()).or_default() += 1;
    }
    let peak = seconds.values().copied().max().unwrap_or_default();
    Load { requests: requests.len(), time, peak, busy: seconds.len() }
}

/// Nodes with an agent that has nothing to do and one running pod, and the watchdog of each.
fn run(count: u16, spread: Duration) -> [Load; 3] {
    on_paused_time(1, async {
        // Watches must not fall behind for the simulation's own sake.
        let stage = Stage::new(3, |options| options.history = 100_000).await;
        for number in 0..count {
            let node = stage.node(number, |options| {
                options.kubelet.enabled = false;
                options.agent.resync_interval = None;
            });
            let ip = address(number, 20);
            let pod = json!({
                "metadata": {"namespace": NAMESPACE, "name": format!("web-{number}")},
                "spec": {"nodeName": node.name(), "containers": [{"name": "app", "image": "app"}]},
                "status": {
                    "phase": "Running", "podIP": ip.to_string(), "podIPs": [{"ip": ip.to_string()}], "startTime": "2026-06-18T07:00:00Z",
                    "containerStatuses": [{"name": "app", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-06-18T07:00:05Z"}}}],
                },
            });
            stage.cluster.api().create(&PODS, pod).expect("a pod");
        }
        let api = stage.cluster.api();
        drop(api.take_requests());
        let mut watchdogs: Vec<InProcess> = Vec::new();
        for (seed, node) in (0..).zip(stage.cluster.nodes()) {
            watchdogs.push(stage.watchdog(&node, seed));
            tokio::time::sleep(spread / u32::from(count)).await;
        }
        tokio::time::sleep(AFTER).await;
        let starting = load(&api.take_requests(), spread + AFTER);
        tokio::time::sleep(STEADY).await;
        let steady = load(&api.take_requests(), STEADY);
        api.pause().await;
        tokio::time::sleep(AWAY).await;
        assert_eq!(api.take_requests().len(), 0, "nobody is answered while it is away");
        api.resume().await.expect("its port");
        tokio::time::sleep(AFTER).await;
        let again = api.take_requests();
        let watching = again.iter().filter(|it| it.query.contains("watch=")).count();
        assert!(watching >= usize::from(count), "{watching} of {count} watch again");
        assert!(watchdogs.iter().all(InProcess::is_live), "all of them live");
        let after = load(&again, AFTER);
        drop(watchdogs);
        stage.end();
        [starting, steady, after]
    })
}

pub(crate) fn section() {
    let sizes: Vec<u16> = if cfg!(debug_assertions) { vec![1000] } else { vec![1000, 5000] };
    let plans: Vec<(u16, Duration)> =
        sizes.iter().flat_map(|size| [(*size, SPREAD), (*size, Duration::ZERO)]).collect();
    let made = on_all_cores(plans.len(), |at| run(plans[at].0, plans[at].1));
    let mut rows = Vec::new();
    for ((count, spread), loads) in plans.iter().zip(&made) {
        let nodes = usize::from(*count);
        let start = if spread.is_zero() { "all at once" } else { "over 10 min" };
        for (what, load) in ["start", "steady, 15 min", "API server back after 20 s"].iter().zip(loads) {
            assert!(load.requests >= nodes, "each watchdog asks something: {load:?}");
            rows.push(vec![
                format!("{} nodes started {start}: {what}", grouped(nodes)),
                grouped(load.requests),
                format!("{:.2}", float(load.requests) / load.time.as_secs_f64()),
                grouped(load.peak),
                format!("{:.3}", float(load.peak) / float(nodes)),
                format!("{:.2}", float(load.requests) / float(nodes)),
                format!("{} of {}", load.busy, load.time.as_secs()),
            ]);
        }
        let steady = &loads[1];
        let each = float(steady.requests) / float(nodes) / (steady.time.as_secs_f64() / 60.0);
        assert!(each < 2.0, "fewer than 2 requests a minute and node when nothing is wrong: {each}");
    }
    println!("Requests at the API server, mode `heal`, one running pod a node:\n");
    table(
        &[
            "",
            "requests",
            "a second",
            "most in one second",
            "the same / nodes",
            "requests a node",
            "seconds with requests",
        ],
        &rows,
    );
}
