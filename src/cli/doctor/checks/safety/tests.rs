use std::collections::BTreeSet;

use rstest::rstest;
use serde_json::{Value, json};

use super::super::super::seen::{LeaseSeen, Paused};
use super::super::Level;
use super::*;

const USER: &str = "system:serviceaccount:cilium-leak-healer:cilium-leak-healer";

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

fn named(documents: &[Value], kind: &str, name: &str) -> Value {
    let mut found = documents.iter().filter(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.next().unwrap_or(&Value::Null).clone()
}

fn policy(documents: &[Value], name: &str) -> Policy {
    Policy {
        policy: serde_json::from_value(named(documents, "ValidatingAdmissionPolicy", name)).unwrap(),
        binding: serde_json::from_value(named(documents, "ValidatingAdmissionPolicyBinding", name)).unwrap(),
    }
}

/// As it is when these files were applied, the later ones over the earlier.
fn applied(files: &[&str]) -> Fence {
    let all: Vec<Value> = files.iter().rev().flat_map(|text| documents(text)).collect();
    Fence { all: policy(&all, FENCE), agents: policy(&all, "cilium-leak-healer-restart-agent") }
}

const STRICT: &str = include_str!("../../../../../rbac/fence.yaml");
const RESTART: &str = include_str!("../../../../../rbac/restart-agent.yaml");

fn cluster(fence: impl Into<Option<Fence>>, watchdog: Option<Watchdog>) -> Cluster {
    Cluster {
        version: "v1.36.3".to_owned(),
        account: None,
        rights: Vec::new(),
        served: Err(String::new()),
        nodes: Ok(BTreeSet::new()),
        selector: String::new(),
        agents: Ok(Vec::new()),
        told: None,
        config: Ok(None),
        watchdog_namespace: "cilium-leak-healer".to_owned(),
        watchdog: Ok(watchdog),
        fenced_user: USER.to_owned(),
        fence: Ok(fence.into()),
        leases: Ok(Vec::new()),
        paused: Ok(None),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as a cluster has it")]
fn healer(remedies: &[&str]) -> Option<Watchdog> {
    let remedies = Some(remedies.iter().map(ToString::to_string).collect());
    Some(Watchdog { mode: Some("heal".to_owned()), remedies, ..Watchdog::default() })
}

fn is(line: &Line, level: Level, seen: &str, mend: &str) {
    assert_eq!(line.level, level, "{line:?}");
    assert!(line.seen.contains(seen), "{line:?}");
    assert!(line.mend.as_deref().unwrap_or_default().contains(mend), "{line:?}");
}

#[test]
fn the_manifests_are_a_fence_without_fault() {
    is(&fence(&cluster(applied(&[STRICT]), healer(&["delete-pod"]))), Level::Ok, USER, "");
    let both = applied(&[STRICT, RESTART]);
    is(&fence(&cluster(both, healer(&["restart-agent"]))), Level::Ok, "rules of its own for the agent", "");
    // The strict one again, over the other.
    let again = applied(&[STRICT, RESTART, STRICT]);
    is(&fence(&cluster(again.clone(), healer(&["delete-pod"]))), Level::Ok, USER, "");
    let line = fence(&cluster(again, healer(&["restart-agent"])));
    is(&line, Level::Warn, "none can be restarted", "rbac/restart-agent.yaml");
}

#[test]
fn how_bad_a_missing_fence_is_depends_on_the_watchdog() {
    let none = || applied(&[]);
    let fails = |watchdog| fence(&cluster(none(), watchdog)).level;
    assert_eq!(fails(healer(&["disconnect-endpoint", "delete-pod"])), Level::Fail);
    assert_eq!(fails(healer(&["restart-agent"])), Level::Fail);
    assert_eq!(fails(Some(Watchdog { mode: Some("heal".to_owned()), ..Watchdog::default() })), Level::Fail);
    assert_eq!(fails(healer(&["disconnect-endpoint"])), Level::Warn);
    assert_eq!(fails(Some(Watchdog::default())), Level::Warn);
    let line = fence(&cluster(none(), None));
    is(&line, Level::Warn, "no ValidatingAdmissionPolicy cilium", "kubectl apply -f rbac/fence.yaml");
    is(&fence(&cluster(None::<Fence>, healer(&["delete-pod"]))), Level::Fail, "v1.36.3", "1.30 or newer");
}

#[test]
fn agents_that_no_policy_holds_are_a_hole() {
    let mut fence_seen = applied(&[STRICT, RESTART]);
    fence_seen.agents = Policy::default();
    let line = fence(&cluster(fence_seen, healer(&["delete-pod"])));
    is(
        &line,
        Level::Fail,
        "no ValidatingAdmissionPolicy cilium-leak-healer-restart-agent",
        "restart-agent.yaml",
    );
}

#[test]
fn a_fence_that_could_not_be_read_is_no_failure() {
    let seen = Cluster { fence: Err("403 no".to_owned()), ..cluster(applied(&[]), healer(&["delete-pod"])) };
    is(&fence(&seen), Level::Warn, "could not be read: 403 no", "validatingadmissionpolicies");
}

#[rstest]
#[case::ignores("/0/spec/failurePolicy", json!("Ignore"), Level::Fail, "failurePolicy Ignore")]
#[case::no_rules("/0/spec/validations", json!([]), Level::Fail, "has no rules")]
#[case::evictions("/0/spec/matchConstraints/resourceRules/0/operations", json!(["CREATE"]), Level::Fail, "not for DELETE pods")]
#[case::one_pod("/0/spec/matchConstraints/resourceRules/0/resourceNames", json!(["p"]), Level::Fail, "not for DELETE pods")]
#[case::some_pods("/0/spec/matchConstraints/objectSelector", json!({"matchLabels": {"a": "b"}}), Level::Fail, "by objectSelector")]
#[case::no_selector("/0/spec/matchConstraints/namespaceSelector", json!({}), Level::Ok, "")]
#[case::another_user("/0/spec/matchConditions/0/expression", json!("request.userInfo.username == 'x'"), Level::Fail, "not about the user")]
#[case::half_a_user("/0/spec/matchConditions/0/expression", json!(format!("request.userInfo.username == '{USER}' && false")), Level::Fail, "not about the user")]
#[case::quotes("/0/spec/matchConditions/0/expression", json!(format!("request.userInfo.username == \"{USER}\"")), Level::Ok, "")]
#[case::types("/0/status", json!({"typeChecking": {"expressionWarnings": [{"fieldRef": "spec.x", "warning": "w"}]}}), Level::Warn, "warns of spec.x")]
#[case::no_warnings("/0/status", json!({"typeChecking": {}}), Level::Ok, "")]
#[case::only_told("/1/spec/validationActions", json!(["Audit", "Warn"]), Level::Fail, "does not Deny")]
#[case::another_policy("/1/spec/policyName", json!("other"), Level::Fail, "of the policy \"other\"")]
#[case::some_namespaces("/1/spec/matchResources", json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}), Level::Fail, "by namespaceSelector")]
#[case::all_namespaces("/1/spec/matchResources", json!({"namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent"}), Level::Ok, "")]
#[case::left_out("/1/spec/matchResources", json!({"excludeResourceRules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}), Level::Fail, "by excludeResourceRules")]
fn changes_to_the_fence(#[case] at: &str, #[case] to: Value, #[case] level: Level, #[case] seen: &str) {
    let mut both = Value::Array(documents(STRICT));
    let (object, field) = at.rsplit_once('/').unwrap();
    both.pointer_mut(object).unwrap()[field] = to;
    let seen_fence = Fence { all: policy(both.as_array().unwrap(), FENCE), agents: Policy::default() };
    is(&fence(&cluster(seen_fence, healer(&["delete-pod"]))), level, seen, "");
}

#[test]
fn one_more_condition_is_a_hole() {
    let mut documents = documents(STRICT);
    let conditions = documents[0]["spec"]["matchConditions"].as_array_mut().unwrap();
    conditions.push(json!({"name": "mine", "expression": "false"}));
    let seen = Fence { all: policy(&documents, FENCE), agents: Policy::default() };
    is(&fence(&cluster(seen, healer(&["delete-pod"]))), Level::Fail, "condition mine", "rbac/fence.yaml");
}

fn lease(slot: u32, there: bool, holder: Option<&str>) -> LeaseSeen {
    let name = format!("cilium-leak-healer-delete-pod-{slot}");
    LeaseSeen { name, there, holder: holder.map(str::to_owned) }
}

#[test]
fn leases_and_their_holders() {
    let line = |seen, watchdog| leases(&Cluster { leases: Ok(seen), ..cluster(applied(&[]), watchdog) });
    let all = vec![lease(0, true, None), lease(1, true, Some("n7"))];
    is(
        &line(all, None),
        Level::Ok,
        "2 of 2 in the namespace cilium-leak-healer, held: delete-pod-1 by n7",
        "",
    );
    let some = || vec![lease(0, true, None), lease(1, false, None)];
    is(&line(some(), None), Level::Warn, "none held; missing: delete-pod-1", "rbac/heal.yaml");
    is(&line(some(), healer(&["delete-pod"])), Level::Fail, "1 of 2", "kubectl apply -f rbac/heal.yaml");
}

#[test]
fn a_pause_says_since_when_and_how_it_ends() {
    let line = |paused| pause(&Cluster { paused, ..cluster(applied(&[]), None) });
    is(&line(Ok(None)), Level::Ok, "not paused", "");
    let paused = Paused { why: "we look".to_owned(), since: Some("2026-01-01T00:00:00Z".to_owned()) };
    is(
        &line(Ok(Some(paused))),
        Level::Warn,
        "paused since 2026-01-01T00:00:00Z: we look",
        "kubectl annotate namespace cilium-leak-healer cilium-leak-healer/paused-",
    );
    is(&line(Err("403 no".to_owned())), Level::Warn, "could not be read", "get namespaces");
}
