use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rstest::rstest;
use tokio::net::UnixListener;
use tokio::time::Instant;

use super::super::{AgentClient, AgentOptions, CallError, Disconnected, Wire};
use super::fake::{Act, FakeAgent, answer, json};
use crate::domain::{
    Containers, Controller, DisconnectTarget, Event, Events, Limits, Lookup, NodeName, Observation,
    OvnAddress, Phase, Pod, ReadFailure, Remedy, judge,
};
use crate::metrics::{AGENT_OUTCOMES, Metrics};

const LEAKED: &str = include_str!("../testdata/endpoint-leaked.json");
const LOG: &str = include_str!("../testdata/endpoint-log.json");
const TIMEOUT: Duration = Duration::from_secs(2);

fn client(dir: &std::path::Path) -> (AgentClient, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new());
    let options = AgentOptions {
        wire: Wire::Socket,
        socket_dir: dir.to_owned(),
        timeout: TIMEOUT,
        lookup_interval: Duration::from_secs(1),
    };
    (AgentClient::new(options, Arc::clone(&metrics)), metrics)
}

fn ip() -> IpAddr {
    "10.244.1.50".parse().unwrap()
}

/// The metrics' lines with a count that is not zero.
fn counted(metrics: &Metrics) -> Vec<String> {
    let text = metrics.encode().unwrap();
    let line = |line: &str| line.strip_prefix("cilium_leak_healer_agent_requests_total").map(str::to_owned);
    let mut lines: Vec<String> = text.lines().filter_map(line).filter(|line| !line.ends_with(" 0")).collect();
    // The encoder writes a label set's series in any order.
    lines.sort();
    lines
}

/// A target, made the only way there is: by a judgement. Its owner is gone, and the holder is what the agent answers.
fn target(endpoint: &str) -> DisconnectTarget {
    let now: Timestamp = "2026-12-01T06:00:00Z".parse().unwrap();
    let node: NodeName = "n1".parse().unwrap();
    let pod = Pod {
        name: "tenant-a/pod-b".parse().unwrap(),
        uid: "uid-b".parse().unwrap(),
        resource_version: "1".to_owned(),
        node: Some(node.clone()),
        phase: Phase::Pending,
        host_network: false,
        deleting: false,
        created: Some(now),
        started: Some(now),
        ips: Vec::new(),
        unparsed_ips: false,
        sandbox_ready: Some(false),
        running_since: None,
        containers: Containers::default(),
        controller: Some(Controller { kind: "Job".to_owned(), name: "j".to_owned(), uid: "u".to_owned() }),
        mirror: None,
        vm_labels: Vec::new(),
        opt_out: false,
        ovn: OvnAddress::default(),
    };
    let event = Event {
        object_uid: "uid-b".to_owned(),
        node: Some(node.clone()),
        reason: "FailedCreatePodSandBox".to_owned(),
        message: "putEndpointIdInvalid \"IP ipv4:10.244.1.50 is already in use\"".to_owned(),
        at: Some(now - Duration::from_secs(20)),
        count: 9,
    };
    let mut seen = Observation::new(now, node, pod, Events { known: vec![event], unreadable: None });
    let model = super::super::EndpointModel::from_slice(endpoint.as_bytes()).unwrap();
    seen.lookup =
        Lookup::Held(Box::new(model.to_holder(super::super::model::log_from_slice(LOG.as_bytes())).unwrap()));
    seen.agent_started = Some(now - Duration::from_hours(1));
    seen.ipam_mode = Ok(crate::domain::IpamMode("kubernetes".to_owned()));
    seen.cilium_node = Ok(Some(crate::domain::CiliumNode::default()));
    seen.endpoints = Ok(None);
    seen.slices = Ok(None);
    seen.owner = Ok(None);
    seen.address_users = Ok(Vec::new());
    seen.node_pods = Ok(Vec::new());
    let judgement = judge(&seen, &Limits::default());
    match judgement.finding().map(|finding| finding.remedy.clone()) {
        Some(Remedy::DisconnectEndpoint(target)) => target,
        _ => panic!("{judgement:?}"),
    }
}

