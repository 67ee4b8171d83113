//! What a scan may not read, or cannot reach: unknown in the evidence, said in the footer, never "not there".

use std::time::Duration;

use cilium_leak_healer::sim::{AgentVersion, ExecReply, Executor, Fault, PODS};
use serde_json::json;

use crate::cluster::{IP, Lab};
use crate::run::Run;

/// The wedge is judged `agent-unknown`, and the footer says why.
fn unknown(run: &Run, why: &str) {
    assert_eq!(run.code, Some(2), "{}{}", run.out, run.err);
    let row = run.out.lines().find(|line| line.contains("shop/cart")).expect("a finding");
    assert!(row.starts_with("agent-unknown  none"), "{row}");
    let flat = run.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("counts as unknown:") && flat.contains(why), "no {why:?} in {}", run.out);
}

#[tokio::test]
async fn no_right_to_exec() {
    let lab = Lab::of(AgentVersion::V1_20, |wish| wish.subresource != "exec").await;
    lab.wedge().await;
    unknown(
        &lab.scan(&[]).await,
        "the right to get and create pods/exec in namespace kube-system is missing",
    );
}

#[tokio::test]
async fn no_right_to_list_pods_or_events() {
    let lab = Lab::of(AgentVersion::V1_20, |wish| wish.resource != "pods").await;
    lab.scan(&["-o", "json"]).await.failed("missing right: list pods at the cluster scope; with -n only");
    let lab = Lab::of(AgentVersion::V1_20, |wish| wish.resource != "events").await;
    lab.scan(&["-o", "json"]).await.failed("missing right: list events at the cluster scope");
}

#[tokio::test]
async fn rights_in_one_namespace_only() {
    let lab = Lab::of(AgentVersion::V1_20, |wish| wish.resource.is_empty() || wish.namespace == "shop").await;
    lab.wedge().await;
    let run = lab.scan(&["-n", "shop"]).await;
    unknown(&run, "its agent's pod is not known: LIST pods spec.nodeName=worker-1");
    let run = lab.scan(&["-n", "shop", "-o", "json"]).await;
    assert!(run.err.contains("missing right: list ciliumnodes.cilium.io"), "{}", run.err);
}

#[tokio::test]
async fn no_right_to_read_the_owner() {
    let lab = Lab::of(AgentVersion::V1_20, |wish| wish.verb != "get" || wish.namespace != "backup").await;
    lab.wedge().await;
    let run = lab.scan(&["-o", "json"]).await;
    let found = run.findings();
    assert_eq!(found[0].1, "insufficient-evidence", "{}", run.out);
    assert!(run.err.contains("missing right: get pods in namespace backup"), "{}", run.err);
}

#[tokio::test]
async fn an_agent_whose_pod_is_not_ready() {
    let lab = Lab::new().await;
    lab.wedge().await;
    let name = lab.agent_pod_name();
    let status = json!({"conditions": [{"type": "Ready", "status": "False"}]});
    lab.cluster.api().patch_status_merge(&PODS, "kube-system", &name, &status).expect("a status");
    unknown(&lab.scan(&[]).await, &format!("worker-1: its agent's pod kube-system/{name} is not ready"));
}

#[tokio::test]
async fn flags_that_find_no_agent() {
    let lab = Lab::new().await;
    lab.wedge().await;
    let run = lab.scan(&["--agent-pod-selector", "k8s-app=other"]).await;
    unknown(&run, "no pod with the labels k8s-app=other runs on it");
    let run = lab.scan(&["--agent-container", "other"]).await;
    unknown(&run, "has no container \"other\" (--agent-container)");
    let run = lab.scan(&["--agent-namespace", "cilium"]).await;
    unknown(&run, "no pod with the labels k8s-app=cilium runs on it");
}

#[tokio::test]
async fn two_pods_that_may_be_the_agent() {
    let lab = Lab::new().await;
    lab.wedge().await;
    let mut second = lab.agent_pod().expect("a pod");
    second["metadata"] =
        json!({"namespace": "elsewhere", "name": "cilium-2", "labels": {"k8s-app": "cilium"}});
    lab.cluster.api().create(&PODS, second).expect("a pod");
    unknown(&lab.scan(&[]).await, "2 pods may be its agent:");
    let run = lab.scan(&["--agent-namespace", "kube-system"]).await;
    assert!(run.out.contains("stale-endpoint"), "{}{}", run.out, run.err);
}

