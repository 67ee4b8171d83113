use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use axum::{Extension, Router};
use futures::StreamExt as _;
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance};

use super::*;
use crate::metrics::Metrics;

struct Running {
    address: SocketAddr,
    health: Health,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn start(limits: ServerLimits, more: Router) -> Running {
    let (server, addresses) = Server::bind(&[([127, 0, 0, 1], 0).into()]).unwrap();
    let health = Health::new(Duration::from_secs(30));
    let router = router(health.clone(), Arc::new(Metrics::new())).merge(more);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.with_limits(limits).serve(router, async { drop(stopped.await) }));
    Running { address: addresses[0], health, stop, task }
}

fn started() -> Running {
    start(ServerLimits::default(), Router::new())
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// One request on its own connection: the head and the body of the answer.
    async fn ask(&self, method: &str, target: &str) -> (String, String) {
        self.ask_with(method, target, "").await
    }

    /// The same with more header lines, each with its end.
    async fn ask_with(&self, method: &str, target: &str, more: &str) -> (String, String) {
        let mut stream = self.connect().await;
        let request = format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        split(&to_end(&mut stream).await)
    }

    fn all_well(&self) {
        for check in Check::ALL {
            self.health.set(check, Ok(()));
        }
    }
}

async fn to_end(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset ends it as well.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

fn split(answer: &str) -> (String, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    (head.to_owned(), body.to_owned())
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or(head)
}

#[rstest]
#[case::livez("GET", "/livez", "200", "ok")]
#[case::healthz("GET", "/healthz", "200", "ok")]
#[case::verbose("GET", "/livez?verbose", "200", "[+]loop ok\nlivez check passed\n")]
#[case::verbose_with_value("GET", "/healthz?a=b&verbose=1", "200", "[+]loop ok\nhealthz check passed\n")]
#[case::another_parameter("GET", "/livez?verbosely", "200", "ok")]
#[case::head("HEAD", "/livez", "200", "")]
#[case::missing("GET", "/v2", "404", "not found\n")]
#[case::post("POST", "/livez", "405", "method not allowed\n")]
#[tokio::test]
async fn answers(#[case] method: &str, #[case] target: &str, #[case] code: &str, #[case] body: &str) {
    let (head, got) = started().ask(method, target).await;
    assert_eq!((status(&head), got.as_str()), (code, body));
    assert!(head.contains("content-type: text/plain; charset=utf-8"), "{head}");
}

#[tokio::test]
async fn the_index_names_each_page() {
    let (head, body) = started().ask("GET", "/").await;
    assert_eq!(status(&head), "200");
    let pages = ["/livez", "/readyz", "/healthz", "/metrics", "/v1/state", "/v1/events"];
    assert!(pages.iter().all(|page| body.contains(page)));
    assert!(head.contains("content-type: text/plain") && head.contains("vary: accept"), "{head}");
}

#[tokio::test]
async fn a_browser_gets_the_page_and_runs_nothing_else_on_it() {
    let running = started();
    let mut stream = running.connect().await;
    let request = "GET / HTTP/1.1\r\nhost: x\r\naccept: text/html,*/*;q=0.8\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let (head, body) = split(&to_end(&mut stream).await);
    assert_eq!(status(&head), "200");
    assert!(body.starts_with("<!doctype html>") && body.ends_with("</html>\n"));
    for line in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; script-src 'sha256-",
        "cache-control: no-cache",
        "referrer-policy: no-referrer",
        "vary: accept",
        "x-content-type-options: nosniff",
        "x-frame-options: DENY",
    ] {
        assert!(head.contains(line), "no {line}: {head}");
    }
    assert!(!head.contains("unsafe") && !head.contains('*'), "{head}");
}

/// What Prometheus 3 sends.
const PROMETHEUS: &str = "accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
    application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.1\r\n";

