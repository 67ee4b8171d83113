//! A scan of the simulated cluster: through the API server alone, read-only, with the verdicts of the watchdog.

use cilium_leak_healer::sim::{AgentVersion, CILIUM_ENDPOINTS, DeleteOptions, PODS};
use serde_json::json;

use crate::cluster::{IP, Lab};
use crate::run::scan;

fn found(subject: &str, verdict: &str, remedy: &str) -> Vec<(String, String, String)> {
    vec![(subject.to_owned(), verdict.to_owned(), remedy.to_owned())]
}

async fn stale(version: AgentVersion, target: &str) {
    let lab = Lab::of(version, |_| true).await;
    lab.wedge().await;
    drop(lab.cluster.api().take_requests());
    drop(lab.node.agent().take_requests());
    let run = lab.scan(&["-o", "json"]).await;
    assert_eq!(
        run.findings(),
        found("shop/cart", "stale-endpoint", "disconnect-endpoint"),
        "{}{}",
        run.out,
        run.err
    );
    assert_eq!(run.code, Some(2));
    let json = run.json();
    assert_eq!((&json["mode"], &json["kind"]), (&json!("live"), &json!("ScanReport")));
    let said = json["findings"][0]["target"].as_str().expect("a target");
    assert!(said.starts_with(target), "{said}");
    let writes: Vec<_> =
        lab.cluster.api().requests().into_iter().filter(|request| request.method != "GET").collect();
    assert!(writes.is_empty(), "{writes:?}");
    // The kubelet asks on its own.
    let agent = lab.node.agent().requests().into_iter().filter(|it| it.user_agent != "cilium-cni");
    let paths: Vec<String> = agent.map(|request| format!("{} {}", request.method, request.path)).collect();
    let id = format!("/v1/endpoint/ipv4:{IP}");
    assert_eq!(paths, [format!("GET {id}"), format!("GET {id}/log"), "GET /v1/config".to_owned()]);
}

#[tokio::test]
async fn a_leak_on_1_14_whose_program_is_called_cilium() {
    stale(AgentVersion::V1_14, "container-id:").await;
}

#[tokio::test]
async fn a_leak_on_1_18() {
    stale(AgentVersion::V1_18, "cni-attachment-id:").await;
}

#[tokio::test]
async fn a_leak_on_1_20() {
    stale(AgentVersion::V1_20, "cni-attachment-id:").await;
}

#[tokio::test]
async fn a_healthy_cluster_says_what_was_looked_at_and_asks_no_agent() {
    let lab = Lab::new().await;
    lab.pod("shop", "web", "10.244.1.20");
    lab.wait("shop/web to run", |lab| {
        lab.cluster.api().get(&PODS, "shop", "web").is_ok_and(|pod| pod["status"]["phase"] == "Running")
    })
    .await;
    drop(lab.node.agent().take_requests());
    let run = lab.scan(&[]).await;
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    assert_eq!(
        run.out,
        "Nothing found. Looked at 2 pods on 1 node; no pod waits for a sandbox.\nNot looked at: CiliumEndpoints against the agents' own lists (--hygiene)\n"
    );
    assert_eq!(run.err, "");
    assert!(lab.node.agent().requests().iter().all(|request| request.user_agent == "cilium-cni"));
    assert!(lab.cluster.api().requests().iter().all(|request| !request.path.ends_with("/exec")));
}

#[tokio::test]
async fn a_live_owner_is_left_alone() {
    let lab = Lab::new().await;
    lab.pod("shop", "web", IP);
    lab.wait("shop/web to run", |lab| lab.node.agent().holder(IP.parse().expect("an address")).is_some())
        .await;
    lab.node.agent().free_address(IP.parse().expect("an address"));
    lab.pod("tenant", "db", IP);
    lab.refused("tenant/db").await;
    let run = lab.scan(&["-o", "json"]).await;
    assert_eq!(run.findings(), found("tenant/db", "live-duplicate", "none"), "{}", run.err);
}

#[tokio::test]
async fn nobody_holds_it_any_more() {
    let lab = Lab::new().await;
    lab.wedge().await;
    // The kubelet stops, so that its next try does not succeed first.
    lab.node.kubelet().stop();
    lab.node.agent().remove_endpoint(IP.parse().expect("an address"));
    let run = lab.scan(&["-o", "json"]).await;
    assert_eq!(run.findings(), found("shop/cart", "not-held", "none"), "{}", run.err);
}

#[tokio::test]
async fn scopes_choose_what_is_meant() {
    let lab = Lab::new().await;
    lab.wedge().await;
    for (args, found) in [
        (["-n", "shop"], true),
        (["-n", "backup"], false),
        (["--node", "worker-1"], true),
        (["--node", "worker-9"], false),
        (["-l", "app=cart"], true),
        (["-l", "app in (cart, x),app"], true),
        (["-l", "app=other"], false),
    ] {
        let run = lab.scan(&[args[0], args[1], "-o", "json"]).await;
        if !found {
            // Nobody must read of a mistyped node that nothing was found on it.
            run.failed("no pod is in this scope");
            continue;
        }
        assert_eq!(run.code, Some(2), "{args:?}: {}{}", run.out, run.err);
        let pods = 1 + i32::from(args[1] == "worker-1");
        assert_eq!(run.json()["summary"]["pods"], pods, "{args:?}");
        // The same with everything read for a file.
        let file = lab.path("scoped.json");
        let whole = lab.scan(&[args[0], args[1], "-o", "json", "--save", &file]).await;
        assert_eq!(whole.findings(), run.findings(), "{args:?}");
        let all = scan(&["--from", &file, "-o", "json"]).await;
        assert_eq!(all.findings().len(), 1, "{args:?}: the file holds the whole cluster");
    }
}

