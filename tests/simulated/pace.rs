//! How fast it is with the settings that it has by itself.

use std::time::Duration;

use cilium_leak_healer::sim::{EVENTS, RateLimits};

use crate::scene::{IP, Scene, acted, healed};

pub(crate) async fn ten_seconds_from_the_event_to_the_disconnect_with_default_settings() {
    let scene = Scene::with(|options| {
        // As on a real node.
        options.kubelet.retry = Duration::from_secs(12);
        options.kubelet.retry_jitter = Duration::from_secs(2);
        options.agent.rate_limits = RateLimits::cilium();
    })
    .await;
    let daemon = scene.start(&["--mode", "heal", "--startup-quiet", "0s"]).await;
    daemon.answers("/readyz", 200).await;
    scene.wedge();
    let failed = |cluster: &cilium_leak_healer::sim::Cluster| {
        let events = cluster.api().list(&EVENTS, "shop", "", "").expect("the Events");
        events.iter().any(|event| event["reason"] == "FailedCreatePodSandBox")
    };
    scene.wait("the kubelet's Event", failed).await;
    let event = scene.cluster.now();
    acted(&daemon, "freed").await;
    let disconnects = scene.disconnects();
    assert_eq!(disconnects.len(), 1, "{disconnects:?}");
    let took = disconnects[0].at.duration_since(event);
    println!("from the kubelet's Event to the DELETE at the agent: {:.1} s", took.as_secs_f64());
    assert!(took.as_secs_f64() <= 10.0, "{took:?}\n{}", daemon.printed());
    assert!(!scene.is_held(IP));
    daemon.stop().await;
}

pub(crate) async fn no_act_within_the_startup_quiet_period() {
    let scene = Scene::new().await;
    scene.wedge();
    let start = scene.cluster.now();
    let daemon = scene.daemon("heal", &["--startup-quiet", "5s"]).await;
    let held_back = daemon.line("held back", |line| line["message"] == "held back").await;
    assert_eq!(held_back["reason"], "start-up quiet period");
    acted(&daemon, "freed").await;
    let quiet = scene.disconnects()[0].at.duration_since(start);
    assert!(quiet.as_secs() >= 5, "{quiet:?}\n{}", daemon.printed());
    healed(&scene, daemon).await;
}
