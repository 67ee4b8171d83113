//! What holds the watchdog back, on the real API server: the self-test, the pause, opt-outs, Leases, and its own death.

use std::{path::Path, time::Duration};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Pod},
    events::v1::Event,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{process::Command, task::JoinHandle, time::sleep};

use crate::harness::{
    Daemon, Mode, Node, QUICK, Request, Rights, Workload, apply, documents, eventually, fence_in, say,
};

/// The remedies that the rights of `restart-agent.yaml` are for.
const WITH_RESTART: &[&str] = &[
    "--startup-quiet",
    "1s",
    "--confirm-gap",
    "1s",
    "--remedies",
    "disconnect-endpoint,delete-pod,restart-agent",
];

#[tokio::test]
async fn the_self_test_finds_the_manifests_at_work() {
    let node = Node::new().await;
    for (rights, args) in [(Rights::Heal, QUICK), (Rights::RestartAgent, WITH_RESTART)] {
        let daemon = node.daemon(Mode::Heal, rights, args).await;
        works(&daemon).await;
        let ready = daemon.answers("/readyz?verbose", 200).await;
        assert!(ready.contains("[+]fence ok"), "{rights:?}: {ready}");
        let events: Vec<_> = daemon.requests().into_iter().filter(|it| it.resource == "events").collect();
        assert!(events.iter().all(|it| it.verb == "list"), "nothing to tell: {events:?}");
        daemon.stop().await;
    }
}

