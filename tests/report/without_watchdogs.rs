//! The watchdogs' pods are gone: the Kubernetes Events tell the same endings.

use cilium_leak_healer::sim::{DeleteOptions, EVENTS, PODS};

use crate::masked::masked;
use crate::stage::Stage;
use crate::story::{ENDINGS, endings, json, report, story, uninstall};

#[tokio::test]
async fn kubernetes_events_tell_the_same_endings() {
    let stage = Stage::new(3).await;
    let daemons = story(&stage).await;
    uninstall(&stage, daemons).await;
    // A suite cleans up after itself: Events on the Node name these pods all the same.
    for pod in ["cart", "news", "web", "db"] {
        stage.cluster.api().delete(&PODS, "shop", pod, &DeleteOptions::now()).expect("a pod");
    }
    for on_pod in [true, false] {
        let told = json(&stage, &[], 0).await;
        assert_eq!(endings(&told), ENDINGS, "{told:#}");
        let sources: Vec<_> =
            told["findings"].as_array().expect("findings").iter().map(|it| &it["sources"]).collect();
        assert_eq!(sources, vec![&serde_json::json!(["kubernetes-events"]); 3]);
        if on_pod {
            let text = report(&stage, &["--fail-on", "heal"]).await;
            assert_eq!(text.code, Some(2), "{}", text.err);
            insta::assert_snapshot!("from_events", masked(&text.out));
            for event in stage.cluster.api().list(&EVENTS, "shop", "", "").expect("the Events") {
                let name = event["metadata"]["name"].as_str().expect("a name");
                stage.cluster.api().delete(&EVENTS, "shop", name, &DeleteOptions::now()).expect("an Event");
            }
        }
    }
}

/// A disconnect that fails is told as such, by the watchdog and by what it wrote.
#[tokio::test]
async fn a_heal_that_fails_is_unhealed() {
    let stage = Stage::new(1).await;
    let daemon = stage.daemon(1).await;
    stage.cluster.node("worker-1").expect("the node").agent().deny_delete(true);
    stage.leak(1, "agent-old", "10.244.1.50");
    stage.pod(1, "cart", "10.244.1.50");
    daemon.line("a failure", |line| line["message"] == "acted" && line["outcome"] == "failed").await;
    let metric = "cilium_leak_healer_kubernetes_events_total{outcome=\"written\"}";
    daemon.metric_reaches(metric, 4.0).await;
    let want = ["shop/cart 10.244.1.50 stale-endpoint unhealed"];
    let told = json(&stage, &["--fail-on", "unhealed"], 2).await;
    assert_eq!(endings(&told), want);
    assert_eq!(told["findings"][0]["acts"][0]["steps"][0]["outcome"], "failed", "{told:#}");
    uninstall(&stage, vec![daemon]).await;
    assert_eq!(endings(&json(&stage, &["--fail-on", "unhealed"], 2).await), want);
}
