use hyper::header::AUTHORIZATION;
use rstest::rstest;

use super::*;

const PODS_OF_T: &str = "/api/v1/namespaces/t/pods";

/// A fenced cluster with two nodes and the namespaces `t` and `out`, which is opted out.
async fn fenced(restart_agent: bool) -> Bench {
    let mut options = ClusterOptions { seed: Some(1), ..ClusterOptions::default() };
    options.api.fence = Some(Fence { restart_agent, ..Fence::default() });
    let cluster = Cluster::start(options).await.unwrap();
    for (name, labels) in [("t", json!({})), ("out", json!({"cilium-leak-healer/opt-out": ""}))] {
        cluster.api().create(&NAMESPACES, json!({"metadata": {"name": name, "labels": labels}})).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = Vec::new();
    for number in [1, 2] {
        let name = format!("n{number}");
        let mut options = NodeOptions::new(&name, number, dir.path().join(&name));
        options.kubelet.enabled = false;
        nodes.push(cluster.add_node(options).unwrap());
    }
    Bench { cluster, node: nodes.remove(0), _dir: dir }
}

/// The token in a kubeconfig.
fn token(kubeconfig: &str) -> String {
    kubeconfig.rsplit_once("token: ").unwrap().1.trim().trim_matches('"').to_owned()
}

/// A pod that may be moved.
fn waiting() -> Value {
    let mut waiting = pod("t", "p", "n1");
    waiting["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
    waiting["status"] = json!({"phase": "Pending"});
    waiting
}

impl Bench {
    async fn as_token(&self, token: &str, method: &str, uri: &str, body: Option<Value>) -> Reply {
        let bearer = format!("Bearer {token}");
        ask_with(&self.cluster, method, uri, &[(AUTHORIZATION, &bearer)], body).await.unwrap()
    }

    fn watchdog(&self) -> String {
        token(&self.cluster.watchdog_kubeconfig(&self.node).unwrap())
    }

    /// The code of the watchdog's delete, and the rule that denied it.
    async fn delete(&self, uri: &str, options: Value) -> (u16, String) {
        let reply = self.as_token(&self.watchdog(), "DELETE", uri, Some(options)).await;
        let message = json_of(&reply)["message"].as_str().unwrap_or_default().to_owned();
        let rule = message.split_once("denied request: ").and_then(|(_, why)| why.split_once(": "));
        (reply.status, rule.map(|(rule, _)| rule.to_owned()).unwrap_or_default())
    }
}

fn of(pod: &Value) -> Value {
    json!({"preconditions": {"uid": pod["metadata"]["uid"]}, "dryRun": ["All"]})
}

#[rstest]
#[case::may_be_moved(json!({}), json!({}), "")]
#[case::own_grace(json!({}), json!({"gracePeriodSeconds": 30}), "")]
#[case::own_grace_0(json!({"spec": {"terminationGracePeriodSeconds": 0}}), json!({}), "")]
#[case::not_opted_out(json!({"metadata": {"labels": {"cilium-leak-healer/opt-out": "false"}}}), json!({}), "")]
#[case::other_node(json!({"spec": {"nodeName": "n2"}}), json!({}), "own-node")]
#[case::no_node(json!({"spec": {"nodeName": null}}), json!({}), "own-node")]
#[case::phase(json!({"status": {"phase": "Running"}}), json!({}), "pending")]
#[case::address(json!({"status": {"podIP": "10.0.0.1"}}), json!({}), "no-address")]
#[case::addresses(json!({"status": {"podIPs": [{"ip": "10.0.0.1"}]}}), json!({}), "no-address")]
#[case::runs(json!({"status": {"initContainerStatuses": [{"state": {"running": {}}}]}}), json!({}), "no-container")]
#[case::ran(json!({"status": {"containerStatuses": [{"lastState": {"terminated": {}}}]}}), json!({}), "no-container")]
#[case::restarted(json!({"status": {"ephemeralContainerStatuses": [{"restartCount": 1}]}}), json!({}), "no-container")]
#[case::bare(json!({"metadata": {"ownerReferences": null}}), json!({}), "controller")]
#[case::mirror(json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}), json!({}), "no-mirror")]
#[case::no_uid(json!({}), json!({"preconditions": null}), "uid-precondition")]
#[case::grace(json!({}), json!({"gracePeriodSeconds": 0}), "grace")]
#[case::opted_out(json!({"metadata": {"labels": {"cilium-leak-healer/opt-out": "yes"}}}), json!({}), "opt-out")]
#[tokio::test]
async fn the_first_rule_that_does_not_hold_is_told(
    #[case] change: Value,
    #[case] options: Value,
    #[case] rule: &str,
) {
    let bench = fenced(false).await;
    let mut object = waiting();
    patch::apply(&mut object, &change, patch::Style::Merge);
    let made = bench.cluster.api().create(&PODS, object).unwrap();
    let mut asked = of(&made);
    patch::apply(&mut asked, &options, patch::Style::Merge);
    let uri = format!("{PODS_OF_T}/p");
    let expected = (if rule.is_empty() { 200 } else { 403 }, rule.to_owned());
    assert_eq!(bench.delete(&uri, asked.clone()).await, expected);
    assert_eq!(bench.cluster.api().get(&PODS, "t", "p").unwrap(), made, "it was a dry run");
    asked["dryRun"] = json!([]);
    assert_eq!(bench.delete(&uri, asked.clone()).await, expected);
    // Nobody else is fenced.
    if !rule.is_empty() {
        assert_eq!(ask(&bench.cluster, "DELETE", &uri, Some(asked)).await.status, 200);
    }
}

#[tokio::test]
async fn a_token_must_name_a_node_and_a_request_a_pod() {
    let bench = fenced(false).await;
    let made = bench.cluster.api().create(&PODS, waiting()).unwrap();
    let unbound = bench.cluster.api().token_of_account("cilium-leak-healer", "cilium-leak-healer");
    let reply = bench.as_token(&unbound, "DELETE", &format!("{PODS_OF_T}/p"), Some(of(&made))).await;
    let why = "ValidatingAdmissionPolicy 'cilium-leak-healer' with binding 'cilium-leak-healer' denied request: node-claim: the token names no node, so it is not one that a kubelet mounted into a pod";
    assert_eq!(
        json_of(&reply),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": format!("pods \"p\" is forbidden: {why}"),
            "details": {"name": "p", "kind": "pods", "causes": [{"message": why}]},
        })
    );
    assert_eq!(bench.delete(PODS_OF_T, json!({})).await, (403, "by-name".to_owned()));
    let reply = bench.as_token(&bench.watchdog(), "DELETE", PODS_OF_T, None).await;
    assert!(json_of(&reply)["message"].as_str().unwrap().starts_with("pods \"Unknown\" is forbidden: "));
    assert!(bench.cluster.api().get(&PODS, "t", "p").is_ok());
    let mut elsewhere = waiting();
    elsewhere["metadata"]["namespace"] = "out".into();
    let made = bench.cluster.api().create(&PODS, elsewhere).unwrap();
    let denied = bench.delete("/api/v1/namespaces/out/pods/p", of(&made)).await;
    assert_eq!(denied, (403, "opt-out".to_owned()));
}

