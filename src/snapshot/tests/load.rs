//! Good and bad files, each bad one with its place.

use rstest::rstest;

use crate::snapshot::{Problem, Snapshot};

const GOOD: &str = r#"
takenAt: "2026-06-18T10:05:00Z"
cluster:
  pods:
  - metadata: {name: a, namespace: b, uid: c, managedFields: [{manager: kubectl}]}
    spec: {nodeName: worker-1, containers: [{name: app, env: [{name: TOKEN, value: hunter2}]}]}
    status: {phase: Running, podIP: 10.0.0.1}
  ciliumEndpoints:
  - metadata: {name: a, namespace: b}
    status: {id: 7}
  unreadable:
  - {resource: pods, namespace: b, name: x, status: 403}
agents:
  worker-1:
    version: "1.18"
    startedAt: "2026-06-17T08:00:00Z"
    endpoints: [{id: 7, spec: {whatever: 1}}]
    failures:
    - {call: get-endpoint, id: "ipv4:10.0.0.1", status: 429}
    - {call: get-endpoint, error: timeout}
"#;

#[rstest]
#[case::unknown_key_on_top("takenAt:", "color: red\ntakenAt:", "color", 2)]
#[case::unknown_key_in_cluster("  pods:", "  podz: []\n  pods:", "podz", 4)]
#[case::unknown_key_of_an_agent("version:", "versions: [a]\n    version:", "versions", 15)]
#[case::unknown_key_of_a_failure("status: 429", "status: 429, when: now", "when", 19)]
#[case::unknown_key_of_an_unread("status: 403", "status: 403, why: no", "why", 12)]
#[case::no_timestamp("\"2026-06-18T10:05:00Z\"", "yesterday", "takenAt", 2)]
#[case::a_number_for_a_timestamp("\"2026-06-18T10:05:00Z\"", "5", "takenAt", 2)]
#[case::no_start("\"2026-06-17T08:00:00Z\"", "soon", "agents.worker-1.startedAt", 16)]
#[case::a_map_for_a_list(
    "endpoints: [{id: 7, spec: {whatever: 1}}]",
    "endpoints: {}",
    "agents.worker-1.endpoints",
    17
)]
#[case::a_word_for_a_number("{id: 7, spec", "{id: seven, spec", "agents.worker-1.endpoints[0].id", 17)]
#[case::a_list_for_a_node("nodeName: worker-1", "nodeName: [worker-1]", "cluster.pods[0].spec.nodeName", 6)]
#[case::a_number_for_a_name(
    "{name: a, namespace: b, uid",
    "{name: 7, namespace: b, uid",
    "cluster.pods[0].metadata.name",
    5
)]
#[case::a_word_in_a_cilium_endpoint(
    "status: {id: 7}",
    "status: {id: many}",
    "cluster.ciliumEndpoints[0].status.id",
    10
)]
#[case::nothing_for_cilium_endpoints(
    "  ciliumEndpoints:\n  - metadata: {name: a, namespace: b}\n    status: {id: 7}",
    "  ciliumEndpoints:",
    "cluster.ciliumEndpoints",
    8
)]
#[case::pod_without_a_name("{name: a, namespace: b, uid", "{namespace: b, uid", "cluster.pods[0]", 5)]
#[case::pod_without_a_namespace("name: a, namespace: b, uid", "name: a, uid", "cluster.pods[0]", 5)]
#[case::pod_without_a_uid("namespace: b, uid: c,", "namespace: b,", "cluster.pods[0]", 5)]
#[case::a_call_of_another_world(
    "call: get-endpoint, error",
    "call: get-everything, error",
    "agents.worker-1.failures[1].call",
    20
)]
#[case::an_error_of_another_world("error: timeout", "error: tired", "agents.worker-1.failures[1].error", 20)]
#[case::status_out_of_range("status: 429", "status: 42", "agents.worker-1.failures[0].status", 19)]
#[case::status_far_out_of_range("status: 403", "status: 403000", "cluster.unreadable[0].status", 12)]
#[case::status_and_error("status: 429", "status: 429, error: timeout", "agents.worker-1.failures[0]", 19)]
#[case::neither_status_nor_error(", error: timeout", "", "agents.worker-1.failures[1]", 20)]
#[case::a_resource_of_another_world("resource: pods", "resource: pod", "cluster.unreadable[0].resource", 12)]
#[case::an_empty_name("name: x, status", "name: \"\", status", "cluster.unreadable[0]", 12)]
#[case::no_node_name("  worker-1:\n", "  \"worker 1\":\n", "agents", 14)]
#[case::a_key_twice("takenAt:", "takenAt: \"2026-06-18T10:05:00Z\"\ntakenAt:", "takenAt", 3)]
#[case::an_agent_twice("agents:\n", "agents:\n  worker-1: {}\n", "worker-1", 15)]
#[case::another_version("takenAt:", "schemaVersion: 2\ntakenAt:", "this program reads version 1", 2)]
#[case::no_cluster("cluster:\n", "agent:\n", "agent", 3)]
fn what_is_wrong_is_told_with_its_place(
    #[case] old: &str,
    #[case] new: &str,
    #[case] says: &str,
    #[case] at: u64,
) {
    assert!(GOOD.contains(old), "the good file has no {old:?}");
    let bad = GOOD.replacen(old, new, 1);
    let error = Snapshot::from_str(&bad).expect_err("a bad file");
    assert!(error.to_string().contains(says), "{error}");
    let Problem::Malformed { line, column, .. } = error.problem else { panic!("{error}") };
    assert!(column >= 1);
    // What is missing or contradicts itself has no place of its own: the object's end is the latest one.
    assert!((at..=at + 2).contains(&line), "line {line} instead of {at}: {error}");
}

