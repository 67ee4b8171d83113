//! The remedy `restart-agent`: once, by the two histories only, and only where nothing speaks against it.

use std::time::Duration;

use cilium_leak_healer::sim::{
    ApiOptions, Cluster, DAEMON_SETS, Fault, Fence, Injected, LEASES, NAMESPACES, NODES, PODS, RequestRecord,
};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::people::says;
use crate::scene::{IP, NODE, Scene};

const REMEDIES: [&str; 2] = ["--remedies", "disconnect-endpoint,delete-pod,restart-agent"];
/// The agent's pod is as young as the test: no time to settle.
const SETTLED: [&str; 2] = ["--agent-settle", "0s"];

fn agent_pod(cluster: &Cluster) -> Option<Value> {
    let pods = cluster.api().list(&PODS, "kube-system", "", "k8s-app=cilium").expect("the pods");
    pods.into_iter().find(|pod| pod["status"]["phase"] == "Running")
}

/// A node whose agent has a pod, behind the fence that lets it be deleted.
async fn with_agent_pod() -> Scene {
    fenced(true).await
}

async fn fenced(restart_agent: bool) -> Scene {
    let fence = Some(Fence { restart_agent, ..Fence::default() });
    let api = ApiOptions { fence, ..ApiOptions::with_manifests() };
    let scene = Scene::behind(api, |options| {
        options.with_agent_pod = true;
        // A kubelet writes 25 Events at once and then hardly any: they must last.
        options.kubelet.retry = Duration::from_secs(4);
    })
    .await;
    scene.wait("the agent's pod", |cluster| agent_pod(cluster).is_some()).await;
    // A failure counts if it is later than the agent's start, in whole seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene
}

/// The agent refuses each new endpoint because of this address, and says that nobody holds it.
fn hide_a_holder(scene: &Scene, ip: &str) -> Injected {
    let refusal = format!("\"IP ipv4:{ip} is already in use\"\n");
    scene.node.agent().inject(Fault::answer(400, "application/json", refusal).on("PUT"))
}

async fn told(daemon: &Daemon, message: &str, key: &str, word: &str) -> Value {
    let is_it =
        |line: &Value| line["message"] == message && line["remedy"] == "restart-agent" && line[key] == word;
    daemon.line(&format!("{message} {word}"), is_it).await
}

/// The deletions of the agent's pods, by anybody over HTTP.
fn restarts(scene: &Scene) -> Vec<RequestRecord> {
    let requests = scene.cluster.api().requests().into_iter();
    let is_it = |it: &RequestRecord| it.method == "DELETE" && it.path.contains("/kube-system/pods/");
    requests.filter(is_it).collect()
}

/// Writes to the Lease that a restart needs: who had it from then on.
fn holders(scene: &Scene) -> Vec<Value> {
    let requests = scene.cluster.api().requests().into_iter();
    let writes =
        requests.filter(|it| it.method == "PUT" && it.path.ends_with("/cilium-leak-healer-restart-agent"));
    let body = |it: RequestRecord| serde_json::from_str::<Value>(&it.body).expect("a Lease");
    writes.map(|it| body(it)["spec"]["holderIdentity"].clone()).collect()
}

/// The pod was deleted once, in the way that it should be, and the Lease was held meanwhile.
async fn restarted_once(scene: &Scene, former: &Value) {
    let deleted = restarts(scene);
    assert_eq!(deleted.len(), 1, "{deleted:?}");
    let name = former["metadata"]["name"].as_str().expect("its name");
    assert!(deleted[0].path.ends_with(&format!("/{name}")), "{deleted:?}");
    let options: Value = serde_json::from_str(&deleted[0].body).expect("delete options");
    assert_eq!(options["preconditions"]["uid"], former["metadata"]["uid"]);
    assert!(options["gracePeriodSeconds"].is_null(), "{options}");
    scene.wait("the Lease is given back", |_| holders(scene).len() == 2).await;
    assert_eq!(holders(scene), [json!(NODE), Value::Null]);
}

