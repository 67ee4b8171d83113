//! What `scan` costs on a large cluster: seconds and peak resident memory, live and from a file.
//!
//! `cargo bench --bench scan`. SIMULATED: a server that makes up the pages of 5,000 nodes and 150,000 pods of about 8 KB
//! each, 40 of them wedged on 40 nodes; `pods/exec` is forbidden, so no agent is asked. `scan` is the release build, as
//! a process of its own. `CILIUM_LEAK_HEALER_BIN` names another binary to measure.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, reason = "a benchmark")]

#[path = "support/ballast.rs"]
mod ballast;
#[path = "support/memory.rs"]
mod memory;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const NODES: usize = 5_000;
const PODS: usize = 150_000;
const WEDGES: usize = 40;

fn main() {
    // `cargo bench` passes flags for the standard harness.
    let binary = std::env::var_os("CILIUM_LEAK_HEALER_BIN")
        .map_or_else(|| env!("CARGO_BIN_EXE_cilium-leak-healer").into(), PathBuf::from);
    let dir = std::env::temp_dir().join(format!("cilium-leak-healer-scan-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        runtime.block_on(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
    });
    let config = dir.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: a\n  cluster: {{server: \"http://{address}\"}}\ncontexts:\n- name: a\n  context: {{cluster: a, user: a}}\nusers:\n- name: a\n  user: {{token: x}}\n"
    );
    fs::write(&config, text).expect("a file");
    let file = dir.join("snapshot.json");
    println!("simulated: {NODES} nodes, {PODS} pods, {WEDGES} wedges");
    println!("{:<28} {:>8} {:>14}", "", "seconds", "peak RSS MiB");
    let (config, file) = (config.display().to_string(), file.display().to_string());
    let live = ["--kubeconfig", &config, "--api-timeout", "60s", "-o", "json"];
    measure("scan", &binary, &live);
    measure("scan --save", &binary, &[&live[..], &["--save", &file]].concat());
    let size = fs::metadata(&file).expect("a snapshot").len();
    measure("scan --from", &binary, &["--from", &file, "-o", "json"]);
    println!("the snapshot has {} MiB", size >> 20);
    drop(fs::remove_dir_all(Path::new(&dir)));
}

fn measure(name: &str, binary: &Path, args: &[&str]) {
    let began = Instant::now();
    let mut child = Command::new(binary)
        .arg("scan")
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let process = child.id().to_string();
    let out = child.stdout.take().expect("its output");
    let reading = std::thread::spawn(move || std::io::read_to_string(out).expect("text"));
    let mut peak = 0;
    let ended = loop {
        peak = peak.max(memory::kib(&process, "VmHWM").unwrap_or_default());
        if let Some(ended) = child.try_wait().expect("a process") {
            break ended;
        }
        #[expect(clippy::disallowed_methods, reason = "no runtime: it samples another process")]
        std::thread::sleep(Duration::from_millis(5));
    };
    let report: Value = serde_json::from_str(&reading.join().expect("a thread")).expect("a report");
    assert_eq!(ended.code(), Some(2), "{report}");
    let summary = &report["summary"];
    assert_eq!((&summary["pods"], &summary["wedged"]), (&json!(PODS), &json!(WEDGES)), "{summary}");
    println!("{name:<28} {:>8.1} {:>14}", began.elapsed().as_secs_f64(), peak >> 10);
}

/// Answers one connection's requests.
async fn serve(stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut first = String::new();
        let mut line = String::new();
        while !line.trim().is_empty() || first.is_empty() {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or_default() == 0 {
                return;
            }
            if first.is_empty() {
                first = line.trim().to_owned();
            }
        }
        let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let (code, body) = answer(&target);
        let head = format!(
            "HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.is_err() {
            return;
        }
    }
}

fn answer(target: &str) -> (u16, String) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameter = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let fields = parameter("fieldSelector");
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", "v1", "pods"] if fields.is_empty() && parameter("labelSelector").is_empty() => {
            page(parameter("continue"), PODS, "v1", "PodList", pod)
        }
        ["api", "v1", "pods"] => list("v1", "PodList", &[], ""),
        ["api", "v1", "events"] => {
            let events: Vec<String> = (0..WEDGES).map(event).collect();
            list("v1", "EventList", &events, "")
        }
        ["api", "v1", "namespaces", _, "events"] => {
            let number = fields.rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or_default();
            list("v1", "EventList", &[event(number)], "")
        }
        ["api", "v1", "namespaces", _, "pods", name] => {
            let number = name.rsplit('-').next().and_then(|text| text.parse().ok()).unwrap_or_default();
            (200, pod(number))
        }
        ["apis"] => (200, json!({
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": [{"name": "cilium.io", "versions": [{"groupVersion": "cilium.io/v2", "version": "v2"}]}],
        }).to_string()),
        ["apis", "cilium.io", "v2"] => (200, json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "cilium.io/v2",
            "resources": [{"name": "ciliumendpoints", "singularName": "", "namespaced": true, "kind": "CiliumEndpoint", "verbs": ["list"]}],
        }).to_string()),
        ["apis", "cilium.io", "v2", "ciliumnodes"] => {
            page(parameter("continue"), NODES, "cilium.io/v2", "CiliumNodeList", cilium_node)
        }
        ["apis", "cilium.io", "v2", "ciliumendpoints"] => {
            page(parameter("continue"), PODS, "cilium.io/v2", "CiliumEndpointList", endpoint)
        }
        _ => (403, json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "no",
        }).to_string()),
    }
}