#[rstest]
#[case::taken_at("2026-06-18T10:05:00Z", "yesterday", "takenAt")]
#[case::a_key_twice("\"takenAt\"", "\"cluster\":{},\"takenAt\"", "cluster")]
#[case::an_agent_twice("\"agents\":{", "\"agents\":{\"worker-1\":{},", "worker-1")]
#[case::status("429", "4290", "agents.worker-1.failures[0].status")]
#[case::pod_without_a_uid("\"uid\":\"c\"", "\"uid\":\"\"", "cluster.pods[0]")]
#[case::version("\"schemaVersion\":1", "\"schemaVersion\":9", "schemaVersion")]
fn json_as_well(#[case] old: &str, #[case] new: &str, #[case] says: &str) {
    let good = serde_json::to_string(&Snapshot::from_str(GOOD).unwrap()).unwrap();
    assert!(good.contains(old), "{good}");
    // One key a line, for a line to mean something.
    let bad = good.replacen(old, new, 1).replace("\"cluster\"", "\n\"cluster\"");
    let error = Snapshot::from_str(&bad).expect_err("a bad file");
    assert!(error.to_string().contains(says), "{error}");
    let Problem::Malformed { line, .. } = error.problem else { panic!("{error}") };
    assert!(line >= 1);
}

#[rstest]
#[case::empty("", "is empty")]
#[case::blank(" \n\n", "is empty")]
#[case::a_word("hello", "is no snapshot")]
#[case::a_list("[1, 2]", "is no snapshot")]
#[case::a_pod("apiVersion: v1\nkind: Pod\n", "apiVersion")]
#[case::cut_yaml(
    "takenAt: \"2026-06-18T10:05:00Z\"\ncluster:\n  pods:\n  - metadata: {name: a, names",
    "cluster.pods"
)]
#[case::cut_json("{\"takenAt\": \"2026-06-18T10:05:00Z\", \"cluster\": {\"pods\": [{", "cluster.pods[0]")]
#[case::more_behind_it("{\"takenAt\": \"2026-06-18T10:05:00Z\", \"cluster\": {}} x", "trailing")]
#[case::two_documents("takenAt: \"2026-06-18T10:05:00Z\"\ncluster: {}\n---\na: b\n", "document")]
#[case::only_the_cluster("cluster: {}", "takenAt")]
fn no_snapshot(#[case] text: &str, #[case] says: &str) {
    let error = Snapshot::from_str(text).expect_err("no snapshot");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn what_is_wrong_at_the_start_of_a_line_has_a_column_as_well() {
    let error = Snapshot::from_str("{\"takenAt\":\"\n").expect_err("a bad file");
    assert!(matches!(error.problem, Problem::Malformed { line: 2, column: 1, .. }), "{error}");
}

#[test]
fn the_good_file_is_read() {
    let snapshot = Snapshot::from_str(GOOD).unwrap();
    assert_eq!(snapshot.cluster.pods.len(), 1);
    assert_eq!(snapshot.agents["worker-1"].failures.len(), 2);
    assert!(snapshot.cluster.cilium_endpoint_slices.is_none());
    assert!(Snapshot::from_str(&format!("\u{feff}{GOOD}")).is_ok());
    assert!(Snapshot::from_str("{takenAt: \"2026-06-18T10:05:00Z\", cluster: {}}").is_ok(), "a flow mapping");
}
