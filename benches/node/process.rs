//! The watchdog as a process of its own, and what the kernel says of it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::pods::NODE;

pub(crate) struct Watchdog {
    child: Child,
    pid: u32,
    address: SocketAddr,
    state: PathBuf,
}

/// What it holds at an instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holds {
    pub(crate) resident_kib: u64,
    pub(crate) descriptors: usize,
    pub(crate) sockets: usize,
    pub(crate) ledger_bytes: u64,
}

impl Watchdog {
    /// Starts it on a directory, and waits for its first list.
    pub(crate) async fn start(dir: &Path, kubeconfig: &str, mode: &str) -> Self {
        let binary = std::env::var_os("CILIUM_LEAK_HEALER_BIN")
            .map_or_else(|| env!("CARGO_BIN_EXE_cilium-leak-healer").into(), PathBuf::from);
        fs::write(dir.join("kubeconfig"), kubeconfig).expect("a file");
        let state = dir.join("state");
        let mut child = Command::new(binary)
            .args([
                "run",
                "--node-name",
                NODE,
                "--listen",
                "127.0.0.1:0",
                "--log-format",
                "json",
                "--mode",
                mode,
            ])
            .arg("--kubeconfig")
            .arg(dir.join("kubeconfig"))
            .arg("--agent-socket-dir")
            .arg(dir)
            .arg("--state-dir")
            .arg(&state)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the daemon");
        let mut lines = BufReader::new(child.stderr.take().expect("standard error")).lines();
        let mut address = None;
        loop {
            let line = lines.next_line().await.expect("a line").expect("it runs");
            let line: Value = serde_json::from_str(&line).expect("a line of its log");
            match line["message"].as_str() {
                Some("serving") => address = line["address"].as_str().and_then(|it| it.parse().ok()),
                Some("watching the pods of this node") => break,
                _ => {}
            }
        }
        // Read on, or it would wait for a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let pid = child.id().expect("a process");
        Self { child, pid, address: address.expect("it serves before it watches"), state }
    }

    /// A line of `/proc/PID/status`, in KiB.
    pub(crate) fn status(&self, field: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("a process");
        let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
        line.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number")
    }

    /// User and system time so far; ticks are 10 ms on Linux.
    pub(crate) fn cpu_millis(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid)).expect("a process");
        let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks =
            |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or_default();
        (ticks(11) + ticks(12)) * 10
    }

    pub(crate) fn holds(&self) -> Holds {
        let open: Vec<PathBuf> = fs::read_dir(format!("/proc/{}/fd", self.pid))
            .expect("a process")
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .collect();
        Holds {
            resident_kib: self.status("VmRSS"),
            descriptors: open.len(),
            sockets: open.iter().filter(|to| to.to_string_lossy().starts_with("socket:")).count(),
            ledger_bytes: fs::metadata(self.state.join("ledger.json")).map_or(0, |file| file.len()),
        }
    }

    /// What a path answers.
    pub(crate) async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.expect("it serves");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer");
        assert!(text.starts_with("HTTP/1.1 200 "), "{path}: {text}");
        text
    }

    /// A client of the stream that goes after its first words.
    pub(crate) async fn visit(&self) {
        let mut stream = TcpStream::connect(self.address).await.expect("it serves");
        let request = format!("GET /v1/events HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.expect("an answer");
        assert_eq!(&start, b"HTTP/1.1 200");
    }

    pub(crate) async fn end(mut self) {
        self.child.kill().await.expect("an end");
    }
}
