//! An agent's socket that answers each request as a test says, faults included.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What comes back for one request.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// These bytes, then nothing for ever.
    Hang(Vec<u8>),
}

/// An answer with a body, as Go writes it.
pub(super) fn answer(status: u16, content_type: &str, body: &str) -> Act {
    let length = body.len();
    Act::Bytes(
        format!(
            "HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes(),
    )
}

pub(super) fn json(status: u16, body: &str) -> Act {
    answer(status, "application/json", body)
}

/// A request as it came: its head, and when.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) head: String,
    pub(super) at: Instant,
}

impl Seen {
    pub(super) fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }
}

pub(super) struct FakeAgent {
    dir: TempDir,
    seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: JoinSet<()>,
}

impl FakeAgent {
    /// Answers by the request's first line.
    pub(super) fn start(script: impl Fn(&str) -> Act + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("cilium.sock")).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(script);
        let mut tasks = JoinSet::new();
        let log = Arc::clone(&seen);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&log), Arc::clone(&script)));
            }
        });
        Self { dir, seen, _tasks: tasks }
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.seen().iter().map(|seen| seen.line().to_owned()).collect()
    }
}

async fn serve(mut stream: UnixStream, log: Arc<Mutex<Vec<Seen>>>, script: Arc<impl Fn(&str) -> Act>) {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(read) => head.extend_from_slice(&chunk[..read]),
        }
    }
    let seen = Seen { head: String::from_utf8(head).unwrap(), at: Instant::now() };
    let act = script(seen.line());
    log.lock().unwrap().push(seen);
    let (bytes, hangs) = match act {
        Act::Bytes(bytes) => (bytes, false),
        Act::Hang(bytes) => (bytes, true),
    };
    let _ = stream.write_all(&bytes).await;
    if hangs {
        // Ends when the client has closed.
        let _ = stream.read(&mut chunk).await;
    }
}
