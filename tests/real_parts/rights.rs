//! The manifests' rights: enough, and not too many.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::Value;

use crate::harness::{Mode, Node, QUICK, Request, Rights, documents};

#[tokio::test]
async fn observing_changes_nothing() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let leaked = node.agent.api().holder(ip).await;
    let (pod, tries) = node.waiting_pod("waits", ip).await;
    let observer = node.daemon(Mode::Observe, Rights::Observe, QUICK).await;
    observer.judged("waits", "stale-endpoint").await;
    observer.metric_reaches(r#"cilium_leak_healer_wedges{verdict="stale-endpoint"}"#, 1.0).await;
    assert_eq!(node.agent.api().holder(ip).await, leaked);
    // A second daemon that heals shows that the first one had the time to.
    let healer = node.healer().await;
    healer.acted("waits", "healed").await;
    node.runs(&pod, ip).await;
    tries.await.expect("the kubelet's tries");
    assert_eq!(observer.acts(), Vec::<Value>::new());
    let writes: Vec<_> = observer.requests().into_iter().filter(Request::is_write).collect();
    assert!(writes.is_empty(), "{writes:?}");
    observer.stop().await;
    healer.stop().await;
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let node = Node::new().await;
    let daemon = node.daemon(Mode::Observe, Rights::Nothing, QUICK).await;
    let named = |text: &str| text.contains("list") && text.contains("pods");
    daemon
        .line("the right that is missing", |line| line["level"] != "INFO" && named(&line.to_string()))
        .await;
    let told = daemon.not_ready().await;
    assert!(named(&told), "{told}");
    daemon.stop_without_rights().await;
}

#[tokio::test]
async fn a_healer_that_may_not_delete_pods_says_so() {
    let node = Node::with_ingress().await;
    let web = node.workload("ReplicaSet", "web").await;
    let pod = web.pod(None).await;
    let tries = node.kubelet.keep_trying(&pod, node.ingress_address().await);
    let daemon = node.daemon(Mode::Heal, Rights::Observe, QUICK).await;
    let failed = daemon.acted(&pod.name_any(), "failed").await;
    let reason = failed["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("403") && reason.contains("cannot delete resource"), "{failed}");
    tries.abort();
    daemon.stop_without_rights().await;
}

#[tokio::test]
async fn each_right_is_needed() {
    let node = Node::with_ingress().await;
    let daemon = node.healer().await;
    crate::reserved::on_the_ingress_address(&node, &daemon).await;
    crate::stale::of_a_former_pod(&node, &daemon).await;
    let used = daemon.requests();
    let used: BTreeSet<_> =
        used.iter().map(|it| (it.group.as_str(), it.resource.as_str(), it.verb.as_str())).collect();
    let granted: Vec<Value> =
        ["rbac/observe.yaml", "rbac/heal.yaml"].into_iter().flat_map(documents).collect();
    let granted =
        granted.iter().filter(|document| document["kind"] == "ClusterRole").flat_map(rules).collect();
    let unused: Vec<_> = BTreeSet::difference(&granted, &used).collect();
    assert!(unused.is_empty(), "granted and never used: {unused:?}");
    daemon.stop().await;
}

/// Group, resource and verb of all rules of a role.
fn rules(role: &Value) -> Vec<(&str, &str, &str)> {
    let mut all = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let texts = |field: &str| rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        for group in texts("apiGroups") {
            for resource in texts("resources") {
                all.extend(texts("verbs").map(|verb| (group, resource, verb)));
            }
        }
    }
    all
}