#[tokio::test]
async fn a_held_address_gives_the_holder_with_its_whole_log() {
    let agent = FakeAgent::start(|line| json(200, if line.contains("/log ") { LOG } else { LEAKED }));
    let (client, metrics) = client(agent.dir());
    let Lookup::Held(holder) = client.lookup(ip()).await else { panic!("not held") };
    assert_eq!(holder.log.unwrap().len(), 7);
    assert_eq!(
        agent.lines(),
        ["GET /v1/endpoint/ipv4:10.244.1.50 HTTP/1.1", "GET /v1/endpoint/ipv4:10.244.1.50/log HTTP/1.1"]
    );
    assert!(agent.seen().iter().all(|seen| seen.head.contains("host: localhost\r\n")));
    assert_eq!(
        counted(&metrics),
        ["{call=\"get-endpoint\",outcome=\"ok\"} 1", "{call=\"get-endpoint-log\",outcome=\"ok\"} 1"]
            .map(str::to_owned)
    );
}

#[rstest]
#[case::empty_list(json(200, "[]"), Some(0))]
#[case::endpoint_gone(json(404, ""), None)]
#[case::busy(json(429, "\"request would have to wait\""), None)]
#[case::garbage(json(200, "garbage"), None)]
#[case::hang(Act::Hang(Vec::new()), None)]
#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_read_is_none(#[case] log: Act, #[case] entries: Option<usize>) {
    let agent =
        FakeAgent::start(move |line| if line.contains("/log ") { log.clone() } else { json(200, LEAKED) });
    let Lookup::Held(holder) = client(agent.dir()).0.lookup(ip()).await else { panic!("not held") };
    assert_eq!(holder.log.map(|log| log.len()), entries);
}

#[tokio::test]
async fn an_empty_404_means_nobody() {
    let agent = FakeAgent::start(|_| json(404, ""));
    let (client, metrics) = client(agent.dir());
    assert_eq!(client.lookup("fd00:10:244:1:0:0:0:50".parse().unwrap()).await, Lookup::NotHeld);
    assert_eq!(
        agent.lines(),
        ["GET /v1/endpoint/ipv6:fd00:10:244:1::50 HTTP/1.1"],
        "asked in canonical text, no log"
    );
    assert_eq!(counted(&metrics), ["{call=\"get-endpoint\",outcome=\"not-found\"} 1"]);
}

fn failed(status: u16, message: &str) -> ReadFailure {
    ReadFailure::Status { status, message: message.to_owned() }
}

#[rstest]
#[case::router(
    json(404, r#"{"code":404,"message":"path /v1/x was not found"}"#),
    failed(404, "path /v1/x was not found"),
    "no-such-path"
)]
#[case::blank_404(json(404, "\n"), failed(404, ""), "no-such-path")]
#[case::bad_request(
    json(400, "\"unknown endpoint ID prefix\"\n"),
    failed(400, "unknown endpoint ID prefix"),
    "bad-request"
)]
#[case::forbidden(
    answer(403, "text/plain; charset=utf-8", "This API is administratively disabled."),
    failed(403, "This API is administratively disabled."),
    "forbidden"
)]
#[case::busy(
    json(429, "\"request would have to wait 998ms\"\n"),
    failed(429, "request would have to wait 998ms"),
    "too-many-requests"
)]
#[case::validation(
    json(422, r#"{"code":602,"message":"state in body is required"}"#),
    failed(422, "state in body is required"),
    "unprocessable"
)]
#[case::starting(json(503, "\"api not ready\""), failed(503, "api not ready"), "server-error")]
#[case::redirect(json(302, ""), failed(302, ""), "other-status")]
#[case::partial(json(206, "1"), failed(206, "1"), "other-status")]
#[case::huge_error(json(500, &"x".repeat(9 << 20)), failed(500, "(a body too large to read)"), "server-error")]
#[case::hang(Act::Hang(Vec::new()), ReadFailure::Timeout, "timeout")]
#[case::half_head(Act::Hang(b"HTTP/1.1 200 OK\r\nConte".to_vec()), ReadFailure::Timeout, "timeout")]
#[case::half_body_hang(Act::Hang(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id\":".to_vec()), ReadFailure::Timeout, "timeout")]
#[tokio::test(start_paused = true)]
async fn no_answer_is_unknown(#[case] act: Act, #[case] why: ReadFailure, #[case] outcome: &str) {
    let agent = FakeAgent::start(move |_| act.clone());
    let (client, metrics) = client(agent.dir());
    let Lookup::Unknown(unreadable) = client.lookup(ip()).await else { panic!("an answer") };
    assert_eq!(unreadable.what, "GET endpoint/ipv4:10.244.1.50");
    assert_eq!(unreadable.why, why);
    assert_eq!(counted(&metrics), [format!("{{call=\"get-endpoint\",outcome=\"{outcome}\"}} 1")]);
}

