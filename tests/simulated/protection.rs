//! Without a working fence, or with rights that are not as they should be, nothing is done; and everybody is told.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use cilium_leak_healer::sim::{
    ApiOptions, Attributes, EVENTS, Fault, NodeOptions, PODS, WATCHDOG_RIGHTS, WorkloadKind,
};
use serde_json::Value;

use crate::daemon::Daemon;
use crate::people::{deletions, held_back, says};
use crate::scene::{INGRESS, IP, NODE, Scene, acted, healed};

const ACCOUNT: &str = "system:serviceaccount:cilium-leak-healer:cilium-leak-healer";

/// As the manifests make it, without the fence.
fn unfenced() -> ApiOptions {
    ApiOptions { fence: None, ..ApiOptions::with_manifests() }
}

/// As the manifests make it, but for one right.
fn with_right(
    verb: &'static str,
    resource: &'static str,
    subresource: &'static str,
    may: bool,
) -> ApiOptions {
    let options = ApiOptions::with_manifests();
    let usual = options.authorizer.clone().expect("an authorizer");
    let is_it = move |wish: &Attributes| {
        wish.user == ACCOUNT
            && (wish.verb.as_str(), wish.resource.as_str(), wish.subresource.as_str())
                == (verb, resource, subresource)
    };
    let authorizer = move |wish: &Attributes| if is_it(wish) { may } else { usual(wish) };
    ApiOptions { authorizer: Some(Arc::new(authorizer)), ..options }
}

async fn self_test(daemon: &Daemon, begins: &str) -> Value {
    let is_it = |line: &Value| line["message"].as_str().is_some_and(|said| said.starts_with(begins));
    daemon.line(begins, is_it).await
}

async fn state(daemon: &Daemon, state: &str) {
    daemon.metric_reaches(&format!("cilium_leak_healer_fence{{state=\"{state}\"}}"), 1.0).await;
    let body = daemon.get("/metrics").await.body;
    let one =
        body.lines().filter(|line| line.starts_with("cilium_leak_healer_fence{") && line.ends_with(" 1"));
    assert_eq!(one.count(), 1, "{body}");
}

/// Ready and degraded, in these words.
async fn degraded(daemon: &Daemon, words: &str) {
    let said = daemon.answers("/readyz", 200).await;
    assert!(said.contains("[!]fence degraded: ") && said.contains(words), "{said}");
    assert!(said.ends_with("readyz check passed, degraded\n"), "{said}");
}

/// A wedge is there, and nothing is done about it.
async fn nothing_follows(scene: &Scene, daemon: &Daemon, words: &str) {
    scene.wedge();
    says(&held_back(daemon, "fence").await, words);
    assert!(scene.is_held(IP));
    assert!(scene.disconnects().is_empty());
    assert_eq!(deletions(scene), 0);
    let acts = daemon.matching(|line| line["message"] == "acting" || line["message"] == "acted");
    assert!(acts.is_empty(), "{acts:?}");
}

pub(crate) async fn without_a_fence_nothing_is_done_and_everybody_is_told() {
    let scene = Scene::behind(unfenced(), |_| {}).await;
    let daemon = scene.heal().await;
    let told = self_test(&daemon, "self-test failed: nothing is done").await;
    assert_eq!(told["level"], "ERROR", "{told}");
    says(&told, "kubectl apply -f rbac/fence.yaml");
    degraded(&daemon, "rbac/fence.yaml").await;
    state(&daemon, "missing").await;
    let event = || {
        let events = scene.cluster.api().list(&EVENTS, "", "", "").expect("the Events");
        events.into_iter().find(|event| event["reason"] == "FenceMissing")
    };
    scene.wait("the Event", |_| event().is_some()).await;
    let event = event().expect("it was there");
    assert_eq!(event["involvedObject"]["kind"], "Node", "{event}");
    assert_eq!(event["involvedObject"]["name"], NODE, "{event}");
    assert_eq!(event["type"], "Warning", "{event}");
    let message = event["message"].as_str().expect("a message");
    assert!(message.contains("nothing is healed") && message.contains("rbac/fence.yaml"), "{message}");
    nothing_follows(&scene, &daemon, "rbac/fence.yaml").await;
    // Nor is a pod moved.
    scene.workload(WorkloadKind::ReplicaSet, "tenant-b", "api", INGRESS);
    let moved = |line: &Value| {
        line["message"] == "held back" && line["by"] == "fence" && line["remedy"] == "delete-pod"
    };
    daemon.line("the pod is not moved", moved).await;
    assert_eq!(deletions(&scene), 0);
    daemon.stop().await;
}