pub(crate) async fn a_phantom_holder_leads_to_one_restart() {
    let scene = with_agent_pod().await;
    let former = agent_pod(&scene.cluster).expect("it is there");
    // The agent says that it is deleted, and keeps it.
    scene.node.agent().inject(Fault::answer(200, "", "").on("DELETE"));
    let daemon = scene.daemon("heal", &[REMEDIES, SETTLED].concat()).await;
    scene.wedge();
    told_of(&daemon, "disconnect-endpoint", "failed").await;
    // A DELETE can hang and succeed late: it waits for a minute.
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert!(restarts(&scene).is_empty(), "{}", daemon.printed());
    says(&told(&daemon, "acting", "target", &agent_name(&former)).await, "phantom-holder");
    told(&daemon, "acted", "outcome", "healed").await;
    assert_eq!(scene.runs("shop", "cart").await, IP);
    restarted_once(&scene, &former).await;
    assert_eq!(scene.disconnects().len(), 1, "{}", daemon.printed());
    daemon.stop().await;
}

async fn told_of(daemon: &Daemon, remedy: &str, outcome: &str) {
    let is_it =
        |line: &Value| line["message"] == "acted" && line["remedy"] == remedy && line["outcome"] == outcome;
    daemon.line(&format!("{remedy} {outcome}"), is_it).await;
}

fn agent_name(pod: &Value) -> String {
    format!("kube-system/{}", pod["metadata"]["name"].as_str().expect("its name"))
}

pub(crate) async fn a_hidden_holder_leads_to_one_restart_and_a_second_one_to_none() {
    let scene = with_agent_pod().await;
    let former = agent_pod(&scene.cluster).expect("it is there");
    let hidden = hide_a_holder(&scene, IP);
    let args = [&REMEDIES[..], &SETTLED, &["--restart-quiet", "0s"]].concat();
    let daemon = scene.daemon("heal", &args).await;
    scene.pod("shop", "cart", IP);
    says(&told(&daemon, "acting", "target", &agent_name(&former)).await, "hidden-holder");
    // The new agent knows nothing of what the former one hid.
    let is_new = |cluster: &Cluster| {
        agent_pod(cluster).is_some_and(|pod| pod["metadata"]["uid"] != former["metadata"]["uid"])
    };
    scene.wait("the new agent", is_new).await;
    hidden.remove();
    told(&daemon, "acted", "outcome", "healed").await;
    assert_eq!(scene.runs("shop", "cart").await, IP);
    restarted_once(&scene, &former).await;
    // Within the day no second one, for another pod and address either.
    let ip = "10.244.1.51";
    hide_a_holder(&scene, ip);
    scene.pod("shop", "basket", ip);
    says(&told(&daemon, "held back", "by", "budget").await, "the budget of restart-agent is spent");
    assert_eq!(restarts(&scene).len(), 1, "{}", daemon.printed());
    daemon.stop().await;
}

pub(crate) async fn without_the_remedy_a_history_is_only_told() {
    let scene = with_agent_pod().await;
    hide_a_holder(&scene, IP);
    let daemon = scene.daemon("heal", &SETTLED).await;
    scene.pod("shop", "cart", IP);
    says(&told(&daemon, "held back", "by", "remedy-off").await, "the remedy restart-agent is off");
    assert!(restarts(&scene).is_empty());
    scene.nothing_done(&daemon);
    daemon.stop().await;
}

/// Something speaks against a restart, in these words.
async fn not_restarted(against: impl FnOnce(&Scene), words: &str) {
    let scene = with_agent_pod().await;
    against(&scene);
    hide_a_holder(&scene, IP);
    let daemon = scene.daemon("heal", &[REMEDIES, SETTLED].concat()).await;
    scene.pod("shop", "cart", IP);
    says(&told(&daemon, "acted", "outcome", "aborted").await, words);
    assert!(restarts(&scene).is_empty(), "{}", daemon.printed());
    scene.wait("the Lease is given back", |_| holders(&scene).last() == Some(&Value::Null)).await;
    daemon.stop().await;
}

pub(crate) async fn on_a_cordoned_node_the_agent_is_not_restarted() {
    let cordon = |scene: &Scene| {
        let patch = json!({"spec": {"unschedulable": true}});
        scene.cluster.api().patch_merge(&NODES, "", NODE, &patch).expect("the Node");
    };
    not_restarted(cordon, "is cordoned").await;
}

