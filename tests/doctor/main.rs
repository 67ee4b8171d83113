//! `doctor` through the real binary, on the simulated cluster: what is well, what is missing, how to mend it.
#![cfg(feature = "sim")]
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

#[path = "../scan/cluster.rs"]
#[allow(dead_code, reason = "the scan's tests use all of it")]
mod cluster;
#[path = "../support/daemon.rs"]
mod daemon;
#[path = "../scan/run.rs"]
#[allow(dead_code, reason = "the scan's tests use all of it")]
mod run;

use cilium_leak_healer::sim::{
    ADMISSION_BINDINGS, ADMISSION_POLICIES, AgentVersion, Attributes, DAEMON_SETS, LEASES, NAMESPACES, PODS,
    Resource,
};
use serde_json::{Value, json};

use cluster::{Lab, NODE};
use daemon::{Said, said};

async fn doctor(lab: &Lab, args: &[&str]) -> Said {
    said("doctor", &lab.kubeconfig(), &[&["--api-timeout", "3s"], args].concat()).await
}

impl Said {
    /// The line of a check, in the JSON form.
    fn check(&self, name: &str) -> Value {
        let report: Value = serde_json::from_str(&self.out).expect("JSON");
        let checks = report["checks"].as_array().expect("checks");
        checks
            .iter()
            .find(|it| it["check"] == name)
            .unwrap_or_else(|| panic!("no {name} in {report:#}"))
            .clone()
    }

    fn is(&self, name: &str, level: &str, seen: &str, mend: &str) {
        let check = self.check(name);
        assert_eq!(check["level"], level, "{check:#}");
        assert!(check["seen"].as_str().expect("text").contains(seen), "{check:#}");
        assert!(check["mend"].as_str().unwrap_or_default().contains(mend), "{check:#}");
        assert_eq!(level == "ok", check["mend"].is_null(), "what is not ok has its mend: {check:#}");
    }
}

/// An agent's pod that is ready, as the kubelet of a real node says.
fn ready(lab: &Lab) {
    let name = lab.agent_pod_name();
    let mut status = lab.agent_pod().expect("a pod")["status"].clone();
    status["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    lab.cluster.api().patch_status_merge(&PODS, "kube-system", &name, &status).expect("a status");
}

async fn lab(allows: impl Fn(&Attributes) -> bool + Send + Sync + 'static) -> Lab {
    let lab = Lab::of(AgentVersion::V1_20, allows).await;
    ready(&lab);
    lab
}

/// What of the manifests the cluster stores.
fn apply(lab: &Lab, manifests: &str) {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifests).expect("YAML");
    for document in documents {
        let resource: &'static Resource = match document["kind"].as_str().expect("a kind") {
            "ValidatingAdmissionPolicy" => &ADMISSION_POLICIES,
            "ValidatingAdmissionPolicyBinding" => &ADMISSION_BINDINGS,
            "Lease" => &LEASES,
            "Namespace" => &NAMESPACES,
            _ => continue,
        };
        lab.cluster.api().create(resource, document).expect("an object of the manifests");
    }
}

const OBSERVE: &str = include_str!("../../rbac/observe.yaml");
const FENCE: &str = include_str!("../../rbac/fence.yaml");
const HEAL: &str = include_str!("../../rbac/heal.yaml");

#[tokio::test]
async fn a_cluster_that_is_well() {
    let lab = lab(|_| true).await;
    for manifests in [OBSERVE, FENCE, HEAL] {
        apply(&lab, manifests);
    }
    drop(lab.cluster.api().take_requests());
    let said = doctor(&lab, &[]).await;
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    insta::assert_snapshot!(said.out);
    let requests = lab.cluster.api().requests();
    let writes: Vec<_> =
        requests.iter().filter(|it| it.method != "GET" && !it.path.ends_with("accessreviews")).collect();
    assert!(writes.is_empty(), "{writes:?}");
    let all = doctor(&lab, &["-o", "json"]).await;
    let report: Value = serde_json::from_str(&all.out).expect("JSON");
    assert_eq!(
        (&report["kind"], &report["schemaVersion"], &report["healthy"]),
        (&json!("DoctorReport"), &json!(1), &json!(true))
    );
}

