//! The manifests' rights: enough, and not too many.

use serde_json::Value;

use crate::harness::{ApiServer, Mode, Node, QUICK, Request, Rights, documents};
use crate::restart::RESTARTS;

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
    let (told, changed): (Vec<_>, Vec<_>) = observer
        .requests()
        .into_iter()
        .filter(Request::is_write)
        .partition(|it| (it.group.as_str(), it.resource.as_str()) == ("events.k8s.io", "events"));
    assert!(changed.is_empty(), "{changed:?}");
    assert!(told.len() >= 2 && told.iter().all(|it| it.status < 300), "{told:?}");
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
async fn a_healer_without_its_rights_names_them_and_does_nothing() {
    let node = Node::with_ingress().await;
    let web = node.workload("ReplicaSet", "web").await;
    let pod = web.pod(None).await;
    let tries = node.kubelet.keep_trying(&pod, node.ingress_address().await);
    let daemon = node.daemon(Mode::Heal, Rights::Observe, QUICK).await;
    let held = daemon.line("the act is held back", |line| line["message"] == "held back").await;
    let reason = held["reason"].as_str().unwrap_or_default();
    assert!(held["by"] == "fence" && reason.contains("the right to delete pods is missing"), "{held}");
    assert_eq!(daemon.acts(), Vec::<Value>::new());
    tries.abort();
    daemon.stop_without_rights().await;
}

/// A server of its own: with a Node there the controller counts the agents of all of them.
#[tokio::test]
async fn each_right_is_needed() {
    let server = ApiServer::start("rights");
    let mut node = Node::of(&server, true).await;
    let (healer, unfenced) = (node.healer().await, crate::safety::fence_missing_twice(&node).await);
    crate::reserved::on_the_ingress_address(&node, &healer).await;
    crate::stale::of_a_former_pod(&node, &healer).await;
    let mut files = vec!["rbac/observe.yaml", "rbac/heal.yaml"];
    let mut used = healer.requests();
    used.extend(unfenced.requests());
    healer.stop().await;
    unfenced.stop_without_rights().await;
    // Without controllers nobody counts the agents.
    if server.controllers {
        files.push("rbac/restart-agent.yaml");
        let restarter = node.daemon(Mode::Heal, Rights::RestartAgent, RESTARTS).await;
        crate::restart::of_a_hidden_holder(&mut node, &restarter).await;
        used.extend(restarter.requests());
        restarter.stop().await;
    }
    if let Some(reviewer) = crate::access::tokens_are_reviewed(&node).await {
        files.push("rbac/auth.yaml");
        used.extend(reviewer.requests());
        reviewer.stop().await;
    }
    let granted: Vec<Granted> = files.into_iter().flat_map(documents).flat_map(|it| rules(&it)).collect();
    assert!(granted.iter().any(|it| it.namespace.is_some()) && granted.iter().any(|it| !it.names.is_empty()));
    let unused: Vec<_> = granted.iter().filter(|granted| !used.iter().any(|it| granted.gives(it))).collect();
    assert!(unused.is_empty(), "granted and never used: {unused:?}");
}

/// A verb on a resource, as a rule gives it.
#[derive(Debug)]
struct Granted {
    group: String,
    resource: String,
    verb: String,
    /// That of a `Role`; none for a `ClusterRole`.
    namespace: Option<String>,
    /// One of several is enough: which Lease is free is chance.
    names: Vec<String>,
}

impl Granted {
    fn gives(&self, request: &Request) -> bool {
        (&self.group, &self.resource, &self.verb) == (&request.group, &request.resource, &request.verb)
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
            && (self.names.is_empty() || self.names.contains(&request.name))
            && ![401, 403].contains(&request.status)
    }
}

/// What a `Role` or a `ClusterRole` gives; nothing for all other documents.
fn rules(role: &Value) -> Vec<Granted> {
    let mut all = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let texts = |field: &str| -> Vec<String> {
            let texts = rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        for group in texts("apiGroups") {
            for resource in texts("resources") {
                all.extend(texts("verbs").into_iter().map(|verb| Granted {
                    group: group.clone(),
                    resource: resource.clone(),
                    verb,
                    namespace: role["metadata"]["namespace"].as_str().map(str::to_owned),
                    names: texts("resourceNames"),
                }));
            }
        }
    }
    all
}
