//! `report` on a real API server. There is no kubelet here that would forward a port, as where the watchdog's pods are gone: all is
//! from Kubernetes Events.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::Node;

async fn report(kubeconfig: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-leak-healer"));
    command.arg("report").args(args).arg("--kubeconfig").arg(kubeconfig).kill_on_drop(true);
    let output = command.output().await.expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn a_heal_a_refusal_and_a_leak_that_is_left_are_known_from_kubernetes_events() {
    let node = Node::new().await;
    let pods: Api<Pod> = Api::namespaced(node.client.clone(), &node.namespace);
    let [healed, live, left] = [50, 51, 52].map(|host| node.ip(host));
    node.leak("gone", healed).await;
    node.leak("gone-too", left).await;
    node.running_pod("owner", live).await;
    let (_, first) = node.waiting_pod("left", left).await;
    let opt_out = Patch::Merge(json!({"metadata": {"labels": {"cilium-leak-healer/opt-out": ""}}}));
    pods.patch("left", &PatchParams::default(), &opt_out).await.expect("label a pod");
    let (_, second) = node.waiting_pod("duplicate", live).await;
    node.waiting_pod("waits", healed).await;

    let daemon = node.healer().await;
    daemon.acted("waits", "healed").await;
    daemon.judged("duplicate", "live-duplicate").await;
    daemon.line("a hold", |line| line["message"] == "held back" && line["by"] == "opt-out").await;
    // On the pod and on the Node each: two of the heal, one of the refusal, two of the leak that is left.
    daemon.metric_reaches("cilium_leak_healer_kubernetes_events_total{outcome=\"written\"}", 10.0).await;
    daemon.stop().await;
    first.abort();
    second.abort();

    // All others of this process are on other nodes.
    let of_node = ["--node", node.name.as_str(), "--format", "json"];
    let (code, out, err) = report(node.admin_kubeconfig(), &of_node).await;
    assert_eq!(code, Some(0), "{out}{err}");
    let told: Value = serde_json::from_str(&out).expect("JSON");
    let findings = told["findings"].as_array().expect("findings");
    let word = |it: &Value, name: &str| it[name].as_str().unwrap_or("-").to_owned();
    let lines: Vec<_> = findings
        .iter()
        .map(|it| ["pod", "ip", "verdict", "ending"].map(|name| word(it, name)).join(" "))
        .collect();
    let finding =
        |pod: &str, ip: &std::net::IpAddr, end: &str| format!("{}/{pod} {ip} {end}", node.namespace);
    assert_eq!(
        lines,
        [
            finding("left", &left, "stale-endpoint unhealed"),
            finding("duplicate", &live, "live-duplicate refused"),
            finding("waits", &healed, "stale-endpoint healed"),
        ],
        "{out}"
    );
    assert_eq!(told["nodes"][0]["reading"], "not-read", "{out}");
    assert!(findings.iter().all(|it| it["sources"] == json!(["kubernetes-events"])), "{out}");

    for on in ["heal", "refuse", "unhealed"] {
        let args = ["--node", node.name.as_str(), "--fail-on", on];
        let (code, out, err) = report(node.admin_kubeconfig(), &args).await;
        assert_eq!(code, Some(2), "{on}: {out}{err}");
    }
}
