//! The binary under test, run as the DaemonSet runs it, with its log read as it comes.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    audit::{Request, requests_of},
    http::{self, Answer},
    process::Process,
    wait::eventually,
};

/// How long SIGTERM may take.
const STOP: Duration = Duration::from_secs(5);

/// Times that let a test be quick.
pub const QUICK: &[&str] = &["--startup-quiet", "1s", "--confirm-gap", "1s"];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Observe,
    Heal,
}

pub struct DaemonSpec {
    pub node: String,
    pub mode: Mode,
    pub kubeconfig: PathBuf,
    pub agent_directory: PathBuf,
    /// The pod that its token is bound to.
    pub pod: String,
    pub audit_log: PathBuf,
    pub args: Vec<String>,
}

pub struct Daemon {
    process: Process,
    lines: Arc<Mutex<Vec<Value>>>,
    address: SocketAddr,
    pod: String,
    audit_log: PathBuf,
}

impl Daemon {
    pub async fn start(spec: DaemonSpec) -> Self {
        let mode = if spec.mode == Mode::Heal { "heal" } else { "observe" };
        let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-leak-healer"));
        command.args(["run", "--node-name", &spec.node, "--mode", mode, "--log-format", "json"]);
        command.args(["--listen", "127.0.0.1:0"]).arg("--kubeconfig").arg(&spec.kubeconfig);
        command.arg("--agent-socket-dir").arg(&spec.agent_directory).args(&spec.args);
        let mut process =
            Process::spawn("cilium-leak-healer", command.stdout(Stdio::null()).stderr(Stdio::piped()));
        let lines = Arc::<Mutex<Vec<Value>>>::default();
        let log = Arc::clone(&lines);
        process.on_stderr(move |line| {
            // What is no JSON, as the message of a panic, is kept to be seen.
            let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
            log.lock().expect("the log").push(line);
        });
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut daemon = Self { process, lines, address: unknown, pod: spec.pod, audit_log: spec.audit_log };
        let serving = daemon.line("it serves", |line| line["message"] == "serving").await;
        daemon.address =
            serving["address"].as_str().and_then(|address| address.parse().ok()).expect("its address");
        daemon
    }

    /// All log lines so far.
    pub fn lines(&self) -> Vec<Value> {
        self.lines.lock().expect("the log").clone()
    }

    /// The first log line of the kind, now or to come.
    pub async fn line(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("a log line that tells: {what}"), async || {
            self.lines().into_iter().find(|line| is_it(line))
        })
        .await
    }

    /// The first judgement of that pod with that verdict.
    pub async fn judged(&self, pod: &str, verdict: &str) -> Value {
        self.line(&format!("{pod} judged {verdict}"), |line| {
            line["message"] == "judged" && line["verdict"] == verdict && names(line, pod)
        })
        .await
    }

    /// The first act for that pod that ended so. What is told of one wedge has one correlation id.
    pub async fn acted(&self, pod: &str, outcome: &str) -> Value {
        self.line(&format!("an act for {pod} {outcome}"), |line| {
            let same =
                |judged: &Value| names(judged, pod) && judged["correlation_id"] == line["correlation_id"];
            line["message"] == "acted" && line["outcome"] == outcome && self.lines().iter().any(same)
        })
        .await
    }

    /// The lines about acts, begun or ended.
    pub fn acts(&self) -> Vec<Value> {
        let is_act = |line: &Value| ["acting", "acted"].iter().any(|message| line["message"] == *message);
        self.lines().into_iter().filter(is_act).collect()
    }

    pub async fn get(&self, path: &str) -> Answer {
        http::get(self.address, path).await.expect("ask the daemon")
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        self.readyz(true).await;
    }

    /// Waits until it is not ready; gives what it says of the reasons.
    pub async fn not_ready(&self) -> String {
        self.readyz(false).await
    }

    async fn readyz(&self, ready: bool) -> String {
        eventually(&format!("/readyz to say {ready}"), async || {
            let answer = self.get("/readyz").await;
            ((answer.status == 200) == ready).then_some(answer.body)
        })
        .await
    }

    /// A metric by its whole name with labels; zero while it is not there.
    pub async fn metric(&self, name: &str) -> f64 {
        let answer = self.get("/metrics").await;
        let mut values = answer.body.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        values.next().map_or(0.0, |value| value.trim().parse().expect("a number"))
    }

    pub fn requests(&self) -> BTreeSet<Request> {
        requests_of(&self.audit_log, &self.pod)
    }

    /// SIGTERM: it ends in time and well, and asked for nothing that it had no right to.
    pub async fn stop(self) {
        let requests = self.requests();
        let refused: Vec<_> =
            requests.iter().filter(|request| [401, 403].contains(&request.status)).collect();
        assert!(refused.is_empty(), "requests without the right: {refused:?}");
        self.stop_refused().await;
    }

    /// The same for a daemon that lacks a right.
    pub async fn stop_refused(mut self) {
        let status = self.process.terminate(STOP).await;
        let status = status.unwrap_or_else(|| panic!("still runs {STOP:?} after SIGTERM"));
        assert!(status.success(), "after SIGTERM: {status}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut log = String::new();
            for line in self.lines() {
                let _ = writeln!(log, "{line}");
            }
            eprintln!("log of {}:\n{log}", self.pod);
        }
    }
}

/// Whether the line is about the pod, which it names with or without its namespace.
fn names(line: &Value, pod: &str) -> bool {
    line["pod"].as_str().is_some_and(|named| named.rsplit('/').next() == Some(pod))
}
