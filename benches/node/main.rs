//! What `run` costs on one node: memory, CPU and requests at several numbers of pods, idle and while they change; and an hour in
//! which nothing it holds may grow.
//!
//! `cargo bench --bench node` runs `idle` and `churn`; names of sections (`idle`, `churn`, `soak`) run only those, numbers only
//! so many pods. The daemon is the release build, as a process of its own, on the simulated cluster; the pods have the size of
//! real ones.
//! `CILIUM_LEAK_HEALER_BIN` names another binary to measure, for example the static one. `SOAK_MINUTES` says how long `soak` is.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, reason = "a benchmark")]
#![allow(unreachable_pub, reason = "nothing outside uses a benchmark")]

#[path = "../support/ballast.rs"]
mod ballast;
#[path = "../../tests/support/daemon.rs"]
mod daemon;
#[path = "../support/memory.rs"]
mod memory;
mod pods;
mod process;
mod soak;

use std::fs;
use std::path::Path;
use std::time::Duration;

use cilium_leak_healer::sim::{Cluster, ClusterOptions, NodeOptions, PODS};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use pods::{NODE, running};
use process::Watchdog;

const SIZES: [u32; 4] = [30, 110, 250, 500];
const MEASURED: Duration = Duration::from_mins(1);
/// Between two changes of a pod.
const CHANGE: Duration = Duration::from_millis(20);

fn main() {
    // `cargo bench` passes flags for the standard harness.
    let words = || std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    let mut sizes: Vec<u32> = words().filter_map(|word| word.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = SIZES.to_vec();
    }
    let mut wanted: Vec<String> = words().filter(|word| word.parse::<u32>().is_err()).collect();
    if wanted.is_empty() {
        wanted = vec!["idle".to_owned(), "churn".to_owned()];
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for section in wanted {
        println!("## {section}\n");
        match section.as_str() {
            "idle" | "churn" => {
                println!(
                    "| pods | resident (KiB) | resident, peak (KiB) | CPU (ms a minute) | changes | API requests a minute | agent calls a minute |"
                );
                println!("|---:|---:|---:|---:|---:|---:|---:|");
                for &pods in &sizes {
                    runtime.block_on(in_directory(async |dir| measure(dir, pods, section == "churn").await));
                }
            }
            "soak" => runtime.block_on(in_directory(async |dir| soak::section(dir).await)),
            other => panic!("there is no section {other}"),
        }
        println!();
    }
}

/// A short name: a socket's path has an end.
async fn in_directory(work: impl AsyncFnOnce(&Path)) {
    let dir = std::env::temp_dir().join(format!("clh-bench-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    work(&dir).await;
    drop(fs::remove_dir_all(&dir));
}

async fn measure(dir: &Path, pods: u32, churn: bool) {
    let cluster = Cluster::start(ClusterOptions::default()).await.expect("a cluster");
    let mut options = NodeOptions::new(NODE, 1, dir);
    options.kubelet.enabled = false;
    let node = cluster.add_node(options).expect("a node");
    for number in 0..pods {
        cluster.api().create(&PODS, running(number)).expect("a pod");
    }
    let watchdog = Watchdog::start(dir, &cluster.kubeconfig(), "observe").await;
    let (cpu, first) = (watchdog.cpu_millis(), watchdog.resident_kib());
    drop((cluster.api().take_requests(), node.agent().take_requests()));
    let (began, mut changes) = (Instant::now(), 0);
    while churn && began.elapsed() < MEASURED {
        change(&cluster, changes % pods, changes / pods);
        changes += 1;
        sleep_until(began + CHANGE * changes).await;
    }
    sleep_until(began + MEASURED).await;
    let (requests, calls) = (cluster.api().take_requests().len(), node.agent().take_requests().len());
    let (resident, peak) = (first.max(watchdog.resident_kib()), watchdog.peak_kib());
    let spent = watchdog.cpu_millis() - cpu;
    println!("| {pods} | {resident} | {peak} | {spent} | {changes} | {requests} | {calls} |");
    watchdog.end().await;
    cluster.shutdown();
}

/// A container of the pod is restarted.
fn change(cluster: &Cluster, number: u32, times: u32) {
    let pod = running(number);
    let name = |field: &str| pod["metadata"][field].as_str().expect("a name").to_owned();
    let mut statuses = pod["status"]["containerStatuses"].clone();
    statuses[0]["restartCount"] = json!(times + 1);
    let patch = json!({"containerStatuses": statuses});
    cluster.api().patch_status_merge(&PODS, &name("namespace"), &name("name"), &patch).expect("a change");
}
