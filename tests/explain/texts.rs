//! The texts, each as a person reads it.

use crate::tool::{case, explain, explain_json, file, load, stderr, stdout};

/// The text of a case, for the one pod that it is about.
fn text(name: &str, target: &str) -> String {
    let output = explain(&case(name), target);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    stdout(&output)
}

macro_rules! texts {
    ($($name:ident: $case:literal, $target:literal;)+) => {
        $(#[test]
        fn $name() {
            insta::assert_snapshot!(text($case, $target));
        })+
    };
}

texts! {
    stale: "stale-owner-gone", "log-shipper-x7k2p";
    live_duplicate: "live-owner-running", "tenant-b/api-6f9b8c7d5-7htqw";
    reserved: "ingress-ip-of-cilium-node", "10.244.1.12";
    reserved_and_not_movable: "bare-pod-on-ingress-ip", "10.244.1.12";
    settling: "agent-just-restarted", "api-6f9b8c7d5-7htqw";
    agent_unknown: "agent-lookup-timeout", "10.17.4.32";
    not_wedged_by_this: "newer-failure-says-something-else", "api-6f9b8c7d5-7htqw";
    two_addresses: "two-addresses-refused", "api-6f9b8c7d5-t6wpd";
    unreadable: "cilium-node-unreadable", "10.244.1.64";
    withheld: "eni-ipam-mode", "10.0.33.12";
    nameless: "nameless-holder-no-pod-left", "10.244.1.71";
}

#[test]
fn what_a_cluster_says_does_not_steer_the_terminal() {
    let mut snapshot = load(case("newer-failure-says-something-else").as_ref());
    for event in snapshot["cluster"]["events"].as_array_mut().expect("Events") {
        event["message"] = "\u{1b}]0;owned\u{7}\u{1b}[2Jbroken\r\nsecond line \u{202e}reversed".into();
    }
    let file = file(&snapshot);
    let from = file.path().display().to_string();
    let text = stdout(&explain(&from, "api-6f9b8c7d5-7htqw"));
    assert!(text.contains("broken second line reversed"), "{text}");
    assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
}

#[test]
fn what_else_was_found_about_the_pod_is_told() {
    let from = case("running-pod-on-ingress-ip");
    let snapshot = load(from.as_ref());
    let expected = &snapshot["expect"]["findings"][0];
    let pod = expected["subject"].as_str().expect("a subject").strip_prefix("Pod ").expect("a pod");
    let story = explain_json(&from, pod);
    assert_eq!(story["wedged"], false, "{story:#}");
    assert_eq!(story["alsoFound"][0]["verdict"], expected["verdict"], "{story:#}");
    assert!(stdout(&explain(&from, pod)).contains("Also found: overlapping-ipam"));
}

#[test]
fn a_pod_without_node_says_so() {
    let mut snapshot = load(case("stale-owner-gone").as_ref());
    snapshot["cluster"]["pods"][0]["spec"].as_object_mut().expect("a spec").remove("nodeName");
    snapshot["cluster"]["events"] = serde_json::json!([{
        "metadata": {"name": "x.1", "namespace": "monitoring"}, "reason": "FailedScheduling",
        "message": "0/3 nodes are available", "lastTimestamp": "2026-06-18T10:04:00Z", "count": 2,
        "involvedObject": {"uid": snapshot["cluster"]["pods"][0]["metadata"]["uid"]},
    }]);
    let file = file(&snapshot);
    let from = file.path().display().to_string();
    let story = explain_json(&from, "log-shipper-x7k2p");
    assert_eq!(story["wedged"], false);
    assert_eq!(story["reason"], "the pod is not bound to a node yet");
    assert_eq!(story["failure"]["reason"], "FailedScheduling");
    assert_eq!(story["failure"]["count"], 2);
}
