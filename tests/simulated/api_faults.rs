//! What the API server may do to a read, to the watch and to a deletion.

use std::time::Duration;

use cilium_leak_healer::sim::{Cluster, DeleteOptions, EVENTS, Fault, PODS, WorkloadKind};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::scene::{GONE, INGRESS, IP, NODE, Scene, acted, healed, judged};

/// A read that a fault is to meet.
type Aim = fn(Fault) -> Fault;

fn owner(fault: Fault) -> Fault {
    fault.on("GET").path("/namespaces/backup/pods/agent-old")
}

fn users_of_the_address(fault: Fault) -> Fault {
    fault.on("GET").path("/api/v1/pods").query("status.podIP")
}

fn ciliumnode(fault: Fault) -> Fault {
    fault.on("GET").path("/ciliumnodes/")
}

fn events(fault: Fault) -> Fault {
    fault.on("GET").path("/events")
}

/// With each kind of failure of this read: nothing is done.
async fn insufficient_while(aim: Aim) {
    let faults = [Fault::status(403), Fault::status(500), Fault::hang(), Fault::garbage("{\"kind\": 7")];
    join_all(faults.map(|fault| async move {
        let scene = Scene::new().await;
        let injected = scene.cluster.api().inject(aim(fault));
        let daemon = scene.heal().await;
        let pod = scene.wedge();
        let judged = judged(&daemon, pod, "insufficient-evidence").await;
        assert_eq!(judged["remedy"], "none");
        assert!(injected.hits() > 0);
        assert!(scene.is_held(IP));
        scene.nothing_done(&daemon);
        daemon.stop().await;
    }))
    .await;
}

pub(crate) async fn an_unreadable_owner_is_insufficient_evidence() {
    insufficient_while(owner).await;
}

pub(crate) async fn unreadable_users_of_the_address_are_insufficient_evidence() {
    insufficient_while(users_of_the_address).await;
}

pub(crate) async fn an_unreadable_ciliumnode_is_insufficient_evidence() {
    insufficient_while(ciliumnode).await;
}

pub(crate) async fn unreadable_events_are_insufficient_evidence() {
    insufficient_while(events).await;
}

pub(crate) async fn an_owner_that_can_be_read_again_is_healed() {
    let scene = Scene::new().await;
    let fault = scene.cluster.api().inject(owner(Fault::status(500)));
    let daemon = scene.heal().await;
    let pod = scene.wedge();
    judged(&daemon, pod, "insufficient-evidence").await;
    fault.remove();
    healed(&scene, daemon).await;
}

/// A malformed pod in the first list and one in a watch event; a wedge that comes after them is healed.
async fn skipped_and_counted(malformed: fn(&str) -> Value) {
    let scene = Scene::new().await;
    let api = scene.cluster.api();
    api.insert_raw(&PODS, "odd", "listed", malformed("listed"));
    let daemon = scene.heal().await;
    let counter = "cilium_leak_healer_malformed_objects_total{resource=\"pods\"}";
    daemon.metric_reaches(counter, 1.0).await;
    api.insert_raw(&PODS, "odd", "watched", malformed("watched"));
    daemon.metric_reaches(counter, 2.0).await;
    scene.wedge();
    acted(&daemon, "healed").await;
    let restarts = daemon.metric("cilium_leak_healer_watch_restarts_total").await;
    assert!(restarts < 0.5, "the watch went on, and was begun anew {restarts} times");
    healed(&scene, daemon).await;
}

pub(crate) async fn a_pod_that_is_malformed_is_skipped_and_counted() {
    skipped_and_counted(|name| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "odd", "name": name, "uid": name},
            "spec": {"nodeName": NODE, "hostNetwork": "perhaps"}, "status": {"conditions": 7},
        })
    })
    .await;
}

pub(crate) async fn a_pod_whose_metadata_are_malformed_is_skipped_and_counted() {
    skipped_and_counted(|name| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "odd", "name": name, "uid": name, "labels": "none", "creationTimestamp": "yesterday"},
            "spec": {"nodeName": NODE},
        })
    })
    .await;
}

/// Requests that list or watch the node's pods.
fn pod_requests(cluster: &Cluster, watch: bool) -> usize {
    let requests = cluster.api().requests().into_iter();
    let of_node = requests.filter(|request| request.query.contains("spec.nodeName"));
    of_node.filter(|request| request.query.contains("watch=") == watch).count()
}