#[tokio::test]
async fn a_missing_right_to_observe_fails_and_is_named() {
    let lab =
        lab(|wish| !(wish.resource == "events" && wish.verb == "list" && wish.user == "system:admin")).await;
    let said = doctor(&lab, &["-o", "json"]).await;
    assert_eq!(said.code, Some(1), "{}", said.out);
    said.is("rights for observe", "fail", "the caller lacks: list events", "rbac/observe.yaml");
    said.is("rights for scan", "ok", "the caller has 4 of 4", "");
    let text = doctor(&lab, &[]).await;
    assert!(text.out.lines().all(|line| line.chars().count() <= 100), "{}", text.out);
    assert!(text.out.contains("1 fail"), "{}", text.out);
}

#[tokio::test]
async fn a_service_account_is_asked_about_by_name() {
    let account = "system:serviceaccount:cilium-leak-healer:cilium-leak-healer";
    let lab =
        lab(move |wish| wish.user != account || (wish.resource != "ciliumnodes" && wish.verb != "delete"))
            .await;
    let args = ["--as-service-account", "cilium-leak-healer/cilium-leak-healer", "-o", "json"];
    let said = doctor(&lab, &args).await;
    assert_eq!(said.code, Some(1), "{}", said.out);
    said.is(
        "rights for observe",
        "fail",
        "cilium-leak-healer/cilium-leak-healer lacks: get ciliumnodes.cilium.io",
        "kubectl apply -f rbac/observe.yaml",
    );
    said.is(
        "rights for heal",
        "warn",
        "lacks: delete pods",
        "kubectl apply -f rbac/fence.yaml, then kubectl apply -f rbac/heal.yaml",
    );
    // Everything else is allowed here, so this is too.
    said.is("excess rights", "fail", "has: create pods/exec, get pods/exec", "take it away");
    assert!(!said.out.contains("rights for restart"), "{}", said.out);
    // In the mode heal the watchdog needs it.
    watchdog(&lab, "heal", 3, 3);
    doctor(&lab, &args).await.is(
        "rights for heal",
        "fail",
        "lacks: delete pods",
        "kubectl apply -f rbac/heal.yaml",
    );
    let wrong = doctor(&lab, &["--as-service-account", "nobody"]).await;
    assert_eq!(wrong.code, Some(2), "{}", wrong.err);
    assert!(wrong.err.contains("NAMESPACE/NAME"), "{}", wrong.err);
}

fn watchdog(lab: &Lab, mode: &str, desired: i32, ready: i32) {
    watchdog_with(lab, mode, (desired, ready), &[]);
}

fn watchdog_with(lab: &Lab, mode: &str, (desired, ready): (i32, i32), args: &[&str]) {
    let name = "cilium-leak-healer";
    let set = json!({
        "metadata": {"name": name, "namespace": name, "labels": {"app.kubernetes.io/name": name}},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {
                "metadata": {"labels": {"app.kubernetes.io/name": name}},
                "spec": {"containers": [{"name": name, "image": name, "args": args, "env": [{"name": "CILIUM_LEAK_HEALER_MODE", "value": mode}]}]},
            },
        },
        "status": {"currentNumberScheduled": desired, "desiredNumberScheduled": desired, "numberMisscheduled": 0, "numberReady": ready},
    });
    lab.cluster.api().create(&DAEMON_SETS, set).expect("a DaemonSet");
}

#[tokio::test]
async fn the_watchdog_tells_its_mode_and_how_many_are_ready() {
    let lab = lab(|_| true).await;
    doctor(&lab, &["-o", "json"]).await.is("watchdog", "ok", "not installed", "");
    watchdog(&lab, "heal", 3, 2);
    for manifests in [OBSERVE, FENCE, HEAL] {
        apply(&lab, manifests);
    }
    let said = doctor(&lab, &["-o", "json"]).await;
    said.is("watchdog", "warn", "mode heal, 2 of 3 pods ready", "get pods");
    assert_eq!(said.code, Some(0), "a warning is no failure");
}