pub(crate) async fn during_a_rollout_the_agent_is_not_restarted() {
    let roll = |scene: &Scene| {
        let status = json!({"desiredNumberScheduled": 3, "updatedNumberScheduled": 1});
        scene
            .cluster
            .api()
            .patch_status_merge(&DAEMON_SETS, "kube-system", "cilium", &status)
            .expect("the DaemonSet");
    };
    not_restarted(roll, "a rollout is going on").await;
}

pub(crate) async fn an_agent_that_is_opted_out_is_not_restarted() {
    let opt_out = |scene: &Scene| {
        let pod = agent_pod(&scene.cluster).expect("it is there");
        let name = pod["metadata"]["name"].as_str().expect("its name");
        let patch = json!({"metadata": {"labels": {"cilium-leak-healer/opt-out": "true"}}});
        scene.cluster.api().patch_merge(&PODS, "kube-system", name, &patch).expect("the pod");
    };
    not_restarted(opt_out, "has opted out").await;
}

/// A bound or a person holds a restart back.
async fn held_back(against: impl FnOnce(&Scene), by: &str, words: &str) {
    let scene = with_agent_pod().await;
    against(&scene);
    hide_a_holder(&scene, IP);
    let daemon = scene.daemon("heal", &[REMEDIES, SETTLED].concat()).await;
    scene.pod("shop", "cart", IP);
    says(&told(&daemon, "held back", "by", by).await, words);
    assert!(restarts(&scene).is_empty(), "{}", daemon.printed());
    scene.nothing_done(&daemon);
    daemon.stop().await;
}

pub(crate) async fn while_another_node_restarts_its_agent_this_one_waits() {
    let hold = |scene: &Scene| {
        let spec = json!({"spec": {"holderIdentity": "worker-9", "leaseDurationSeconds": 900}});
        let name = "cilium-leak-healer-restart-agent";
        scene.cluster.api().patch_merge(&LEASES, "cilium-leak-healer", name, &spec).expect("the Lease");
    };
    held_back(hold, "lease", "held, by worker-9").await;
}

pub(crate) async fn a_pause_stops_a_restart() {
    let pause = |scene: &Scene| {
        let patch = json!({"metadata": {"annotations": {"cilium-leak-healer/paused": "an upgrade"}}});
        let own = "cilium-leak-healer";
        scene.cluster.api().patch_merge(&NAMESPACES, "", own, &patch).expect("the own namespace");
    };
    held_back(pause, "paused", "an upgrade").await;
}

pub(crate) async fn where_the_fence_does_not_let_it_the_agent_stays() {
    let scene = fenced(false).await;
    hide_a_holder(&scene, IP);
    let former = agent_pod(&scene.cluster).expect("it is there");
    let daemon = scene.daemon("heal", &[REMEDIES, SETTLED].concat()).await;
    scene.pod("shop", "cart", IP);
    says(&told(&daemon, "acted", "outcome", "failed").await, "denied request");
    let now = agent_pod(&scene.cluster).expect("it is there");
    assert_eq!(now["metadata"]["uid"], former["metadata"]["uid"]);
    assert!(now["metadata"]["deletionTimestamp"].is_null(), "{now}");
    scene.wait("the Lease is given back", |_| holders(&scene).last() == Some(&Value::Null)).await;
    assert_eq!(restarts(&scene).len(), 1, "{}", daemon.printed());
    daemon.stop().await;
}

pub(crate) async fn killed_in_a_restart_it_makes_no_second_one() {
    let scene = with_agent_pod().await;
    hide_a_holder(&scene, IP);
    let args = [&REMEDIES[..], &SETTLED, &["--restart-quiet", "0s"]].concat();
    let daemon = scene.daemon("heal", &args).await;
    scene.pod("shop", "cart", IP);
    scene.wait("the DELETE", |_| !restarts(&scene).is_empty()).await;
    daemon.kill().await;
    // The new agent hides something, too.
    let daemon = scene.daemon("heal", &args).await;
    says(&told(&daemon, "held back", "by", "quiet-period").await, "still being followed");
    assert_eq!(restarts(&scene).len(), 1, "{}", daemon.printed());
    daemon.stop().await;
}
