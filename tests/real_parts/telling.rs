//! The watchdog's Kubernetes Events on a real API server, as `kubectl describe` shows them.

use std::process::Stdio;

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tokio::process::Command;

use crate::harness::{Node, eventually, say};

/// The watchdog's Events on an object, asked for as `kubectl describe` does.
async fn told(node: &Node, uid: &str, reason: &str) -> Vec<Event> {
    let events: Api<Event> = Api::all(node.client.clone());
    let fields = format!("involvedObject.uid={uid},reportingComponent=cilium-leak-healer,reason={reason}");
    let of_object = ListParams::default().fields(&fields);
    eventually(&format!("{reason} on {uid}"), async || {
        let events = events.list(&of_object).await.expect("list Events").items;
        (!events.is_empty()).then_some(events)
    })
    .await
}

fn note(event: &Event) -> String {
    event.message.clone().expect("a note")
}

/// What a person reads; `None` where there is no kubectl, which is said.
async fn described(node: &Node, args: &[&str]) -> Option<String> {
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("--kubeconfig").arg(node.admin_kubeconfig()).arg("describe").args(args).stdin(Stdio::null());
    let output = match kubectl.output().await {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "kubectl: {error}");
            say(&format!("SKIPPED: kubectl describe {args:?}: kubectl cannot be started: {error}"));
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // For people who run this test to see what is shown.
    say(&text);
    Some(text)
}

#[tokio::test]
async fn a_heal_can_be_read_from_the_pod_and_the_node() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let (pod, _tries) = node.waiting_pod("waits", ip).await;
    let daemon = node.healer().await;
    let acted = daemon.acted("waits", "healed").await;
    let id = acted["correlation_id"].as_str().expect("an id");
    let uid = pod.uid().expect("a UID");
    for (on, uid) in [("the pod", uid.as_str()), ("the node", node.name.as_str())] {
        for reason in ["EndpointLeakDetected", "StaleEndpointDisconnected"] {
            let events = told(&node, uid, reason).await;
            assert_eq!(events.len(), 1, "{on}: {events:?}");
            let said = note(&events[0]);
            assert!(said.contains(&ip.to_string()) && said.contains(id), "{on}: {said}");
        }
    }
    if let Some(text) = described(&node, &["pod", "-n", &node.namespace, "waits"]).await {
        for line in ["EndpointLeakDetected", "StaleEndpointDisconnected", "cilium-leak-healer"] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_refusal_can_be_read_from_the_pod() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.running_pod("owner", ip).await;
    let (pod, tries) = node.waiting_pod("waits", ip).await;
    let daemon = node.healer().await;
    daemon.judged("waits", "live-duplicate").await;
    let events = told(&node, &pod.uid().expect("a UID"), "EndpointLeakRefused").await;
    let refused = &events[0];
    assert!(
        note(refused).contains("live-duplicate") && note(refused).contains(&ip.to_string()),
        "{refused:?}"
    );
    let related = refused.related.as_ref().and_then(|it| it.name.as_deref());
    assert_eq!((related, refused.type_.as_deref()), (Some("owner"), Some("Warning")), "{refused:?}");
    tries.abort();
    if let Some(text) = described(&node, &["pod", "-n", &node.namespace, "waits"]).await {
        assert!(text.contains("EndpointLeakRefused"), "{text}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_pod_that_was_moved_can_be_read_from_its_controller() {
    let node = Node::with_ingress().await;
    let ip = node.ingress_address().await;
    let web = node.workload("ReplicaSet", "web").await;
    let pod = web.pod(None).await;
    let tries = node.kubelet.keep_trying(&pod, ip);
    let daemon = node.healer().await;
    daemon.judged(&pod.name_any(), "reserved-holder").await;
    let owner = pod.owner_references()[0].uid.clone();
    let events = told(&node, &owner, "WedgedPodDeleted").await;
    assert!(note(&events[0]).contains(&pod.name_any()), "{events:?}");
    tries.abort();
    if let Some(text) = described(&node, &["replicaset", "-n", &node.namespace, "web"]).await {
        assert!(text.contains("WedgedPodDeleted"), "{text}");
    }
    daemon.stop().await;
}