pub(crate) async fn a_fence_that_is_not_required_is_missed_aloud() {
    let scene = Scene::behind(unfenced(), |_| {}).await;
    let daemon = scene.daemon("heal", &["--require-fence=false"]).await;
    let told = self_test(&daemon, "self-test failed, and --require-fence=false").await;
    assert_eq!(told["level"], "ERROR", "{told}");
    assert!(told["message"].as_str().is_some_and(|said| said.contains("WITHOUT a working fence")), "{told}");
    degraded(&daemon, "it acts all the same").await;
    state(&daemon, "missing").await;
    scene.wedge();
    healed(&scene, daemon).await;
}

pub(crate) async fn a_right_too_many_counts_as_no_protection() {
    let scene = Scene::behind(with_right("create", "pods", "exec", true), |_| {}).await;
    let daemon = scene.heal().await;
    says(&self_test(&daemon, "self-test failed").await, "pods/exec");
    state(&daemon, "missing").await;
    nothing_follows(&scene, &daemon, "which it must not have").await;
    daemon.stop().await;
}

pub(crate) async fn a_right_too_few_counts_as_no_protection() {
    let scene = Scene::behind(with_right("get", "namespaces", "", false), |_| {}).await;
    let daemon = scene.heal().await;
    state(&daemon, "missing").await;
    nothing_follows(&scene, &daemon, "kubectl apply -f rbac/heal.yaml").await;
    daemon.stop().await;
}

pub(crate) async fn reviews_that_are_not_answered_leave_it_unknown() {
    let scene = Scene::new().await;
    scene.cluster.api().inject(Fault::hang().on("POST").path("reviews"));
    let daemon = scene.daemon("heal", &["--api-timeout", "1s"]).await;
    let told = self_test(&daemon, "self-test could not be made").await;
    assert_eq!(told["level"], "WARN", "{told}");
    state(&daemon, "unknown").await;
    degraded(&daemon, "unknown").await;
    nothing_follows(&scene, &daemon, "the self-test could not be made").await;
    let events = scene.cluster.api().list(&EVENTS, "", "", "").expect("the Events");
    assert!(!events.iter().any(|event| event["reason"] == "FenceMissing"), "{events:?}");
    daemon.stop().await;
}

pub(crate) async fn a_fence_that_comes_later_lets_it_heal() {
    let scene = Scene::new().await;
    // What an API server without the fence answers to the dry run.
    let own = format!("cilium-leak-healer-{NODE}");
    let pod = scene.cluster.api().get(&PODS, "cilium-leak-healer", &own).expect("its pod").to_string();
    let unfenced = Fault::answer(200, "application/json", pod).on("DELETE").query("dryRun");
    let unfenced = scene.cluster.api().inject(unfenced);
    let daemon = scene.heal().await;
    state(&daemon, "missing").await;
    nothing_follows(&scene, &daemon, "rbac/fence.yaml").await;
    let since = std::time::Instant::now();
    unfenced.remove();
    self_test(&daemon, "self-test: the rights are right").await;
    assert!(since.elapsed().as_secs() <= 22, "{:?}", since.elapsed());
    let said = daemon.answers("/readyz", 200).await;
    assert_eq!(said, "ok");
    state(&daemon, "working").await;
    healed(&scene, daemon).await;
}