fn page(token: &str, end: usize, version: &str, kind: &str, make: fn(usize) -> String) -> (u16, String) {
    let from: usize = token.parse().unwrap_or_default();
    let to = end.min(from + 500);
    let items: Vec<String> = (from..to).map(make).collect();
    let next = if to < end { to.to_string() } else { String::new() };
    list(version, kind, &items, &next)
}

fn list(version: &str, kind: &str, items: &[String], next: &str) -> (u16, String) {
    let items = items.join(",");
    let meta = json!({"resourceVersion": "1", "continue": next});
    (
        200,
        format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{meta},\"items\":[{items}]}}"
        ),
    )
}

fn namespace(number: usize) -> String {
    format!("tenant-{:03}", number % 200)
}

fn uid(number: usize) -> String {
    format!("a7820e12-1f36-4dcd-bd38-{number:012}")
}

fn address(number: usize) -> String {
    format!("10.{}.{}.{}", 100 + (number >> 16), (number >> 8) & 255, number & 255)
}

/// A pod of about 8 KB. The first ones wait for a sandbox.
fn pod(number: usize) -> String {
    let status = if number < WEDGES {
        json!({
            "phase": "Pending", "startTime": "2026-06-18T10:03:45Z",
            "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}, {"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": "app", "image": "app", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}],
        })
    } else {
        let ip = address(number);
        json!({
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": "2026-06-18T10:03:45Z",
            "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}, {"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "app", "image": "app", "imageID": "", "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-06-18T10:03:50Z"}}},
                {"name": "sidecar", "image": "app", "imageID": "", "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-06-18T10:03:50Z"}}},
            ],
        })
    };
    let set = format!("app-{}-6f9b8c7d5", number % 900);
    let mut pod = json!({
        "metadata": {
            "namespace": namespace(number), "name": format!("{set}-{number:06}"), "uid": uid(number), "resourceVersion": number.to_string(),
            "creationTimestamp": "2026-06-18T10:03:40Z", "generateName": format!("{set}-"),
            "labels": {"app": "app", "pod-template-hash": "6f9b8c7d5", "team": "platform", "app.kubernetes.io/name": "app"},
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": "0123456789abcdef0123456789abcdef"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": uid(900_000 + number % 900), "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {"nodeName": format!("worker-{:04}", number % NODES), "containers": [{"name": "app", "image": "registry/app:1"}]},
        "status": status,
    });
    ballast::load(&mut pod);
    pod.to_string()
}

fn event(number: usize) -> String {
    let ip = address(PODS - 1 - number);
    json!({
        "metadata": {"namespace": namespace(number), "name": format!("event.{number}"), "creationTimestamp": "2026-06-18T10:03:40Z"},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": namespace(number), "name": "app", "uid": uid(number)},
        "reason": "FailedCreatePodSandBox", "type": "Warning", "count": 9,
        "message": format!("Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"{}\": plugin type=\"cilium-cni\" failed (add): unable to create endpoint: [PUT /endpoint/{{id}}][400] putEndpointIdInvalid \"IP ipv4:{ip} is already in use\"", "ab".repeat(32)),
        "source": {"component": "kubelet", "host": format!("worker-{:04}", number % NODES)},
        "firstTimestamp": "2026-06-18T10:03:40Z", "lastTimestamp": Timestamp::now().to_string(),
    })
    .to_string()
}

fn cilium_node(number: usize) -> String {
    let (high, low) = (number >> 8, number & 255);
    json!({
        "metadata": {"name": format!("worker-{number:04}"), "uid": uid(800_000 + number)},
        "spec": {
            "addresses": [{"type": "InternalIP", "ip": format!("172.16.{high}.{low}")}, {"type": "CiliumInternalIP", "ip": format!("10.200.{high}.{low}")}],
            "health": {"ipv4": format!("10.201.{high}.{low}")},
            "ipam": {"podCIDRs": [format!("11.{high}.{low}.0/24")]},
        },
    })
    .to_string()
}

fn endpoint(number: usize) -> String {
    let name = format!("app-{}-6f9b8c7d5-{number:06}", number % 900);
    let node = number % NODES;
    json!({
        "metadata": {
            "namespace": namespace(number), "name": name, "uid": uid(700_000 + number), "creationTimestamp": "2026-06-18T10:03:40Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid(number)}],
        },
        "status": {
            "id": number % 60_000, "external-identifiers": {"cni-attachment-id": format!("{:064x}:eth0", number)},
            "networking": {"addressing": [{"ipv4": address(number)}], "node": format!("172.16.{}.{}", node >> 8, node & 255)},
        },
    })
    .to_string()
}
