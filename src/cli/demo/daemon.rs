//! The real daemon as a child process: started with the flags of a DaemonSet, heard through its JSON log.

use std::collections::VecDeque;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};

use super::DemoArgs;
use super::stage::{NODE, Stage};

const PATIENCE: Duration = Duration::from_mins(2);
/// The daemon's own defaults in milliseconds, to be divided by the speed. Its start-up quiet period is left out: nothing
/// happened on this node before.
const PACES: [(&str, u64); 3] =
    [("--confirm-gap", 2_000), ("--event-delay", 3_000), ("--lone-failure-age", 5_000)];

pub(super) struct Daemon {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    /// Lines that were read while another one was awaited.
    heard: VecDeque<Value>,
    address: String,
    show: bool,
}

impl Daemon {
    pub(super) async fn start(args: &DemoArgs, stage: &Stage) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
        command.args([
            "run",
            "--mode",
            "heal",
            "--node-name",
            NODE,
            "--listen",
            "127.0.0.1:0",
            "--log-format",
            "json",
            "--startup-quiet",
            "0s",
        ]);
        command.arg("--kubeconfig").arg(stage.kubeconfig()).arg("--agent-socket-dir").arg(stage.socket_dir());
        command.arg("--state-dir").arg(stage.state_dir());
        for (flag, millis) in PACES {
            command.arg(flag).arg(format!("{}ms", args.paced(Duration::from_millis(millis)).as_millis()));
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take().context("the daemon has no standard error")?;
        let lines = BufReader::new(stderr).lines();
        let mut daemon =
            Self { child, lines, heard: VecDeque::new(), address: String::new(), show: args.log };
        let serving = daemon.hear(|line| text(line, "message") == "serving").await?;
        daemon.address = text(&serving, "address").to_owned();
        daemon.hear(|line| text(line, "message") == "watching the pods of this node").await?;
        Ok(daemon)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The judgement on an address with this verdict and remedy.
    pub(super) async fn judgement(&mut self, ip: &str, verdict: &str, remedy: &str) -> Result<Value> {
        let wanted = [("message", "judged"), ("ip", ip), ("verdict", verdict), ("remedy", remedy)];
        self.hear(|line| wanted.iter().all(|(field, value)| text(line, field) == *value)).await
    }

    /// Waits for an act to come to this outcome.
    pub(super) async fn outcome(&mut self, outcome: &str) -> Result<Value> {
        self.hear(|line| text(line, "message") == "acted" && text(line, "outcome") == outcome).await
    }

    async fn hear(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        if let Some(at) = self.heard.iter().position(&wanted)
            && let Some(line) = self.heard.remove(at)
        {
            return Ok(line);
        }
        let reading = async {
            while let Some(line) = self.lines.next_line().await? {
                if self.show {
                    // Who closes the pipe has read enough.
                    drop(writeln!(std::io::stderr(), "{line}"));
                }
                let Ok(line) = serde_json::from_str::<Value>(&line) else {
                    bail!("the daemon says: {line}");
                };
                if wanted(&line) {
                    return Ok(line);
                }
                self.heard.push_back(line);
            }
            bail!("the daemon ended before the story did")
        };
        tokio::time::timeout(PATIENCE, reading)
            .await
            .context("the daemon did not say what the story waits for")?
    }

    /// What the daemon's metrics say it did.
    pub(super) async fn acts(&self) -> Result<String> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut body = String::new();
        stream.read_to_string(&mut body).await?;
        let mut acts: Vec<String> = body.lines().filter_map(act).collect();
        acts.sort();
        Ok(acts.join(", "))
    }

    /// SIGTERM, and a clean end.
    pub(super) async fn stop(mut self) -> Result<()> {
        let Some(pid) = self.child.id() else {
            bail!("the daemon has ended by itself");
        };
        Command::new("kill").arg(pid.to_string()).status().await?;
        let status = tokio::time::timeout(Duration::from_secs(20), self.child.wait())
            .await
            .context("the daemon does not end")??;
        if !status.success() {
            bail!("the daemon ended with {status}");
        }
        Ok(())
    }
}

/// `cilium_leak_healer_acts_total{remedy="…",outcome="…"} N` in words, if N is not 0.
fn act(line: &str) -> Option<String> {
    let (labels, count) = line.strip_prefix("cilium_leak_healer_acts_total{")?.split_once("} ")?;
    let value = |name: &str| {
        labels.split(',').find_map(|label| Some(label.strip_prefix(name)?.trim_matches(['=', '"'])))
    };
    (count != "0").then(|| {
        format!("{count} {} {}", value("remedy").unwrap_or_default(), value("outcome").unwrap_or_default())
    })
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line.get(field).and_then(Value::as_str).unwrap_or_default()
}