#[tokio::test]
async fn agents_that_cannot_be_found_or_asked() {
    let lab = lab(|wish| wish.subresource != "exec").await;
    let said = doctor(&lab, &["-o", "json"]).await;
    said.is("agents", "ok", "1 found in kube-system, 1 ready, for 1 node", "");
    said.is("agent by exec", "warn", &format!("the agent of {NODE} could not be asked"), "agent-unknown");
    said.is("rights for scan", "warn", "get pods/exec, create pods/exec", "agent-unknown");
    said.is("ipam mode", "warn", "cilium-config", "");
    let said = doctor(&lab, &["--agent-pod-selector", "app=other", "-o", "json"]).await;
    assert_eq!(said.code, Some(1), "{}", said.out);
    said.is("agents", "fail", "no pod with the label app=other", "--agent-pod-selector");
}

#[tokio::test]
async fn a_dead_server_is_one_line() {
    let lab = lab(|_| true).await;
    lab.cluster.api().pause().await;
    let said = doctor(&lab, &["-o", "json"]).await;
    assert_eq!(said.code, Some(1), "{}", said.err);
    said.is("server", "fail", "refused", "kubeconfig");
}

#[tokio::test]
async fn the_fence_the_leases_and_the_pause_are_looked_at() {
    let lab = lab(|_| true).await;
    let said = doctor(&lab, &["-o", "json"]).await;
    said.is(
        "fence",
        "warn",
        "no ValidatingAdmissionPolicy cilium-leak-healer",
        "kubectl apply -f rbac/fence.yaml",
    );
    said.is("leases", "warn", "0 of 3", "rbac/heal.yaml");
    said.is("pause", "ok", "not paused", "");
    watchdog_with(&lab, "heal", (1, 1), &["run", "--remedies", "delete-pod,restart-agent"]);
    let said = doctor(&lab, &["-o", "json"]).await;
    assert_eq!(said.code, Some(1), "{}", said.out);
    said.is(
        "fence",
        "fail",
        "no ValidatingAdmissionPolicy cilium-leak-healer",
        "kubectl apply -f rbac/fence.yaml",
    );
    said.is("leases", "fail", "0 of 4", "rbac/restart-agent.yaml");
    said.is("rights for restart", "ok", "the caller has 4 of 4", "");
    for manifests in [OBSERVE, FENCE, HEAL] {
        apply(&lab, manifests);
    }
    let said = doctor(&lab, &["-o", "json"]).await;
    said.is(
        "fence",
        "fail",
        "no ValidatingAdmissionPolicy cilium-leak-healer-restart-agent",
        "restart-agent.yaml",
    );
    let name = "cilium-leak-healer-delete-pod-1";
    let mut lease = lab.cluster.api().get(&LEASES, "cilium-leak-healer", name).expect("a Lease");
    lease["spec"] = json!({"holderIdentity": "worker-7", "leaseDurationSeconds": 60});
    lab.cluster.api().update(&LEASES, &lease).expect("a Lease");
    let mut own = lab.cluster.api().get(&NAMESPACES, "", "cilium-leak-healer").expect("a namespace");
    own["metadata"]["annotations"] = json!({"cilium-leak-healer/paused": "upgrade of Cilium"});
    own["metadata"]["managedFields"] = json!([{
        "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": "2026-03-01T10:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": {"f:cilium-leak-healer/paused": {}}}},
    }]);
    lab.cluster.api().update(&NAMESPACES, &own).expect("a namespace");
    let said = doctor(&lab, &["-o", "json"]).await;
    said.is(
        "leases",
        "fail",
        "3 of 4 in the namespace cilium-leak-healer, held: delete-pod-1 by worker-7",
        "",
    );
    said.is(
        "pause",
        "warn",
        "all acts are paused since 2026-03-01T10:00:00Z: upgrade of Cilium",
        "kubectl annotate namespace cilium-leak-healer cilium-leak-healer/paused-",
    );
}

#[tokio::test]
async fn what_may_not_be_read_of_the_protection_is_said() {
    let lab = lab(|wish| {
        !(wish.user == "system:admin"
            && ["validatingadmissionpolicies", "leases", "namespaces"].contains(&wish.resource.as_str()))
    })
    .await;
    watchdog(&lab, "heal", 1, 1);
    let said = doctor(&lab, &["-o", "json"]).await;
    assert_eq!(said.code, Some(0), "{}", said.out);
    said.is("fence", "warn", "could not be read: 403", "get validatingadmissionpolicies");
    said.is("leases", "warn", "could not be read: 403", "get leases");
    said.is("pause", "warn", "could not be read: 403", "get namespaces");
}
