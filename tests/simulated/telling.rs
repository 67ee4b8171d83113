//! What people are told: the Kubernetes Events, and the log lines that the documentation quotes.

use std::collections::BTreeSet;

use cilium_leak_healer::sim::{EVENTS, NAMESPACES, WorkloadKind};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::scene::{IP, Scene, acted, judged};

/// The watchdog's Events on objects of a kind, in the order in which they were made.
fn events_on(scene: &Scene, kind: &str) -> Vec<Value> {
    let events = scene.cluster.api().list(&EVENTS, "", "", "").expect("the Events");
    let mut ours: Vec<Value> = events
        .into_iter()
        .filter(|event| event["reportingComponent"] == "cilium-leak-healer")
        .filter(|event| event["involvedObject"]["kind"] == kind)
        .collect();
    ours.sort_by_key(|event| event["eventTime"].as_str().map(str::to_owned));
    ours
}

fn reasons(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["reason"].as_str()).collect()
}

async fn written(daemon: &Daemon, events: u32) {
    let metric = "cilium_leak_healer_kubernetes_events_total{outcome=\"written\"}";
    daemon.metric_reaches(metric, f64::from(events)).await;
}

pub(crate) async fn a_heal_is_told_on_the_pod_its_controller_and_the_node() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    scene.leak("backup", "agent-old", IP);
    scene.workload(WorkloadKind::ReplicaSet, "tenant-b", "api", IP);
    acted(&daemon, "healed").await;
    written(&daemon, 6).await;
    for kind in ["Pod", "ReplicaSet", "Node"] {
        let events = events_on(&scene, kind);
        assert_eq!(
            reasons(&events),
            ["EndpointLeakDetected", "StaleEndpointDisconnected"],
            "{kind}: {events:?}"
        );
        let id = daemon.matching(|line| line["message"] == "judged")[0]["correlation_id"].clone();
        let id = id.as_str().expect("an id");
        for event in &events {
            let note = event["message"].as_str().expect("a note");
            assert!(note.contains(id) && note.contains(IP) && note.len() <= 1024, "{note}");
        }
    }
    let on_pod = &events_on(&scene, "Pod")[0];
    assert_eq!(on_pod["related"]["name"], "agent-old", "{on_pod}");
    assert_eq!(on_pod["involvedObject"]["namespace"], on_pod["metadata"]["namespace"]);
    daemon.stop().await;
}

pub(crate) async fn a_refusal_is_told_once_and_names_the_owner() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let ip = scene.runs("shop", "web").await;
    scene.pod("tenant-a", "db", &ip);
    judged(&daemon, "tenant-a/db", "live-duplicate").await;
    daemon.metric_reaches("cilium_leak_healer_judgements_total{verdict=\"live-duplicate\"}", 2.0).await;
    written(&daemon, 2).await;
    let events = events_on(&scene, "Pod");
    assert_eq!(reasons(&events), ["EndpointLeakRefused"], "{events:?}");
    assert_eq!(events[0]["related"]["name"], "web");
    assert_eq!(events[0]["type"], "Warning");
    scene.nothing_done(&daemon);
    daemon.stop().await;
}

/// The lines that a page quotes.
fn quoted(page: &str) -> Vec<Value> {
    let mut quotes = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        match line {
            "```json" => quotes = true,
            "```" => quotes = false,
            _ if quotes => lines.push(serde_json::from_str(line).expect("JSON")),
            _ => {}
        }
    }
    lines
}

/// Whether a line of the log is one that is quoted: the same message, level and fields, and the same word in those that
/// have a closed set of them.
fn is_quoted(quote: &Value, line: &Value) -> bool {
    let keys = |value: &Value| -> BTreeSet<String> {
        let fields = value.as_object().into_iter().flat_map(serde_json::Map::keys);
        fields.filter(|key| *key != "timestamp").cloned().collect()
    };
    let same = |field: &str| quote[field] == line[field];
    keys(quote) == keys(line)
        && ["message", "level", "verdict", "remedy", "outcome", "by", "mode"].into_iter().all(same)
}

pub(crate) async fn each_line_that_the_documentation_quotes_is_logged() {
    let scene = Scene::new().await;
    let mut daemon = scene.heal().await;
    let ip = scene.runs("shop", "web").await;
    scene.pod("tenant-a", "db", &ip);
    let pod = scene.wedge();
    acted(&daemon, "healed").await;
    daemon.line("over", |line| line["message"] == "over" && line["pod"] == pod).await;
    judged(&daemon, "tenant-a/db", "live-duplicate").await;
    let paused = json!({"metadata": {"annotations": {"cilium-leak-healer/paused": "audit"}}});
    scene.cluster.api().patch_merge(&NAMESPACES, "", "cilium-leak-healer", &paused).expect("the namespace");
    scene.leak("backup", "agent-older", "10.244.1.51");
    scene.pod("shop", "basket", "10.244.1.51");
    daemon.line("held back", |line| line["message"] == "held back" && line["by"] == "paused").await;
    scene.node.agent().stop().await;
    daemon.line("the agent is away", |line| line["message"] == "the agent cannot be reached").await;
    daemon.terminate().await;
    assert!(daemon.exit(std::time::Duration::from_secs(15)).await.success());
    // The process can end before its last words are read.
    let last = |line: &Value| line["message"].as_str().is_some_and(|said| said.starts_with("stopping"));
    daemon.line("its last words", last).await;
    let quotes = quoted(include_str!("../../docs/log.md"));
    assert!(quotes.len() > 12);
    for quote in quotes {
        let lines = daemon.lines();
        assert!(
            lines.iter().any(|line| is_quoted(&quote, line)),
            "not logged: {quote}\n{}",
            daemon.printed()
        );
    }
}
