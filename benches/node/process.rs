//! The watchdog as a process of its own, and what the kernel says of it.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::daemon::{Daemon, PROGRAM};
use crate::memory;
use crate::pods::NODE;

pub(crate) struct Watchdog {
    daemon: Daemon,
    /// Its number, as the kernel names its directory.
    process: String,
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
        let program = std::env::var_os("CILIUM_LEAK_HEALER_BIN").unwrap_or_else(|| PROGRAM.into());
        let (config, state) = (dir.join("kubeconfig"), dir.join("state"));
        fs::write(&config, kubeconfig).expect("a file");
        let name = |path: &Path| path.to_str().expect("a name").to_owned();
        let (config, sockets, kept) = (name(&config), name(dir), name(&state));
        let own =
            ["run", "--node-name", NODE, "--listen", "127.0.0.1:0", "--log-format", "json", "--mode", mode];
        let places = ["--kubeconfig", &config, "--agent-socket-dir", &sockets, "--state-dir", &kept];
        let daemon = Daemon::spawn_program(program, own.into_iter().chain(places), &[]).serving().await;
        daemon.line("watching", |line| line["message"] == "watching the pods of this node").await;
        let process = daemon.id().to_string();
        Self { daemon, process, state }
    }

    pub(crate) fn resident_kib(&self) -> u64 {
        memory::kib(&self.process, "VmRSS").expect("a process")
    }

    pub(crate) fn peak_kib(&self) -> u64 {
        memory::kib(&self.process, "VmHWM").expect("a process")
    }

    /// User and system time so far; ticks are 10 ms on Linux.
    pub(crate) fn cpu_millis(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.process)).expect("a process");
        let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks =
            |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or_default();
        (ticks(11) + ticks(12)) * 10
    }

    pub(crate) fn holds(&self) -> Holds {
        let open: Vec<PathBuf> = fs::read_dir(format!("/proc/{}/fd", self.process))
            .expect("a process")
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .collect();
        Holds {
            resident_kib: self.resident_kib(),
            descriptors: open.len(),
            sockets: open.iter().filter(|to| to.to_string_lossy().starts_with("socket:")).count(),
            ledger_bytes: fs::metadata(self.state.join("ledger.json")).map_or(0, |file| file.len()),
        }
    }

    /// Reads a path, which must answer 200.
    pub(crate) async fn get(&self, path: &str) {
        let answer = self.daemon.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }

    /// A client of the stream that goes after its first words.
    pub(crate) async fn visit(&self) {
        let address = self.daemon.address();
        let mut stream = TcpStream::connect(address).await.expect("it serves");
        let request = format!("GET /v1/events HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.expect("an answer");
        assert_eq!(&start, b"HTTP/1.1 200");
    }

    pub(crate) async fn end(self) {
        self.daemon.kill().await;
    }
}
