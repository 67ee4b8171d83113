//! The real binary as a child process: its JSON log as it comes, its HTTP, its end.
//!
//! Must not know what it runs against. Each test crate uses what it needs of this.
#![allow(dead_code, reason = "each test crate uses a part of it")]

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Longer than the daemon leaves any wedge unlooked at, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(50);
/// Between two HTTP requests that wait for something: no event tells of it.
const POLL: Duration = Duration::from_millis(100);

/// Daemons that were started.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_cilium-leak-healer");

/// The command, without the environment's own settings for it.
fn command(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    env: &[(&str, &str)],
) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars() {
        if name.starts_with("CILIUM_LEAK_HEALER_") {
            command.env_remove(name);
        }
    }
    command.args(args).envs(env.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs the binary to its end, which must come soon.
pub async fn run_to_end(args: &[&str], env: &[(&str, &str)]) -> Output {
    let output = command(PROGRAM, args, env).output();
    let output = timeout(PATIENCE, output).await;
    output.unwrap_or_else(|_| panic!("{args:?} still runs after {PATIENCE:?}")).expect("it can be started")
}

/// An address of this machine that is not loopback; nothing is sent to find it. `None`: it has no network.
pub fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // An address of no network (RFC 5737): the kernel only chooses its own end.
    socket.connect("203.0.113.1:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

/// What a run to the end came to.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs a verb with this kubeconfig to its end, which is no panic.
pub async fn said(verb: &str, kubeconfig: &str, args: &[&str]) -> Said {
    let all: Vec<&str> = [verb, "--kubeconfig", kubeconfig].into_iter().chain(args.iter().copied()).collect();
    let output = run_to_end(&all, &[]).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
    assert!(!said.err.contains("panicked"), "{}", said.err);
    said
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// The binary, running.
pub struct Daemon {
    child: Child,
    log: watch::Receiver<Vec<Value>>,
    address: Option<SocketAddr>,
}

impl Daemon {
    /// Starts it. A line of its log that is no JSON, such as a panic's, is kept as text.
    pub fn spawn(args: impl IntoIterator<Item = impl AsRef<OsStr>>, env: &[(&str, &str)]) -> Self {
        Self::spawn_program(PROGRAM, args, env)
    }

    /// The same with another program.
    pub fn spawn_program(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        env: &[(&str, &str)],
    ) -> Self {
        // Its ledger is its own, and not that of this machine's watchdog.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let state = format!("{}/state/{}-{number}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
        let env = [&[("CILIUM_LEAK_HEALER_STATE_DIR", state.as_str())], env].concat();
        let mut child = command(program, args, &env)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let mut lines = BufReader::new(child.stderr.take().expect("its standard error")).lines();
        let (sender, log) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                sender.send_modify(|log: &mut Vec<Value>| log.push(line));
            }
        });
        Self { child, log, address: None }
    }

    /// Waits until it serves HTTP.
    pub async fn serving(mut self) -> Self {
        let line = self.line("serving", |line| line["message"] == "serving").await;
        let address = line["address"].as_str().and_then(|address| address.parse().ok());
        self.address = Some(address.expect("an address"));
        self
    }

    pub fn address(&self) -> SocketAddr {
        self.address.expect("it serves")
    }

    /// The second address that it serves.
    pub async fn second_address(&self) -> SocketAddr {
        let line = self.line("serving here too", |line| line["message"] == "serving here too").await;
        line["address"].as_str().and_then(|address| address.parse().ok()).expect("an address")
    }

    /// All log lines so far.
    pub fn lines(&self) -> Vec<Value> {
        self.log.borrow().clone()
    }

    pub fn matching(&self, is_it: impl Fn(&Value) -> bool) -> Vec<Value> {
        self.lines().into_iter().filter(is_it).collect()
    }

    /// The first log line of the kind, now or to come.
    pub async fn line(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        self.nth_line(what, 1, is_it).await
    }

    /// The n-th log line of the kind; the first is 1.
    pub async fn nth_line(&self, what: &str, n: usize, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut log = self.log.clone();
        let nth = |lines: &[Value]| lines.iter().filter(|line| is_it(line)).nth(n - 1).cloned();
        let found = match timeout(PATIENCE, log.wait_for(|lines| nth(lines).is_some())).await {
            Ok(Ok(lines)) => nth(&lines),
            Ok(Err(_)) => panic!("it ended before its log said: {what}\n{}", self.printed()),
            Err(elapsed) => {
                panic!("{elapsed}: waited {PATIENCE:?} for its log to say: {what}\n{}", self.printed())
            }
        };
        found.expect("it is there")
    }

    /// The log, for people.
    pub fn printed(&self) -> String {
        let lines: Vec<_> = self.lines().iter().map(Value::to_string).collect();
        lines.join("\n")
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.try_get(path).await.expect("an answer of the daemon")
    }

    async fn try_get(&self, path: &str) -> std::io::Result<Answer> {
        self.try_ask(self.address(), "GET", path, &[], "").await
    }

    /// Any request at any of its addresses.
    pub async fn ask(
        &self,
        to: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.try_ask(to, method, path, headers, body).await.expect("an answer of the daemon")
    }

    async fn try_ask(
        &self,
        to: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect(to).await?;
        // A test may give another one.
        let own = if headers.iter().any(|(name, _)| *name == "Host") {
            String::new()
        } else {
            format!("Host: {to}\r\n")
        };
        let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let headers = headers.collect::<Vec<_>>().concat();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{own}Connection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(Answer {
            status: status.ok_or_else(|| std::io::Error::other(format!("no status in {head:?}")))?,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        })
    }

    /// Asks until the answer has this status; gives its body.
    pub async fn answers(&self, path: &str, status: u16) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path).await;
            if answer.status == status {
                return answer.body;
            }
            assert!(
                Instant::now() < deadline,
                "waited for {path} to answer {status}, it says {answer:?}\n{}",
                self.printed()
            );
            sleep(POLL).await;
        }
    }

    /// A metric by its name with labels; zero while it is not there.
    pub async fn metric(&self, name: &str) -> f64 {
        let body = self.get("/metrics").await.body;
        let mut values = body.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        values.next().map_or(0.0, |value| value.trim().parse().expect("a number"))
    }

    /// Waits until a metric has reached a value.
    pub async fn metric_reaches(&self, name: &str, value: f64) {
        let deadline = Instant::now() + PATIENCE;
        while self.metric(name).await < value {
            assert!(Instant::now() < deadline, "waited for {name} to reach {value}\n{}", self.printed());
            sleep(POLL).await;
        }
    }

    /// Of its process.
    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// SIGTERM.
    pub async fn terminate(&self) {
        let id = self.id();
        let status = Command::new("kill").arg(id.to_string()).status().await;
        assert!(status.expect("kill").success(), "kill {id}");
    }

    /// SIGKILL: it gets no chance to do anything more.
    pub async fn kill(mut self) {
        self.kill_now().await;
    }

    /// The same, and its log can still be read.
    pub async fn kill_now(&mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Waits for its end.
    pub async fn exit(&mut self, within: Duration) -> ExitStatus {
        let ended = timeout(within, self.child.wait()).await;
        ended
            .unwrap_or_else(|_| panic!("still runs after {within:?}\n{}", self.printed()))
            .expect("its status")
    }

    /// Ends it: it must still run, end well, and have logged nothing but JSON objects.
    pub async fn stop(mut self) {
        assert!(
            self.child.try_wait().expect("its status").is_none(),
            "it ended by itself\n{}",
            self.printed()
        );
        self.terminate().await;
        let status = self.exit(Duration::from_secs(15)).await;
        assert!(status.success(), "{status}\n{}", self.printed());
        let odd = self.matching(|line| !line.is_object());
        assert!(odd.is_empty(), "log lines that are no JSON objects: {odd:?}");
    }
}
