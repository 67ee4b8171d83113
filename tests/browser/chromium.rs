//! A headless Chromium, driven over its `DevTools` protocol: a page, what it says, and what the browser complains of.
//!
//! It must not know what is on the page.

use std::collections::VecDeque;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

/// For a start, an answer, or a condition on the page, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(50);
/// Between two looks at the page: a condition on it has no event.
const POLL: Duration = Duration::from_millis(50);

/// One browser with one page, of a profile of its own.
pub(crate) struct Chromium {
    socket: WebSocketStream<TcpStream>,
    session: String,
    asked: u64,
    /// What the browser told unasked.
    told: VecDeque<Value>,
    _child: Child,
    _profile: TempDir,
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let named =
        |name: &str| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(named)
}

impl Chromium {
    /// `None`: there is no Chromium, which is a failure in CI and said loudly elsewhere.
    pub(crate) async fn start() -> Option<Self> {
        let Some(program) = program() else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "no Chromium in CI");
            // Past libtest, which would keep it to itself.
            let _ = writeln!(std::io::stderr(), "!!! SKIPPED: no Chromium to show the page in");
            return None;
        };
        let profile = tempfile::Builder::new().prefix("clh-chromium").tempdir().expect("a directory");
        let child = Command::new(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--remote-debugging-port=0", "--no-first-run", "--hide-scrollbars", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("Chromium can be started");
        let (port, path) = where_it_listens(profile.path()).await;
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("its port");
        let (socket, _) =
            client_async(format!("ws://127.0.0.1:{port}{path}"), stream).await.expect("its socket");
        let (session, told) = (String::new(), VecDeque::new());
        let mut browser = Self { socket, session, asked: 0, told, _child: child, _profile: profile };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.ask("Target.attachToTarget", attach).await;
        attached["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({})).await;
        }
        Some(browser)
    }

    /// One command, and its answer.
    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(message.to_string())).await.expect("it takes commands");
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await;
            let message = message.unwrap_or_else(|_| panic!("no answer to {method} within {PATIENCE:?}"));
            let text = message.expect("the browser runs").expect("a message").into_text().expect("a text");
            let mut message: Value = serde_json::from_str(&text).expect("JSON");
            if message["id"] == self.asked {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
            self.told.push_back(message);
        }
    }

    /// Opens an address, and waits until its document has been read.
    pub(crate) async fn open(&mut self, url: &str) {
        let answer = self.ask("Page.navigate", json!({"url": url})).await;
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'").await;
    }

    /// Runs a script before those of each page to come.
    pub(crate) async fn before_each_page(&mut self, script: &str) {
        self.ask("Page.addScriptToEvaluateOnNewDocument", json!({"source": script})).await;
    }

    /// The value of an expression; what it promises is awaited.
    pub(crate) async fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.ask("Runtime.evaluate", params).await;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}\n{answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&mut self, condition: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.eval(&format!("Boolean({condition})")).await != json!(true) {
            if Instant::now() > deadline {
                let text = self.eval("document.title + '\\n' + document.body.innerText").await;
                panic!("waited {PATIENCE:?} for {condition}\n{}", text.as_str().unwrap_or_default());
            }
            sleep(POLL).await;
        }
    }

    /// Waits until an element holds a text.
    pub(crate) async fn says(&mut self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!("document.querySelector({selector})?.textContent.includes({text})")).await;
    }

    pub(crate) async fn size(&mut self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// `light` or `dark`.
    pub(crate) async fn scheme(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// Presses the Tab key.
    pub(crate) async fn tab(&mut self) {
        for kind in ["rawKeyDown", "keyUp"] {
            let key = json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
            self.ask("Input.dispatchKeyEvent", key).await;
        }
    }

    /// The time that the page has computed so far: unlike that on the clock it does not grow with what else runs here.
    pub(crate) async fn computed(&mut self) -> Duration {
        self.ask("Performance.enable", json!({"timeDomain": "threadTicks"})).await;
        let answer = self.ask("Performance.getMetrics", json!({})).await;
        let metrics = answer["metrics"].as_array().expect("metrics");
        let tasks = metrics.iter().find(|metric| metric["name"] == "TaskDuration").expect("the metric");
        Duration::from_secs_f64(tasks["value"].as_f64().expect("seconds"))
    }

    /// Writes a picture of what is in view, where a directory for pictures is named.
    pub(crate) async fn picture(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("STATUS_PAGE_PICTURES") else {
            return;
        };
        let answer = self.ask("Page.captureScreenshot", json!({"format": "png"})).await;
        let png = STANDARD.decode(answer["data"].as_str().expect("a picture")).expect("base64");
        std::fs::write(Path::new(&dir).join(format!("{name}.png")), png).expect("it can be written");
    }

    /// What the browser complained of so far: violations of the policy, exceptions, what was written to the console.
    pub(crate) async fn complaints(&mut self) -> Vec<String> {
        // All that was told before the answer to this has been told then.
        self.eval("0").await;
        let told = std::mem::take(&mut self.told).into_iter();
        told.filter(|message| {
            let method = message["method"].as_str().unwrap_or_default();
            ["Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"].contains(&method)
        })
        .map(|message| message["params"].to_string())
        .collect()
    }
}

/// The port and the path, from the file that it writes when it listens.
async fn where_it_listens(profile: &Path) -> (u16, String) {
    let file = profile.join("DevToolsActivePort");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Some((port, path)) = text.split_once('\n')
            && !path.is_empty()
        {
            return (port.parse().expect("a port"), path.trim_end().to_owned());
        }
        assert!(Instant::now() < deadline, "Chromium does not listen after {PATIENCE:?}");
        sleep(POLL).await;
    }
}