#[rstest]
#[case::empty_200(json(200, ""), "undecodable")]
#[case::no_model(json(200, "[]"), "undecodable")]
#[case::no_id(json(200, "{}"), "undecodable")]
#[case::garbage(Act::Bytes(b"\x00\x01garbage\r\n\r\n".to_vec()), "undecodable")]
#[case::huge(json(200, &" ".repeat(9 << 20)), "too-large")]
#[tokio::test]
async fn an_unreadable_answer_is_unknown(#[case] act: Act, #[case] outcome: &str) {
    let agent = FakeAgent::start(move |_| act.clone());
    let (client, metrics) = client(agent.dir());
    let Lookup::Unknown(unreadable) = client.lookup(ip()).await else { panic!("an answer") };
    assert!(matches!(unreadable.why, ReadFailure::Undecodable(_)), "{unreadable}");
    assert_eq!(counted(&metrics), [format!("{{call=\"get-endpoint\",outcome=\"{outcome}\"}} 1")]);
}

#[rstest]
#[case::at_once(Act::Bytes(Vec::new()))]
#[case::half_body(Act::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id\":".to_vec()))]
#[case::half_chunk(Act::Bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"i".to_vec()))]
#[tokio::test]
async fn a_broken_connection_is_unknown(#[case] act: Act) {
    let agent = FakeAgent::start(move |_| act.clone());
    let (client, metrics) = client(agent.dir());
    let Lookup::Unknown(unreadable) = client.lookup(ip()).await else { panic!("an answer") };
    assert!(matches!(unreadable.why, ReadFailure::Connection(_)), "{unreadable}");
    assert_eq!(counted(&metrics), ["{call=\"get-endpoint\",outcome=\"connection\"} 1"]);
}

#[tokio::test]
async fn without_socket_and_without_listener() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cilium.sock");
    let (client, metrics) = client(dir.path());
    assert_eq!(client.reachable().await, Err(CallError::NoSocket(socket.clone())));
    assert_eq!(client.started().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let unreadable = client.config().await.unwrap_err();
    assert_eq!(
        unreadable.to_string(),
        format!("GET config: no connection: no socket at {}", socket.display())
    );
    assert_eq!(counted(&metrics), ["{call=\"get-config\",outcome=\"no-socket\"} 1"]);

    drop(UnixListener::bind(&socket).unwrap());
    assert_eq!(client.reachable().await, Err(CallError::ConnectionRefused(socket.clone())));
    assert!(client.started().is_ok(), "a killed agent leaves its socket");

    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "").unwrap();
    assert!(client.started().is_err(), "a file is no socket");
}

#[tokio::test]
async fn reachable_sends_no_request() {
    let agent = FakeAgent::start(|_| json(500, ""));
    let (client, metrics) = client(agent.dir());
    assert_eq!(client.reachable().await, Ok(()));
    assert!(counted(&metrics).is_empty());
    assert!(agent.seen().is_empty());
    let age = Timestamp::now() - client.started().unwrap();
    assert!(age.get_seconds().abs() < 60, "{age}");
}

#[tokio::test]
async fn config_and_allocations() {
    let agent = FakeAgent::start(|line| match line {
        "GET /v1/config HTTP/1.1" => json(200, include_str!("../testdata/config.json")),
        "GET /v1/healthz HTTP/1.1" => json(200, include_str!("../testdata/healthz.json")),
        other => panic!("{other}"),
    });
    let (client, metrics) = client(agent.dir());
    assert_eq!(client.config().await.unwrap().ipam_mode.unwrap().0, "kubernetes");
    assert_eq!(client.allocations().await.unwrap().owners("10.244.1.22".parse().unwrap()), ["ingress"]);
    assert_eq!(counted(&metrics).len(), 2);
}

#[tokio::test]
async fn an_empty_404_of_a_thing_that_must_be_there_is_unknown() {
    let agent = FakeAgent::start(|_| json(404, ""));
    let (client, _) = client(agent.dir());
    assert_eq!(client.config().await.unwrap_err().why, failed(404, ""));
    assert_eq!(client.allocations().await.unwrap_err().why, failed(404, ""));
}

