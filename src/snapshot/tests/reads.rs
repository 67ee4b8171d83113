//! What a snapshot answers: an object, its absence, or that nobody knows.

use rstest::rstest;

use super::now;
use crate::domain::{Lookup, NodeName, PodName, ReadFailure};
use crate::engine::Sources;
use crate::snapshot::{NodeView, Snapshot, View};

const CLUSTER: &str = r#"
takenAt: "2026-06-18T10:05:00Z"
cluster:
  pods:
  - {metadata: {name: a, namespace: one, uid: ua}, spec: {nodeName: worker-1}, status: {podIP: 10.0.0.1}}
  - {metadata: {name: b, namespace: two, uid: ub}, spec: {nodeName: worker-2}, status: {podIP: 10.0.0.2}}
  events:
  - {involvedObject: {uid: ua}, reason: Killing}
  - {involvedObject: {uid: ub}, reason: Killing}
  ciliumNodes:
  - {metadata: {name: worker-1}, spec: {health: {ipv4: 10.0.0.9}}}
  - {metadata: {name: worker-3}, spec: {health: {ipv4: nonsense}}}
  ciliumEndpoints:
  - {metadata: {name: a, namespace: one}, status: {id: 7}}
  - {metadata: {name: b, namespace: two}, status: {id: 8}}
  ciliumEndpointSlices:
  - {namespace: one, endpoints: [{name: a, pod-uid: ua}]}
UNREADABLE
agents:
  worker-1:
    config: {status: {ipam-mode: cluster-pool}}
    endpoints:
    - {id: 7, status: {networking: {addressing: [{ipv4: 10.0.0.1, ipv6: "fd00::1"}]}, identity: {labels: ["k8s:io.kubernetes.pod.namespace=one"]}}}
    - {status: {networking: {addressing: [{ipv4: 10.0.0.5}]}}}
FAILURES
"#;

fn snapshot(unreadable: &str, failures: &str) -> Snapshot {
    let list = |key: &str, indent: &str, items: &str| {
        if items.is_empty() { String::new() } else { format!("{indent}{key}: [{items}]") }
    };
    let text = CLUSTER
        .replace("UNREADABLE", &list("unreadable", "  ", unreadable))
        .replace("FAILURES", &list("failures", "    ", failures));
    Snapshot::from_str(&text).unwrap()
}

fn ask<T>(snapshot: &Snapshot, question: impl FnOnce(NodeView<'_>) -> T) -> T {
    let (view, node) = (View::new(snapshot), "worker-1".parse::<NodeName>().unwrap());
    question(view.node(&node))
}

#[rstest]
#[case::there("", "one/a", "there")]
#[case::not_there("", "one/x", "absent")]
#[case::forbidden_beats_the_list(
    "{resource: pods, namespace: one, name: a, status: 403}",
    "one/a",
    "unknown"
)]
#[case::another_namespace("{resource: pods, namespace: two, name: a, status: 403}", "one/a", "there")]
#[case::the_list_failed("{resource: pods, status: 500}", "one/a", "there")]
#[case::the_list_failed_and_not_in_it("{resource: pods, status: 500}", "one/x", "unknown")]
#[case::the_namespace_failed("{resource: pods, namespace: one, error: timeout}", "one/x", "unknown")]
#[case::another_namespace_failed("{resource: pods, namespace: two, error: timeout}", "one/x", "absent")]
#[case::another_resource("{resource: nodes, status: 500}", "one/x", "absent")]
fn a_pod(#[case] unreadable: &str, #[case] name: &str, #[case] answer: &str) {
    let name: PodName = name.parse().unwrap();
    let read = ask(&snapshot(unreadable, ""), |view| now(view.pod(&name)));
    let seen = match &read {
        Ok(Some(pod)) if pod.name == name => "there",
        Ok(Some(_)) => "another pod",
        Ok(None) => "absent",
        Err(_) => "unknown",
    };
    assert_eq!(seen, answer, "{read:?}");
}

#[rstest]
#[case::whole("", true, true)]
#[case::one_pod_of_the_namespace("{resource: pods, namespace: one, name: x, status: 403}", true, false)]
#[case::one_pod_of_another("{resource: pods, namespace: two, name: x, status: 403}", true, true)]
#[case::the_list("{resource: pods, error: refused}", false, false)]
#[case::the_namespace("{resource: pods, namespace: one, status: 403}", false, false)]
#[case::another_namespace("{resource: pods, namespace: two, status: 403}", false, true)]
fn lists_of_pods(#[case] unreadable: &str, #[case] by_address: bool, #[case] of_node: bool) {
    let snapshot = snapshot(unreadable, "");
    let ip = "10.0.0.1".parse().unwrap();
    let users = ask(&snapshot, |view| now(view.pods_with_address(ip)));
    assert_eq!(users.as_ref().is_ok_and(|pods| pods.len() == 1), by_address, "{users:?}");
    let pods = ask(&snapshot, |view| now(view.pods_of_node("one")));
    assert_eq!(pods.as_ref().is_ok_and(|pods| pods.len() == 1), of_node, "{pods:?}");
}

