//! Files that are no snapshots and command lines that make no sense: a clear error with the place, and nothing else.

use std::fs::File;
use std::io::Write as _;

use crate::run::{case, scan};

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    file.write_all(text.as_bytes()).expect("it is written");
    file
}

async fn refused(text: &str, why: &str) {
    let file = file(text);
    let path = file.path().display().to_string();
    let run = scan(&["--from", &path, "-o", "json"]).await;
    run.failed(&path);
    run.failed(why);
}

const START: &str = "takenAt: \"2026-06-18T10:05:00Z\"\ncluster:\n";

#[tokio::test]
async fn files_that_are_no_snapshot() {
    refused("", "empty").await;
    refused("just a text\n", "line 1").await;
    refused("]: no yaml", "line 1").await;
    refused("{\"takenAt\": \"2026-06-18T10:05:00Z\", \"cluster\": {\"pods\": [", "line 1").await;
    refused(&format!("{START}  pods: []\n  podz: []\n"), "line 4").await;
    refused(&format!("{START}  pods: []\n  pods: []\n"), "pods").await;
    refused(&format!("{START}  pods:\n  - metadata: {{namespace: a, uid: b}}\n"), "cluster.pods[0]").await;
    refused("takenAt: yesterday\ncluster: {}\n", "takenAt").await;
}

#[tokio::test]
async fn files_that_cannot_be_read() {
    scan(&["--from", "/nowhere/snapshot.json"]).await.failed("/nowhere/snapshot.json: cannot be read");
    scan(&["--from", "/tmp"]).await.failed("is a directory");
    let huge = tempfile::NamedTempFile::new().expect("a file");
    File::options().write(true).open(huge.path()).and_then(|file| file.set_len(500 << 20)).expect("a size");
    scan(&["--from", &huge.path().display().to_string()]).await.failed("too large");
}

#[tokio::test]
async fn a_half_written_file_of_a_real_snapshot() {
    let whole = tempfile::tempdir().expect("a directory");
    let path = whole.path().join("s.json").display().to_string();
    let from = case("several-wedges-on-two-nodes.yaml");
    let saved = scan(&["--from", &from, "--save", &path, "-o", "json"]).await;
    assert_eq!(saved.code, Some(2));
    let text = std::fs::read_to_string(&path).expect("a snapshot");
    for part in [text.len() / 3, text.len() / 2, text.len() - 3] {
        refused(&text[..part], "line 1").await;
    }
}

#[tokio::test]
async fn command_lines_that_make_no_sense_are_no_findings() {
    let from = case("healthy-cluster.yaml");
    for args in [
        ["--from", from.as_str(), "--watch"].as_slice(),
        &["--from", &from, "-l", "app=x"],
        &["--from", &from, "--hygiene"],
        &["--anonymize"],
        &["--output", "xml"],
        &["--no-such-flag"],
        &["--node", "no such node/"],
        &["--agent-pod-selector", "k8s-app"],
    ] {
        let run = scan(args).await;
        assert_eq!(run.code, Some(1), "{args:?}: {}", run.err);
        assert_eq!(run.out, "", "{args:?}");
        assert!(run.err.contains("error: "), "{args:?}: {}", run.err);
    }
}

#[tokio::test]
async fn a_server_that_is_dead_and_a_context_that_is_not_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let config = file(&format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: a\n  cluster: {{server: \"http://{address}\"}}\ncontexts:\n- name: a\n  context: {{cluster: a, user: a}}\nusers:\n- name: a\n  user: {{token: x}}\n"
    ));
    let path = config.path().display().to_string();
    let run = scan(&["--kubeconfig", &path, "-o", "json"]).await;
    run.failed("the pods cannot be read: LIST pods: no connection");
    let run = scan(&["--kubeconfig", &path, "--context", "nowhere"]).await;
    run.failed("nowhere");
    scan(&["--kubeconfig", "/nowhere/config"]).await.failed("--kubeconfig /nowhere/config");
}