pub(crate) async fn a_watch_that_is_cut_resumes() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    scene.wait("the first watch", |cluster| pod_requests(cluster, true) == 1).await;
    scene.cluster.api().cut_watches();
    scene.wait("the next watch", |cluster| pod_requests(cluster, true) == 2).await;
    assert_eq!(pod_requests(&scene.cluster, false), 1, "no second list");
    scene.wedge();
    healed(&scene, daemon).await;
}

pub(crate) async fn a_watch_from_a_version_too_old_lists_anew() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    scene.wait("the first watch", |cluster| pod_requests(cluster, true) == 1).await;
    // Its Events are newer than all that the watch on pods has told.
    scene.pod("shop", "news", "10.244.1.21");
    scene.runs("shop", "news").await;
    let started = |cluster: &Cluster| {
        let events = cluster.api().list(&EVENTS, "shop", "involvedObject.name=news", "").unwrap_or_default();
        events.iter().any(|event| event["reason"] == "Started")
    };
    scene.wait("its Events", started).await;
    scene.cluster.api().compact();
    scene.cluster.api().cut_watches();
    scene.wait("a second list", |cluster| pod_requests(cluster, false) == 2).await;
    scene.wedge();
    healed(&scene, daemon).await;
}

pub(crate) async fn the_api_server_stops_and_comes_back() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    daemon.answers("/readyz", 200).await;
    scene.cluster.api().pause().await;
    scene.wedge();
    let said = daemon.answers("/readyz", 500).await;
    assert!(said.contains("[-]pod-watch failed"), "{said}");
    let away = |line: &Value| line["message"] == "the watch on pods does not work; it is tried again";
    daemon.line("the API server is away", away).await;
    assert_eq!(daemon.get("/livez").await.status, 200, "no reason for a restart");
    scene.nothing_done(&daemon);
    scene.cluster.api().resume().await.expect("the same port");
    daemon.answers("/readyz", 200).await;
    healed(&scene, daemon).await;
}

/// A pod of a StatefulSet on the ingress address is replaced while a request meets a delay; the new one must stay.
async fn replaced_during(request: Fault) {
    let scene = Scene::new().await;
    let delayed = scene.cluster.api().inject(request.once());
    let daemon = scene.heal().await;
    scene.workload(WorkloadKind::StatefulSet, "tenant-b", "api", INGRESS);
    scene.wait("the request", |_| delayed.hits() == 1).await;
    let first = scene.uid_of("tenant-b", "api-0").expect("the pod");
    scene.delete("tenant-b", "api-0", &DeleteOptions::now());
    let replaced = |cluster: &Cluster| {
        let pod = cluster.api().get(&PODS, "tenant-b", "api-0");
        pod.is_ok_and(|pod| pod["metadata"]["uid"] != first.as_str())
    };
    scene.wait("the replacement", replaced).await;
    let second = scene.uid_of("tenant-b", "api-0");
    acted(&daemon, "aborted").await;
    assert_eq!(scene.uid_of("tenant-b", "api-0"), second);
    let pod = scene.cluster.api().get(&PODS, "tenant-b", "api-0").expect("the pod");
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
    daemon.stop().await;
}

pub(crate) async fn a_pod_replaced_during_its_deletion_stays() {
    let delete = Fault::delay(Duration::from_millis(500)).on("DELETE");
    replaced_during(delete.path("/namespaces/tenant-b/pods/api-0")).await;
}

pub(crate) async fn a_pod_replaced_between_judgement_and_act_stays() {
    // Of a pod on a reserved address the first GET by name is that before the act.
    let get = Fault::delay(Duration::from_millis(500)).on("GET");
    replaced_during(get.path("/namespaces/tenant-b/pods/api-0")).await;
}

pub(crate) async fn an_owner_that_appears_between_judgement_and_act_keeps_its_endpoint() {
    let scene = Scene::new().await;
    // The wedged pod is read by name only before the act.
    let delay = Fault::delay(Duration::from_millis(500)).on("GET");
    let before_act = scene.cluster.api().inject(delay.path("/namespaces/shop/pods/cart"));
    let daemon = scene.heal().await;
    scene.wedge();
    scene.wait("the last look", |_| before_act.hits() == 1).await;
    let owner = json!({
        "metadata": {"namespace": GONE.0, "name": GONE.1}, "spec": {"nodeName": NODE},
        "status": {"phase": "Running", "podIP": IP, "podIPs": [{"ip": IP}]},
    });
    scene.cluster.api().create(&PODS, owner).expect("a pod");
    acted(&daemon, "aborted").await;
    let judged = judged(&daemon, "shop/cart", "live-duplicate").await;
    assert_eq!(judged["remedy"], "none");
    assert!(scene.is_held(IP));
    assert!(scene.disconnects().is_empty());
    daemon.stop().await;
}