#[rstest]
#[case::whole("", true, true, true, true)]
#[case::events_of_the_namespace("{resource: events, namespace: one, status: 403}", false, true, true, true)]
#[case::events_of_another("{resource: events, namespace: two, status: 403}", true, true, true, true)]
#[case::all_events("{resource: events, status: 403}", false, true, true, true)]
#[case::this_cilium_node("{resource: ciliumnodes, name: worker-1, status: 500}", true, false, true, true)]
#[case::another_cilium_node("{resource: ciliumnodes, name: worker-2, status: 500}", true, true, true, true)]
#[case::cilium_nodes("{resource: ciliumnodes, status: 500}", true, false, true, true)]
#[case::endpoints_of_the_namespace(
    "{resource: ciliumendpoints, namespace: one, status: 500}",
    true,
    true,
    false,
    true
)]
#[case::endpoints_of_another(
    "{resource: ciliumendpoints, namespace: two, status: 500}",
    true,
    true,
    true,
    true
)]
#[case::endpoints("{resource: ciliumendpoints, status: 500}", true, true, false, true)]
#[case::a_slice("{resource: ciliumendpointslices, name: ces-1, status: 500}", true, true, true, false)]
fn other_reads(
    #[case] unreadable: &str,
    #[case] events: bool,
    #[case] node: bool,
    #[case] endpoints: bool,
    #[case] slices: bool,
) {
    let snapshot = snapshot(unreadable, "");
    let view = View::new(&snapshot);
    let worker = "worker-1".parse().unwrap();
    let view = view.node(&worker);
    let pod = now(view.pod(&"one/a".parse().unwrap())).unwrap().unwrap();
    let read = now(view.events(&pod));
    assert_eq!(read.known.len(), 1, "what is known stays known");
    assert_eq!(read.unreadable.is_none(), events);
    assert_eq!(now(view.cilium_node()).is_ok_and(|node| node.is_some()), node);
    let Lookup::Held(holder) = now(view.lookup("10.0.0.1".parse().unwrap())) else { panic!("not held") };
    assert_eq!(
        now(view.endpoints(&holder, &[])).is_ok_and(|all| all.is_some_and(|all| all.len() == 1)),
        endpoints
    );
    assert_eq!(now(view.slices(&pod.name)).is_ok_and(|all| all.is_some_and(|all| all.len() == 1)), slices);
}

#[rstest]
#[case::held("", "10.0.0.1", "held")]
#[case::held_by_the_other_family("", "fd00::1", "held")]
#[case::not_held("", "10.0.0.3", "not held")]
#[case::an_endpoint_without_id("", "10.0.0.5", "unreadable")]
#[case::the_list_says_nothing_of_the_look_up("{call: list-endpoints, status: 500}", "10.0.0.1", "held")]
#[case::this_id("{call: get-endpoint, id: \"ipv4:10.0.0.1\", status: 429}", "10.0.0.1", "429")]
#[case::another_id("{call: get-endpoint, id: \"ipv4:10.0.0.1\", status: 429}", "10.0.0.3", "not held")]
#[case::however_it_is_written("{call: get-endpoint, id: \"ipv6:FD00:0::1\", status: 429}", "fd00::1", "429")]
#[case::any_id("{call: get-endpoint, error: timeout}", "10.0.0.3", "timeout")]
#[case::the_first_that_matches_wins(
    "{call: get-endpoint, id: \"ipv4:10.0.0.3\", error: refused}, {call: get-endpoint, error: timeout}",
    "10.0.0.3",
    "refused"
)]
#[case::the_routers_404("{call: get-endpoint, status: 404}", "10.0.0.1", "404")]
fn a_look_up(#[case] failures: &str, #[case] ip: &str, #[case] answer: &str) {
    let lookup = ask(&snapshot("", failures), |view| now(view.lookup(ip.parse().unwrap())));
    let seen = match &lookup {
        Lookup::Held(_) => "held".to_owned(),
        Lookup::NotHeld => "not held".to_owned(),
        Lookup::Unknown(unread) => match &unread.why {
            ReadFailure::Status { status, .. } => status.to_string(),
            ReadFailure::Timeout => "timeout".to_owned(),
            ReadFailure::Undecodable(_) => "unreadable".to_owned(),
            ReadFailure::Connection(_) | ReadFailure::NotAsked => "refused".to_owned(),
        },
    };
    assert_eq!(seen, answer, "{lookup:?}");
}

#[test]
fn what_is_not_in_the_snapshot() {
    let snapshot = snapshot("", "{call: get-config, status: 503}");
    let view = View::new(&snapshot);
    let (first, second, third) =
        ("worker-1".parse().unwrap(), "worker-2".parse().unwrap(), "worker-3".parse().unwrap());
    assert!(now(view.node(&first).ipam_mode()).is_err());
    let absent = view.node(&second);
    assert!(matches!(now(absent.lookup("10.0.0.1".parse().unwrap())), Lookup::Unknown(_)));
    assert_eq!(now(absent.agent_started()), None);
    assert_eq!(now(absent.cilium_node()), Ok(None));
    assert!(now(view.node(&third).cilium_node()).is_err(), "a malformed object is unreadable");
}
