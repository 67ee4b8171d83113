//! Every pod of every case can be explained, and the explanation says what the case says is right.

use std::path::PathBuf;

use serde_json::Value;

use crate::tool::{explain, explain_json, load, stderr, stdout};

/// The width of a terminal. Only what must be copied whole (a call, an id) may be wider.
const WIDTH: usize = 100;
const VERDICTS: [&str; 9] = [
    "agent-unknown",
    "reserved-holder",
    "not-held",
    "settling",
    "insufficient-evidence",
    "unmanaged-holder",
    "shared-by-design",
    "live-duplicate",
    "stale-endpoint",
];

fn files() -> Vec<PathBuf> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = std::fs::read_dir(dir).expect("the cases").map(|entry| entry.expect("an entry").path());
    let files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ext| ext == "yaml")).collect();
    assert!(files.len() > 50, "only {} cases", files.len());
    files
}

fn pods(snapshot: &Value) -> Vec<String> {
    let pods = snapshot["cluster"]["pods"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    pods.map(|pod| format!("{}/{}", text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"])))
        .collect()
}

#[test]
fn each_pod_of_each_case_has_its_story() {
    let mut explained = 0;
    for path in files() {
        let (snapshot, from) = (load(&path), path.display().to_string());
        for pod in pods(&snapshot) {
            check(&snapshot, &from, &pod);
            explained += 1;
        }
    }
    assert!(explained > 100, "only {explained} pods");
}

fn check(snapshot: &Value, from: &str, pod: &str) {
    let story = explain_json(from, pod);
    let about = format!("{from} {pod}: {story:#}");
    assert_eq!(story["kind"], "Explanation", "{about}");
    assert_eq!(story["schemaVersion"], 1, "{about}");
    assert_eq!(story["mode"], "replay", "{about}");
    let subject = format!("Pod {pod}");
    let of = |list: &str| {
        let all = snapshot["expect"][list].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| {
            it["subject"] == subject.as_str()
                && VERDICTS.contains(&it["verdict"].as_str().unwrap_or_default())
        })
    };
    match (of("findings"), of("optional")) {
        (Some(expected), _) => {
            assert_eq!(story["wedged"], true, "{about}");
            for (key, field) in [
                ("verdict", &story["verdict"]),
                ("ip", &story["ip"]),
                ("node", &story["node"]),
                ("remedy", &story["heal"]["remedy"]),
                ("target", &story["heal"]["target"]),
            ] {
                assert!(
                    expected[key].is_null() || &expected[key] == field,
                    "{key}: {} {about}",
                    expected[key]
                );
            }
        }
        (None, Some(_)) => assert_eq!(story["heal"]["remedy"], "none", "{about}"),
        (None, None) => assert_eq!(story["wedged"], false, "{about}"),
    }
    assert_eq!(story["wedged"] == true, !story["verdict"].is_null(), "{about}");
    call_fits_remedy(&story, &about);
    let output = explain(from, pod);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    well_printed(&stdout(&output));
}

/// A call is there if, and only if, there is a remedy, and it names nothing that is used again.
fn call_fits_remedy(story: &Value, about: &str) {
    let call = &story["heal"]["call"];
    match story["heal"]["remedy"].as_str() {
        Some("none") => assert!(call.is_null(), "{about}"),
        Some("disconnect-endpoint") => {
            let target = story["heal"]["target"].as_str().expect("a target");
            assert!(
                target.starts_with("cni-attachment-id:") || target.starts_with("container-id:"),
                "{about}"
            );
            assert_eq!(call["method"], "DELETE", "{about}");
            assert_eq!(call["path"], format!("/v1/endpoint/{target}"), "{about}");
        }
        Some("delete-pod") => {
            let subject = &story["subject"];
            let path = format!(
                "/api/v1/namespaces/{}/pods/{}",
                subject["namespace"].as_str().expect("a namespace"),
                subject["name"].as_str().expect("a name")
            );
            assert_eq!(call["path"], path, "{about}");
            assert_eq!(call["body"]["preconditions"]["uid"], subject["uid"], "{about}");
            assert!(call["body"]["preconditions"]["resourceVersion"].is_string(), "{about}");
        }
        other => panic!("{other:?} {about}"),
    }
}

fn well_printed(text: &str) {
    for line in text.lines() {
        assert!(!line.ends_with(' '), "a blank at the end: {line:?}");
        let copied = line.starts_with("    DELETE /")
            || line.starts_with("    {")
            || line.split_whitespace().count() == 1;
        assert!(copied || line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
        for word in
            ["{agent-", "{ns}", "{pod}", "{node}", "{ip}", "{owner", "{target}", "{self}", "{registry-id}"]
        {
            assert!(!line.contains(word), "a word that was not filled in: {line}");
        }
    }
}
