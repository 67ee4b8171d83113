//! Namespaces, the agent's pod, its rollout, its node.

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fake::{TIMEOUT, reader, status};
use crate::domain::{NodeState, ReadFailure, Rollout};
use crate::kube::{LabelMatch, NamespaceFacts};

#[rstest]
#[case::silent(json!({}), (false, None))]
#[case::opted_out(json!({"labels": {"cilium-leak-healer/opt-out": ""}}), (true, None))]
#[case::not_opted_out(json!({"labels": {"cilium-leak-healer/opt-out": "false"}}), (false, None))]
#[case::paused(json!({"annotations": {"cilium-leak-healer/paused": "upgrade, ask Ada"}}), (false, Some("upgrade, ask Ada")))]
#[case::paused_without_reason(json!({"annotations": {"cilium-leak-healer/paused": ""}}), (false, Some("")))]
#[case::not_paused(json!({"annotations": {"cilium-leak-healer/paused": "false"}}), (false, None))]
#[case::hostile(json!({"annotations": {"cilium-leak-healer/paused": "a\u{1b}[2J\nb\u{202e}c"}}), (false, Some("a [2J b c")))]
#[case::label_and_annotation_are_not_mixed_up(json!({"annotations": {"cilium-leak-healer/opt-out": "x"}, "labels": {"cilium-leak-healer/paused": "x"}}), (false, None))]
#[tokio::test]
async fn a_namespace_says(#[case] mut metadata: Value, #[case] (opt_out, paused): (bool, Option<&str>)) {
    metadata["name"] = json!("shop");
    let (reader, log) = reader(move |_| {
        Some((200, json!({"kind": "Namespace", "apiVersion": "v1", "metadata": metadata, "spec": {}})))
    });
    let want = NamespaceFacts { opt_out, paused: paused.map(str::to_owned), created: None };
    assert_eq!(reader.namespace("shop").await, Ok(Some(want)));
    assert_eq!(log.lines(), ["GET /api/v1/namespaces/shop"]);
}

#[tokio::test]
async fn a_namespace_says_when_it_was_made() {
    let metadata = json!({"name": "shop", "creationTimestamp": "2026-06-18T10:00:00Z"});
    let (reader, _) = reader(move |_| Some((200, json!({"metadata": metadata}))));
    let facts = reader.namespace("shop").await.unwrap().unwrap();
    assert_eq!(facts.created, Some("2026-06-18T10:00:00Z".parse().unwrap()));
}

#[tokio::test]
async fn a_long_reason_is_cut_between_characters() {
    let metadata = json!({"name": "shop", "annotations": {"cilium-leak-healer/paused": "é".repeat(500)}});
    let (reader, _) = reader(move |_| Some((200, json!({"metadata": metadata}))));
    let paused = reader.namespace("shop").await.unwrap().unwrap().paused.unwrap();
    assert_eq!(paused, "é".repeat(200));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_not_there_is_told_from_one_that_cannot_be_read() {
    let (gone, _) = reader(|_| status(404, "NotFound", "namespaces \"shop\" not found"));
    assert_eq!(gone.namespace("shop").await, Ok(None));
    let (proxy, _) = reader(|_| status(404, "NotFound", "page not found"));
    assert!(proxy.namespace("shop").await.is_err());
    let (hung, _) = reader(|_| None);
    let before = Instant::now();
    assert_eq!(hung.namespace("shop").await.unwrap_err().why, ReadFailure::Timeout);
    assert_eq!(before.elapsed(), TIMEOUT);
}

#[tokio::test]
async fn the_agents_pods_of_a_node_are_selected_by_the_api_server() {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cilium", "uid": "ds", "controller": true}]);
    let pod = json!({
        "metadata": {"namespace": "kube-system", "name": "cilium-x", "uid": "u", "resourceVersion": "7",
                     "ownerReferences": owner, "labels": {"cilium-leak-healer/opt-out": "true"}},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "side", "state": {"running": {"startedAt": "2026-06-18T11:00:00Z"}}},
            {"name": "cilium-agent", "state": {"running": {"startedAt": "2026-06-18T10:00:00Z"}}},
        ]},
    });
    let (reader, log) = reader(move |_| Some((200, json!({"metadata": {}, "items": [pod]}))));
    let labels: LabelMatch = "k8s-app=cilium, tier=x".parse().unwrap();
    let pods = reader.agent_pods(&"n1".parse().unwrap(), &labels, "cilium-agent").await.unwrap();
    let pod = &pods[0];
    assert_eq!(pod.name.to_string(), "kube-system/cilium-x");
    assert_eq!((pod.uid.as_str(), pod.resource_version.as_str()), ("u", "7"));
    assert_eq!(pod.node, "n1".parse().ok());
    assert_eq!(pod.daemon_set, Some(("cilium".to_owned(), "ds".to_owned())));
    assert_eq!(pod.started, Some("2026-06-18T10:00:00Z".parse().unwrap()));
    assert!(pod.opt_out && !pod.deleting);
    let query = &log.all()[0].query;
    assert!(query.contains("fieldSelector=spec.nodeName%3Dn1"), "{query}");
    assert!(query.contains("labelSelector=k8s-app%3Dcilium%2Ctier%3Dx"), "{query}");
}

#[tokio::test]
async fn one_pod_of_the_agent_that_cannot_be_understood_makes_the_list_unreadable() {
    let (reader, _) =
        reader(|_| Some((200, json!({"metadata": {}, "items": [{"metadata": {"name": "x"}}]}))));
    let labels = "k8s-app=cilium".parse().unwrap();
    let pods = reader.agent_pods(&"n1".parse().unwrap(), &labels, "cilium-agent").await;
    assert!(matches!(pods.unwrap_err().why, ReadFailure::Undecodable(_)));
}

fn rollout() -> Rollout {
    Rollout {
        uid: "ds".to_owned(),
        deleting: false,
        generation: Some(3),
        observed_generation: Some(3),
        desired: Some(5),
        updated: Some(5),
    }
}

#[tokio::test]
async fn a_daemon_set_is_read_as_far_as_it_matters() {
    let status = json!({"observedGeneration": 3, "desiredNumberScheduled": 5, "updatedNumberScheduled": 5,
                        "numberUnavailable": 1, "currentNumberScheduled": 5});
    let (reader, log) = reader(move |_| {
        Some((
            200,
            json!({"metadata": {"name": "cilium", "uid": "ds", "generation": 3}, "spec": {}, "status": status}),
        ))
    });
    assert_eq!(reader.rollout("kube-system", "cilium").await, Ok(Some(rollout())));
    assert_eq!(log.lines(), ["GET /apis/apps/v1/namespaces/kube-system/daemonsets/cilium"]);
}

#[rstest]
#[case::fit(json!({"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}), (true, true))]
#[case::cordoned(json!({"spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}), (false, true))]
#[case::silent(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}), (true, false))]
#[case::no_condition(json!({"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}}), (true, false))]
#[tokio::test]
async fn a_node_says(#[case] mut node: Value, #[case] (schedulable, ready): (bool, bool)) {
    node["metadata"] = json!({"name": "n1"});
    let (reader, log) = reader(move |_| Some((200, node.clone())));
    let facts = reader.node_state(&"n1".parse().unwrap()).await;
    assert_eq!(facts, Ok(Some(NodeState { schedulable, ready })));
    assert_eq!(log.lines(), ["GET /api/v1/nodes/n1"]);
}
