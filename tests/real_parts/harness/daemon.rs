//! The binary under test, run as the DaemonSet runs it: with a token of a pod, whose requests the API server writes down.

use std::{collections::BTreeSet, ops::Deref, path::PathBuf, thread, time::Duration};

use serde_json::Value;

use super::{
    audit::{Request, requests_of, timeline_of},
    child::Daemon as Child,
    wait::eventually,
};

/// How long it may take from SIGTERM to its end when it has nothing in hand.
const STOP: Duration = Duration::from_secs(5);

/// Times that let a test be quick.
pub const QUICK: &[&str] = &["--startup-quiet", "1s", "--confirm-gap", "1s"];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Observe,
    Heal,
}

pub struct DaemonSpec<'a> {
    pub node: &'a str,
    pub mode: Mode,
    pub kubeconfig: PathBuf,
    pub agent_directory: PathBuf,
    pub state_directory: PathBuf,
    /// The pod that its token is bound to.
    pub pod: String,
    pub audit_log: PathBuf,
    pub args: &'a [&'a str],
    /// What its container has in the environment; the arguments win.
    pub env: Vec<(String, String)>,
}

pub struct Daemon {
    child: Child,
    pod: String,
    audit_log: PathBuf,
}

impl Daemon {
    /// Starts it, and waits until it serves HTTP.
    pub async fn start(spec: DaemonSpec<'_>) -> Self {
        let (child, pod, audit_log) = Self::parts(spec);
        Self { child: child.serving().await, pod, audit_log }
    }

    /// Starts it, and waits for nothing.
    pub fn spawn(spec: DaemonSpec<'_>) -> Self {
        let (child, pod, audit_log) = Self::parts(spec);
        Self { child, pod, audit_log }
    }

    fn parts(spec: DaemonSpec<'_>) -> (Child, String, PathBuf) {
        let mode = if spec.mode == Mode::Heal { "heal" } else { "observe" };
        let (kubeconfig, agent) =
            (spec.kubeconfig.display().to_string(), spec.agent_directory.display().to_string());
        let args = [
            "run",
            "--node-name",
            spec.node,
            "--mode",
            mode,
            "--log-format",
            "json",
            "--listen",
            "127.0.0.1:0",
        ];
        let state = spec.state_directory.display().to_string();
        let places = ["--kubeconfig", &kubeconfig, "--agent-socket-dir", &agent, "--state-dir", &state];
        let env: Vec<_> = spec.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let child = Child::spawn(args.iter().chain(&places).chain(spec.args), &env);
        (child, spec.pod, spec.audit_log)
    }

    /// The first judgement of that pod with that verdict.
    pub async fn judged(&self, pod: &str, verdict: &str) -> Value {
        let is_it =
            |line: &Value| line["message"] == "judged" && line["verdict"] == verdict && names(line, pod);
        self.line(&format!("{pod} judged {verdict}"), is_it).await
    }

    /// The first act for that pod that ended so. What is told of one wedge has one correlation id.
    pub async fn acted(&self, pod: &str, outcome: &str) -> Value {
        let is_it = |line: &Value| {
            let same =
                |judged: &Value| names(judged, pod) && judged["correlation_id"] == line["correlation_id"];
            line["message"] == "acted" && line["outcome"] == outcome && self.lines().iter().any(same)
        };
        self.line(&format!("an act for {pod} {outcome}"), is_it).await
    }

    /// The lines about acts, begun or ended.
    pub fn acts(&self) -> Vec<Value> {
        self.matching(|line| ["acting", "acted"].iter().any(|message| line["message"] == *message))
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

    pub fn requests(&self) -> BTreeSet<Request> {
        requests_of(&self.audit_log, &self.pod)
    }

    /// All its requests with their times.
    pub fn timeline(&self) -> Vec<(String, Request)> {
        timeline_of(&self.audit_log, &self.pod)
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        self.child.kill_now().await;
    }

    /// SIGTERM: it ends in time and well, and has asked for nothing that it had no right to.
    pub async fn stop(self) {
        let requests = self.requests();
        let refused: Vec<_> = requests
            .iter()
            .filter(|request| [401, 403].contains(&request.status) && !self.tries_the_fence(request))
            .collect();
        assert!(refused.is_empty(), "requests without the right: {refused:?}");
        self.stop_without_rights().await;
    }

    /// The self-test's delete of the daemon's own pod, which is a dry run and has to be refused.
    fn tries_the_fence(&self, request: &Request) -> bool {
        request.verb == "delete" && request.resource == "pods" && request.name == self.pod && request.dry_run
    }

    /// The same for one that lacks a right.
    pub async fn stop_without_rights(mut self) {
        self.child.terminate().await;
        let status = self.child.exit(STOP).await;
        assert!(status.success(), "after SIGTERM: {status}");
    }
}

impl Deref for Daemon {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("log of {}:\n{}", self.pod, self.child.printed());
        }
    }
}

/// Whether the line is about the pod, which it names with its namespace.
fn names(line: &Value, pod: &str) -> bool {
    line["pod"].as_str().is_some_and(|named| named.rsplit('/').next() == Some(pod))
}
