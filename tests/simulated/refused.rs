//! Holders that are alive: nothing is touched.

use crate::scene::{IP, Scene, acted, judged};

pub(crate) async fn the_owner_runs() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let ip = scene.runs("shop", "web").await;
    scene.pod("tenant-a", "db", &ip);
    let judged = judged(&daemon, "tenant-a/db", "live-duplicate").await;
    assert_eq!(judged["remedy"], "none");
    assert_eq!(judged["owner"], "shop/web");
    assert_eq!(judged["ip"], ip.as_str());
    assert!(scene.is_held(&ip));
    let refusals = "cilium_leak_healer_refusals_total{reason=\"live-duplicate\"}";
    assert!((daemon.metric(refusals).await - 1.0).abs() < f64::EPSILON);
    scene.nothing_done(&daemon);
    daemon.stop().await;
}

pub(crate) async fn the_owner_is_pending_without_an_address() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let taken = scene.runs("shop", "web").await;
    // shop/slow has an endpoint, and yet no address in its status: it waits for another one.
    scene.leak("shop", "slow", IP);
    scene.pod("shop", "slow", &taken);
    scene.pod("shop", "cart", IP);
    let judged = judged(&daemon, "shop/cart", "live-duplicate").await;
    assert_eq!(judged["owner"], "shop/slow");
    assert_eq!(judged["remedy"], "none");
    assert!(scene.is_held(IP));
    scene.nothing_done(&daemon);
    daemon.stop().await;
}

pub(crate) async fn two_wedges_and_only_the_stale_one_is_healed() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let ip = scene.runs("shop", "web").await;
    scene.pod("tenant-a", "db", &ip);
    scene.wedge();
    judged(&daemon, "tenant-a/db", "live-duplicate").await;
    acted(&daemon, "healed").await;
    assert_eq!(scene.runs("shop", "cart").await, IP);
    assert!(scene.is_held(&ip));
    let disconnects = scene.disconnects();
    assert_eq!(disconnects.len(), 1, "{disconnects:?}");
    let live = "cilium_leak_healer_wedges{verdict=\"live-duplicate\"}";
    daemon.metric_reaches(live, 1.0).await;
    daemon.stop().await;
}
