//! What cannot be explained: exit status 1, the reason with its place, and nothing on standard output.

use serde_json::json;

use crate::tool::{binary, case, command, explain, explain_json, file, load, run, stderr, stdout};

/// Its error, which names all of these.
fn refused(from: &str, target: &str, parts: &[&str]) {
    let output = explain(from, target);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(stdout(&output), "", "{said}");
    assert!(said.starts_with("error: "), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

#[test]
fn an_absent_pod_names_similar_ones() {
    refused(
        &case("live-owner-running"),
        "api-6f9b8c7d5-zzzzz",
        &["no pod api-6f9b8c7d5-zzzzz", "tenant-b/api-6f9b8c7d5-7htqw"],
    );
}

#[test]
fn an_absent_pod_unlike_any_names_those_that_hang() {
    refused(
        &case("live-owner-running"),
        "tenant-b/nothing",
        &["no pod tenant-b/nothing", "tenant-b/api-6f9b8c7d5-7htqw"],
    );
}

#[test]
fn an_address_that_nobody_waits_for_names_those_that_somebody_does() {
    refused(
        &case("live-owner-running"),
        "192.0.2.99",
        &["no pod waits for 192.0.2.99", "10.244.1.90 (tenant-b/api-6f9b8c7d5-7htqw)"],
    );
}

#[test]
fn an_address_that_a_pod_just_has_is_that_pods_story() {
    let story = explain_json(&case("healthy-cluster"), &address_of_some_pod());
    assert_eq!(story["wedged"], false, "{story:#}");
    assert_eq!(story["reason"], "the pod does not wait for a sandbox: it has an address");
}

fn address_of_some_pod() -> String {
    let snapshot = load(case("healthy-cluster").as_ref());
    let mut pods = snapshot["cluster"]["pods"].as_array().expect("pods").iter();
    let own = pods.find(|pod| pod["status"]["podIP"].is_string() && pod["spec"]["hostNetwork"] != true);
    own.expect("a pod with an address")["status"]["podIP"].as_str().expect("text").to_owned()
}

/// The case with its wedge a second time, in another namespace.
fn doubled() -> serde_json::Value {
    let mut snapshot = load(case("stale-owner-gone").as_ref());
    let (mut pod, mut event) =
        (snapshot["cluster"]["pods"][0].clone(), snapshot["cluster"]["events"][0].clone());
    pod["metadata"]["namespace"] = json!("other");
    pod["metadata"]["uid"] = json!("another-uid");
    event["metadata"]["namespace"] = json!("other");
    event["involvedObject"]["uid"] = json!("another-uid");
    snapshot["cluster"]["pods"].as_array_mut().expect("pods").push(pod);
    snapshot["cluster"]["events"].as_array_mut().expect("Events").push(event);
    snapshot
}

#[test]
fn what_is_ambiguous_names_the_candidates() {
    let file = file(&doubled());
    let from = file.path().display().to_string();
    let both = ["monitoring/log-shipper-x7k2p", "other/log-shipper-x7k2p"];
    refused(&from, "log-shipper-x7k2p", &[&["more than one namespace"], both.as_slice()].concat());
    refused(&from, "10.244.1.57", &[&["more than one pod waits for 10.244.1.57"], both.as_slice()].concat());
    for pod in both {
        assert_eq!(explain_json(&from, pod)["verdict"], "stale-endpoint");
    }
    let (namespace, name) = both[1].split_once('/').expect("two parts");
    let output = run(&["explain", "--from", &from, "-n", namespace, name]);
    assert!(output.status.success() && stdout(&output).starts_with("Pod other/"), "{}", stderr(&output));
    let output = run(&["explain", "--from", &from, "-n", namespace, "10.244.1.57"]);
    assert!(output.status.success() && stdout(&output).starts_with("Pod other/"), "{}", stderr(&output));
    let output = run(&["explain", "--from", &from, "-n", namespace, both[0]]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is not in the namespace other"), "{}", stderr(&output));
}

#[test]
fn an_absent_pod_may_be_one_that_could_not_be_read() {
    let mut snapshot = load(case("stale-owner-gone").as_ref());
    snapshot["cluster"]["unreadable"] = json!([{"resource": "pods", "namespace": "hidden", "status": 403}]);
    let file = file(&snapshot);
    refused(
        &file.path().display().to_string(),
        "hidden/pod",
        &["no pod hidden/pod", "not all pods could be read"],
    );
}

#[test]
fn a_file_that_is_no_snapshot_says_where() {
    refused("/nowhere/snapshot.yaml", "a/b", &["/nowhere/snapshot.yaml"]);
    let mut snapshot = load(case("stale-owner-gone").as_ref());
    snapshot["cluster"]["podz"] = json!([]);
    let file = file(&snapshot);
    refused(&file.path().display().to_string(), "a/b", &["podz", "line"]);
    std::fs::write(file.path(), &snapshot.to_string()[..2000]).expect("it is cut");
    refused(&file.path().display().to_string(), "a/b", &["line"]);
}

#[test]
fn what_is_neither_pod_nor_address_is_a_wrong_command_line() {
    for target in ["a/b/c", "", "no such pod", "10.244.1.12/32"] {
        let output = explain(&case("stale-owner-gone"), target);
        assert_eq!(output.status.code(), Some(2), "{target:?}: {}", stderr(&output));
    }
}

#[test]
fn usage_follows_how_it_was_called() {
    let dir = tempfile::tempdir().expect("a directory");
    for (file, called) in [
        ("kubectl-cilium_leak", "kubectl cilium-leak"),
        ("kubectl-cilium-leak", "kubectl cilium leak"),
        ("cilium-leak-healer", "cilium-leak-healer"),
    ] {
        let link = dir.path().join(file);
        std::os::unix::fs::symlink(binary(), &link).expect("a link");
        let help = command(&link).args(["explain", "--help"]).output().expect("it starts");
        assert!(stdout(&help).contains(&format!("Usage: {called} explain ")), "{}", stdout(&help));
        let wrong = command(&link).args(["explain", "--nonsense"]).output().expect("it starts");
        assert!(stderr(&wrong).contains(&format!("Usage: {called} explain")), "{}", stderr(&wrong));
        let from = case("agent-lookup-timeout");
        let story =
            command(&link).args(["explain", "--from", &from, "10.17.4.32"]).output().expect("it starts");
        assert!(
            stdout(&story).contains(&format!("{called} explain probes/canary-31-hq8zt")),
            "{}",
            stdout(&story)
        );
    }
}

#[test]
fn completions_and_man_pages_know_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(
            output.status.success() && stdout(&output).contains("explain"),
            "{shell}: {}",
            stderr(&output)
        );
    }
    let page = run(&["man"]);
    assert!(page.status.success() && stdout(&page).contains(".TH"), "{}", stderr(&page));
    let dir = tempfile::tempdir().expect("a directory");
    let pages = run(&["man", &dir.path().display().to_string()]);
    assert!(pages.status.success(), "{}", stderr(&pages));
    for verb in ["explain", "doctor", "run"] {
        let page = dir.path().join(format!("cilium-leak-healer-{verb}.1"));
        assert!(std::fs::read_to_string(&page).expect("a page").contains(verb), "{}", page.display());
    }
    assert!(!dir.path().join("cilium-leak-healer-man.1").exists(), "a hidden verb has no page");
    assert!(!stdout(&run(&["--help"])).contains("completions"), "hidden verbs are hidden");
}
