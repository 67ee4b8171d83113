//! One heal on worker-1, one refusal on worker-2, one leak on worker-3 that is not healed; and the verb that reports them.

use std::path::Path;

use cilium_leak_healer::sim::{DeleteOptions, IP_ANNOTATION, PODS};
use serde_json::{Value, json};

use crate::daemon::{Daemon, Said, said};
use crate::stage::{OWN, Stage, pod_of};

/// Lets it happen; all that belongs on the objects of the cluster is written.
pub(crate) async fn story(stage: &Stage) -> Vec<Daemon> {
    let mut daemons = Vec::new();
    for number in 1..=3 {
        daemons.push(stage.daemon(number).await);
    }
    heal(stage, &daemons[0]).await;
    refusal(stage, &daemons[1]).await;
    unhealed(stage, &daemons[2], "db").await;
    daemons
}

async fn written(daemon: &Daemon, events: u32) {
    let metric = "cilium_leak_healer_kubernetes_events_total{outcome=\"written\"}";
    daemon.metric_reaches(metric, f64::from(events)).await;
}

pub(crate) async fn heal(stage: &Stage, daemon: &Daemon) {
    stage.leak(1, "agent-old", "10.244.1.50");
    stage.pod(1, "cart", "10.244.1.50");
    daemon.line("over", |line| line["message"] == "over").await;
    stage.runs("cart").await;
    written(daemon, 4).await;
}

async fn refusal(stage: &Stage, daemon: &Daemon) {
    stage.pod(2, "web", "10.244.2.50");
    stage.runs("web").await;
    stage.pod(2, "news", "10.244.2.50");
    daemon
        .line("a live duplicate", |line| line["message"] == "judged" && line["verdict"] == "live-duplicate")
        .await;
    written(daemon, 2).await;
}

/// A person has said that this pod is to be left alone.
pub(crate) async fn unhealed(stage: &Stage, daemon: &Daemon, name: &str) {
    stage.leak(3, "db-old", "10.244.3.50");
    let pod = json!({
        "metadata": {
            "namespace": "shop", "name": name, "annotations": {IP_ANNOTATION: "10.244.3.50"},
            "labels": {"cilium-leak-healer/opt-out": ""},
        },
        "spec": {"nodeName": "worker-3", "containers": [{"name": "app", "image": "app"}]},
    });
    stage.cluster.api().create(&PODS, pod).expect("a pod");
    daemon.line("a hold", |line| line["message"] == "held back" && line["by"] == "opt-out").await;
    written(daemon, 4).await;
}

/// The verb, to its end.
pub(crate) async fn report(stage: &Stage, args: &[&str]) -> Said {
    said("report", &stage.kubeconfig(), args).await
}

/// As JSON, with this exit status.
pub(crate) async fn json(stage: &Stage, args: &[&str], code: i32) -> Value {
    let args: Vec<&str> = ["--format", "json"].into_iter().chain(args.iter().copied()).collect();
    let said = report(stage, &args).await;
    assert_eq!(said.code, Some(code), "{}{}", said.out, said.err);
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {}", said.out))
}

/// Each finding as `POD ADDRESS VERDICT ENDING`.
pub(crate) fn endings(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().expect("findings");
    let word = |finding: &Value, name: &str| finding[name].as_str().unwrap_or("-").to_owned();
    let line = |it: &Value| ["pod", "ip", "verdict", "ending"].map(|name| word(it, name)).join(" ");
    findings.iter().map(line).collect()
}

pub(crate) const ENDINGS: [&str; 3] = [
    "shop/db 10.244.3.50 stale-endpoint unhealed",
    "shop/news 10.244.2.50 live-duplicate refused",
    "shop/cart 10.244.1.50 stale-endpoint healed",
];

/// Takes the pods of the watchdogs away, as an uninstall does.
pub(crate) async fn uninstall(stage: &Stage, daemons: Vec<Daemon>) {
    for (number, daemon) in (1..).zip(daemons) {
        stage.leads(&pod_of(number), None);
        daemon.stop().await;
        stage.cluster.api().delete(&PODS, OWN, &pod_of(number), &DeleteOptions::now()).expect("its pod");
    }
}

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
