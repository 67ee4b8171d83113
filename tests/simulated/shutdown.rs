//! SIGTERM.

use std::time::{Duration, Instant};

use cilium_leak_healer::sim::Fault;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::scene::{IP, Scene};

pub(crate) async fn sigterm_while_idle() {
    let scene = Scene::new().await;
    let mut daemon = scene.heal().await;
    daemon.answers("/readyz", 200).await;
    let start = Instant::now();
    daemon.terminate().await;
    let status = daemon.exit(Duration::from_secs(10)).await;
    let took = start.elapsed();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(1), "{took:?}");
    daemon.line("stopped", |line| line["message"] == "stopped").await;
}

/// A daemon whose DELETE at the agent hangs, or comes late.
async fn acting(scene: &Scene, fault: Fault, args: &[&str]) -> Daemon {
    let delete = scene.node.agent().inject(fault.on("DELETE"));
    let daemon = scene.daemon("heal", args).await;
    scene.wedge();
    scene.wait("the DELETE", |_| delete.hits() == 1).await;
    daemon
}

async fn says(daemon: &Daemon, message: &str) {
    let begins = |line: &Value| line["message"].as_str().is_some_and(|text| text.starts_with(message));
    daemon.line(message, begins).await;
}

pub(crate) async fn sigterm_while_a_disconnect_hangs_abandons_it_and_says_so() {
    let scene = Scene::new().await;
    let args = ["--agent-timeout", "1m", "--shutdown-timeout", "1s"];
    let mut daemon = acting(&scene, Fault::hang(), &args).await;
    daemon.terminate().await;
    says(&daemon, "stopping").await;
    let status = daemon.exit(Duration::from_secs(5)).await;
    assert_eq!(status.code(), Some(0));
    says(&daemon, "the act in hand did not end in time and is abandoned").await;
    assert!(scene.is_held(IP));
}

pub(crate) async fn sigterm_lets_a_disconnect_in_hand_end() {
    let scene = Scene::new().await;
    let args = ["--agent-timeout", "1m", "--shutdown-timeout", "30s"];
    let mut daemon = acting(&scene, Fault::delay(Duration::from_secs(1)), &args).await;
    daemon.terminate().await;
    let status = daemon.exit(Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(0));
    crate::scene::acted(&daemon, "freed").await;
    says(&daemon, "stopped").await;
    assert_eq!(scene.disconnects().len(), 1);
}

pub(crate) async fn a_second_sigterm_ends_it_at_once() {
    let scene = Scene::new().await;
    let args = ["--agent-timeout", "1m", "--shutdown-timeout", "1m"];
    let mut daemon = acting(&scene, Fault::hang(), &args).await;
    daemon.terminate().await;
    says(&daemon, "stopping").await;
    daemon.terminate().await;
    let status = daemon.exit(Duration::from_secs(5)).await;
    assert_eq!(status.code(), Some(0));
    says(&daemon, "second signal: ending at once").await;
}