#[rstest]
#[case::prometheus(PROMETHEUS, true)]
#[case::in_capitals("Accept: Application/OpenMetrics-Text\r\n", true)]
#[case::in_the_second_line("accept: text/html\r\naccept: application/openmetrics-text; q=1\r\n", true)]
#[case::nothing("", false)]
#[case::anything("accept: */*\r\n", false)]
#[case::text("accept: text/plain;version=0.0.4\r\n", false)]
#[case::protobuf_alone("accept: application/vnd.google.protobuf;encoding=delimited\r\n", false)]
#[case::refused("accept: application/openmetrics-text;version=1.0.0;q=0,text/plain\r\n", false)]
#[case::a_longer_name("accept: application/openmetrics-text-2\r\n", false)]
#[tokio::test]
async fn metrics_come_in_the_format_that_is_asked_for(#[case] accept: &str, #[case] open_metrics: bool) {
    let (head, body) = started().ask_with("GET", "/metrics", accept).await;
    assert_eq!(status(&head), "200");
    let content_type = if open_metrics {
        "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
    } else {
        "content-type: text/plain; version=0.0.4; charset=utf-8\r\n"
    };
    assert!(head.contains(content_type), "{head}");
    assert!(body.contains("cilium_leak_healer_wedges{verdict=\"stale-endpoint\"} 0\n"), "{body}");
    assert_eq!(body.ends_with("# EOF\n"), open_metrics);
}

#[test]
fn the_metrics_have_a_series_for_each_check() {
    assert_eq!(Check::ALL.map(Check::as_str), crate::metrics::CHECKS);
}

#[tokio::test]
async fn each_scrape_tells_the_checks() {
    let running = started();
    let check = async |name: &str| {
        let (_, body) = running.ask("GET", "/metrics").await;
        let series = format!("cilium_leak_healer_check_ok{{check=\"{name}\"}} ");
        let found: Vec<_> = body.lines().filter_map(|line| line.strip_prefix(&series)).collect();
        found.join(" ")
    };
    assert_eq!(check("agent").await, "0", "not yet");
    running.all_well();
    assert_eq!((check("agent").await, check("fence").await), ("1".to_owned(), "1".to_owned()));
    // A check that only degrades is not well either.
    running.health.set(Check::Fence, Err("the fence is not there".to_owned()));
    assert_eq!((check("fence").await, check("ledger").await), ("0".to_owned(), "1".to_owned()));
}

