//! Mode observe, and what is told of a wedge that stays.

use cilium_leak_healer::sim::WorkloadKind;

use crate::scene::{INGRESS, IP, Scene, judged};

pub(crate) async fn observe_mode_writes_nothing_and_says_once_that_it_holds_back() {
    let scene = Scene::new().await;
    let daemon = scene.observe().await;
    let pod = scene.wedge();
    scene.workload(WorkloadKind::ReplicaSet, "tenant-b", "api", INGRESS);
    let judged = judged(&daemon, pod, "stale-endpoint").await;
    let held_back = daemon
        .line("held back", |line| {
            line["message"] == "held back" && line["correlation_id"] == judged["correlation_id"]
        })
        .await;
    assert_eq!(held_back["mode"], "observe");
    assert_eq!(held_back["remedy"], "disconnect-endpoint");
    daemon.metric_reaches("cilium_leak_healer_wedges{verdict=\"stale-endpoint\"}", 1.0).await;
    daemon.metric_reaches("cilium_leak_healer_wedges{verdict=\"reserved-holder\"}", 1.0).await;
    // The two that agree, and one half a minute later.
    daemon.metric_reaches("cilium_leak_healer_judgements_total{verdict=\"stale-endpoint\"}", 3.0).await;
    let of = |message: &str| {
        daemon
            .matching(|line| line["message"] == message && line["correlation_id"] == judged["correlation_id"])
    };
    assert_eq!(of("held back").len(), 1, "{}", daemon.printed());
    let stale = of("judged").into_iter().filter(|line| line["verdict"] == "stale-endpoint");
    assert_eq!(stale.count(), 1, "{}", daemon.printed());
    assert!(daemon.metric("cilium_leak_healer_oldest_wedge_seconds").await > 20.0);
    assert!(scene.is_held(IP));
    scene.nothing_done(&daemon);
    daemon.stop().await;
}

pub(crate) async fn a_live_duplicate_watched_for_several_polls_is_one_line() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let ip = scene.runs("shop", "web").await;
    scene.pod("tenant-a", "db", &ip);
    let judged = judged(&daemon, "tenant-a/db", "live-duplicate").await;
    daemon.metric_reaches("cilium_leak_healer_judgements_total{verdict=\"live-duplicate\"}", 2.0).await;
    let of_this = daemon.matching(|line| line["correlation_id"] == judged["correlation_id"]);
    let live = of_this.iter().filter(|line| line["verdict"] == "live-duplicate");
    assert_eq!(live.count(), 1, "{of_this:?}");
    // At most that it was settling before.
    assert!(of_this.len() <= 2, "{of_this:?}");
    scene.nothing_done(&daemon);
    daemon.stop().await;
}
