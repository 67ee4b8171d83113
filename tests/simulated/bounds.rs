//! How much it may do, and when it stops: budgets, breaker, Leases, the memory of what was futile, unknown versions.

use cilium_leak_healer::sim::{Fault, LEASES, WorkloadKind};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::people::{deletions, held_back, says};
use crate::scene::{GONE, INGRESS, IP, Scene, acted, count_acted, healed, judged, refusal};

/// A leaked endpoint and the pod that is given its address: the n-th of them.
pub(crate) fn nth_wedge(scene: &Scene, n: u8) -> String {
    let ip = format!("10.244.1.{}", 60 + n);
    scene.leak(GONE.0, &format!("agent-{n}"), &ip);
    scene.pod("shop", &format!("cart-{n}"), &ip);
    format!("shop/cart-{n}")
}

pub(crate) async fn a_spent_budget_sets_the_pace() {
    let scene = Scene::new().await;
    let args = ["--disconnect-burst", "1", "--disconnect-refill", "5s"];
    let daemon = scene.daemon("heal", &args).await;
    for n in 0..3 {
        nth_wedge(&scene, n);
    }
    says(&held_back(&daemon, "budget").await, "the budget of disconnect-endpoint is spent");
    let healed = |line: &Value| line["message"] == "acted" && line["outcome"] == "healed";
    daemon.nth_line("all healed", 3, healed).await;
    let at: Vec<Timestamp> = scene.disconnects().into_iter().map(|request| request.at).collect();
    assert_eq!(at.len(), 3, "{at:?}");
    // The token is taken a little before the call is made.
    let paced = at.windows(2).all(|pair| pair[1].duration_since(pair[0]).as_millis() >= 4500);
    assert!(paced, "{at:?}\n{}", daemon.printed());
    daemon.stop().await;
}

/// A wedge on a node without a kubelet: its pod never gets a sandbox.
fn hopeless(scene: &Scene, n: u8) -> String {
    let pod = nth_wedge(scene, n);
    scene.failure("shop", &format!("cart-{n}"), &refusal(&format!("ipv4:10.244.1.{}", 60 + n)));
    pod
}

pub(crate) async fn acts_that_do_not_help_open_the_breaker() {
    let scene = Scene::without_kubelet().await;
    for n in 0..4 {
        hopeless(&scene, n);
    }
    let daemon = scene.daemon("heal", &["--breaker-floor", "2", "--verify-timeout", "2s"]).await;
    let not_healed = |line: &Value| line["message"] == "acted" && line["outcome"] == "not-healed";
    daemon.nth_line("two do not help", 2, not_healed).await;
    daemon.metric_reaches("cilium_leak_healer_breaker{state=\"open\"}", 1.0).await;
    says(&held_back(&daemon, "breaker").await, "acts did not help");
    // It goes on to judge and to tell.
    let pod = hopeless(&scene, 9);
    let judged = judged(&daemon, &pod, "stale-endpoint").await;
    assert_eq!(judged["remedy"], "disconnect-endpoint");
    let is_it = |line: &Value| {
        line["message"] == "held back" && line["by"] == "breaker" && line["pod"] == pod.as_str()
    };
    daemon.line("held back", is_it).await;
    assert_eq!(scene.disconnects().len(), 2, "{}", daemon.printed());
    assert_eq!(count_acted(&daemon, "healed"), 0);
    let ready = daemon.answers("/readyz", 200).await;
    assert!(ready.contains("[!]ledger degraded: the breaker is open until"), "{ready}");
    daemon.stop().await;
    // A restart does not close it.
    let daemon = scene.daemon("heal", &["--breaker-floor", "2", "--verify-timeout", "2s"]).await;
    held_back(&daemon, "breaker").await;
    assert_eq!(scene.disconnects().len(), 2, "{}", daemon.printed());
    daemon.stop().await;
}

pub(crate) async fn leases_that_others_hold_hold_back_until_one_is_free() {
    let scene = Scene::new().await;
    let hold = |slot: u8, holder: Value| {
        let name = format!("cilium-leak-healer-delete-pod-{slot}");
        let spec = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600}});
        scene.cluster.api().patch_merge(&LEASES, "cilium-leak-healer", &name, &spec).expect("the Lease");
    };
    for slot in 0..3 {
        hold(slot, format!("worker-{}", slot + 7).into());
    }
    let daemon = scene.heal().await;
    scene.workload(WorkloadKind::ReplicaSet, "tenant-b", "api", INGRESS);
    says(&held_back(&daemon, "lease").await, "all Leases are held, by worker-7, worker-8, worker-9");
    scene.nothing_done(&daemon);
    hold(1, Value::Null);
    acted(&daemon, "deleted").await;
    assert_eq!(deletions(&scene), 1);
    // It is given back.
    let is_free = |_: &_| {
        let name = "cilium-leak-healer-delete-pod-1";
        let lease = scene.cluster.api().get(&LEASES, "cilium-leak-healer", name).expect("the Lease");
        lease["spec"]["holderIdentity"].is_null()
    };
    scene.wait("the Lease is free", is_free).await;
    daemon.stop().await;
}

pub(crate) async fn what_was_moved_once_is_remembered_over_a_restart() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    scene.workload(WorkloadKind::StatefulSet, "tenant-b", "api", INGRESS);
    acted(&daemon, "deleted").await;
    daemon.kill().await;
    let daemon = scene.heal().await;
    says(&held_back(&daemon, "futile").await, "again would only loop");
    assert_eq!(deletions(&scene), 1, "{}", daemon.printed());
    daemon.stop().await;
}

/// The agent says that it is of a version that nobody has looked at.
async fn unknown_version(args: &[&str]) -> (Scene, Daemon) {
    let scene = Scene::new().await;
    scene.node.agent().inject(
        Fault::rewrite(|mut answer| {
            answer["cilium"]["msg"] = "1.99.0 (v1.99.0-sim)".into();
            answer
        })
        .path("/v1/healthz"),
    );
    let daemon = scene.daemon("heal", args).await;
    scene.wedge();
    (scene, daemon)
}

pub(crate) async fn an_unknown_version_of_cilium_is_only_observed() {
    let (scene, daemon) = unknown_version(&[]).await;
    says(&held_back(&daemon, "agent-version").await, "1.99");
    assert!(scene.is_held(IP));
    scene.nothing_done(&daemon);
    daemon.stop().await;
}

pub(crate) async fn an_unknown_version_of_cilium_is_healed_where_that_is_allowed() {
    let (scene, daemon) = unknown_version(&["--allow-unknown-cilium"]).await;
    healed(&scene, daemon).await;
}