#[tokio::test]
async fn readiness_lists_what_is_missing() {
    let running = started();
    running.health.set(Check::PodWatch, Ok(()));
    running.health.set(Check::Agent, Err("no socket at /var/run/cilium/cilium.sock\n".to_owned()));
    running.health.set(Check::Ledger, Ok(()));
    running.health.set(Check::Fence, Ok(()));
    let (head, body) = running.ask("GET", "/readyz").await;
    assert_eq!(status(&head), "500");
    insta::assert_snapshot!(body, @r"
    [+]pod-watch ok
    [-]agent failed: no socket at /var/run/cilium/cilium.sock 
    [+]ledger ok
    [+]fence ok
    [+]shutdown ok
    readyz check failed
    ");
    assert!(!running.health.is_ready());

    running.all_well();
    assert_eq!(running.ask("GET", "/readyz").await.1, "ok");
    insta::assert_snapshot!(running.ask("GET", "/readyz?verbose").await.1, @r"
    [+]pod-watch ok
    [+]agent ok
    [+]ledger ok
    [+]fence ok
    [+]shutdown ok
    readyz check passed
    ");

    // It watches and tells: that is ready, and not all that was asked for.
    running.health.set(Check::Fence, Err("the fence is not there".to_owned()));
    let (head, body) = running.ask("GET", "/readyz").await;
    assert_eq!(status(&head), "200");
    insta::assert_snapshot!(body, @r"
    [+]pod-watch ok
    [+]agent ok
    [+]ledger ok
    [!]fence degraded: the fence is not there
    [+]shutdown ok
    readyz check passed, degraded
    ");
    assert!(running.health.is_ready());

    running.health.shutting_down();
    let (head, body) = running.ask("GET", "/readyz").await;
    assert_eq!(status(&head), "500");
    assert!(body.contains("[-]shutdown failed: shutting down\n"), "{body}");
    assert_eq!(status(&running.ask("GET", "/livez").await.0), "200");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_no_longer_turns_is_not_alive() {
    let running = started();
    advance(Duration::from_secs(29)).await;
    assert!(running.health.is_live(), "the start counts as a turn");
    running.health.beat();
    advance(Duration::from_secs(29)).await;
    assert!(running.health.is_live());
    advance(Duration::from_secs(2)).await;
    let (head, body) = running.ask("GET", "/livez").await;
    assert_eq!(status(&head), "500");
    assert_eq!(body, "[-]loop failed: no turn for 31 s, 30 s allowed\nlivez check failed\n");
    running.health.beat();
    assert!(running.health.is_live());
}

#[rstest]
#[case::nothing_sent("")]
#[case::half_a_header("GET /livez HTTP/1.1\r\nhost:")]
#[tokio::test(start_paused = true)]
async fn a_client_slow_with_its_header_is_cut(#[case] sent: &str) {
    let running = started();
    let mut stream = running.connect().await;
    stream.write_all(sent.as_bytes()).await.unwrap();
    let start = Instant::now();
    to_end(&mut stream).await;
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let running = started();
    let mut stream = running.connect().await;
    let start = Instant::now();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let answer = to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test]
async fn a_header_too_long_is_refused() {
    let running = started();
    let mut stream = running.connect().await;
    let request = format!("GET /livez HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(64 * 1024));
    let _ = stream.write_all(request.as_bytes()).await;
    let answer = to_end(&mut stream).await;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut() {
    let (end, ended) = oneshot::channel::<()>();
    let end = Arc::new(std::sync::Mutex::new(Some(end)));
    // The sender is dropped with the answer.
    let body = get(move || async move {
        let end = end.lock().unwrap().take();
        Body::from_stream(futures::stream::repeat_with(move || {
            let _ = &end;
            Ok::<_, std::io::Error>("x".repeat(16 * 1024))
        }))
    });
    let running = start(ServerLimits::default(), Router::new().route("/big", body));
    let mut greedy = running.connect().await;
    greedy.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let start = Instant::now();
    assert!(ended.await.is_err());
    assert_eq!(start.elapsed().as_secs(), 10);
    let kept = to_end(&mut greedy).await.len();
    assert!(kept < 1 << 20, "the kernel kept {kept} bytes for it");
}

/// A route whose answers begin and never end, as a stream of events does; `flood` sends as fast as it is read.
fn streams() -> Router {
    let quiet = get(|| async {
        let first = futures::stream::iter([Ok::<_, std::io::Error>("begun\n")]);
        Body::from_stream(first.chain(futures::stream::pending()))
    });
    let flood = get(|| async {
        Body::from_stream(futures::stream::repeat_with(|| Ok::<_, std::io::Error>("x".repeat(16 * 1024))))
    });
    Router::new().route("/quiet", quiet).route("/flood", flood)
}

impl Running {
    /// A connection that has begun to get an answer without end.
    async fn streaming(&self, path: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'H');
        stream
    }
}

#[tokio::test(start_paused = true)]
async fn where_all_places_are_served_a_further_connection_is_refused() {
    let running = start(ServerLimits { connections: 2, ..ServerLimits::default() }, streams());
    let held = [running.streaming("/quiet").await, running.streaming("/quiet").await];
    let mut third = running.connect().await;
    let answer = to_end(&mut third).await;
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
    drop(held);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(status(&running.ask("GET", "/livez").await.0), "200", "places become free again");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_idle_connection_gives_up_its_place() {
    let running = start(ServerLimits { connections: 3, ..ServerLimits::default() }, streams());
    let mut streaming = running.streaming("/quiet").await;
    let mut idle = [running.connect().await, running.connect().await];
    let start = Instant::now();
    assert_eq!(status(&running.ask("GET", "/livez").await.0), "200");
    assert_eq!(to_end(&mut idle[0]).await, "");
    assert!(start.elapsed() < Duration::from_secs(1), "it was cut before its time: {:?}", start.elapsed());
    to_end(&mut idle[1]).await;
    assert_eq!(start.elapsed().as_secs(), 5, "the other one had all its time");
    let mut rest = [0; 1024];
    while tokio::time::timeout(Duration::from_mins(1), streaming.read(&mut rest)).await.is_ok_and(|read| {
        assert_ne!(read.unwrap(), 0, "a stream is not idle");
        true
    }) {}
}

/// Not on paused time: what the kernel does with so many takes real time.
#[tokio::test]
async fn a_thousand_connections_keep_no_probe_out() {
    let running = start(ServerLimits::default(), streams());
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(running.streaming("/quiet").await);
    }
    let mut kept = Vec::new();
    for round in 1..=10 {
        let some = futures::future::join_all((0..100).map(|_| running.connect())).await;
        kept.extend(some);
        let start = Instant::now();
        assert_eq!(status(&running.ask("GET", "/livez").await.0), "200", "after {} connections", round * 100);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
    assert_eq!(kept.len(), 1000);
    for stream in &mut streams {
        let mut rest = [0; 1024];
        while let Ok(read) = stream.try_read(&mut rest) {
            assert_ne!(read, 0, "a stream was cut for them");
        }
    }
}

/// Each asks again and again for the largest page and reads nothing, so that none of them is idle.
#[tokio::test]
async fn those_who_ask_and_never_read_keep_no_probe_out() {
    let running = start(ServerLimits::default(), streams());
    let mut kept = Vec::new();
    for _ in 0..200 {
        kept.push(running.streaming("/flood").await);
    }
    let start = Instant::now();
    assert_eq!(status(&running.ask("GET", "/livez").await.0), "200");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_nothing_to_send_is_not_stalled() {
    let running = start(ServerLimits::default(), streams());
    let mut stream = running.streaming("/quiet").await;
    let mut rest = [0; 1024];
    let end = async {
        loop {
            assert_ne!(stream.read(&mut rest).await.unwrap(), 0, "it was cut");
        }
    };
    assert!(tokio::time::timeout(Duration::from_hours(1), end).await.is_err());
}

#[tokio::test]
async fn each_address_is_served_and_its_own_end_is_told() {
    let addresses = ["127.0.0.1:0", "[::1]:0"].map(|address| address.parse().unwrap());
    let (server, addresses) = Server::bind(&addresses).unwrap();
    let ends =
        get(|Extension(ends): Extension<Ends>| async move { format!("{} from {}", ends.local, ends.remote) });
    let _serving = tokio::spawn(server.serve(Router::new().route("/ends", ends), std::future::pending()));
    for address in addresses {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let own = stream.local_addr().unwrap();
        stream.write_all(b"GET /ends HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        assert_eq!(split(&to_end(&mut stream).await).1, format!("{address} from {own}"));
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_answers_what_is_open_and_closes_the_rest() {
    let slow = get(|| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        "late"
    });
    let running = start(ServerLimits::default(), Router::new().route("/slow", slow));
    let mut open = running.connect().await;
    open.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut idle = running.connect().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = Instant::now();
    running.stop.send(()).unwrap();
    assert_eq!(to_end(&mut idle).await, "");
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    assert!(to_end(&mut open).await.ends_with("late"));
    running.task.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(TcpStream::connect(running.address).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn shutdown_cuts_what_takes_too_long() {
    let never = get(std::future::pending::<&'static str>);
    let running = start(ServerLimits::default(), Router::new().route("/never", never));
    let mut open = running.connect().await;
    open.write_all(b"GET /never HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let start = Instant::now();
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 2);
    assert_eq!(to_end(&mut open).await, "");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let running = started();
    let error = Server::bind(&[running.address]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!("--listen {}: ", running.address)), "{error}");
}
