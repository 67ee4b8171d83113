//! Flags, their twins in the environment, and what is said of wrong ones. Exit status 2: the command line is wrong;
//! 1: it could not be done.

use std::process::Output;

use crate::daemon::{Daemon, run_to_end};
use crate::scene::Scene;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) async fn no_node_name() {
    let output = run_to_end(&["run"], &[]).await;
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--node-name") && said.contains("CILIUM_LEAK_HEALER_NODE_NAME"), "{said}");
}

pub(crate) async fn wrong_values_name_their_flag() {
    for (flag, value) in [
        ("--confirm-gap", "10"),
        ("--confirm-gap", "0s"),
        ("--agent-timeout", "soon"),
        ("--older-margin", "1ms"),
        ("--mode", "destroy"),
        ("--remedies", "restart-node"),
        ("--listen", "localhost"),
        ("--listen", "127.0.0.1:99999"),
        ("--agent-pod-selector", "=cilium"),
        ("--agent-pod-selector", "k8s-app"),
        ("--log-level", "info,=,"),
        ("--log-format", "xml"),
        ("--node-name", "no such node/"),
    ] {
        let mut args = vec!["run", flag, value];
        if flag != "--node-name" {
            args.extend(["--node-name", "n1"]);
        }
        let output = run_to_end(&args, &[]).await;
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{flag} {value}: {said}");
        assert!(said.contains(flag) && said.contains(value), "{flag} {value}: {said}");
    }
}

pub(crate) async fn wrong_values_of_the_environment_name_their_flag() {
    let env = [("CILIUM_LEAK_HEALER_NODE_NAME", "n1"), ("CILIUM_LEAK_HEALER_VERIFY_TIMEOUT", "60")];
    let output = run_to_end(&["run"], &env).await;
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--verify-timeout") && said.contains("unit"), "{said}");
}

async fn unusable_kubeconfig(path: &str, cause: &str) {
    let args = ["run", "--node-name", "n1", "--listen", "127.0.0.1:0", "--kubeconfig", path];
    let output = run_to_end(&args, &[]).await;
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let error = said.split_once("error: ").expect("an error").1;
    assert!(error.starts_with(&format!("--kubeconfig {path}: ")), "{said}");
    assert_eq!(error.matches(cause).count(), 1, "the cause, once: {said}");
}

pub(crate) async fn a_kubeconfig_that_is_not_there() {
    unusable_kubeconfig("/nowhere/kubeconfig", "No such file or directory").await;
}

pub(crate) async fn a_kubeconfig_that_is_garbage() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "]: no yaml").expect("it is written");
    unusable_kubeconfig(&file.path().display().to_string(), "failed to parse kubeconfig YAML").await;
}

pub(crate) async fn a_port_in_use() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let output = run_to_end(&["run", "--node-name", "n1", "--listen", &address], &[]).await;
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().expect("an error");
    assert!(last.starts_with("error: --listen") && last.contains(&address), "{said}");
}

pub(crate) async fn the_environment_stands_in_for_flags() {
    let scene = Scene::new().await;
    let sockets = scene.node.socket_dir().display().to_string();
    let env = [
        ("CILIUM_LEAK_HEALER_NODE_NAME", "worker-1"),
        ("CILIUM_LEAK_HEALER_MODE", "heal"),
        ("CILIUM_LEAK_HEALER_LISTEN", "127.0.0.1:0"),
        ("CILIUM_LEAK_HEALER_KUBECONFIG", &scene.kubeconfig()),
        ("CILIUM_LEAK_HEALER_AGENT_SOCKET_DIR", &sockets),
        ("CILIUM_LEAK_HEALER_LOG_FORMAT", "json"),
    ];
    let daemon = Daemon::spawn(["run"], &env).serving().await;
    daemon.answers("/readyz", 200).await;
    assert!((daemon.metric("cilium_leak_healer_mode{mode=\"heal\"}").await - 1.0).abs() < f64::EPSILON);
    daemon.stop().await;
    // A flag is stronger.
    let daemon = Daemon::spawn(["run", "--mode", "observe"], &env).serving().await;
    assert!(daemon.metric("cilium_leak_healer_mode{mode=\"heal\"}").await < 0.5);
    daemon.stop().await;
}

pub(crate) async fn each_flag_has_a_twin_in_the_environment_and_each_duration_a_unit() {
    let help = run_to_end(&["run", "--help"], &[]).await;
    assert_eq!(help.status.code(), Some(0));
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let mut flags = 0;
    // Each option's text goes from its flag to the next one's.
    for option in help.split("\n      --").skip(1) {
        let name: String = option.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        let twin = format!("[env: CILIUM_LEAK_HEALER_{}=]", name.replace('-', "_").to_uppercase());
        let flat = option.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(&twin), "--{name} has no twin {twin}: {flat}");
        // Without the flag healing has no end.
        if flat.contains("<DURATION>") && name != "heal-for" {
            let default = flat.split_once("[default: ").expect("a default").1;
            let default = default.split(']').next().expect("its text");
            assert!(default.ends_with(['s', 'm', 'h']), "--{name}: {default:?} has no unit");
        }
        flags += 1;
    }
    assert!(flags >= 24, "only {flags} flags in\n{help}");
}
