//! What the agent may do to a look-up and to a disconnect.

use std::time::Duration;

use cilium_leak_healer::sim::{AgentVersion, Fault};
use jiff::Timestamp;
use serde_json::Value;

use crate::scene::{IP, Scene, acted, count_acted, healed, judged, old_endpoint};

/// While look-ups meet the fault nothing is done; once it is over the leak is healed.
async fn unknown_while(fault: Fault) {
    let scene = Scene::new().await;
    let injected = scene.node.agent().inject(fault.on("GET").path("/endpoint/ipv4"));
    let daemon = scene.heal().await;
    let pod = scene.wedge();
    let judged = judged(&daemon, pod, "agent-unknown").await;
    assert_eq!(judged["remedy"], "none");
    assert!(scene.is_held(IP));
    scene.nothing_done(&daemon);
    injected.remove();
    healed(&scene, daemon).await;
}

pub(crate) async fn a_look_up_answered_429_is_agent_unknown() {
    unknown_while(Fault::status(429)).await;
}

pub(crate) async fn a_look_up_answered_503_is_agent_unknown() {
    unknown_while(Fault::status(503)).await;
}

pub(crate) async fn a_look_up_answered_403_is_agent_unknown() {
    unknown_while(Fault::status(403)).await;
}

pub(crate) async fn a_look_up_that_hangs_is_agent_unknown() {
    unknown_while(Fault::hang()).await;
}

pub(crate) async fn a_look_up_with_half_a_body_is_agent_unknown() {
    unknown_while(Fault::half_body()).await;
}

pub(crate) async fn a_look_up_answered_with_garbage_is_agent_unknown() {
    unknown_while(Fault::garbage("<html>not an endpoint</html>")).await;
}

pub(crate) async fn a_look_up_answered_404_by_the_router_is_agent_unknown() {
    let body = "{\"code\":404,\"message\":\"path /v1/endpoint/ipv4:10.244.1.50 was not found\"}";
    unknown_while(Fault::answer(404, "application/json", body)).await;
}

pub(crate) async fn an_agent_that_is_stopped_is_agent_unknown() {
    let scene = Scene::without_kubelet().await;
    scene.leak("backup", "agent-old", IP);
    scene.pod("shop", "cart", IP);
    scene.failure("shop", "cart", &crate::scene::refusal(&format!("ipv4:{IP}")));
    scene.node.agent().stop().await;
    let daemon = scene.heal().await;
    let judged = judged(&daemon, "shop/cart", "agent-unknown").await;
    assert_eq!(judged["remedy"], "none");
    let said = daemon.answers("/readyz", 500).await;
    assert!(said.contains("[-]agent failed: no socket at"), "{said}");
    let is_it = |line: &Value| line["message"] == "the agent cannot be reached";
    daemon.line("the agent is away", is_it).await;
    scene.node.agent().start(Timestamp::now()).expect("a socket");
    daemon.answers("/readyz", 200).await;
    scene.nothing_done(&daemon);
    daemon.stop().await;
}

pub(crate) async fn an_unreadable_configuration_withholds_the_disconnect() {
    let scene = Scene::new().await;
    let fault = scene.node.agent().inject(Fault::status(503).path("/v1/config"));
    let daemon = scene.heal().await;
    let pod = scene.wedge();
    let judged = judged(&daemon, pod, "stale-endpoint").await;
    assert_eq!(judged["remedy"], "none");
    let reason = judged["reason"].as_str().expect("a reason");
    assert!(reason.contains("disconnecting is withheld"), "{reason}");
    scene.nothing_done(&daemon);
    fault.remove();
    healed(&scene, daemon).await;
}

pub(crate) async fn unreadable_allocations_abort_the_disconnect() {
    let scene = Scene::new().await;
    let fault = scene.node.agent().inject(Fault::status(500).path("/v1/healthz"));
    // The version comes from the same page, and would hold it back before.
    let daemon = scene.daemon("heal", &["--allow-unknown-cilium"]).await;
    scene.wedge();
    let aborted = acted(&daemon, "aborted").await;
    let reason = aborted["reason"].as_str().expect("a reason");
    assert!(reason.contains("allocations could not be read"), "{reason}");
    assert!(scene.is_held(IP));
    assert!(scene.disconnects().is_empty());
    fault.remove();
    healed(&scene, daemon).await;
}

pub(crate) async fn an_address_that_another_pod_has_in_the_ipam_aborts_the_disconnect() {
    let scene = Scene::new().await;
    let ip = IP.parse().expect("an address");
    scene.node.agent().claim_address(ip, "shop/newcomer");
    let daemon = scene.heal().await;
    scene.wedge();
    let aborted = acted(&daemon, "aborted").await;
    let reason = aborted["reason"].as_str().expect("a reason");
    assert!(reason.contains("allocated to \"shop/newcomer\""), "{reason}");
    assert!(scene.is_held(IP));
    assert!(scene.disconnects().is_empty());
    scene.node.agent().free_address(ip);
    healed(&scene, daemon).await;
}

pub(crate) async fn a_delete_answered_206_heals() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let mut endpoint = old_endpoint("backup", "agent-old", IP);
    endpoint.cleanup_errors = 2;
    scene.node.agent().leak(endpoint).expect("an endpoint");
    scene.pod("shop", "cart", IP);
    let freed = acted(&daemon, "freed").await;
    let reason = freed["reason"].as_str().expect("a reason");
    // The kubelet's next try may already have the address.
    assert!(reason.starts_with("removed, with 2 clean-up errors in the agent"), "{reason}");
    let partial = "cilium_leak_healer_agent_requests_total{call=\"delete-endpoint\",outcome=\"partial\"}";
    assert!((daemon.metric(partial).await - 1.0).abs() < f64::EPSILON);
    healed(&scene, daemon).await;
}

