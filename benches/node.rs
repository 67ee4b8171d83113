//! What `run` costs on one node: resident memory, CPU and API requests, idle, at several numbers of pods.
//!
//! `cargo bench --bench node`. The daemon is the release build, as a process of its own, on the simulated cluster; the pods
//! have the size of real ones. `CILIUM_LEAK_HEALER_BIN` names another binary to measure, for example the static one.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, reason = "a benchmark")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cilium_leak_healer::sim::{Cluster, ClusterOptions, NodeOptions, PODS};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

const SIZES: [u32; 3] = [30, 110, 250];
const IDLE: Duration = Duration::from_mins(1);

fn main() {
    // `cargo bench` passes flags for the standard harness.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let binary = std::env::var_os("CILIUM_LEAK_HEALER_BIN")
        .map_or_else(|| env!("CARGO_BIN_EXE_cilium-leak-healer").into(), PathBuf::from);
    println!(
        "{:>5} {:>12} {:>12} {:>10} {:>18} {:>16}",
        "pods", "RSS idle KiB", "RSS peak KiB", "CPU ms/min", "API requests/min", "agent calls/min"
    );
    for pods in SIZES {
        runtime.block_on(measure(&binary, pods));
    }
}

async fn measure(binary: &Path, pods: u32) {
    let dir = std::env::temp_dir().join(format!("cilium-leak-healer-bench-{}-{pods}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    let cluster = Cluster::start(ClusterOptions::default()).await.expect("a cluster");
    let mut options = NodeOptions::new("worker-1", 1, dir.clone());
    options.kubelet.enabled = false;
    let node = cluster.add_node(options).expect("a node");
    for number in 0..pods {
        cluster.api().create(&PODS, pod(number)).expect("a pod");
    }
    fs::write(dir.join("kubeconfig"), cluster.kubeconfig()).expect("a file");
    let mut daemon = Command::new(binary)
        .args(["run", "--node-name", "worker-1", "--listen", "127.0.0.1:0", "--log-format", "json"])
        .arg("--kubeconfig")
        .arg(dir.join("kubeconfig"))
        .arg("--agent-socket-dir")
        .arg(&dir)
        .arg("--state-dir")
        .arg(dir.join("state"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the daemon");
    let mut lines = BufReader::new(daemon.stderr.take().expect("standard error")).lines();
    while let Some(line) = lines.next_line().await.expect("a line") {
        if line.contains("watching the pods of this node") {
            break;
        }
    }
    let pid = daemon.id().expect("a process");
    let (cpu, first) = (cpu_millis(pid), status(pid, "VmRSS"));
    drop(cluster.api().take_requests());
    drop(node.agent().take_requests());
    tokio::time::sleep(IDLE).await;
    let (requests, calls) = (cluster.api().take_requests().len(), node.agent().take_requests().len());
    let resident = first.max(status(pid, "VmRSS"));
    let spent = cpu_millis(pid) - cpu;
    println!("{pods:>5} {resident:>12} {:>12} {spent:>10} {requests:>18} {calls:>16}", status(pid, "VmHWM"));
    daemon.kill().await.expect("an end");
    drop(fs::remove_dir_all(&dir));
}

/// A line of `/proc/PID/status`, in KiB.
fn status(pid: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number")
}

/// User and system time so far; ticks are 10 ms on Linux.
fn cpu_millis(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) * 10
}

/// A running pod of about 8 KB as JSON, with environment, volumes and managed fields.
fn pod(number: u32) -> Value {
    let env: Vec<Value> = (0..30)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value-of-setting-{n}")}))
        .collect();
    let volumes: Vec<Value> = (0..6)
        .map(|n| json!({"name": format!("volume-{n}"), "configMap": {"name": format!("configuration-{n}")}}))
        .collect();
    let fields: Value = (0..40)
        .map(|n| (format!("f:field-number-{n}"), json!({"f:value": {}, "f:name": {}})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let name = format!("app-{number}-6f9b8c7d5-n4xvp");
    json!({
        "metadata": {
            "namespace": format!("tenant-{}", number % 20), "name": name,
            "labels": {"app": "app", "pod-template-hash": "6f9b8c7d5", "team": "platform"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-6f9b8c7d5", "uid": format!("a7820e12-1f36-4dcd-bd38-{number:012}"), "controller": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}],
        },
        "spec": {"nodeName": "worker-1", "containers": [{"name": "app", "image": "registry/app:1", "env": env}], "volumes": volumes},
        "status": {
            "phase": "Running", "podIP": format!("10.244.1.{}", number % 250), "podIPs": [{"ip": format!("10.244.1.{}", number % 250)}],
            "startTime": "2026-06-18T10:03:45Z",
            "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "app", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-06-18T10:03:50Z"}}}],
        },
    })
}
