#![allow(clippy::unnecessary_wraps, reason = "an answer of the fake API server may be none")]

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use rstest::rstest;
use serde_json::json;
use tokio::time::Instant;

use super::fake::{Answer, Asked, Log, TIMEOUT, client, status};
use crate::domain::Controller;
use crate::kube::{Note, NoteType, Recorder, controller_reference, node_reference};
use crate::metrics::Metrics;

const AT_MOST: Duration = Duration::from_mins(10);

fn recorder(
    answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    node: &str,
) -> (Recorder, Log, Arc<Metrics>) {
    let (client, log) = client(answer);
    let metrics = Arc::new(Metrics::new());
    let recorder = Recorder::new(client, &node.parse().unwrap(), TIMEOUT, Arc::clone(&metrics));
    (recorder, log, metrics)
}

fn taken(asked: &Asked) -> Answer {
    Some((201, asked.body.clone()))
}

fn regarding() -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some("shop".to_owned()),
        name: Some("cart".to_owned()),
        uid: Some("u".to_owned()),
        ..ObjectReference::default()
    }
}

fn note(text: &str) -> Note {
    Note {
        type_: NoteType::Warning,
        reason: "LiveDuplicate",
        action: "Refused",
        regarding: regarding(),
        related: Some(node_reference(&"n1".parse().unwrap())),
        note: text.to_owned(),
    }
}

fn count(metrics: &Metrics, outcome: &str) -> u32 {
    let series = format!("cilium_leak_healer_kubernetes_events_total{{outcome=\"{outcome}\"}} ");
    let text = metrics.encode().unwrap();
    text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_event_says_who_what_and_about_whom() {
    let (recorder, log, metrics) = recorder(taken, "n1");
    recorder.publish(note("two pods have 10.0.0.1"));
    recorder.finish(AT_MOST).await;
    let asked = log.all();
    assert_eq!(asked[0].line(), "POST /apis/events.k8s.io/v1/namespaces/shop/events");
    let body = &asked[0].body;
    for (field, want) in [
        ("type", json!("Warning")),
        ("reason", json!("LiveDuplicate")),
        ("action", json!("Refused")),
        ("note", json!("two pods have 10.0.0.1")),
        ("reportingController", json!("cilium-leak-healer")),
        ("reportingInstance", json!("n1")),
    ] {
        assert_eq!(body[field], want, "{field}");
    }
    assert_eq!((&body["regarding"]["uid"], &body["related"]["uid"]), (&json!("u"), &json!("n1")));
    assert_eq!(count(&metrics, "written"), 1);
}

#[rstest]
#[case::long("é".repeat(2000), |note: &str| note.len() <= 1024 && note.len() > 1018 && note.ends_with("é…"))]
#[case::at_the_limit("x".repeat(1024), |note: &str| note == "x".repeat(1024))]
#[case::control_characters("a\u{0}\r\nb\u{1b}[31m\u{202e}c\"}".to_owned(), |note: &str| note == "a   b [31m c\"}")]
#[tokio::test]
async fn hostile_text_stays_within_what_the_api_server_takes(
    #[case] text: String,
    #[case] is_right: impl Fn(&str) -> bool,
) {
    let (recorder, log, _) = recorder(taken, "n1");
    recorder.publish(note(&text));
    recorder.finish(AT_MOST).await;
    let sent = log.all()[0].body["note"].as_str().unwrap().to_owned();
    assert!(is_right(&sent), "{sent:?}");
}

#[tokio::test]
async fn a_long_node_name_is_cut_to_what_an_instance_may_have() {
    let (recorder, log, _) = recorder(taken, &"n".repeat(200));
    recorder.publish(note("x"));
    recorder.finish(AT_MOST).await;
    assert_eq!(log.all()[0].body["reportingInstance"], "n".repeat(128));
}

#[tokio::test]
async fn the_same_again_is_counted_and_another_text_is_another_event() {
    let (recorder, log, _) = recorder(taken, "n1");
    for text in ["one", "one", "two", "one"] {
        recorder.publish(note(text));
    }
    recorder.finish(AT_MOST).await;
    let asked = log.all();
    let sent: Vec<_> = asked
        .iter()
        .map(|it| {
            (it.method.as_str(), it.body["note"].as_str().unwrap(), it.body["series"]["count"].as_i64())
        })
        .collect();
    assert_eq!(
        sent,
        [("POST", "one", None), ("PATCH", "one", Some(2)), ("POST", "two", None), ("PATCH", "one", Some(3))]
    );
}

#[tokio::test]
async fn a_refusal_is_counted_and_the_next_is_written() {
    let answer = |asked: &Asked| match asked.body["note"].as_str() {
        Some("bad") => status(403, "Forbidden", "no"),
        _ => taken(asked),
    };
    let (recorder, _, metrics) = recorder(answer, "n1");
    recorder.publish(note("bad"));
    recorder.publish(note("good"));
    recorder.finish(AT_MOST).await;
    assert_eq!((count(&metrics, "failed"), count(&metrics, "written")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_hung_api_server_holds_up_nobody_and_what_does_not_fit_is_dropped() {
    let (recorder, log, metrics) = recorder(|_| None, "n1");
    let before = Instant::now();
    for number in 0..70 {
        recorder.publish(note(&number.to_string()));
    }
    assert_eq!((before.elapsed(), count(&metrics, "dropped")), (Duration::ZERO, 6));
    recorder.finish(TIMEOUT * 3).await;
    assert_eq!(before.elapsed(), TIMEOUT * 3);
    assert!(log.all().len() <= 4 && count(&metrics, "failed") >= 2);
}

#[tokio::test]
async fn an_event_about_a_node_lives_in_the_default_namespace() {
    let (recorder, log, _) = recorder(taken, "n1");
    recorder.publish(Note { regarding: node_reference(&"n1".parse().unwrap()), related: None, ..note("x") });
    recorder.finish(AT_MOST).await;
    assert_eq!(log.lines(), ["POST /apis/events.k8s.io/v1/namespaces/default/events"]);
}

#[rstest]
#[case("ReplicaSet", Some("apps/v1"))]
#[case("Job", Some("batch/v1"))]
#[case("CloneSet", None)]
fn a_controller_is_referred_to_in_the_pods_namespace(#[case] kind: &str, #[case] version: Option<&str>) {
    let controller = Controller { kind: kind.to_owned(), name: "web".to_owned(), uid: "r".to_owned() };
    let reference = controller_reference("shop", &controller);
    assert_eq!(reference.api_version.as_deref(), version);
    assert_eq!((reference.namespace.as_deref(), reference.uid.as_deref()), (Some("shop"), Some("r")));
}
