//! `scan`, `explain` and `doctor` on a real API server, as a person with read-only rights. There is no kubelet here, so no
//! agent can be asked by exec: what that means has to be said.

use std::{fs, path::Path, process::Output};

use kube::ResourceExt;
use serde_json::Value;
use tokio::process::Command;

use crate::harness::{Node, Rights};

async fn run(kubeconfig: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-leak-healer"));
    command.args(args).arg("--kubeconfig").arg(kubeconfig).env("NO_COLOR", "1").kill_on_drop(true);
    command.output().await.expect("it starts")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn a_reader_sees_the_wedge_and_what_could_not_be_asked() {
    let node = Node::new().await;
    let ip = node.ip(50);
    node.leak("gone", ip).await;
    let (pod, tries) = node.waiting_pod("waits", ip).await;
    node.refused(&pod).await;
    let dir = tempfile::tempdir().expect("make a directory");
    let (kubeconfig, saved) = (dir.path().join("kubeconfig"), dir.path().join("saved.json"));
    fs::write(&kubeconfig, node.kubeconfig(Rights::Read).await).expect("write the kubeconfig");

    // All others of this process are on other nodes.
    let file = saved.display().to_string();
    let scanned = run(&kubeconfig, &["scan", "--node", &node.name, "-o", "json", "--save", &file]).await;
    assert_eq!(scanned.status.code(), Some(2), "{}", text(&scanned));
    let report: Value = serde_json::from_slice(&scanned.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    let found = findings.iter().find(|it| it["subject"]["name"] == "waits").expect("the wedge");
    assert_eq!((found["verdict"].as_str(), found["remedy"].as_str()), (Some("agent-unknown"), Some("none")));
    assert_eq!(found["ip"], ip.to_string());

    let again = Command::new(env!("CARGO_BIN_EXE_cilium-leak-healer"))
        .args(["scan", "--from", &file, "--node", &node.name, "-o", "json"])
        .output()
        .await
        .expect("it starts");
    let again: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    let waits = |report: &Value| {
        let all = report["findings"].as_array().expect("findings");
        all.iter().find(|it| it["subject"]["name"] == "waits").map(|it| it["verdict"].clone())
    };
    assert_eq!(waits(&again), waits(&report), "a saved snapshot is judged alike");

    let name = format!("{}/{}", node.namespace, pod.name_any());
    let explained = run(&kubeconfig, &["explain", &name]).await;
    let told = text(&explained);
    assert!(explained.status.success() && told.contains("agent-unknown"), "{told}");
    assert!(told.contains(&ip.to_string()), "{told}");

    let examined = text(&run(&kubeconfig, &["doctor"]).await);
    assert!(examined.contains("ciliumnodes") || examined.contains("CiliumNode"), "{examined}");
    tries.abort();
    assert!(node.agent.api().holder(ip).await.is_some(), "a scan changes nothing");
}