#[rstest]
#[case::removed(json(200, ""), Ok(Disconnected::Removed), "ok")]
#[case::one_error(json(206, "1\n"), Ok(Disconnected::RemovedWithErrors(1)), "partial")]
#[case::some_errors(json(206, ""), Ok(Disconnected::RemovedWithErrors(1)), "partial")]
#[case::gone(json(404, ""), Ok(Disconnected::NotFound), "not-found")]
#[case::router(json(404, "{}"), Err(CallError::NotFound { body: "{}".to_owned() }), "no-such-path")]
#[case::reserved(
    json(400, "\"endpoint may not be associated reserved labels\"\n"),
    Err(CallError::BadRequest("endpoint may not be associated reserved labels".to_owned())),
    "bad-request"
)]
#[case::forbidden(answer(403, "text/plain", "disabled"), Err(CallError::Forbidden("disabled".to_owned())), "forbidden")]
#[case::starting(
    json(503, "\"api not ready\""),
    Err(CallError::ServerError { status: 503, message: "api not ready".to_owned() }),
    "server-error"
)]
#[case::no_content(json(204, ""), Err(CallError::OtherStatus { status: 204, message: String::new() }), "other-status")]
#[case::hang(Act::Hang(Vec::new()), Err(CallError::Timeout(TIMEOUT)), "timeout")]
#[tokio::test(start_paused = true)]
async fn disconnects(
    #[case] act: Act,
    #[case] result: Result<Disconnected, CallError>,
    #[case] outcome: &str,
) {
    let agent = FakeAgent::start(move |_| act.clone());
    let (client, metrics) = client(agent.dir());
    assert_eq!(client.disconnect(&target(LEAKED)).await, result);
    assert_eq!(
        agent.lines(),
        [
            "DELETE /v1/endpoint/cni-attachment-id:aaaa1111bbbb2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888:eth0 HTTP/1.1"
        ]
    );
    assert_eq!(counted(&metrics), [format!("{{call=\"delete-endpoint\",outcome=\"{outcome}\"}} 1")]);
}

#[tokio::test]
async fn odd_ids_stay_one_path_segment() {
    let agent = FakeAgent::start(|_| json(200, ""));
    let odd = LEAKED.replace(":eth0", ":e%t?h#0..");
    client(agent.dir()).0.disconnect(&target(&odd)).await.unwrap();
    assert!(agent.lines()[0].ends_with(":e%25t%3Fh%230.. HTTP/1.1"), "{:?}", agent.lines());
}

#[tokio::test(start_paused = true)]
async fn look_ups_start_a_second_apart_whoever_asks() {
    let agent = FakeAgent::start(|_| json(404, ""));
    let (client, _) = client(agent.dir());
    let start = Instant::now();
    futures::future::join_all((0..4).map(|_| client.lookup(ip()))).await;
    let at: Vec<u64> = agent.seen().iter().map(|seen| (seen.at - start).as_secs()).collect();
    assert_eq!(at, [0, 1, 2, 3]);
    assert_eq!(start.elapsed().as_secs(), 3, "the first look-up does not wait");
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_takes_no_turn() {
    let agent = FakeAgent::start(|_| json(404, ""));
    let (client, _) = client(agent.dir());
    client.lookup(ip()).await;
    let start = Instant::now();
    assert!(tokio::time::timeout(Duration::from_millis(500), client.lookup(ip())).await.is_err());
    client.lookup(ip()).await;
    assert!(start.elapsed() < Duration::from_millis(1100), "{:?}", start.elapsed());
    assert_eq!(agent.seen().len(), 2);
}

#[test]
fn every_failure_has_a_word_of_the_metrics() {
    let text = String::new;
    let path = || std::path::PathBuf::from("/s");
    let errors = [
        CallError::NoSocket(path()),
        CallError::ConnectionRefused(path()),
        CallError::Connection(text()),
        CallError::Timeout(TIMEOUT),
        CallError::BadRequest(text()),
        CallError::Forbidden(text()),
        CallError::NotFound { body: text() },
        CallError::TooManyRequests(text()),
        CallError::Unprocessable(text()),
        CallError::OtherStatus { status: 302, message: text() },
        CallError::ServerError { status: 500, message: text() },
        CallError::BodyTooLarge(1),
        CallError::Undecodable(text()),
    ];
    let mut words: Vec<_> = errors.iter().map(CallError::outcome).collect();
    assert!(words.iter().all(|word| AGENT_OUTCOMES.contains(word)));
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), errors.len());
}
