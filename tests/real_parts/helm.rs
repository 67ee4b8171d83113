//! The chart on the real API server: installed, taken from `observe` to `heal` and back, removed; and what it made at work.
//!
//! There is no kubelet: the DaemonSet makes no pods. The daemon runs as one of them would, with its account's token and its environment.
//! Helm is `$HELM`, else `helm`. Without one the tests are skipped and say so; with `CI=true` that is a failure.

use std::{env, path::Path, process::Command};

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    coordination::v1::Lease,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    discovery::{Discovery, verbs},
};
use serde_json::{Value, json};

use crate::harness::{ApiServer, NAMESPACE, Node, QUICK, Rights, eventually, say};

const RELEASE: &str = "cilium-leak-healer";
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/helm/cilium-leak-healer");

/// The Helm to test with; `None` where there is none, which CI does not forgive.
fn helm() -> Option<String> {
    let named = env::var("HELM").unwrap_or_else(|_| "helm".to_owned());
    let first = named.split(',').next().unwrap_or_default().to_owned();
    let there = Command::new(&first).arg("version").output().is_ok_and(|output| output.status.success());
    if there {
        return Some(first);
    }
    assert!(env::var("CI").as_deref() != Ok("true"), "{first} is not installed");
    say(&format!("!!! SKIPPED: the chart is not installed anywhere: there is no {first}"));
    None
}

