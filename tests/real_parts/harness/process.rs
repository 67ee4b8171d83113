//! A child that does not outlive the test: its standard input is a pipe of ours, and it is killed on drop.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::time::{Instant, sleep};

pub struct Process {
    name: String,
    child: Child,
    /// The Go programs stop when this closes.
    stdin: Option<ChildStdin>,
    tied: bool,
}

impl Process {
    pub fn spawn(name: &str, command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("start {name}: {error}"));
        let stdin = child.stdin.take();
        Self { name: name.to_owned(), child, stdin, tied: false }
    }

    /// Starts a program that would not mind the end of its standard input: a shell minds it for it.
    pub fn spawn_tied(name: &str, program: &Path, args: &[String], log: File) -> Self {
        let script = r#""$@" </dev/null & child=$!; cat >/dev/null; kill -KILL $child; wait $child"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, name]).arg(program).args(args);
        let mut shell = Self::spawn(name, command.stdout(Stdio::null()).stderr(log));
        shell.tied = true;
        shell
    }

    /// Starts a program that says it is ready with one JSON line on standard output.
    pub fn spawn_ready(name: &str, command: &mut Command, within: Duration) -> Self {
        let mut process = Self::spawn(name, command.stdout(Stdio::piped()));
        let stdout = process.child.stdout.take().expect("standard output is a pipe");
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(stdout).read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(within).unwrap_or_default();
        let ready = serde_json::from_str::<Value>(&line).is_ok();
        assert!(ready, "{name} did not get ready in {within:?}, said {line:?}; see its log");
        process
    }

    /// Asks with SIGTERM and waits; `None` when it still runs after `within`.
    pub async fn terminate(&mut self, within: Duration) -> Option<ExitStatus> {
        let killed = Command::new("kill").arg(self.child.id().to_string()).status().expect("run kill");
        assert!(killed.success(), "kill {}: {killed}", self.name);
        let deadline = Instant::now() + within;
        loop {
            match self.child.try_wait().expect("wait for a child") {
                None if Instant::now() < deadline => sleep(Duration::from_millis(10)).await,
                status => return status,
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // The shell of a tied program has to live a moment longer: it kills the program.
        if !self.tied {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
