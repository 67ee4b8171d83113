#![allow(clippy::unnecessary_wraps, reason = "an answer of the fake API server may be none")]

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fake::{Answer, Asked, TIMEOUT, reader, status};
use crate::kube::{
    AccessWish, FenceAnswer, Protection, UNWANTED, WANTED_EVENTS, WANTED_HEAL, self_test, wanted_leases,
};

const REVIEW: &str = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";
const ACCESS: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const POD: &str = "/api/v1/namespaces/healer/pods/healer-x";
const DENIED: &str = "pods \"healer-x\" is forbidden: ValidatingAdmissionPolicy 'cilium-leak-healer' with binding \
                      'cilium-leak-healer' denied request: pending: only a pod that never ran may be deleted";
const RBAC: &str = "pods \"healer-x\" is forbidden: User \"system:serviceaccount:healer:healer\" cannot delete resource \
                    \"pods\" in API group \"\" in the namespace \"healer\"";

fn identity(extra: &Value) -> Answer {
    let user =
        json!({"username": "system:serviceaccount:healer:healer", "uid": "u", "groups": [], "extra": extra});
    Some((201, json!({"kind": "SelfSubjectReview", "status": {"userInfo": user}})))
}

fn pod(phase: &str) -> Answer {
    let metadata = json!({"namespace": "healer", "name": "healer-x", "uid": "uid-1", "resourceVersion": "5"});
    Some((200, json!({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": phase}})))
}

/// A cluster in which everything protects.
fn sound(asked: &Asked) -> Answer {
    match asked.line().as_str() {
        REVIEW => identity(&json!({
            "authentication.kubernetes.io/node-name": ["n1"], "authentication.kubernetes.io/pod-name": ["healer-x"],
        })),
        ACCESS => {
            let wish = &asked.body["spec"]["resourceAttributes"];
            let wanted = wanted().iter().any(|it| {
                wish["verb"] == it.verb
                    && wish["resource"] == it.resource
                    && wish["subresource"] == it.subresource
            });
            Some((201, json!({"status": {"allowed": wanted}})))
        }
        line if line == format!("GET {POD}") => pod("Running"),
        line if line == format!("DELETE {POD}") => status(422, "Invalid", DENIED),
        other => panic!("{other}"),
    }
}

async fn verdict(change: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static) -> Protection {
    let (reader, _) = reader(move |asked| change(asked).unwrap_or_else(|| sound(asked)));
    self_test(&reader, &"n1".parse().unwrap(), true, &wanted(), &UNWANTED).await.verdict()
}

#[tokio::test]
async fn all_in_place_is_working() {
    assert_eq!(verdict(|_| None).await, Protection::Working);
}

fn wanted() -> Vec<AccessWish> {
    WANTED_HEAL.into_iter().chain(WANTED_EVENTS).collect()
}

#[tokio::test]
async fn the_delete_is_a_dry_run_in_query_and_body_and_names_the_uid() {
    let (reader, log) = reader(sound);
    let answer = reader.try_fence(&"healer/healer-x".parse().unwrap()).await;
    assert_eq!(answer, Ok(FenceAnswer::Refused(DENIED.to_owned())));
    let asked = log.all();
    assert_eq!(log.lines(), [format!("GET {POD}"), format!("DELETE {POD}")]);
    assert_eq!(asked[1].query, "dryRun=All");
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], "preconditions": {"uid": "uid-1"}});
    assert_eq!(asked[1].body, body);
}

fn on(line: &'static str, answer: Answer) -> impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static {
    move |asked| asked.line().contains(line).then(|| answer.clone())
}

fn access(
    verb: &'static str,
    what: &'static str,
    answer: Answer,
) -> impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static {
    move |asked| {
        let wish = &asked.body["spec"]["resourceAttributes"];
        let (resource, subresource) = what.split_once('/').unwrap_or((what, ""));
        let same = wish["verb"] == verb && wish["resource"] == resource && wish["subresource"] == subresource;
        (same && asked.line() == ACCESS).then(|| answer.clone())
    }
}

fn allowed(allowed: bool) -> Answer {
    Some((201, json!({"status": {"allowed": allowed}})))
}

const NODE: &str = "authentication.kubernetes.io/node-name";
const NAME: &str = "authentication.kubernetes.io/pod-name";

#[rstest]
#[case::no_node_claim(on("selfsubjectreviews", identity(&json!({NAME: ["healer-x"]}))), "names no node")]
#[case::two_nodes(on("selfsubjectreviews", identity(&json!({NAME: ["healer-x"], NODE: ["n1", "n2"]}))), "names no node")]
#[case::another_node(on("selfsubjectreviews", identity(&json!({NAME: ["healer-x"], NODE: ["n2"]}))), "bound to node n2")]
#[case::no_right_to_delete(
    access("delete", "pods", allowed(false)),
    "right to delete pods is missing: kubectl apply -f rbac/heal.yaml"
)]
#[case::no_right_to_write_events(
    access("create", "events", allowed(false)),
    "right to create events.events.k8s.io is missing"
)]
#[case::exec(access("create", "pods/exec", allowed(true)), "has the right to create pods/exec")]
#[case::exec_by_get(access("get", "pods/exec", allowed(true)), "has the right to get pods/exec")]
#[case::eviction(access("create", "pods/eviction", allowed(true)), "has the right to create pods/eviction")]
#[case::secrets(access("list", "secrets", allowed(true)), "has the right to list secrets")]
#[case::nodes(access("patch", "nodes", allowed(true)), "has the right to patch nodes")]
#[case::collections(
    access("deletecollection", "pods", allowed(true)),
    "has the right to deletecollection pods"
)]
#[case::pods(access("create", "pods", allowed(true)), "has the right to create pods,")]
#[case::allowed_by_one_authorizer_while_another_failed(access("get", "secrets", Some((201, json!({"status": {"allowed": true, "evaluationError": "x"}})))), "has the right to get secrets")]
#[case::no_fence(on("DELETE", pod("Running")), "kubectl apply -f rbac/fence.yaml")]
#[case::rbac(on("DELETE", status(403, "Forbidden", RBAC)), "nothing is known of the fence")]
#[case::another_policy(on("DELETE", status(422, "Invalid", &DENIED.replace("'cilium-leak-healer'", "'other'"))), "something else")]
#[case::a_webhook(
    on(
        "DELETE",
        status(400, "BadRequest", "admission webhook \"x.y\" denied the request: cilium-leak-healer no")
    ),
    "something else"
)]
#[case::a_fence_that_fails(
    on(
        "DELETE",
        status(
            422,
            "Invalid",
            "pods \"healer-x\" is forbidden: ValidatingAdmissionPolicy 'cilium-leak-healer' with binding 'b' denied request: expression 'object.x' resulted in error: no such key: x"
        )
    ),
    "something else"
)]
#[tokio::test]
async fn each_gap_is_told(
    #[case] change: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static,
    #[case] words: &str,
) {
    match verdict(change).await {
        Protection::Missing(findings) => {
            assert!(findings.len() == 1 && findings[0].contains(words), "{findings:#?}");
        }
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case::identity_fails(
    on("selfsubjectreviews", status(503, "ServiceUnavailable", "busy")),
    "who the watchdog is"
)]
#[case::no_review_served(
    on("selfsubjectreviews", status(404, "NotFound", "the server could not find the requested resource")),
    "Kubernetes 1.30"
)]
#[case::identity_hangs(on("selfsubjectreviews", None), "timed out")]
#[case::identity_of_nobody(on("selfsubjectreviews", Some((201, json!({"status": {"userInfo": {"username": ""}}})))), "names no user")]
#[case::identity_in_a_new_form(on("selfsubjectreviews", Some((201, json!({"status": {}})))), "unreadable answer")]
#[case::no_pod_claim(on("selfsubjectreviews", identity(&json!({NODE: ["n1"]}))), "names no pod")]
#[case::a_wanted_right_hangs(access("delete", "pods", None), "right to delete pods")]
#[case::an_unwanted_right_fails(
    access("create", "pods/exec", status(500, "InternalError", "no")),
    "create pods/exec"
)]
#[case::an_answer_without_word(access("create", "pods/exec", Some((201, json!({"status": {}})))), "create pods/exec")]
#[case::an_authorizer_failed(access("create", "pods/exec", Some((201, json!({"status": {"allowed": false, "evaluationError": "webhook down"}})))), "webhook down")]
#[case::own_pod_unreadable(on("GET", status(403, "Forbidden", "no")), "whether the fence works")]
#[case::own_pod_gone(on("GET", status(404, "NotFound", "pods \"healer-x\" not found")), "own pod is gone")]
#[case::own_pod_replaced(
    on("DELETE", status(409, "Conflict", "Precondition failed: UID in precondition")),
    "replaced"
)]
#[case::dry_run_throttled(on("DELETE", status(429, "TooManyRequests", "later")), "429")]
#[case::dry_run_hangs(on("DELETE", None), "timed out")]
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_unknown_and_never_working(
    #[case] change: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static,
    #[case] words: &str,
) {
    match verdict(change).await {
        Protection::Unknown(findings) => {
            assert!(findings.iter().any(|it| it.contains(words)), "{findings:#?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_pod_that_is_pending_by_its_status_proves_nothing_if_it_is_let_go() {
    let pending = |asked: &Asked| asked.line().contains(POD).then(|| pod("Pending"));
    assert!(
        matches!(verdict(pending).await, Protection::Unknown(findings) if findings[0].contains("not Running yet"))
    );
}

#[tokio::test]
async fn what_is_proven_comes_before_what_is_unknown() {
    let both = |asked: &Asked| match asked.line().as_str() {
        REVIEW => Some(status(503, "ServiceUnavailable", "busy")),
        ACCESS => Some(allowed(true)),
        _ => None,
    };
    match verdict(both).await {
        Protection::Missing(findings) => {
            assert!(findings[0].contains("must not have") && findings.last().unwrap().contains("unknown"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_api_server_is_waited_for_no_longer_than_the_time_outs() {
    let before = Instant::now();
    assert!(matches!(verdict(|_| Some(None)).await, Protection::Unknown(_)));
    // Who, four wanted at once, nine unwanted four at once.
    assert_eq!(before.elapsed(), TIMEOUT * 5);
}

#[tokio::test]
async fn a_right_by_name_is_asked_for_by_name() {
    let (reader, log) = reader(|_| allowed(true));
    let wishes = wanted_leases("ns", &["slot-0".to_owned()]);
    assert_eq!(reader.may(&wishes[1]).await, Ok(true));
    let want = json!({"verb": "update", "group": "coordination.k8s.io", "resource": "leases", "subresource": "",
                      "namespace": "ns", "name": "slot-0"});
    assert_eq!(log.all()[0].body["spec"]["resourceAttributes"], want);
    assert_eq!(wishes[1].to_string(), "update leases.coordination.k8s.io named slot-0 in namespace ns");
    assert_eq!(AccessWish::new("get", "", "pods").to_string(), "get pods");
}
