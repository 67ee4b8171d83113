use std::sync::Arc;
use std::time::Duration;

use rstest::rstest;

use super::super::health::version_from_slice;
use super::super::{AgentClient, AgentOptions, Wire};
use super::fake::{Act, FakeAgent, json};
use crate::domain::{CiliumVersion, Read, ReadFailure};
use crate::metrics::Metrics;

const TRANSCRIPT: &str = include_str!("../../../tests/cilium-agent/transcripts/healthz-200.json");

async fn asked(agent: &FakeAgent) -> (Read<CiliumVersion>, String) {
    let metrics = Arc::new(Metrics::new());
    let (timeout, lookup_interval) = (Duration::from_secs(2), Duration::from_secs(1));
    let options =
        AgentOptions { socket_dir: agent.dir().to_owned(), wire: Wire::Socket, timeout, lookup_interval };
    let version = AgentClient::new(options, Arc::clone(&metrics)).version().await;
    (version, metrics.encode().unwrap())
}

fn of(msg: &str) -> Result<String, String> {
    let body = serde_json::json!({"cilium": {"msg": msg, "state": "Ok"}}).to_string();
    version_from_slice(body.as_bytes()).map(|version| version.to_string()).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_short_form_is_asked_and_counted() {
    let agent = FakeAgent::start(|line| match line {
        "GET /v1/healthz HTTP/1.1" => json(
            200,
            r#"{"cilium":{"msg":"1.14.19 (v1.14.19-ca9c7e2c)","state":"Ok"},"cluster":{"nodes":null}}"#,
        ),
        other => panic!("{other}"),
    });
    let (version, metrics) = asked(&agent).await;
    assert_eq!(version.unwrap(), CiliumVersion { major: 1, minor: 14, patch: 19 });
    assert!(agent.seen()[0].head.contains("\r\nbrief: true\r\n"), "{:?}", agent.seen());
    assert!(metrics.contains(r#"agent_requests_total{call="get-healthz",outcome="ok"} 1"#), "{metrics}");
}

#[test]
fn a_real_agents_long_form_has_it_too() {
    let transcript: serde_json::Value = serde_json::from_str(TRANSCRIPT).unwrap();
    let version = version_from_slice(transcript["body"].as_str().unwrap().as_bytes()).unwrap();
    assert_eq!(version, CiliumVersion { major: 1, minor: 20, patch: 2 });
}

#[rstest]
#[case::stale("1.18.2 (v1.18.2-5bd307a8)    Stale status data", "1.18.2")]
#[case::no_kubernetes("1.16.5 (v1.16.5-ad688277)    Kubernetes service is not ready", "1.16.5")]
#[case::candidate("1.20.0-rc.1 (v1.20.0-rc.1-abcdef)", "1.20.0")]
#[case::vendors("1.17.3-ee (v1.17.3-ee-abcdef)", "1.17.3")]
fn an_agent_that_complains_says_it_first(#[case] msg: &str, #[case] version: &str) {
    assert_eq!(of(msg).as_deref(), Ok(version));
}

#[rstest]
#[case::starting("Not all probes executed at least once")]
#[case::nothing("")]
#[case::blank("   ")]
#[case::long(&"9".repeat(9000))]
fn other_words_are_no_version(#[case] msg: &str) {
    let error = of(msg).unwrap_err();
    assert!(error.len() < 128, "cut: {error}");
}

#[rstest]
#[case::no_cilium(json(200, "{}"))]
#[case::null(json(200, r#"{"cilium": null}"#))]
#[case::null_msg(json(200, r#"{"cilium": {"msg": null}}"#))]
#[case::a_number(json(200, r#"{"cilium": {"msg": 1.2}}"#))]
#[case::a_list(json(200, "[]"))]
#[case::empty(json(200, ""))]
#[case::huge(json(200, &format!(r#"{{"cilium": {{"msg": "1.20.2"}}, "x": "{}"}}"#, " ".repeat(2 << 20))))]
#[tokio::test]
async fn an_odd_answer_is_unreadable(#[case] act: Act) {
    let agent = FakeAgent::start(move |_| act.clone());
    let unreadable = asked(&agent).await.0.unwrap_err();
    assert_eq!(unreadable.what, "GET healthz");
    assert!(matches!(unreadable.why, ReadFailure::Undecodable(_)), "{unreadable}");
}

#[rstest]
#[case::starting(json(503, "\"api not ready\""), ReadFailure::Status { status: 503, message: "api not ready".to_owned() })]
#[case::absent(json(404, ""), ReadFailure::Status { status: 404, message: String::new() })]
#[case::hang(Act::Hang(Vec::new()), ReadFailure::Timeout)]
#[tokio::test(start_paused = true)]
async fn no_answer_is_unreadable(#[case] act: Act, #[case] why: ReadFailure) {
    let agent = FakeAgent::start(move |_| act.clone());
    assert_eq!(asked(&agent).await.0.unwrap_err().why, why);
}