pub(crate) async fn an_account_that_may_not_delete_pods_disconnects_without_a_fence() {
    let options = ApiOptions { fence: None, ..with_right("delete", "pods", "", false) };
    let scene = Scene::behind(options, |_| {}).await;
    let daemon = scene.daemon("heal", &["--remedies", "disconnect-endpoint"]).await;
    self_test(&daemon, "self-test: the rights are right").await;
    scene.workload(WorkloadKind::ReplicaSet, "tenant-b", "api", INGRESS);
    says(&held_back(&daemon, "remedy-off").await, "delete-pod is off");
    scene.wedge();
    acted(&daemon, "healed").await;
    assert_eq!(deletions(&scene), 0);
    healed(&scene, daemon).await;
}

pub(crate) async fn an_account_that_may_delete_pods_and_need_not_has_a_right_too_many() {
    let scene = Scene::new().await;
    let daemon = scene.daemon("heal", &["--remedies", "disconnect-endpoint"]).await;
    state(&daemon, "missing").await;
    nothing_follows(&scene, &daemon, "the right to delete pods").await;
    daemon.stop().await;
}

pub(crate) async fn a_token_of_another_node_counts_as_no_protection() {
    let scene = Scene::new().await;
    let sockets = Path::new(&scene.state_dir()).with_file_name("run2");
    let other = scene.cluster.add_node(NodeOptions::new("worker-2", 2, sockets)).expect("a node");
    let stolen = scene.cluster.watchdog_kubeconfig(&other).expect("its watchdog's pod");
    std::fs::write(scene.kubeconfig(), stolen).expect("a kubeconfig");
    let daemon = scene.heal().await;
    says(&self_test(&daemon, "self-test failed").await, "bound to node worker-2");
    state(&daemon, "missing").await;
    nothing_follows(&scene, &daemon, "bound to node worker-2").await;
    daemon.stop().await;
}

pub(crate) async fn a_token_that_names_no_node_counts_as_no_protection() {
    let scene = Scene::new().await;
    let token = scene.cluster.api().token_of_account("cilium-leak-healer", "cilium-leak-healer");
    std::fs::write(scene.kubeconfig(), scene.cluster.kubeconfig_for(&token)).expect("a kubeconfig");
    let daemon = scene.heal().await;
    says(&self_test(&daemon, "self-test failed").await, "names no node");
    nothing_follows(&scene, &daemon, "names no node").await;
    daemon.stop().await;
}

/// What a role of `rbac/` gives: verb, group, resource, namespace, name.
fn rights_of(role: &Value) -> Vec<[String; 5]> {
    let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
    let mut rights = Vec::new();
    // The role for people has paths alone; nobody is bound to it.
    let of_paths = |rule: &&Value| rule["nonResourceURLs"].is_array();
    let rules = role["rules"].as_array().into_iter().flatten().filter(|rule| !of_paths(rule));
    for rule in rules {
        let each = |field: &str| -> Vec<&str> {
            rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let names = if rule["resourceNames"].is_array() { each("resourceNames") } else { vec![""] };
        let (groups, resources) = (each("apiGroups"), each("resources"));
        let (&[group], &[resource]) = (groups.as_slice(), resources.as_slice()) else {
            panic!("a rule of several groups or resources: {rule}");
        };
        for verb in each("verbs") {
            rights
                .extend(names.iter().map(|name| [verb, group, resource, namespace, name].map(str::to_owned)));
        }
    }
    rights
}

pub(crate) async fn the_simulated_rights_are_those_of_the_manifests() {
    let mut given = BTreeSet::new();
    for file in ["observe", "heal", "restart-agent", "auth"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("rbac/{file}.yaml"));
        let text = std::fs::read_to_string(path).expect("a manifest");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
        given.extend(documents.iter().flat_map(rights_of));
    }
    let simulated = WATCHDOG_RIGHTS.iter().map(|(verb, group, resource, namespace, name)| {
        [*verb, *group, *resource, *namespace, *name].map(str::to_owned)
    });
    assert_eq!(simulated.collect::<BTreeSet<_>>(), given);
}
