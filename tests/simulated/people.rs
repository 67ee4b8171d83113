//! What people may ask of it: a pause, an opt-out, namespaces that it keeps away from.

use cilium_leak_healer::sim::{Fault, NAMESPACES, PODS, WorkloadKind};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::scene::{GONE, INGRESS, IP, NODE, Scene, acted, healed};

const OWN: &str = "cilium-leak-healer";
const OPT_OUT: &str = "cilium-leak-healer/opt-out";

/// The first time that something is held back by this.
pub(crate) async fn held_back(daemon: &Daemon, by: &str) -> Value {
    let is_it = |line: &Value| line["message"] == "held back" && line["by"] == by;
    daemon.line(&format!("held back by {by}"), is_it).await
}

/// That reason names this.
pub(crate) fn says(line: &Value, text: &str) {
    let reason = line["reason"].as_str().unwrap_or_default();
    assert!(reason.contains(text), "{line}");
}

fn namespace(scene: &Scene, name: &str, labels: &Value) {
    let object = json!({"metadata": {"name": name, "labels": labels}, "status": {"phase": "Active"}});
    scene.cluster.api().create(&NAMESPACES, object).expect("a namespace");
}

/// No pod was deleted; a dry run deletes nothing.
pub(crate) fn deletions(scene: &Scene) -> usize {
    let requests = scene.cluster.api().requests().into_iter();
    let deletes = |path: &str| path.contains("/pods/");
    let real =
        requests.filter(|it| it.method == "DELETE" && deletes(&it.path) && !it.query.contains("dryRun"));
    real.filter(|it| it.status < 300).count()
}

/// Held back by that word and left alone.
async fn left_alone(scene: &Scene, daemon: Daemon, by: &str, text: &str) {
    says(&held_back(&daemon, by).await, text);
    assert!(scene.is_held(IP));
    assert_eq!(deletions(scene), 0);
    scene.nothing_done(&daemon);
    daemon.stop().await;
}

pub(crate) async fn healing_ends_with_its_time() {
    let scene = Scene::new().await;
    let daemon = scene.daemon("heal", &["--heal-for", "1s"]).await;
    scene.wedge();
    left_alone(&scene, daemon, "heal-for", "--heal-for=1s is over: it only tells").await;
    let daemon = scene.daemon("heal", &["--heal-for", "1h"]).await;
    healed(&scene, daemon).await;
}

pub(crate) async fn a_pause_stops_all_acts_is_told_once_and_its_end_resumes() {
    let scene = Scene::new().await;
    let pause = |value: Value| {
        let patch = json!({"metadata": {"annotations": {"cilium-leak-healer/paused": value}}});
        scene.cluster.api().patch_merge(&NAMESPACES, "", OWN, &patch).expect("the own namespace");
    };
    pause("the network is being rebuilt".into());
    let daemon = scene.heal().await;
    scene.wedge();
    scene.workload(WorkloadKind::ReplicaSet, "tenant-b", "api", INGRESS);
    let of = |remedy: &'static str| {
        move |line: &Value| {
            line["message"] == "held back" && line["by"] == "paused" && line["remedy"] == remedy
        }
    };
    for remedy in ["disconnect-endpoint", "delete-pod"] {
        says(&daemon.line(remedy, of(remedy)).await, "the network is being rebuilt");
    }
    scene.nothing_done(&daemon);
    pause(Value::Null);
    acted(&daemon, "deleted").await;
    acted(&daemon, "healed").await;
    for remedy in ["disconnect-endpoint", "delete-pod"] {
        assert_eq!(daemon.matching(of(remedy)).len(), 1, "{}", daemon.printed());
    }
    assert_eq!(deletions(&scene), 1);
    healed(&scene, daemon).await;
}

pub(crate) async fn a_label_on_the_pod_opts_it_out() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    scene.leak(GONE.0, GONE.1, IP);
    let pod = json!({
        "metadata": {
            "namespace": "shop", "name": "cart", "labels": {OPT_OUT: "true"},
            "annotations": {cilium_leak_healer::sim::IP_ANNOTATION: IP},
        },
        "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app"}]},
    });
    scene.cluster.api().create(&PODS, pod).expect("a pod");
    left_alone(&scene, daemon, "opt-out", "the pod shop/cart has the label").await;
}

pub(crate) async fn a_label_on_its_namespace_opts_a_pod_out() {
    let scene = Scene::new().await;
    namespace(&scene, "shop", &json!({OPT_OUT: ""}));
    let daemon = scene.heal().await;
    scene.wedge();
    left_alone(&scene, daemon, "opt-out", "the namespace shop has the label").await;
}

pub(crate) async fn a_label_on_the_owners_namespace_opts_its_endpoint_out() {
    let scene = Scene::new().await;
    namespace(&scene, GONE.0, &json!({OPT_OUT: "true"}));
    let daemon = scene.heal().await;
    scene.wedge();
    left_alone(&scene, daemon, "opt-out", "the namespace backup has the label").await;
}

pub(crate) async fn an_opt_out_that_says_false_is_none() {
    let scene = Scene::new().await;
    namespace(&scene, "shop", &json!({OPT_OUT: "false"}));
    let daemon = scene.heal().await;
    scene.wedge();
    healed(&scene, daemon).await;
}

pub(crate) async fn a_denied_namespace_is_left_alone() {
    let scene = Scene::new().await;
    let daemon = scene.daemon("heal", &["--namespace-deny", "bank,shop"]).await;
    scene.wedge();
    left_alone(&scene, daemon, "namespace", "--namespace-deny names shop").await;
}

pub(crate) async fn a_namespace_that_is_not_allowed_is_left_alone() {
    let scene = Scene::new().await;
    let daemon = scene.daemon("heal", &["--namespace-allow", "bank"]).await;
    scene.wedge();
    left_alone(&scene, daemon, "namespace", "--namespace-allow does not name shop").await;
}

pub(crate) async fn a_system_pod_is_moved_only_where_its_namespace_is_allowed() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    scene.workload(WorkloadKind::ReplicaSet, "kube-system", "dns", INGRESS);
    says(&held_back(&daemon, "namespace").await, "only if --namespace-allow names it");
    assert_eq!(deletions(&scene), 0);
    scene.nothing_done(&daemon);
    daemon.stop().await;
    let daemon = scene.daemon("heal", &["--namespace-allow", "kube-system"]).await;
    acted(&daemon, "deleted").await;
    assert_eq!(deletions(&scene), 1);
    daemon.stop().await;
}

/// A namespace that cannot be read holds back; once it can, the leak is healed.
async fn unreadable(fault: Fault, name: &'static str) {
    let scene = Scene::new().await;
    let path = format!("/api/v1/namespaces/{name}");
    let fault = scene.cluster.api().inject(fault.on("GET").path_matching(move |it| it == path));
    let daemon = scene.heal().await;
    scene.wedge();
    says(&held_back(&daemon, "unreadable").await, &format!("namespaces/{name}"));
    assert!(scene.is_held(IP));
    scene.nothing_done(&daemon);
    fault.remove();
    healed(&scene, daemon).await;
}

pub(crate) async fn a_namespace_that_may_not_be_read_holds_back() {
    unreadable(Fault::status(403), "shop").await;
}

pub(crate) async fn an_owners_namespace_that_cannot_be_read_holds_back() {
    unreadable(Fault::status(500), "backup").await;
}

pub(crate) async fn an_own_namespace_that_cannot_be_read_holds_back() {
    unreadable(Fault::status(500), OWN).await;
}

pub(crate) async fn an_own_namespace_that_is_not_there_holds_back() {
    unreadable(Fault::status(404), OWN).await;
}
