//! The verb as a child process: to its end, or with what it prints as it comes.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::daemon::{PATIENCE, Said, said};
use crate::stage::Stage;

/// Runs it to its end.
pub(crate) async fn events(stage: &Stage, args: &[&str]) -> Said {
    said("events", &stage.kubeconfig(), args).await
}

impl Said {
    /// It ended well, and had nothing to say beside.
    pub(crate) fn well(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// It failed, and said this.
    pub(crate) fn failed(&self, why: &str) {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        assert!(self.err.contains(why), "no {why:?} in {}", self.err);
    }
}

/// The verb, running.
pub(crate) struct Following {
    pub child: Child,
    out: watch::Receiver<Vec<String>>,
    err: watch::Receiver<Vec<String>>,
}

impl Following {
    pub(crate) fn start(stage: &Stage, args: &[&str]) -> Self {
        let mut child = child(stage, args);
        let out = lines(child.stdout.take().expect("its standard output"));
        let err = lines(child.stderr.take().expect("its standard error"));
        Self { child, out, err }
    }

    /// The first line that has all of these, now or to come.
    pub(crate) async fn line(&self, has: &[&str]) -> String {
        let first =
            |lines: &[String]| lines.iter().find(|line| has.iter().all(|part| line.contains(part))).cloned();
        let mut out = self.out.clone();
        let found = timeout(PATIENCE, out.wait_for(|lines| first(lines).is_some())).await;
        match found {
            Ok(Ok(lines)) => first(&lines).expect("it is there"),
            _ => panic!("no line with {has:?} in {:#?}{:#?}", self.all(), self.err.borrow()),
        }
    }

    /// Waits for a line on standard error: the last ones can come after the end.
    pub(crate) async fn said(&self, text: &str) {
        let mut err = self.err.clone();
        let has = |lines: &Vec<String>| lines.iter().any(|line| line.contains(text));
        let found = timeout(PATIENCE, err.wait_for(has)).await.is_ok_and(|found| found.is_ok());
        assert!(found, "no {text:?} in {:#?}", self.err.borrow());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.out.borrow().clone()
    }

    /// SIGINT, as by Ctrl-C.
    pub(crate) async fn interrupt(&mut self) -> ExitStatus {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().await;
        assert!(sent.expect("kill").success());
        self.end(Duration::from_secs(5)).await
    }

    pub(crate) async fn end(&mut self, within: Duration) -> ExitStatus {
        let ended = timeout(within, self.child.wait()).await;
        ended
            .unwrap_or_else(|_| panic!("still runs after {within:?}: {:#?}", self.all()))
            .expect("its status")
    }
}

/// Both outputs are pipes.
pub(crate) fn child(stage: &Stage, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-leak-healer"));
    command.args(["events", "--kubeconfig", &stage.kubeconfig()]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().expect("it can be started")
}

fn lines(source: impl tokio::io::AsyncRead + Unpin + Send + 'static) -> watch::Receiver<Vec<String>> {
    let (sender, receiver) = watch::channel(Vec::new());
    tokio::spawn(async move {
        let mut lines = BufReader::new(source).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            sender.send_modify(|all| all.push(line));
        }
    });
    receiver
}
