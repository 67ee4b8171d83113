//! `explain` on the simulated cluster: read-only, through the API server alone.

use std::process::Output;

use cilium_leak_healer::sim::AgentVersion;
use serde_json::Value;

use crate::cluster::{IP, Lab, NODE};
use crate::daemon::run_to_end;
use crate::tool::{stderr, stdout};

async fn explain(lab: &Lab, args: &[&str]) -> Output {
    let kubeconfig = lab.kubeconfig();
    let all: Vec<&str> =
        ["explain", "--kubeconfig", &kubeconfig].into_iter().chain(args.iter().copied()).collect();
    let output = run_to_end(&all, &[]).await;
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    output
}

async fn story(lab: &Lab, target: &str) -> Value {
    let output = explain(lab, &[target, "-o", "json"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("JSON")
}

#[tokio::test]
async fn a_leak_by_pod_by_name_and_by_address_without_a_write() {
    let lab = Lab::new().await;
    lab.wedge().await;
    drop(lab.cluster.api().take_requests());
    drop(lab.node.agent().take_requests());
    for target in ["shop/cart", "cart", "pod/cart", IP] {
        let story = story(&lab, target).await;
        assert_eq!(story["mode"], "live", "{story:#}");
        assert_eq!(story["subject"]["name"], "cart", "{story:#}");
        assert_eq!(story["verdict"], "stale-endpoint", "{story:#}");
        assert_eq!(story["rule"]["row"], 9, "{story:#}");
        assert_eq!(story["rule"]["proof"]["number"], 1, "{story:#}");
        assert_eq!(story["owner"]["pod"], "backup/agent-old", "{story:#}");
        let path = story["heal"]["call"]["path"].as_str().expect("a path");
        assert!(path.starts_with("/v1/endpoint/cni-attachment-id:"), "{path}");
    }
    let writes: Vec<_> = lab.cluster.api().requests().into_iter().filter(|it| it.method != "GET").collect();
    assert!(writes.is_empty(), "{writes:?}");
    let agent = lab.node.agent().requests().into_iter().filter(|it| it.user_agent != "cilium-cni");
    assert!(agent.into_iter().all(|it| it.method == "GET"), "only reads at the agent");
}

#[tokio::test]
async fn commands_lead_to_the_same_cluster() {
    let lab = Lab::new().await;
    lab.wedge().await;
    let output = explain(&lab, &["--context", "sim", "cart"]).await;
    let text = stdout(&output).replace(" \\\n", " ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let flags = format!("--kubeconfig {} --context sim", lab.kubeconfig());
    assert!(
        text.contains(&format!("kubectl {flags} -n kube-system exec \"$agent\" -c cilium-agent")),
        "{text}"
    );
    assert!(text.contains(&format!("spec.nodeName={NODE})")), "{text}");
}

#[tokio::test]
async fn an_agent_of_1_14_is_disconnected_by_container_id() {
    let lab = Lab::of(AgentVersion::V1_14, |_| true).await;
    lab.wedge().await;
    let story = story(&lab, "shop/cart").await;
    assert!(story["heal"]["target"].as_str().expect("a target").starts_with("container-id:"), "{story:#}");
}

#[tokio::test]
async fn without_the_right_to_exec_nobody_knows_and_the_right_is_named() {
    let lab = Lab::of(AgentVersion::V1_20, |wish| wish.subresource != "exec").await;
    lab.wedge().await;
    let output = explain(&lab, &["shop/cart"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("is wedged over 10.244.1.50: agent-unknown"), "{}", stdout(&output));
    assert!(stderr(&output).contains("pods/exec"), "{}", stderr(&output));
}

#[tokio::test]
async fn with_rights_in_one_namespace_only_a_bare_name_asks_for_the_namespace() {
    let lab = Lab::of(AgentVersion::V1_20, |wish| {
        wish.user.is_empty() || wish.resource != "pods" || wish.namespace == "shop" || wish.verb != "list"
    })
    .await;
    let output = explain(&lab, &["cart"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("403") && stderr(&output).contains("explain NAMESPACE/cart"),
        "{}",
        stderr(&output)
    );
}

#[tokio::test]
async fn a_running_pod_is_not_wedged_and_an_absent_one_names_its_like() {
    let lab = Lab::new().await;
    lab.pod("shop", "web-1", "10.244.1.20");
    lab.wait("shop/web-1 to run", |lab| {
        let pod = lab.cluster.api().get(&cilium_leak_healer::sim::PODS, "shop", "web-1");
        pod.is_ok_and(|pod| pod["status"]["phase"] == "Running")
    })
    .await;
    for target in ["web-1", "10.244.1.20"] {
        let story = story(&lab, target).await;
        assert_eq!(story["wedged"], false, "{story:#}");
        assert_eq!(story["reason"], "the pod does not wait for a sandbox: it has an address");
    }
    let output = explain(&lab, &["shop/web-2"]).await;
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).contains("no pod shop/web-2; similar ones: shop/web-1"), "{}", stderr(&output));
}

#[tokio::test]
async fn a_dead_server_and_a_context_that_is_not_there_are_named() {
    let lab = Lab::new().await;
    let output = explain(&lab, &["--context", "nowhere", "cart"]).await;
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).contains("nowhere"), "{}", stderr(&output));
    lab.cluster.api().pause().await;
    let output = explain(&lab, &["cart"]).await;
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).contains("no connection"), "{}", stderr(&output));
}
