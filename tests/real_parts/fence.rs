//! The admission fence of `rbac/` on the real API server: whole, and not to be got round. Each rule by itself is in
//! `parity/fence.rs`.

use k8s_openapi::api::{admissionregistration::v1::ValidatingAdmissionPolicy, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
};
use serde_json::{Value, json};

use crate::harness::{ApiServer, Node, Rights, apply, client_of, documents, eventually};

/// A pod on the node that may be moved. Any object that is there will do as its controller.
async fn movable(node: &Node, name: &str) -> Pod {
    let namespace: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(node.client.clone());
    let uid = namespace.get(&node.namespace).await.expect("the namespace").uid();
    let owner = json!({
        "apiVersion": "v1", "kind": "Namespace", "name": node.namespace, "uid": uid, "controller": true,
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "spec": node.pod_spec(),
        "metadata": {"name": name, "namespace": node.namespace, "ownerReferences": [owner]},
    });
    serde_json::from_value(serde_json::to_value(apply(&node.client, &pod).await).expect("JSON"))
        .expect("a pod")
}

/// The rule that denies a delete of that pod with its UID; the empty text if none does.
async fn denied(client: &Client, pod: &Pod, dry_run: bool) -> String {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().expect("a namespace"));
    let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
    let params = DeleteParams { preconditions, dry_run, ..DeleteParams::default() };
    pods.delete(&pod.name_any(), &params).await.map_or_else(|error| rule(&error), |_| String::new())
}

fn rule(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else { panic!("no answer: {error}") };
    assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"), "{status:?}");
    let why = status
        .message
        .split_once("denied request: ")
        .unwrap_or_else(|| panic!("not by the fence: {status:?}"));
    why.1.split(": ").next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_token_of_another_node_is_no_use() {
    let (node, other) = (Node::new().await, Node::new().await);
    let pod = movable(&node, "waits").await;
    let own = client_of(&node.kubeconfig(Rights::Heal).await).await;
    let others = client_of(&other.kubeconfig(Rights::Heal).await).await;
    let nobodys = client_of(&node.kubeconfig_without_pod(Rights::Heal).await).await;
    for dry_run in [true, false] {
        assert_eq!(denied(&others, &pod, dry_run).await, "own-node");
        assert_eq!(denied(&nobodys, &pod, dry_run).await, "node-claim");
        assert_eq!(denied(&own, &pod, dry_run).await, "");
    }
}

/// Also not by an account that RBAC would let.
#[tokio::test]
async fn pods_are_not_deleted_by_the_collection() {
    let node = Node::new().await;
    let pod = movable(&node, "waits").await;
    let rbac = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "collection", "namespace": node.namespace});
    let rule_of = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["deletecollection"]});
    let role =
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": [rule_of]});
    let account = Rights::Heal.account();
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "collection"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "cilium-leak-healer"}],
    });
    for document in [role, binding] {
        apply(&node.client, &document).await;
    }
    let own = client_of(&node.kubeconfig(Rights::Heal).await).await;
    let pods: Api<Pod> = Api::namespaced(own, &node.namespace);
    let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
    for (dry_run, preconditions) in [(true, None), (false, None), (false, preconditions)] {
        let params = DeleteParams { dry_run, preconditions, ..DeleteParams::default() };
        // RBAC takes a moment to know the Role.
        let error = eventually("the fence's word on a collection", async || {
            let deleted = pods.delete_collection(&params, &ListParams::default()).await;
            let error = deleted.expect_err("a collection is deleted");
            (!error.to_string().contains("cannot deletecollection")).then_some(error)
        })
        .await;
        assert_eq!(rule(&error), "by-name");
    }
    let now = node.pod("waits").await.expect("the pod");
    assert!(now.metadata.deletion_timestamp.is_none());
}

