use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
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

async fn start(limits: ServerLimits, more: Router) -> Running {
    let (server, address) = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let health = Health::new(Duration::from_secs(30));
    let router = router(health.clone(), Arc::new(Metrics::new())).merge(more);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.with_limits(limits).serve(router, async { drop(stopped.await) }));
    Running { address, health, stop, task }
}

async fn started() -> Running {
    start(ServerLimits::default(), Router::new()).await
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// One request on its own connection: the head and the body of the answer.
    async fn ask(&self, method: &str, target: &str) -> (String, String) {
        let mut stream = self.connect().await;
        let request = format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
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
    let (head, got) = started().await.ask(method, target).await;
    assert_eq!((status(&head), got.as_str()), (code, body));
    assert!(head.contains("content-type: text/plain; charset=utf-8"), "{head}");
}

#[tokio::test]
async fn the_index_names_each_page() {
    let (head, body) = started().await.ask("GET", "/").await;
    assert_eq!(status(&head), "200");
    assert!(["/livez", "/readyz", "/healthz", "/metrics"].iter().all(|page| body.contains(page)));
}

#[tokio::test]
async fn metrics_are_open_metrics() {
    let (head, body) = started().await.ask("GET", "/metrics").await;
    assert_eq!(status(&head), "200");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    assert!(
        body.contains("cilium_leak_healer_wedges{verdict=\"stale-endpoint\"} 0") && body.ends_with("# EOF\n")
    );
}

#[tokio::test]
async fn readiness_lists_what_is_missing() {
    let running = started().await;
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
    let running = started().await;
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
    let running = started().await;
    let mut stream = running.connect().await;
    stream.write_all(sent.as_bytes()).await.unwrap();
    let start = Instant::now();
    to_end(&mut stream).await;
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let running = started().await;
    let mut stream = running.connect().await;
    let start = Instant::now();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let answer = to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test]
async fn a_header_too_long_is_refused() {
    let running = started().await;
    let mut stream = running.connect().await;
    let request = format!("GET /livez HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(64 * 1024));
    let _ = stream.write_all(request.as_bytes()).await;
    let answer = to_end(&mut stream).await;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut() {
    let body = get(|| async { vec![b'x'; 64 << 20] });
    let running =
        start(ServerLimits { connections: 1, ..ServerLimits::default() }, Router::new().route("/big", body))
            .await;
    let mut greedy = running.connect().await;
    greedy.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let start = Instant::now();
    // Its place is free again once it was cut.
    while status(&running.ask("GET", "/livez").await.0) != "200" {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(start.elapsed() < Duration::from_secs(30));
    }
    assert!(start.elapsed() >= Duration::from_secs(9), "{:?}", start.elapsed());
    drop(greedy);
}

#[tokio::test(start_paused = true)]
async fn connections_are_capped() {
    let running = start(ServerLimits { connections: 2, ..ServerLimits::default() }, Router::new()).await;
    let mut held = [running.connect().await, running.connect().await];
    let mut third = running.connect().await;
    let answer = to_end(&mut third).await;
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
    for stream in &mut held {
        to_end(stream).await;
    }
    assert_eq!(status(&running.ask("GET", "/livez").await.0), "200", "places become free again");
}

#[tokio::test(start_paused = true)]
async fn shutdown_answers_what_is_open_and_closes_the_rest() {
    let slow = get(|| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        "late"
    });
    let running = start(ServerLimits::default(), Router::new().route("/slow", slow)).await;
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
    let running = start(ServerLimits::default(), Router::new().route("/never", never)).await;
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
    let running = started().await;
    let error = Server::bind(running.address).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!("--listen {}: ", running.address)), "{error}");
}
