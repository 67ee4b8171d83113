//! The pages of the real binary.

use serde_json::Value;

use crate::daemon::Daemon;
use crate::scene::Scene;

pub(crate) async fn all_pages_of_a_healthy_daemon() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    daemon.answers("/readyz", 200).await;
    for page in ["/livez", "/readyz", "/healthz"] {
        let short = daemon.get(page).await;
        assert_eq!((short.status, short.body.as_str()), (200, "ok"), "{page}");
        let verbose = daemon.get(&format!("{page}?verbose")).await;
        let last = format!("{} check passed\n", &page[1..]);
        assert!(verbose.body.starts_with("[+]") && verbose.body.ends_with(&last), "{verbose:?}");
    }
    let metrics = daemon.get("/metrics").await;
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{metrics:?}");
    let others = metrics
        .body
        .lines()
        .filter(|line| !line.starts_with("# ") && !line.starts_with("cilium_leak_healer_"));
    let others: Vec<&str> = others.filter_map(|line| line.split(' ').next()).collect();
    // Names that every exporter has; nothing else may be without the prefix.
    assert_eq!(
        others,
        [
            "process_start_time_seconds",
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "process_threads",
        ]
    );
    for check in ["pod-watch", "agent", "ledger", "fence"] {
        let series = format!("cilium_leak_healer_check_ok{{check=\"{check}\"}} 1\n");
        assert!(metrics.body.contains(&series), "{check}: {}", metrics.body);
    }
    assert_eq!(daemon.get("/nothing").await.status, 404);
    daemon.stop().await;
}

pub(crate) async fn metrics_start_at_zero() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let body = daemon.get("/metrics").await.body;
    for series in [
        "wedges{verdict=\"stale-endpoint\"} 0",
        "acts_total{remedy=\"disconnect-endpoint\",outcome=\"healed\"} 0",
        "acts_total{remedy=\"delete-pod\",outcome=\"deleted\"} 0",
        "refusals_total{reason=\"live-duplicate\"} 0",
        "malformed_objects_total{resource=\"pods\"} 0",
        "mode{mode=\"heal\"} 1",
        "mode{mode=\"observe\"} 0",
    ] {
        let line = format!("cilium_leak_healer_{series}\n");
        assert!(body.contains(&line), "no {line}in\n{body}");
    }
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(body.contains(&version), "no build info in\n{body}");
    daemon.stop().await;
}

pub(crate) async fn an_absent_socket_directory_is_said_and_survived() {
    let scene = Scene::new().await;
    let kubeconfig = scene.kubeconfig();
    let args = ["run", "--node-name", "worker-1", "--kubeconfig", &kubeconfig, "--log-format", "json"];
    let sockets = ["--agent-socket-dir", "/nowhere/cilium", "--listen", "127.0.0.1:0"];
    let daemon = Daemon::spawn(args.iter().chain(&sockets), &[]).serving().await;
    let away = |line: &Value| line["message"] == "the agent cannot be reached";
    daemon.line("the agent is away", away).await;
    let said = daemon.answers("/readyz", 500).await;
    assert!(said.contains("[-]agent failed: no socket at /nowhere/cilium/cilium.sock"), "{said}");
    assert!(said.contains("readyz check failed"), "{said}");
    assert_eq!(daemon.get("/livez").await.status, 200);
    // The watch works without an agent; meanwhile the socket is tried again and again.
    daemon.line("it watches", |line| line["message"] == "watching the pods of this node").await;
    scene.pod("shop", "news", "10.244.1.22");
    daemon.metric_reaches("cilium_leak_healer_pods_watched", 2.0).await;
    let lines = daemon.matching(away);
    assert_eq!(lines.len(), 1, "{lines:?}");
    daemon.stop().await;
}
