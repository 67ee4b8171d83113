//! Who may read the pages that name pods, and who may change the log level.

use std::net::SocketAddr;
use std::sync::Arc;

use cilium_leak_healer::sim::{ApiOptions, Attributes, Fault};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::daemon::{Daemon, own_address};
use crate::scene::Scene;

const PAGE: &str = "/v1/log-level";

/// The daemon on loopback and on an address that is not; nothing, said aloud, where the machine has no such address.
async fn beyond_loopback(scene: &Scene, args: &[&str]) -> Option<(Daemon, SocketAddr)> {
    let Some(own) = own_address() else {
        println!("SKIPPED: this machine has no address but loopback's");
        return None;
    };
    let listen = SocketAddr::new(own, 0).to_string();
    let daemon = scene
        .start(&[&["--listen", "127.0.0.1:0", "--listen", &listen, "--api-timeout", "2s"], args].concat())
        .await;
    daemon.answers("/readyz", 200).await;
    let second = daemon.second_address().await;
    assert_eq!(second.ip(), own);
    Some((daemon, second))
}

async fn get(daemon: &Daemon, to: SocketAddr, token: &str) -> (u16, String) {
    let value = format!("Bearer {token}");
    let headers: &[(&str, &str)] = if token.is_empty() { &[] } else { &[("Authorization", &value)] };
    let answer = daemon.ask(to, "GET", PAGE, headers, "").await;
    (answer.status, answer.body)
}

pub(crate) async fn over_loopback_all_is_open() {
    let scene = Scene::new().await;
    let daemon = scene.observe().await;
    assert_eq!(get(&daemon, daemon.address(), "").await, (200, "info\n".to_owned()));
    // A web page that has its own name lead to this address.
    for (header, value, status) in
        [("Host", "evil.example", 421), ("Sec-Fetch-Site", "cross-site", 403), ("Origin", "http://x", 200)]
    {
        let answer = daemon.ask(daemon.address(), "GET", PAGE, &[(header, value)], "").await;
        assert_eq!(answer.status, status, "{header}: {answer:?}");
        assert!(!answer.head.contains("access-control"), "{answer:?}");
    }
    daemon.stop().await;
}

pub(crate) async fn elsewhere_a_page_is_closed_unless_the_flag_says_otherwise() {
    let scene = Scene::new().await;
    let Some((daemon, second)) = beyond_loopback(&scene, &[]).await else { return };
    let (status, said) = get(&daemon, second, "sim-token").await;
    assert_eq!(status, 403, "{said}");
    assert!(said.contains("--auth=token") && said.contains("--auth=none"), "{said}");
    assert_eq!(get(&daemon, daemon.address(), "").await.0, 200);
    for page in ["/livez", "/readyz", "/healthz", "/metrics", "/"] {
        assert_eq!(daemon.ask(second, "GET", page, &[], "").await.status, 200, "{page}");
    }
    let reviews = scene.cluster.api().requests();
    assert!(!reviews.iter().any(|it| it.path.ends_with("/tokenreviews")), "{reviews:?}");
    daemon.stop().await;
}

pub(crate) async fn with_auth_none_elsewhere_reads_and_changes_nothing() {
    let scene = Scene::new().await;
    let Some((daemon, second)) = beyond_loopback(&scene, &["--auth=none"]).await else { return };
    assert_eq!(get(&daemon, second, "").await.0, 200);
    let put = daemon.ask(second, "PUT", PAGE, &[], "debug").await;
    assert_eq!(put.status, 403, "{put:?}");
    assert_eq!(get(&daemon, second, "").await.1, "info\n");
    daemon.line("it warns", |line| line["level"] == "WARN" && line["address"] == second.to_string()).await;
    daemon.stop().await;
}

/// `viewer` may get the page; it and `changer` are known, and only the latter may put.
fn with_people() -> ApiOptions {
    let mut options = ApiOptions::with_manifests();
    let usual = options.authorizer.clone().expect("an authorizer");
    options.authorizer = Some(Arc::new(move |wish: &Attributes| {
        match (wish.user.as_str(), wish.verb.as_str(), wish.path.as_str()) {
            ("viewer", verb, PAGE) => verb == "get",
            ("changer", verb, PAGE) => ["get", "put"].contains(&verb),
            ("nobody", ..) => false,
            _ => usual(wish),
        }
    }));
    for user in ["viewer", "changer", "nobody"] {
        options.tokens.insert(format!("token-of-{user}"), user.to_owned());
    }
    options
}