#[tokio::test]
async fn an_agent_that_answers_429() {
    let lab = Lab::new().await;
    lab.wedge().await;
    lab.node.agent().inject(Fault::status(429).on("GET").path("/endpoint/ipv4:"));
    unknown(&lab.scan(&[]).await, "worker-1: cilium-dbg endpoint get ipv4:10.244.1.50 -o json: 429");
}

#[tokio::test]
async fn an_exec_that_hangs() {
    let lab = Lab::new().await;
    lab.wedge().await;
    lab.node.agent().inject(Fault::hang().on("GET").path("/endpoint/ipv4:"));
    unknown(&lab.scan(&["--exec-timeout", "1s"]).await, "timed out");
    lab.node.agent().clear_faults();
    lab.cluster.api().inject(Fault::hang().path("/exec"));
    unknown(&lab.scan(&["--exec-timeout", "1s"]).await, "timed out");
}

#[tokio::test]
async fn an_agent_that_is_stopped() {
    let lab = Lab::new().await;
    lab.wedge().await;
    lab.node.agent().crash().await;
    unknown(&lab.scan(&[]).await, "connection refused by /var/run/cilium/cilium.sock");
}

async fn reply(lab: &Lab, reply: ExecReply, why: &str) {
    lab.cluster.api().run_in_containers(Executor::new(move |_| {
        let reply = reply.clone();
        Box::pin(async move { reply })
    }));
    unknown(&lab.scan(&[]).await, why);
}

#[tokio::test]
async fn runs_that_are_no_answer() {
    let lab = Lab::new().await;
    lab.wedge().await;
    let ended = |code, stdout: &str, stderr: &str| ExecReply::Ended {
        code,
        stdout: stdout.as_bytes().to_vec(),
        stderr: stderr.as_bytes().to_vec(),
    };
    let none = "exec: \"cilium\": executable file not found in $PATH: unknown";
    reply(&lab, ExecReply::NotStarted(none.to_owned()), "500 Internal error occurred").await;
    reply(&lab, ExecReply::NotStarted("error dialing backend".to_owned()), "500 Internal error occurred")
        .await;
    reply(&lab, ExecReply::Broken, "it broke before the program's exit status came").await;
    reply(&lab, ended(0, "no JSON", ""), "unreadable answer").await;
    reply(&lab, ended(0, "", ""), "unreadable answer").await;
    reply(&lab, ended(1, "", "[404] getEndpointIdNotFound"), "exit status 1").await;
    let many = "x".repeat(17 << 20);
    reply(&lab, ended(0, &many, ""), "more than 16777216 bytes of output").await;
}

#[tokio::test]
async fn an_unreadable_configuration_withholds_the_disconnect() {
    let lab = Lab::new().await;
    lab.wedge().await;
    lab.node.agent().inject(Fault::status(503).path("/config"));
    let run = lab.scan(&["-o", "json"]).await;
    assert_eq!(run.findings()[0].1, "stale-endpoint", "{}", run.out);
    assert_eq!(run.findings()[0].2, "none", "{}", run.out);
}

#[tokio::test]
async fn an_unreadable_log_makes_the_holder_young() {
    let lab = Lab::new().await;
    lab.wedge().await;
    lab.node.agent().inject(Fault::status(429).path("/log"));
    lab.node.agent().set_state(IP.parse().expect("an address"), "disconnecting", "x", jiff::Timestamp::now());
    let run = lab.scan(&["-o", "json"]).await;
    assert_eq!(run.findings()[0].1, "settling", "{}", run.out);
}

#[tokio::test]
async fn an_api_server_that_stops_answering_in_the_middle() {
    let lab = Lab::new().await;
    lab.wedge().await;
    lab.cluster.api().inject(Fault::hang().path("/pods").on("GET"));
    let began = std::time::Instant::now();
    let run = lab.scan(&["--api-timeout", "1s", "-o", "json"]).await;
    run.failed("the pods cannot be read: LIST pods");
    assert!(began.elapsed() < Duration::from_secs(20));
}
