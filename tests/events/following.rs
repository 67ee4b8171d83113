//! Streams that are followed: over a restart, a rollout, and to their end.

use std::time::Duration;

use cilium_leak_healer::sim::{DeleteOptions, PODS};
use cilium_leak_healer::stream::{CloudEvent, EventKind};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::stage::{OWN, Stage, pod_of};
use crate::verb::{Following, child, events};

/// Another pod of the watchdog, as a rollout makes one.
fn successor(stage: &Stage) -> String {
    let old = stage.cluster.api().get(&PODS, OWN, &pod_of(1)).expect("the watchdog's pod");
    let name = format!("{OWN}-next");
    let labels = &old["metadata"]["labels"];
    let pod = json!({
        "metadata": {"namespace": OWN, "name": name, "labels": labels}, "spec": old["spec"], "status": {"phase": "Running"},
    });
    stage.cluster.api().create(&PODS, pod).expect("a pod");
    name
}

#[tokio::test]
async fn a_restart_and_a_rollout_are_told_and_followed() {
    let stage = Stage::new(1).await;
    let first = stage.daemon(1).await;
    let mut verb = Following::start(&stage, &[]);
    verb.line(&["worker-1", "started", "mode heal"]).await;

    stage.leads(&pod_of(1), None);
    first.stop().await;
    verb.line(&["worker-1", "stopping", "the watchdog ends"]).await;
    verb.line(&["worker-1", "stream", "the stream has ended"]).await;
    let second = stage.daemon(1).await;
    verb.line(&["worker-1", "gap", "the watchdog has restarted"]).await;
    verb.line(&["worker-1", "stream", "the stream is open"]).await;
    stage.leak(1, "agent-old", "10.244.1.50");
    stage.pod(1, "cart", "10.244.1.50");
    verb.line(&["worker-1", "acted", "shop/cart", "10.244.1.50", "disconnect-endpoint healed"]).await;

    // The old pod goes, the new one has another name: its daemon is another process.
    let next = successor(&stage);
    second.kill().await;
    let deleted = stage.cluster.api().delete(&PODS, OWN, &pod_of(1), &DeleteOptions::now());
    deleted.expect("the old pod");
    stage.cluster.watchdog_kubeconfig(&stage.cluster.node("worker-1").expect("the node")).expect("a token");
    let third = stage.daemon(1).await;
    stage.leads(&next, Some(third.address()));
    let open =
        |verb: &Following| verb.all().iter().filter(|line| line.contains("the stream is open")).count() >= 2;
    let deadline = tokio::time::Instant::now() + crate::daemon::PATIENCE;
    while !open(&verb) {
        assert!(tokio::time::Instant::now() < deadline, "{:#?}", verb.all());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(verb.interrupt().await.success());
    let all = verb.all();
    assert_eq!(all.iter().filter(|line| line.contains("  acted ") && line.contains("healed")).count(), 1);
    third.kill().await;
}

#[tokio::test]
async fn it_ends_when_it_is_told_to() {
    let stage = Stage::new(1).await;
    let daemon = stage.daemon(1).await;
    let began = tokio::time::Instant::now();
    let out = events(&stage, &["--for", "5s", "-o", "ndjson"]).await.well();
    assert!(began.elapsed() >= Duration::from_secs(5));
    let first = CloudEvent::parse(out.lines().next().expect("an event").as_bytes()).expect("an event");
    assert_eq!(first.data.kind(), EventKind::Started);
    // Nobody reads any more: it ends with the next event, and says nothing.
    let mut verb = child(&stage, &[]);
    let mut lines = BufReader::new(verb.stdout.take().expect("its standard output")).lines();
    lines.next_line().await.expect("a line");
    drop(lines);
    daemon.stop().await;
    let output = tokio::time::timeout(Duration::from_secs(10), verb.wait_with_output()).await;
    let output = output.expect("it ends").expect("its status");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[tokio::test]
async fn a_stream_that_has_ended_is_missing_in_the_end() {
    let stage = Stage::new(1).await;
    let daemon = stage.daemon(1).await;
    let mut verb = Following::start(&stage, &["--for", "8s", "-o", "ndjson"]);
    verb.line(&["cilium-leak-healer.started.v1"]).await;
    stage.leads(&pod_of(1), None);
    daemon.stop().await;
    let status = verb.end(Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(1));
    verb.said("worker-1: the stream has ended").await;
    verb.said("missing: worker-1: ").await;
    assert!(verb.all().iter().all(|line| CloudEvent::parse(line.as_bytes()).is_ok()), "{:#?}", verb.all());
}