pub(crate) async fn a_token_reads_what_its_user_may_read() {
    let scene = Scene::behind(with_people(), |_| {}).await;
    let Some((daemon, second)) = beyond_loopback(&scene, &["--auth", "token"]).await else { return };
    assert_eq!(get(&daemon, second, "token-of-viewer").await, (200, "info\n".to_owned()));
    let missing = daemon.ask(second, "GET", PAGE, &[], "").await;
    assert_eq!(missing.status, 401);
    assert!(missing.head.contains("www-authenticate: bearer"), "{missing:?}");
    assert_eq!(get(&daemon, second, "token-of-nobody-at-all").await.0, 401);
    let (status, said) = get(&daemon, second, "token-of-nobody").await;
    assert_eq!((status, said.as_str()), (403, "user \"nobody\" cannot get path \"/v1/log-level\"\n"));
    for (user, status) in [("viewer", 403), ("changer", 200)] {
        let bearer = format!("Bearer token-of-{user}");
        let put = daemon.ask(second, "PUT", PAGE, &[("Authorization", &bearer)], "debug").await;
        assert_eq!(put.status, status, "{user}: {put:?}");
    }
    // An account of the cluster, with its groups and claims.
    let account = scene.cluster.api().token_of_account("kube-system", "prometheus");
    assert_eq!(get(&daemon, second, &account).await.0, 200);
    // Remembered for a minute.
    let count =
        || scene.cluster.api().requests().iter().filter(|it| it.path.ends_with("/tokenreviews")).count();
    let before = count();
    assert_eq!(before, 6, "{before}");
    get(&daemon, second, "token-of-viewer").await;
    assert_eq!(count(), before);
    let asked =
        "cilium_leak_healer_api_requests_total{verb=\"create\",resource=\"tokenreviews\",outcome=\"ok\"}";
    assert!(daemon.get("/metrics").await.body.contains(&format!("{asked} 6\n")));
    assert!(!daemon.printed().contains("token-of-"), "{}", daemon.printed());
    daemon.stop().await;
}

pub(crate) async fn while_the_api_server_cannot_be_asked_no_token_reads() {
    let mut options = with_people();
    let usual = options.authorizer.clone().expect("an authorizer");
    // As where rbac/auth.yaml is not applied.
    options.authorizer =
        Some(Arc::new(move |wish: &Attributes| wish.resource != "tokenreviews" && usual(wish)));
    let scene = Scene::behind(options, |_| {}).await;
    let Some((daemon, second)) = beyond_loopback(&scene, &["--auth", "token"]).await else { return };
    let closed = async || {
        let answer =
            daemon.ask(second, "GET", PAGE, &[("Authorization", "Bearer token-of-viewer")], "").await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.head.contains("retry-after: "), "{answer:?}");
    };
    closed().await;
    closed().await;
    let told = |line: &Value| line["message"].as_str().is_some_and(|said| said.contains("rbac/auth.yaml"));
    let line = daemon.line("it says what is missing", told).await;
    assert!(
        line["reason"].as_str().is_some_and(|why| why.contains("cannot create resource \"tokenreviews\""))
    );
    assert_eq!(daemon.matching(told).len(), 1, "once");
    scene.cluster.api().inject(Fault::hang().on("POST").path("reviews"));
    closed().await;
    assert_eq!(get(&daemon, daemon.address(), "").await.0, 200, "loopback needs no API server");
    daemon.stop().await;
}

pub(crate) async fn the_log_level_changes_and_goes_back() {
    let scene = Scene::new().await;
    let daemon = scene.start(&["--event-delay", "200ms"]).await;
    daemon.answers("/readyz", 200).await;
    let put = async |query: &str, filter: &str| {
        let answer = daemon.ask(daemon.address(), "PUT", &format!("{PAGE}{query}"), &[], filter).await;
        (answer.status, answer.body)
    };
    let debug = |line: &Value| line["level"] == "DEBUG";
    assert!(daemon.matching(debug).is_empty(), "{}", daemon.printed());
    let (status, said) = put("", "loud").await;
    assert_eq!(status, 400);
    assert!(said.starts_with("\"loud\" is no level: give one of off, error"), "{said}");

    let (status, said) = put("?for=3s", "debug").await;
    assert_eq!(status, 200, "{said}");
    assert!(said.starts_with("debug\nback to info in "), "{said}");
    let changed = |line: &Value| {
        let from = line["from"].as_str().unwrap_or_default();
        line["old"] == "info"
            && line["new"] == "debug"
            && line["level"] == "WARN"
            && from.starts_with("127.0.0.1:")
    };
    daemon.line("the change", changed).await;
    // What is no HTTP is worth a debug line.
    let broken = async || {
        let mut stream = TcpStream::connect(daemon.address()).await.expect("a connection");
        stream.write_all(b"no HTTP at all\r\n\r\n").await.expect("a write");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    };
    broken().await;
    daemon.line("a debug line", debug).await;
    let back = |line: &Value| line["old"] == "debug" && line["new"] == "info" && line["level"] == "WARN";
    daemon.line("it is set back", back).await;
    let before = daemon.matching(debug).len();
    broken().await;
    broken().await;
    // What would have been told by then is told.
    assert_eq!(put("", "warn").await.0, 200);
    daemon.line("the next change", |line| line["new"] == "warn").await;
    assert_eq!(daemon.matching(debug).len(), before, "{}", daemon.printed());
    assert!(daemon.get(PAGE).await.body.starts_with("warn\nback to info in 1"));
    daemon.stop().await;
}