async fn works(daemon: &Daemon) {
    daemon.metric_reaches(r#"cilium_leak_healer_fence{state="working"}"#, 1.0).await;
}

/// A stale endpoint that a pod waits for; its attachment id.
async fn stale(node: &Node, host: u8) -> (Pod, JoinHandle<()>, Option<String>) {
    let ip = node.ip(host);
    node.leak(&format!("gone-{host}"), ip).await;
    let leaked = node.agent.api().holder(ip).await;
    let (pod, tries) = node.waiting_pod(&format!("waits-{host}"), ip).await;
    (pod, tries, leaked)
}

/// Waits until it says that nothing is done for that pod, by that word.
async fn held_back(daemon: &Daemon, pod: &str, by: &str) -> Value {
    let is_it = |line: &Value| {
        line["message"] == "held back"
            && line["by"] == by
            && line["pod"].as_str().is_some_and(|name| name.ends_with(&format!("/{pod}")))
    };
    daemon.line(&format!("{pod} held back by {by}"), is_it).await
}

/// The daemon did nothing yet.
fn nothing_done(daemon: &Daemon) {
    assert_eq!(daemon.acts(), Vec::<Value>::new());
    let deleted: Vec<_> =
        daemon.requests().into_iter().filter(|it| it.verb == "delete" && !it.dry_run).collect();
    assert!(deleted.is_empty(), "{deleted:?}");
}

#[tokio::test]
async fn without_the_fence_nothing_is_done_until_it_is_there() {
    let node = Node::new().await;
    let (pod, _, leaked) = stale(&node, 50).await;
    let daemon = node.daemon(Mode::Heal, Rights::FencedLate, QUICK).await;
    daemon.judged("waits-50", "stale-endpoint").await;
    let held = held_back(&daemon, "waits-50", "fence").await;
    assert!(held["reason"].as_str().unwrap_or_default().contains("rbac/fence.yaml"), "{held}");
    let degraded = daemon.answers("/readyz?verbose", 200).await;
    assert!(degraded.contains("[!]fence degraded") && degraded.contains("rbac/fence.yaml"), "{degraded}");
    assert!(daemon.metric(r#"cilium_leak_healer_fence{state="missing"}"#).await > 0.5);
    nothing_done(&daemon);
    assert_eq!(node.agent.api().holder(node.ip(50)).await, leaked);
    told_on_the_node(&node).await;
    fence_in(&node.client, Rights::FencedLate).await;
    daemon.acted("waits-50", "healed").await;
    works(&daemon).await;
    node.runs(&pod, node.ip(50)).await;
    daemon.stop().await;
}

/// Waits for the Event about the missing fence, where `kubectl describe node` shows it.
async fn told_on_the_node(node: &Node) {
    let events: Api<Event> = Api::namespaced(node.client.clone(), "default");
    let params = ListParams::default().fields("reason=FenceMissing");
    let event = eventually("the Event about the missing fence", async || {
        let events = events.list(&params).await.expect("list Events");
        let of_node =
            |event: &Event| event.regarding.as_ref().is_some_and(|it| it.name.as_ref() == Some(&node.name));
        events.items.into_iter().find(of_node)
    })
    .await;
    assert!(event.note.unwrap_or_default().contains("nothing is healed until it is mended"));
}

/// The Event is told once, and counted when the same is found again. The daemon whose fence is missing.
pub async fn fence_missing_twice(node: &Node) -> Daemon {
    let daemon = node.daemon(Mode::Heal, Rights::Unfenced, QUICK).await;
    let failed = |line: &Value| line["message"].as_str().is_some_and(|it| it.starts_with("self-test failed"));
    daemon.line("a missing fence", failed).await;
    told_on_the_node(node).await;
    // A pod that is not Running by its status proves nothing: for a while nobody knows.
    let own = node.daemons_pod(Rights::Unfenced).await;
    node.kubelet.patch_status(&own, json!({"phase": "Pending"})).await;
    let unknown =
        |line: &Value| line["message"].as_str().is_some_and(|it| it.starts_with("self-test could not"));
    daemon.line("a fence of which nothing is known", unknown).await;
    node.kubelet.patch_status(&own, json!({"phase": "Running"})).await;
    // Up to 40 s by then.
    daemon.nth_line("a missing fence again", 2, failed).await;
    eventually("the Event to be counted", async || {
        daemon.requests().iter().any(|it| it.verb == "patch" && it.resource == "events").then_some(())
    })
    .await;
    daemon
}

/// A namespace with Leases of its own, for a test that pauses, or that uses them up.
async fn own_namespace(client: &Client, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    apply(client, &namespace).await;
    for mut document in documents("rbac/heal.yaml") {
        if ["Lease", "Role", "RoleBinding"].iter().any(|kind| document["kind"] == *kind) {
            document["metadata"]["namespace"] = name.into();
            apply(client, &document).await;
        }
    }
}

async fn merge_namespace(client: &Client, name: &str, metadata: Value) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": metadata}));
    namespaces.patch(name, &PatchParams::default(), &patch).await.expect("patch a namespace");
}

#[tokio::test]
async fn a_pause_stops_all_acts_and_its_end_resumes_them() {
    let node = Node::with_ingress().await;
    let own = format!("paused-{}", node.number());
    own_namespace(&node.client, &own).await;
    let args = [QUICK, &["--own-namespace", &own]].concat();
    let daemon = node.daemon(Mode::Heal, Rights::Heal, &args).await;
    works(&daemon).await;
    let paused = |why: Value| json!({"annotations": {"cilium-leak-healer/paused": why}});
    merge_namespace(&node.client, &own, paused("we look ourselves".into())).await;
    let (pod, _, leaked) = stale(&node, 50).await;
    let web = node.workload("ReplicaSet", "web").await;
    let first = web.pod(None).await;
    let tries = node.kubelet.keep_trying(&first, node.ingress_address().await);
    for name in ["waits-50", &first.name_any()] {
        let held = held_back(&daemon, name, "paused").await;
        assert!(held["reason"].as_str().unwrap_or_default().contains("we look ourselves"), "{held}");
    }
    // As long as it takes to be looked at again.
    sleep(Duration::from_secs(12)).await;
    assert!(daemon.acts().iter().all(|act| act["outcome"] == "aborted" || act["message"] == "acting"));
    assert!(daemon.requests().iter().all(|it| it.verb != "delete" || it.dry_run));
    assert_eq!(node.agent.api().holder(node.ip(50)).await, leaked);
    merge_namespace(&node.client, &own, paused(Value::Null)).await;
    daemon.acted("waits-50", "healed").await;
    daemon.acted(&first.name_any(), "deleted").await;
    node.runs(&pod, node.ip(50)).await;
    tries.abort();
    daemon.stop().await;
}

#[tokio::test]
async fn who_has_opted_out_is_left_alone() {
    let node = Node::new().await;
    let label = |value: Value| json!({"labels": {"cilium-leak-healer/opt-out": value}});
    merge_namespace(&node.client, &node.namespace, label("true".into())).await;
    let (pod, _, leaked) = stale(&node, 50).await;
    let name = pod.name_any();
    let labelled = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": label(value)}));
        node.pods.patch(&name, &PatchParams::default(), &patch).await.expect("patch a pod");
    };
    labelled("".into()).await;
    let daemon = node.healer().await;
    let held = held_back(&daemon, &name, "opt-out").await;
    assert!(held["reason"].as_str().unwrap_or_default().starts_with("the pod"), "{held}");
    labelled(Value::Null).await;
    let of_namespace = |line: &Value| {
        line["by"] == "opt-out" && line["reason"].as_str().is_some_and(|it| it.starts_with("the namespace"))
    };
    daemon.line("its namespace has opted out", of_namespace).await;
    assert_eq!(node.agent.api().holder(node.ip(50)).await, leaked);
    // `false` is as good as no label.
    merge_namespace(&node.client, &node.namespace, label("false".into())).await;
    daemon.acted(&name, "healed").await;
    node.runs(&pod, node.ip(50)).await;
    daemon.stop().await;
}

/// From when to when a daemon had the Lease around its delete.
#[derive(Debug)]
struct Turn {
    took: String,
    gave: String,
}

fn turn(daemon: &Daemon) -> Option<Turn> {
    let timeline = daemon.timeline();
    let answered = |is_it: fn(&Request) -> bool| -> Vec<String> {
        timeline.iter().filter(|(_, it)| it.status == 200 && is_it(it)).map(|(at, _)| at.clone()).collect()
    };
    let leases = answered(|it| it.resource == "leases" && it.verb == "update");
    let deletes = answered(is_delete);
    assert!(deletes.len() < 2, "{timeline:?}");
    let first = deletes.first()?;
    let took = leases.iter().rfind(|at| *at < first).expect("a Lease before the delete").clone();
    Some(Turn { took, gave: leases.into_iter().find(|at| at > first)? })
}

fn is_delete(request: &Request) -> bool {
    request.verb == "delete" && request.resource == "pods" && !request.dry_run
}

#[tokio::test]
async fn two_nodes_take_turns_where_one_pod_may_be_in_deletion() {
    let (one, two) = (Node::with_ingress().await, Node::with_ingress().await);
    let own = format!("turns-{}", one.number());
    own_namespace(&one.client, &own).await;
    let leases: Api<Lease> = Api::namespaced(one.client.clone(), &own);
    let hold = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        let name = "cilium-leak-healer-delete-pod-0";
        leases.patch(name, &PatchParams::default(), &patch).await.expect("patch a Lease");
    };
    hold(json!({"holderIdentity": "elsewhere", "leaseDurationSeconds": 3600})).await;
    let args = [QUICK, &["--own-namespace", &own, "--delete-in-flight", "1"]].concat();
    let mut sides = Vec::new();
    for node in [&one, &two] {
        let daemon = node.daemon(Mode::Heal, Rights::Heal, &args).await;
        let pod = node.workload("ReplicaSet", "web").await.pod(None).await;
        let tries = node.kubelet.keep_trying(&pod, node.ingress_address().await);
        sides.push((node, daemon, pod, tries));
    }
    for (_, daemon, pod, _) in &sides {
        let refused = held_back(daemon, &pod.name_any(), "lease").await;
        assert!(refused["reason"].as_str().unwrap_or_default().contains("held, by elsewhere"), "{refused}");
        nothing_done(daemon);
    }
    hold(json!({"holderIdentity": null, "leaseDurationSeconds": null})).await;
    // Whoever comes first: its kubelet does not confirm, so the pod stays in deletion, and the other one waits.
    let in_deletion = async || {
        let mut found = Vec::new();
        for (at, (node, _, pod, _)) in sides.iter().enumerate() {
            let now = node.pod(&pod.name_any()).await;
            if now.is_some_and(|now| now.metadata.deletion_timestamp.is_some()) {
                found.push(at);
            }
        }
        found
    };
    let first = eventually("a pod in deletion", async || in_deletion().await.first().copied()).await;
    for _ in 0..15 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(in_deletion().await, [first], "two pods are in deletion");
    }
    let (node, _, pod, _) = &sides[first];
    node.kubelet.confirm_deleted(pod).await;
    let (node, _, pod, _) = &sides[1 - first];
    eventually("the other pod to be deleted", async || (in_deletion().await == [1 - first]).then_some(()))
        .await;
    node.kubelet.confirm_deleted(pod).await;
    let mut turns = Vec::new();
    for (_, daemon, pod, _) in &sides {
        daemon.acted(&pod.name_any(), "deleted").await;
        turns.push(eventually("the Lease to be given back", async || turn(daemon)).await);
    }
    turns.sort_by(|a, b| a.took.cmp(&b.took));
    assert!(turns[0].gave < turns[1].took, "both had it: {turns:?}");
    for (_, daemon, _, tries) in sides {
        tries.abort();
        daemon.stop().await;
    }
}