/// Helm with an admin's rights, for the release of the tests; its output.
fn run(helm: &str, kubeconfig: &Path, verb: &str, args: &[&str]) -> String {
    let mut command = Command::new(helm);
    command.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", NAMESPACE, verb, RELEASE]).args(args);
    let output = command.output().expect("run helm");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "helm {verb} {args:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether the chart's account may do that, in any namespace unless one is named.
async fn may(client: &Client, verb: &str, group: &str, resource: &str, at: Option<(&str, &str)>) -> bool {
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: at.map(|(namespace, _)| namespace.to_owned()),
        name: at.map(|(_, name)| name.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        user: Some(Rights::Heal.user()),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await;
    answer.expect("an access review").status.is_some_and(|status| status.allowed)
}

/// The rights of the mode `heal`, all there or none. The API server learns of roles some time after they are written.
async fn heal_rights(client: &Client, there: bool) {
    let lease = (NAMESPACE, "cilium-leak-healer-delete-pod-2");
    eventually(&format!("the rights to heal to be {there}"), async || {
        let rights = [
            may(client, "delete", "", "pods", None).await,
            may(client, "get", "", "namespaces", None).await,
            may(client, "update", "coordination.k8s.io", "leases", Some(lease)).await,
        ];
        (rights == [there; 3]).then_some(())
    })
    .await;
    assert!(
        may(client, "list", "", "pods", None).await
            && may(client, "get", "cilium.io", "ciliumnodes", None).await
    );
    for (verb, group, resource) in [
        ("create", "", "pods"),
        ("create", "", "pods/exec"),
        ("deletecollection", "", "pods"),
        ("get", "", "secrets"),
        ("create", "coordination.k8s.io", "leases"),
        ("get", "apps", "daemonsets"),
        ("create", "authentication.k8s.io", "tokenreviews"),
    ] {
        assert!(!may(client, verb, group, resource, None).await, "{verb} {resource}");
    }
}

/// What Helm made and is there: kind, namespace, name. Its record of the release is among it.
async fn made_by_helm(client: &Client) -> Vec<String> {
    let mut found = Vec::new();
    let discovery = Discovery::new(client.clone()).run().await.expect("discovery");
    for (resource, capabilities) in
        discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources)
    {
        if !capabilities.supports_operation(verbs::LIST) {
            continue;
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for labels in [format!("app.kubernetes.io/instance={RELEASE}"), format!("owner=helm,name={RELEASE}")]
        {
            let list = api.list(&ListParams::default().labels(&labels)).await;
            let list = list.unwrap_or_else(|error| panic!("list {}: {error}", resource.plural));
            found.extend(list.iter().map(|it| {
                format!("{} {}/{}", resource.kind, it.namespace().unwrap_or_default(), it.name_any())
            }));
        }
    }
    found.sort();
    found.dedup();
    found
}

async fn installed(client: &Client) -> DaemonSet {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    sets.get("cilium-leak-healer").await.expect("the DaemonSet")
}

#[tokio::test]
async fn from_observing_to_a_healed_wedge_and_away_again() {
    let Some(helm) = helm() else { return };
    let server = ApiServer::start("helm");
    let at = server.kubeconfig.as_path();
    server
        .prepare_with(async || {
            let told = run(&helm, at, "install", &[CHART, "--create-namespace"]);
            assert!(told.contains("mode `observe`") && told.contains("--set mode=heal"), "{told}");
        })
        .await;
    let node = Node::of(&server, false).await;
    let client = &node.client;
    heal_rights(client, false).await;
    let fences = made_by_helm(client).await.iter().filter(|it| it.starts_with("Validating")).count();
    assert_eq!(fences, 0, "a fence around nothing");

    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let leaked = node.agent.api().holder(ip).await;
    let (pod, tries) = node.waiting_pod("waits", ip).await;
    let seat = node.seat(Rights::Heal).await;
    let observer = node.daemon_of(&seat, &installed(client).await, QUICK).await;
    observer.judged("waits", "stale-endpoint").await;
    observer.line("it only tells", |line| line["by"] == "observe-mode").await;
    assert_eq!(node.agent.api().holder(ip).await, leaked);
    observer.stop().await;

    let told = run(&helm, at, "upgrade", &[CHART, "--reset-then-reuse-values", "--set", "mode=heal"]);
    assert!(told.contains("the fence is at work"), "{told}");
    heal_rights(client, true).await;
    let healer = node.daemon_of(&seat, &installed(client).await, QUICK).await;
    healer.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    tries.await.expect("the kubelet's tries");
    assert_ne!(node.agent.api().holder(ip).await, leaked);
    healer.stop().await;

    a_lease_keeps_its_holder(&helm, at, client).await;
    doctor_is_content(&helm, at, &node).await;

    run(&helm, at, "upgrade", &[CHART, "--reset-then-reuse-values", "--set", "mode=observe"]);
    heal_rights(client, false).await;
    run(&helm, at, "upgrade", &[CHART, "--reset-then-reuse-values", "--set", "mode=heal"]);
    assert!(made_by_helm(client).await.len() > 10);
    run(&helm, at, "uninstall", &["--wait"]);
    eventually("nothing of the release to be left", async || {
        made_by_helm(client).await.is_empty().then_some(())
    })
    .await;
}

async fn a_lease_keeps_its_holder(helm: &str, kubeconfig: &Path, client: &Client) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let name = "cilium-leak-healer-delete-pod-1";
    let taken = json!({"spec": {"holderIdentity": "node-a", "leaseDurationSeconds": 240}});
    let answer = leases.patch(name, &PatchParams::default(), &Patch::Merge(taken)).await;
    answer.expect("take the Lease");
    run(helm, kubeconfig, "upgrade", &[CHART, "--reset-then-reuse-values", "--set", "log.level=debug"]);
    let lease = leases.get(name).await.expect("the Lease");
    assert_eq!(lease.spec.and_then(|spec| spec.holder_identity).as_deref(), Some("node-a"));
}

/// What `helm test` runs, with the account that it runs as. Helm itself would wait for a kubelet.
async fn doctor_is_content(helm: &str, kubeconfig: &Path, node: &Node) {
    let hooks = Command::new(helm)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--namespace", NAMESPACE, "get", "hooks", RELEASE])
        .output()
        .expect("run helm");
    let text = String::from_utf8(hooks.stdout).expect("text");
    let hooks: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let [pod] = hooks.as_slice() else { panic!("one hook: {hooks:?}") };
    assert_eq!(pod["spec"]["serviceAccountName"], Rights::Heal.account());
    let args: Vec<&str> = pod["spec"]["containers"][0]["args"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let own = tempfile::NamedTempFile::new().expect("make a file");
    let account = node.kubeconfig_without_pod(Rights::Heal).await;
    std::fs::write(own.path(), account).expect("write the account's kubeconfig");
    let doctor = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-leak-healer"));
        let output = command.args(&args).arg("--kubeconfig").arg(own.path()).output().expect("run doctor");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (well, told) = doctor();
    assert!(!well && told.contains("no pod with the label k8s-app=cilium"), "{told}");
    node.agent_pod().await;
    let (well, told) = doctor();
    assert!(well, "{told}");
}
