//! What could not be read is said, and never looks as if nothing had happened.

use cilium_leak_healer::sim::Attributes;

use crate::stage::Stage;
use crate::story::{endings, heal, json, report};

/// Nobody but the person who asks is held back.
fn denied(
    verb: &'static str,
    resource: &'static str,
) -> impl Fn(&Attributes) -> bool + Send + Sync + 'static {
    move |wish| wish.user != "system:admin" || wish.verb != verb || wish.resource != resource
}

#[tokio::test]
async fn a_node_that_does_not_answer_makes_it_incomplete() {
    let stage = Stage::new(2).await;
    let daemon = stage.daemon(1).await;
    heal(&stage, &daemon).await;
    let said = report(&stage, &["--api-timeout", "3s"]).await;
    assert_eq!(said.code, Some(3), "{}{}", said.out, said.err);
    assert!(said.out.contains("1 healed (incomplete)"), "{}", said.out);
    assert!(said.out.contains("| worker-2 | **not read** |"), "{}", said.out);
    assert!(said.err.contains("incomplete: worker-2: error forwarding port 9969"), "{}", said.err);
    let junit = report(&stage, &["--api-timeout", "3s", "--format", "junit"]).await;
    assert!(
        junit.out.contains("errors=\"1\"") && junit.out.contains("<error message=\"incomplete"),
        "{}",
        junit.out
    );
    // A condition that is met says more.
    let met = json(&stage, &["--api-timeout", "3s", "--fail-on", "heal"], 2).await;
    assert_eq!(met["complete"], false);
    // A watchdog that has gone silent, and whose Events are there, is known from these.
    stage.leads(&crate::stage::pod_of(1), None);
    let events = json(&stage, &["--api-timeout", "3s", "--node", "worker-1"], 0).await;
    assert_eq!(endings(&events), ["shop/cart 10.244.1.50 stale-endpoint healed"]);
    assert_eq!(events["nodes"][0]["reading"], "not-read");
    daemon.stop().await;
}

#[tokio::test]
async fn a_node_without_a_watchdog_is_named() {
    let stage = Stage::new(2).await;
    let daemon = stage.daemon(1).await;
    let gone = cilium_leak_healer::sim::DeleteOptions::now();
    let pod = crate::stage::pod_of(2);
    stage
        .cluster
        .api()
        .delete(&cilium_leak_healer::sim::PODS, crate::stage::OWN, &pod, &gone)
        .expect("its pod");
    let told = json(&stage, &[], 3).await;
    assert_eq!(told["nodes"][1]["why"], "no pod of the watchdog is on it");
    json(&stage, &["--node", "worker-1"], 0).await;
    daemon.stop().await;
}

/// No watchdog, and nothing that one wrote: that is no proof that nothing happened.
#[tokio::test]
async fn an_empty_cluster_tells_nothing() {
    let stage = Stage::new(0).await;
    let said = report(&stage, &[]).await;
    assert_eq!(said.code, Some(3), "{}{}", said.out, said.err);
    assert!(said.out.contains("nobody can tell whether anything happened"), "{}", said.out);
    assert!(!said.out.contains("No wedge was found"), "{}", said.out);
}

#[tokio::test]
async fn nodes_on_which_nothing_happened_are_complete() {
    let stage = Stage::new(1).await;
    let daemon = stage.daemon(1).await;
    let said = report(&stage, &["--fail-on", "heal,refuse,unhealed,open"]).await;
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
    assert!(said.out.contains("No wedge was found."), "{}", said.out);
    assert!(said.out.contains("| worker-1 | whole | heal |"), "{}", said.out);
    daemon.stop().await;
}

#[tokio::test]
async fn a_restart_loses_refusals_and_is_said() {
    let stage = Stage::new(1).await;
    let daemon = stage.daemon(1).await;
    heal(&stage, &daemon).await;
    daemon.stop().await;
    let status = serde_json::json!({"containerStatuses": [{
        "name": "c", "restartCount": 1, "ready": true, "image": "i", "imageID": "i",
    }]});
    let pod = crate::stage::pod_of(1);
    stage
        .cluster
        .api()
        .patch_status_merge(&cilium_leak_healer::sim::PODS, crate::stage::OWN, &pod, &status)
        .expect("its pod");
    let daemon = stage.daemon(1).await;
    let told = json(&stage, &["--fail-on", "heal"], 2).await;
    assert_eq!(endings(&told), ["shop/cart 10.244.1.50 stale-endpoint healed"]);
    assert_eq!(told["nodes"][0]["reading"], "partial");
    assert!(told["findings"][0]["sources"].to_string().contains("state"), "{told:#}");
    daemon.stop().await;
}

#[rstest::rstest]
#[case::pods("list", "pods", 3, "The watchdogs' pods cannot be listed")]
#[case::events("list", "events", 0, "The Kubernetes Events cannot be listed")]
#[case::nodes("list", "nodes", 0, "one without a watchdog is not noticed")]
#[tokio::test]
async fn a_missing_right_is_named(
    #[case] verb: &'static str,
    #[case] resource: &'static str,
    #[case] code: i32,
    #[case] why: &str,
) {
    let stage = Stage::behind(1, denied(verb, resource)).await;
    let daemon = stage.daemon(1).await;
    let said = report(&stage, &[]).await;
    assert_eq!(said.code, Some(code), "{}{}", said.out, said.err);
    assert!(said.out.contains(why), "no {why:?} in {}", said.out);
    daemon.stop().await;
}

#[tokio::test]
async fn where_nothing_can_be_listed_there_is_no_report() {
    let denied = |wish: &Attributes| wish.user != "system:admin" || wish.verb != "list";
    let stage = Stage::behind(1, denied).await;
    let said = report(&stage, &[]).await;
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{}", said.err);
    assert!(said.err.contains("neither the watchdogs' pods nor the Events can be listed"), "{}", said.err);
}