/// What `ledger -o json` says of a directory.
async fn ledger(state: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-leak-healer"));
    command.args(["ledger", "-o", "json", "--state-dir"]).arg(state).kill_on_drop(true);
    let output = command.output().await.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Plays the kubelet for a pod on the ingress address: when it is deleted, the next one gets another address.
async fn moved(node: &Node, web: Workload, first: &Pod) -> Pod {
    // As long as it takes.
    while node.pod(&first.name_any()).await.is_some_and(|now| now.metadata.deletion_timestamp.is_none()) {
        sleep(Duration::from_millis(200)).await;
    }
    node.kubelet.confirm_deleted(first).await;
    let second = web.pod(Some(first)).await;
    node.kubelet.start(&second, node.ip(200)).await;
    second
}

#[tokio::test]
async fn a_watchdog_that_is_killed_again_and_again_heals_all_the_same() {
    let node = Node::with_ingress().await;
    let ingress = node.ingress_address().await;
    // The agent takes any address for its ingress.
    let hosts: Vec<u8> = (50..).filter(|host| node.ip(*host) != ingress).take(3).collect();
    let web = node.workload("ReplicaSet", "web").await;
    let first = web.pod(None).await;
    let tries = node.kubelet.keep_trying(&first, ingress);
    let seat = node.seat(Rights::Heal).await;
    let args = &["--startup-quiet", "0s", "--confirm-gap", "200ms", "--event-delay", "0s"];
    let lives = async {
        let (mut begun, mut waiting) = (0, Vec::new());
        // Lives of 0 to 4 s. One look-up a second is all that it makes, so the wedges come one by one: else it would die
        // before it has looked at one of them twice.
        for host in &hosts {
            waiting.push(stale(&node, *host).await.0);
            for life in [0, 700, 1600, 2000, 2400, 2800, 3200, 4000] {
                let mut daemon = Daemon::spawn(node.spec(&seat, Mode::Heal, args));
                sleep(Duration::from_millis(life)).await;
                daemon.kill().await;
                begun += daemon.matching(|line| line["message"] == "acting").len();
            }
        }
        let daemon = Daemon::start(node.spec(&seat, Mode::Heal, args)).await;
        for (pod, host) in waiting.iter().zip(&hosts) {
            node.runs(pod, node.ip(*host)).await;
        }
        (daemon, begun)
    };
    let ((daemon, begun), second) = tokio::join!(lives, moved(&node, web, &first));
    assert_ne!(first.uid(), second.uid());
    tries.abort();
    // An act whose process died before it knew the end is settled by a later one, after a minute at most.
    let mut acts = Vec::new();
    for _ in 0..3 {
        acts = ledger(&seat.state_directory).await["state"]["acts"].as_array().expect("acts").clone();
        if acts.iter().all(|act| !act["ended"].is_null()) {
            break;
        }
        sleep(Duration::from_secs(30)).await;
    }
    assert!(acts.iter().all(|act| !act["ended"].is_null()), "{acts:#?}");
    let deletes: Vec<_> =
        daemon.timeline().into_iter().filter(|(_, it)| is_delete(it) && it.status == 200).collect();
    assert_eq!(deletes.len(), 1, "{deletes:?}");
    assert_eq!(deletes[0].1.name, first.name_any());
    let of = |remedy: &str| acts.iter().filter(|act| act["intent"]["remedy"] == remedy).count();
    assert!(of("disconnect-endpoint") >= hosts.len() && of("delete-pod") == 1, "{acts:#?}");
    let aside = daemon.matching(|line| line["message"].as_str().is_some_and(|it| it.contains("aside")));
    assert!(aside.is_empty(), "a ledger that could not be read: {aside:?}");
    let outcomes: Vec<_> = acts.iter().map(|act| &act["ended"]["outcome"]).collect();
    say(&format!("24 lives began {begun} acts, then one to the end; outcomes: {outcomes:?}"));
    daemon.stop().await;
}