#[tokio::test]
async fn judging_what_was_saved_gives_what_the_live_scan_gave() {
    let lab = Lab::new().await;
    lab.wedge().await;
    let (plain, hidden) = (lab.path("plain.json"), lab.path("hidden.json"));
    let live = lab.scan(&["-o", "json", "--save", &plain]).await;
    let again = scan(&["--from", &plain, "-o", "json"]).await;
    let (mut first, mut second) = (live.json(), again.json());
    assert_eq!((first["mode"].take(), second["mode"].take()), (json!("live"), json!("replay")));
    assert_eq!(first, second);
    assert_eq!(first["findings"][0]["verdict"], "stale-endpoint");
    let text = std::fs::read_to_string(&plain).expect("a snapshot");
    for secret in ["hunter2", "PASSWORD", "managedFields", "secret"] {
        assert!(!text.contains(secret), "{secret} is in the snapshot");
    }
    let run = scan(&["--from", &plain, "--save", &hidden, "--anonymize", "-o", "json"]).await;
    assert_eq!(run.findings(), live.findings());
    let text = std::fs::read_to_string(&hidden).expect("a snapshot");
    for name in ["cart", "shop", "agent-old", "worker-1", IP] {
        assert!(!text.contains(name), "{name} is in the anonymized snapshot");
    }
    let judged = scan(&["--from", &hidden, "-o", "json"]).await.findings();
    let words: Vec<_> =
        judged.iter().map(|(_, verdict, remedy)| (verdict.as_str(), remedy.as_str())).collect();
    assert_eq!(words, [("stale-endpoint", "disconnect-endpoint")]);
}

#[tokio::test]
async fn hygiene_asks_every_agent() {
    let lab = Lab::new().await;
    let left = json!({
        "metadata": {
            "namespace": "shop", "name": "gone", "uid": "4a1d2c1e-0000-4000-8000-000000000009", "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "status": {"id": 4711, "networking": {"addressing": [{"ipv4": "10.244.1.99"}], "node": "192.168.77.10"}},
    });
    lab.cluster.api().create(&CILIUM_ENDPOINTS, left).expect("a CiliumEndpoint");
    let run = lab.scan(&["-o", "json"]).await;
    assert_eq!((run.code, run.findings()), (Some(0), Vec::new()));
    let run = lab.scan(&["-o", "json", "--hygiene"]).await;
    assert_eq!(run.findings(), found("shop/gone", "orphan-cep", "delete-cep"), "{}{}", run.out, run.err);
    // A file has all CiliumEndpoints, but no agent's list: the finding is there, the remedy is not.
    let file = lab.path("s.json");
    let run = lab.scan(&["-o", "json", "--save", &file]).await;
    assert_eq!(run.findings(), found("shop/gone", "orphan-cep", "none"), "{}{}", run.out, run.err);
}

#[tokio::test]
async fn watch_prints_what_changed_and_ends_with_an_interrupt() {
    let lab = Lab::new().await;
    lab.wedge().await;
    let kubeconfig = lab.kubeconfig();
    let out = lab.dir.path().join("out");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_cilium-leak-healer"))
        .args(["scan", "--kubeconfig", &kubeconfig, "--watch", "--interval", "100ms", "--no-headers"])
        .stdout(std::fs::File::create(&out).expect("a file"))
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let lines = || std::fs::read_to_string(&out).expect("a file");
    let patience = tokio::time::Instant::now() + crate::daemon::PATIENCE;
    let until = async |wanted: &str| {
        while !lines().contains(wanted) {
            assert!(tokio::time::Instant::now() < patience, "no {wanted} in {}", lines());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    until("stale-endpoint").await;
    let before = lab.cluster.api().requests().len();
    lab.wait("two more scans", |lab| lab.cluster.api().requests().len() > before + 20).await;
    assert_eq!(lines().matches("stale-endpoint").count(), 1, "{}", lines());
    lab.node.kubelet().stop();
    lab.node.agent().remove_endpoint(IP.parse().expect("an address"));
    until("not-held").await;
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill");
    assert!(killed.success());
    assert_eq!(child.wait().expect("an end").code(), Some(2));
    lab.cluster.api().delete(&PODS, "shop", "cart", &DeleteOptions::default()).expect("the pod");
}

#[tokio::test]
async fn lists_are_read_in_pages() {
    let lab = Lab::new().await;
    drop(lab.cluster.api().take_requests());
    lab.scan(&[]).await;
    let requests = lab.cluster.api().requests();
    let lists: Vec<&str> = requests
        .iter()
        .filter(|it| !it.path.contains("apis") || it.path.contains("cilium"))
        .map(|it| it.query.as_str())
        .collect();
    assert!(lists.iter().any(|query| query.contains("limit=500")), "{lists:?}");
    let Some(pods) = requests.iter().find(|request| request.path == "/api/v1/pods") else {
        panic!("no list of pods: {requests:?}")
    };
    assert!(pods.query.contains("limit=500"), "{}", pods.query);
}