#[tokio::test]
async fn a_pod_that_is_being_deleted_is_not_hurried() {
    let bench = fenced(false).await;
    let mut object = waiting();
    object["spec"]["terminationGracePeriodSeconds"] = 5.into();
    let made = bench.cluster.api().create(&PODS, object).unwrap();
    let uri = format!("{PODS_OF_T}/p");
    let options = DeleteOptions { grace_period_seconds: Some(60), ..DeleteOptions::default() };
    bench.cluster.api().delete(&PODS, "t", "p", &options).unwrap();
    // A request that changes nothing is not asked about, as on the real one.
    let mut asked = json!({"preconditions": {"uid": made["metadata"]["uid"]}});
    assert_eq!(bench.delete(&uri, asked.clone()).await, (200, String::new()));
    asked["gracePeriodSeconds"] = 5.into();
    assert_eq!(bench.delete(&uri, asked).await, (403, "not-deleting".to_owned()));
}

#[rstest]
#[case::strictly(false, "n1", "pending")]
#[case::own(true, "n1", "")]
#[case::of_another_node(true, "n2", "own-node")]
#[tokio::test]
async fn the_agents_pod_has_rules_of_its_own(
    #[case] restart_agent: bool,
    #[case] node: &str,
    #[case] rule: &str,
) {
    let bench = fenced(restart_agent).await;
    let mut agent = waiting();
    agent["metadata"]["namespace"] = "kube-system".into();
    agent["metadata"]["labels"] = json!({"k8s-app": "cilium"});
    agent["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet".into();
    agent["spec"]["nodeName"] = node.into();
    agent["status"] = json!({"phase": "Running", "podIP": "192.168.77.10"});
    let made = bench.cluster.api().create(&PODS, agent).unwrap();
    let uri = "/api/v1/namespaces/kube-system/pods/p";
    let denied = bench.delete(uri, of(&made)).await;
    assert_eq!(denied, (if rule.is_empty() { 200 } else { 403 }, rule.to_owned()));
    let mut bare = of(&made);
    bare["preconditions"] = Value::Null;
    assert_eq!(bench.delete(uri, bare).await.0, 403);
}

#[tokio::test]
async fn the_watchdogs_token_says_where_its_pod_runs_and_ends_with_it() {
    let bench = fenced(false).await;
    let kubeconfig = bench.cluster.watchdog_kubeconfig(&bench.node).unwrap();
    let token = token(&kubeconfig);
    let uri = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let reply = bench.as_token(&token, "POST", uri, Some(json!({}))).await;
    let review = json_of(&reply);
    let user = &review["status"]["userInfo"];
    assert_eq!((reply.status, &review["kind"]), (201, &json!("SelfSubjectReview")));
    assert_eq!(user["username"], "system:serviceaccount:cilium-leak-healer:cilium-leak-healer");
    assert_eq!(user["groups"][1], "system:serviceaccounts:cilium-leak-healer");
    assert_eq!(user["extra"]["authentication.kubernetes.io/node-name"], json!(["n1"]));
    let name = user["extra"]["authentication.kubernetes.io/pod-name"][0].as_str().unwrap();
    let pod = bench.cluster.api().get(&PODS, "cilium-leak-healer", name).unwrap();
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-uid"], json!([pod["metadata"]["uid"]]));
    bench.cluster.api().delete(&PODS, "cilium-leak-healer", name, &DeleteOptions::now()).unwrap();
    assert_eq!(bench.as_token(&token, "POST", uri, Some(json!({}))).await.status, 401);
}

#[tokio::test]
async fn a_lease_is_taken_by_its_version() {
    let bench = fenced(false).await;
    let token = bench.watchdog();
    let uri =
        "/apis/coordination.k8s.io/v1/namespaces/cilium-leak-healer/leases/cilium-leak-healer-delete-pod-0";
    let mut lease = json_of(&bench.as_token(&token, "GET", uri, None).await);
    lease["spec"]["holderIdentity"] = "n1".into();
    assert_eq!(bench.as_token(&token, "PUT", uri, Some(lease.clone())).await.status, 200);
    lease["spec"]["holderIdentity"] = "n2".into();
    let late = bench.as_token(&token, "PUT", uri, Some(lease.clone())).await;
    assert_eq!((late.status, json_of(&late)["reason"].clone()), (409, json!("Conflict")));
    lease["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(bench.as_token(&token, "PUT", uri, Some(lease)).await.status, 422);
}
