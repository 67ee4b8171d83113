//! An hour of a busy node: what it holds must not grow.

use std::time::Duration;

use cilium_leak_healer::sim::{ApiOptions, Cluster, ClusterOptions, DeleteOptions, Node, NodeOptions, PODS};
use jiff::SignedDuration;
use tokio::time::{Instant, sleep_until};

use crate::pods::{NODE, new};
use crate::process::{Holds, Watchdog};

const NAMESPACE: &str = "shop";
/// Pods that just run.
const RESIDENTS: u8 = 60;
/// One leak in each, and one sample.
const ROUND: Duration = Duration::from_secs(20);
/// A pod that got a leaked address runs after so many rounds.
const HEALED: u32 = 4;

/// 128 acts and 128 refusals of a KiB each.
const LEDGER: u64 = 256 * 1024;

struct Soak {
    cluster: Cluster,
    node: Node,
    watchdog: Watchdog,
}

pub(crate) async fn section(dir: &std::path::Path) {
    let minutes =
        std::env::var("SOAK_MINUTES").map_or(60, |text| text.parse().expect("SOAK_MINUTES: a number"));
    let rounds = minutes * 60 / u32::try_from(ROUND.as_secs()).expect("a short time");
    assert!(rounds >= 8 * HEALED, "SOAK_MINUTES: at least {} are needed", 8 * HEALED / 3 + 1);
    let soak = Soak::start(dir).await;
    let began = Instant::now();
    let (mut samples, mut healed) = (Vec::new(), 0);
    println!(
        "| minute | resident (KiB) | descriptors | sockets | ledger (bytes) | healed |\n|---:|---:|---:|---:|---:|---:|"
    );
    for round in 0..rounds {
        soak.trouble(round).await;
        sleep_until(began + ROUND * (round + 1)).await;
        if let Some(earlier) = round.checked_sub(HEALED) {
            healed += u32::from(soak.settle(earlier));
        }
        let holds = soak.watchdog.holds();
        samples.push(holds);
        drop((soak.cluster.api().take_requests(), soak.node.agent().take_requests()));
        if (round + 1) % 15 == 0 || round + 1 == rounds {
            let Holds { resident_kib, descriptors, sockets, ledger_bytes } = holds;
            let minute = (round + 1) * 20 / 60;
            println!("| {minute} | {resident_kib} | {descriptors} | {sockets} | {ledger_bytes} | {healed} |");
        }
    }
    println!("\nCPU: {} ms a minute", soak.watchdog.cpu_millis() / u64::from(minutes));
    assert_eq!(healed, rounds - HEALED, "each leak is healed within {HEALED} rounds");
    flat(&samples);
    soak.watchdog.end().await;
    soak.cluster.shutdown();
}

/// The last quarter beside the second one: the first fills caches and the ledger.
fn flat(samples: &[Holds]) {
    let quarter = samples.len() / 4;
    let (early, late) = (&samples[quarter..2 * quarter], &samples[samples.len() - quarter..]);
    let ratio = |name: &str, of: fn(&Holds) -> u64, most: f64| {
        let (before, after) = (median(early, of), median(late, of));
        let ratio = float(after) / float(before.max(1));
        println!("{name}: median {before} in the second quarter, {after} in the last: {ratio:.3}");
        assert!(ratio <= most, "{name} grew");
    };
    ratio("resident (KiB)", |it| it.resident_kib, 1.05);
    ratio("descriptors", |it| it.descriptors as u64, 1.1);
    ratio("sockets", |it| it.sockets as u64, 1.1);
    // It fills until it has its 128 acts, which takes 45 min here; then it stays.
    let most = samples.iter().map(|it| it.ledger_bytes).max().unwrap_or_default();
    println!("ledger: {most} bytes at most");
    assert!(most <= LEDGER, "the ledger grew");
}

fn median(samples: &[Holds], of: fn(&Holds) -> u64) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(of).collect();
    values.sort_unstable();
    values[values.len() / 2]
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn float(value: u64) -> f64 {
    value as f64
}

fn resident(number: u32) -> String {
    format!("10.244.1.{}", 10 + number % u32::from(RESIDENTS))
}

impl Soak {
    async fn start(dir: &std::path::Path) -> Self {
        let options = ClusterOptions { api: ApiOptions::with_manifests(), ..ClusterOptions::default() };
        let cluster = Cluster::start(options).await.expect("a cluster");
        let mut options = NodeOptions::new(NODE, 1, dir);
        options.agent_started = Some(cluster.now() - SignedDuration::from_hours(30));
        "delegated-plugin".clone_into(&mut options.agent.ipam_mode);
        options.with_agent_pod = true;
        let node = cluster.add_node(options).expect("a node");
        let kubeconfig = cluster.watchdog_kubeconfig(&node).expect("the watchdog's pod");
        let soak = |watchdog| Self { cluster: cluster.clone(), node: node.clone(), watchdog };
        let soak = soak(Watchdog::start(dir, &kubeconfig, "heal").await);
        for number in 0..RESIDENTS {
            soak.pod(&format!("app-{number}"), &resident(number.into()));
        }
        // The agent admits one new endpoint in 2 s.
        let all = |cluster: &Cluster| (0..RESIDENTS).all(|number| runs(cluster, &format!("app-{number}")));
        let limit = Duration::from_mins(10);
        cluster.wait_for_within(limit, "all pods run", all).await.expect("all run");
        soak
    }

    fn pod(&self, name: &str, ip: &str) {
        self.cluster.api().create(&PODS, new(NAMESPACE, name, ip)).expect("a pod");
    }

    fn remove(&self, name: &str) {
        let options = DeleteOptions { grace_period_seconds: Some(1), ..DeleteOptions::default() };
        self.cluster.api().delete(&PODS, NAMESPACE, name, &options).expect("a pod to delete");
    }

    /// A leak; at times a duplicate of a living pod, watches that are cut, a history that is forgotten; readers.
    async fn trouble(&self, round: u32) {
        let (old, ip) = (format!("old-{round}"), format!("10.244.1.{}", 100 + round % 100));
        self.pod(&old, &ip);
        let running = |cluster: &Cluster| runs(cluster, &old);
        self.cluster.wait_for_within(Duration::from_mins(1), &old, running).await.expect("it runs");
        self.node.kubelet().lose_next_del(NAMESPACE, &old);
        self.remove(&old);
        let gone = |cluster: &Cluster| cluster.api().get(&PODS, NAMESPACE, &old).is_err();
        self.cluster.wait_for(&old, gone).await.expect("it is gone");
        self.pod(&format!("new-{round}"), &ip);
        if round.is_multiple_of(10) {
            self.pod(&format!("copy-{round}"), &resident(round));
        }
        if round % 15 == 7 {
            self.cluster.api().compact();
            self.cluster.api().cut_watches();
        }
        for path in ["/metrics", "/v1/state", "/healthz", "/"] {
            self.watchdog.get(path).await;
        }
        self.watchdog.visit().await;
    }

    /// Whether the pod on that round's leaked address runs by now. What the round made goes.
    fn settle(&self, round: u32) -> bool {
        let name = format!("new-{round}");
        let healed = runs(&self.cluster, &name);
        self.remove(&name);
        if round.is_multiple_of(10) {
            let copy = format!("copy-{round}");
            assert!(!runs(&self.cluster, &copy), "the owner of its address lives");
            self.remove(&copy);
        }
        healed
    }
}

fn runs(cluster: &Cluster, name: &str) -> bool {
    cluster.api().get(&PODS, NAMESPACE, name).is_ok_and(|pod| pod["status"]["phase"] == "Running")
}