#[tokio::test]
async fn the_agents_pod_is_deleted_only_where_that_is_asked_for() {
    let (node, other) = (Node::new().await, Node::new().await);
    let (own, others) = (node.agent_pod().await, other.agent_pod().await);
    let healer = client_of(&node.kubeconfig(Rights::Heal).await).await;
    let restarter = client_of(&node.kubeconfig(Rights::RestartAgent).await).await;
    let nobodys = client_of(&node.kubeconfig_without_pod(Rights::RestartAgent).await).await;
    assert_eq!(denied(&healer, &own, false).await, "pending");
    // The strict policy of this account was there before it let go of the agent's pods.
    eventually("the strict policy to let go of the agent", async || {
        denied(&restarter, &own, true).await.is_empty().then_some(())
    })
    .await;
    assert_eq!(denied(&restarter, &others, false).await, "own-node");
    assert_eq!(denied(&nobodys, &own, false).await, "node-claim");
    // All other pods have the strict rules still.
    let running = node.running_pod("runs", node.ip(50)).await;
    assert_eq!(denied(&restarter, &running, false).await, "pending");
    assert_eq!(denied(&restarter, &own, false).await, "");
    for pod in [own, others] {
        node.kubelet.confirm_deleted(&pod).await;
    }
}

#[tokio::test]
async fn the_server_finds_no_fault_with_the_types() {
    let node = Node::new().await;
    if !ApiServer::shared().controllers {
        // Nobody looks at them there.
        return;
    }
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(node.client.clone());
    let warnings = async |name: &str| {
        eventually(&format!("the types of {name} to be looked at"), async || {
            let policy = policies.get(name).await.expect("the policy");
            let status = policy.status.filter(|it| it.observed_generation == policy.metadata.generation)?;
            Some(status.type_checking?.expression_warnings.unwrap_or_default())
        })
        .await
    };
    for name in [
        "cilium-leak-healer",
        "cilium-leak-healer-for-restart-agent",
        "cilium-leak-healer-restart-agent-for-restart-agent",
    ] {
        assert_eq!(warnings(name).await, Vec::new(), "{name}");
    }
    // And would have found one.
    let mut wrong = policies_of("rbac/fence.yaml").remove(0);
    wrong["metadata"]["name"] = "wrong".into();
    wrong["spec"]["validations"] = json!([{"expression": "oldObject.spec.nodenam == ''"}]);
    apply(&node.client, &wrong).await;
    assert_eq!(warnings("wrong").await.len(), 1);
}

fn policies_of(file: &str) -> Vec<Value> {
    let is_policy = |document: &Value| document["kind"] == "ValidatingAdmissionPolicy";
    documents(file).into_iter().filter(is_policy).collect()
}

#[test]
fn who_restarts_agents_has_the_same_fence_but_for_them() {
    let strict = policies_of("rbac/fence.yaml").remove(0);
    let mut declared = policies_of("rbac/restart-agent.yaml");
    let place = |name: &str| declared.iter().position(|it| it["metadata"]["name"] == name).expect("a policy");
    let (again, agents) = (place("cilium-leak-healer"), place("cilium-leak-healer-restart-agent"));
    assert!(agents < again, "the agent's pods would be in no policy for a moment");
    let agents = declared[agents].clone();
    let mut again = declared.swap_remove(again);
    let conditions = again["spec"]["matchConditions"].as_array_mut().expect("conditions");
    let but = conditions.pop().expect("a condition");
    assert_eq!(again, strict);
    // What the one lets go the other has, and by rules that the strict one has too.
    let theirs = &agents["spec"]["matchConditions"][1];
    let text = |condition: &Value| condition["expression"].as_str().expect("an expression").to_owned();
    assert_eq!(text(&but), format!("!({})", text(theirs)));
    assert_eq!(agents["spec"]["matchConditions"][0], strict["spec"]["matchConditions"][0]);
    assert_eq!(agents["spec"]["matchConstraints"], strict["spec"]["matchConstraints"]);
    let rules = |policy: &Value| policy["spec"]["validations"].as_array().expect("rules").clone();
    assert_eq!(rules(&agents).len(), 7);
    for rule in rules(&agents) {
        assert!(rules(&strict).contains(&rule), "{rule}");
    }
}