pub(crate) async fn a_pod_that_gets_no_sandbox_after_the_disconnect_is_not_healed() {
    let scene = Scene::new().await;
    let delete = scene.node.agent().inject(Fault::delay(Duration::from_millis(500)).on("DELETE"));
    let daemon = scene.daemon("heal", &["--verify-timeout", "2s"]).await;
    scene.wedge();
    scene.wait("the DELETE", |_| delete.hits() == 1).await;
    // Before the address is free something else comes in the kubelet's way.
    let other = scene.node.agent().inject(Fault::status(500).on("PUT"));
    acted(&daemon, "freed").await;
    acted(&daemon, "not-healed").await;
    assert_eq!(count_acted(&daemon, "healed"), 0, "{}", daemon.printed());
    other.remove();
    assert_eq!(scene.runs("shop", "cart").await, IP);
    assert_eq!(scene.disconnects().len(), 1);
    daemon.stop().await;
}

/// The DELETE gets no answer in time and works all the same.
async fn late(fault: Fault) {
    let scene = Scene::new().await;
    scene.node.agent().inject(fault.on("DELETE").once());
    let daemon = scene.heal().await;
    scene.wedge();
    let freed = acted(&daemon, "freed").await;
    let reason = freed["reason"].as_str().expect("a reason");
    assert!(reason.contains("no answer to the DELETE"), "{reason}");
    acted(&daemon, "healed").await;
    assert_eq!(scene.disconnects().len(), 1);
    assert_eq!(count_acted(&daemon, "failed"), 0, "{}", daemon.printed());
    healed(&scene, daemon).await;
}

pub(crate) async fn a_delete_whose_answer_comes_too_late_heals_and_is_told_once() {
    late(Fault::late_answer(Duration::from_secs(3))).await;
}

pub(crate) async fn a_delete_that_takes_effect_late_heals_and_is_told_once() {
    late(Fault::late_effect(Duration::from_secs(2))).await;
}

/// The first DELETE fails with this status, which is told; the next one heals.
async fn fails_once(status: u16) {
    let scene = Scene::new().await;
    scene.node.agent().inject(Fault::status(status).on("DELETE").once());
    let daemon = scene.heal().await;
    scene.wedge();
    let failed = acted(&daemon, "failed").await;
    let reason = failed["reason"].as_str().expect("a reason");
    assert!(reason.contains(&status.to_string()), "{reason}");
    assert!(scene.is_held(IP));
    healed(&scene, daemon).await;
}

pub(crate) async fn a_delete_answered_429_fails_and_heals_when_it_is_over() {
    fails_once(429).await;
}

pub(crate) async fn a_delete_answered_403_fails_and_heals_when_it_is_over() {
    fails_once(403).await;
}

pub(crate) async fn a_delete_answered_400_fails_and_heals_when_it_is_over() {
    fails_once(400).await;
}

pub(crate) async fn a_delete_answered_503_is_tried_again_later_each_time() {
    let scene = Scene::new().await;
    scene.node.agent().inject(Fault::status(503).on("DELETE").times(2));
    let daemon = scene.heal().await;
    scene.wedge();
    acted(&daemon, "healed").await;
    assert_eq!(count_acted(&daemon, "failed"), 2, "{}", daemon.printed());
    let at: Vec<Timestamp> = scene.disconnects().into_iter().map(|request| request.at).collect();
    let &[first, second, third] = at.as_slice() else {
        panic!("three tries, not {at:?}");
    };
    let pauses = [second.duration_since(first), third.duration_since(second)];
    assert!(pauses[0].as_secs() >= 5 && pauses[1] > pauses[0], "{pauses:?}");
    healed(&scene, daemon).await;
}

pub(crate) async fn a_delete_answered_404_is_not_believed() {
    let scene = Scene::new().await;
    scene.node.agent().inject(Fault::status(404).on("DELETE").once());
    let daemon = scene.heal().await;
    scene.wedge();
    let failed = acted(&daemon, "failed").await;
    let reason = failed["reason"].as_str().expect("a reason");
    assert!(reason.contains("still holds it"), "{reason}");
    healed(&scene, daemon).await;
}

pub(crate) async fn an_agent_that_restarts_between_judgement_and_act_is_settling() {
    // On 1.14 the identifiers name the owner also after the restart, which forgets its controllers.
    let scene = Scene::of_version(AgentVersion::V1_14).await;
    let daemon = scene.daemon("heal", &["--confirm-gap", "3s"]).await;
    // An ended pod of that name is there still, so that the agent restores the endpoint.
    let ended = serde_json::json!({
        "metadata": {"namespace": "backup", "name": "agent-old"}, "spec": {"nodeName": "worker-1"},
        "status": {"phase": "Succeeded"},
    });
    let api = scene.cluster.api();
    api.create(&cilium_leak_healer::sim::PODS, ended).expect("a pod");
    let pod = scene.wedge();
    judged(&daemon, pod, "stale-endpoint").await;
    scene.node.agent().restart(Timestamp::now()).await.expect("a socket");
    let settling = |line: &Value| {
        line["message"] == "judged"
            && line["verdict"] == "settling"
            && line["reason"].as_str().is_some_and(|reason| reason.starts_with("the agent started"))
    };
    daemon.line("settling", settling).await;
    assert!(scene.is_held(IP));
    scene.nothing_done(&daemon);
    daemon.stop().await;
}
