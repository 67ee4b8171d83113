#![allow(clippy::unnecessary_wraps, reason = "an answer of the fake API server may be none")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fake::{Answer, Asked, Log, TIMEOUT, reader, status};
use crate::kube::{Bearer, TokenReviews, UNWANTED, WANTED_AUTH};

const TOKENS: &str = "POST /apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";

fn jane() -> Value {
    json!({
        "username": "jane", "uid": "u-1", "groups": ["viewers", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["JTI=x"], "scopes.example": ["a", "b"]},
    })
}

fn known(user: &Value) -> Answer {
    Some((201, json!({"status": {"authenticated": true, "user": user, "audiences": ["api"]}})))
}

fn unknown() -> Answer {
    Some((201, json!({"status": {"user": {}, "error": "[invalid bearer token, not found]"}})))
}

fn access(status: &Value) -> Answer {
    Some((201, json!({"spec": {}, "status": status})))
}

fn reviews(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> (TokenReviews, Log) {
    let (reader, log) = reader(answer);
    (TokenReviews::new(Arc::new(reader), TIMEOUT), log)
}

/// The token `jane` is jane's, who may get all and put nothing; no other token is known.
fn usual(asked: &Asked) -> Answer {
    match asked.line().as_str() {
        TOKENS if asked.body["spec"]["token"] == "jane" => known(&jane()),
        TOKENS => unknown(),
        ACCESS => access(&json!({"allowed": asked.body["spec"]["nonResourceAttributes"]["verb"] == "get"})),
        other => panic!("{other}"),
    }
}

fn forbidden() -> Bearer {
    Bearer::Forbidden { user: "jane".to_owned() }
}

#[tokio::test]
async fn the_user_is_passed_on_as_it_came() {
    let (reviews, log) = reviews(usual);
    assert_eq!(reviews.review("jane", "get", "/v1/state").await, Bearer::Allowed);
    let asked = log.all();
    assert_eq!(log.lines(), [TOKENS, ACCESS]);
    assert_eq!(asked[0].body["spec"], json!({"token": "jane"}), "the API server's own audience");
    let user = jane();
    assert_eq!(
        asked[1].body["spec"],
        json!({
            "user": "jane", "uid": "u-1", "groups": user["groups"], "extra": user["extra"],
            "nonResourceAttributes": {"path": "/v1/state", "verb": "get"},
        })
    );
}

#[rstest]
#[case::may(known(&jane()), access(&json!({"allowed": true})), Bearer::Allowed)]
#[case::may_while_another_authorizer_failed(known(&jane()), access(&json!({"allowed": true, "evaluationError": "x"})), Bearer::Allowed)]
#[case::may_not(known(&jane()), access(&json!({"allowed": false})), forbidden())]
#[case::denied(known(&jane()), access(&json!({"allowed": false, "denied": true, "evaluationError": "x"})), forbidden())]
#[case::contradiction(known(&jane()), access(&json!({"allowed": true, "denied": true})), forbidden())]
#[case::no_such_token(unknown(), None, Bearer::Unauthenticated)]
#[case::no_authenticator_took_it(Some((201, json!({"status": {"user": {}}}))), None, Bearer::Unauthenticated)]
#[tokio::test]
async fn what_the_api_server_says(#[case] token: Answer, #[case] right: Answer, #[case] want: Bearer) {
    let (reviews, _) =
        reviews(move |asked| if asked.line() == TOKENS { token.clone() } else { right.clone() });
    assert_eq!(reviews.review("t", "get", "/v1/state").await, want);
}

const NO_RIGHT: &str = "tokenreviews.authentication.k8s.io is forbidden: User \"healer\" cannot create";

#[rstest]
#[case::no_right(status(403, "Forbidden", NO_RIGHT), None, "cannot create")]
#[case::overload(status(429, "TooManyRequests", "later"), None, "later")]
#[case::no_status(Some((201, json!({}))), None, "status")]
#[case::nobody(Some((201, json!({"status": {"authenticated": true, "user": {}}}))), None, "it names no user")]
#[case::no_answer(None, None, "timed out")]
#[case::no_right_to_the_second(known(&jane()), status(403, "Forbidden", "no"), "no")]
#[case::nothing_said(known(&jane()), access(&json!({})), "allowed")]
#[case::an_authorizer_failed(known(&jane()), access(&json!({"allowed": false, "evaluationError": "webhook"})), "webhook")]
#[case::no_second_answer(known(&jane()), None, "timed out")]
#[tokio::test(start_paused = true)]
async fn what_nobody_knows_is_unknown_and_not_remembered(
    #[case] token: Answer,
    #[case] right: Answer,
    #[case] words: &str,
) {
    let works = Arc::new(AtomicBool::new(false));
    let later = Arc::clone(&works);
    let (reviews, _) = reviews(move |asked| match (later.load(Ordering::Relaxed), asked.line() == TOKENS) {
        (true, _) => usual(asked),
        (false, true) => token.clone(),
        (false, false) => right.clone(),
    });
    let start = Instant::now();
    let Bearer::Unknown(why) = reviews.review("jane", "get", "/v1/state").await else {
        panic!("it is known")
    };
    assert!(why.contains(words), "{why}");
    assert!(!why.contains("jane\""), "the token is not told: {why}");
    assert!(start.elapsed() <= TIMEOUT, "{:?}", start.elapsed());
    works.store(true, Ordering::Relaxed);
    assert_eq!(reviews.review("jane", "get", "/v1/state").await, Bearer::Allowed);
}

#[rstest]
#[case::allowed("jane", "get", Bearer::Allowed, 60, 2)]
#[case::forbidden("jane", "put", forbidden(), 10, 2)]
#[case::unauthenticated("x", "get", Bearer::Unauthenticated, 10, 1)]
#[tokio::test(start_paused = true)]
async fn a_clear_answer_is_remembered_for_a_while(
    #[case] token: &str,
    #[case] verb: &str,
    #[case] want: Bearer,
    #[case] seconds: u64,
    #[case] requests: usize,
) {
    let (reviews, log) = reviews(usual);
    let ask = async || assert_eq!(reviews.review(token, verb, "/v1/state").await, want);
    ask().await;
    sleep(Duration::from_millis(1000 * seconds - 1)).await;
    ask().await;
    assert_eq!(log.lines().len(), requests);
    sleep(Duration::from_millis(2)).await;
    ask().await;
    assert_eq!(log.lines().len(), 2 * requests);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_for_its_token_verb_and_path() {
    let (reviews, log) = reviews(usual);
    assert_eq!(reviews.review("jane", "get", "/v1/state").await, Bearer::Allowed);
    assert_eq!(reviews.review("janes", "get", "/v1/state").await, Bearer::Unauthenticated);
    assert_eq!(reviews.review("jane", "put", "/v1/state").await, forbidden());
    assert_eq!(reviews.review("jane", "get", "/v1/events").await, Bearer::Allowed);
    assert_eq!(log.lines().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn invented_tokens_cost_the_api_server_little_and_drive_out_nobody() {
    let (reviews, log) = reviews(usual);
    assert_eq!(reviews.review("jane", "get", "/v1/state").await, Bearer::Allowed);
    let start = Instant::now();
    for n in 0..120 {
        assert_eq!(reviews.review(&format!("x{n}"), "get", "/v1/state").await, Bearer::Unauthenticated);
    }
    // Four at once, and then four a second.
    assert_eq!(start.elapsed().as_secs(), 29);
    assert_eq!(log.lines().len(), 2 + 120);
    assert_eq!(reviews.review("jane", "get", "/v1/state").await, Bearer::Allowed);
    assert_eq!(log.lines().len(), 2 + 120, "she is remembered all the same");
}

#[tokio::test(start_paused = true)]
async fn no_more_than_sixty_four_answers_are_remembered() {
    let (reviews, log) = reviews(usual);
    let ask = async |n: usize| reviews.review("jane", "get", &format!("/{n}")).await;
    for n in 0..65 {
        assert_eq!(ask(n).await, Bearer::Allowed);
        sleep(Duration::from_millis(1)).await;
    }
    let before = log.lines().len();
    assert_eq!(ask(64).await, Bearer::Allowed);
    assert_eq!(log.lines().len(), before, "the last one is");
    assert_eq!(ask(0).await, Bearer::Allowed);
    assert_eq!(log.lines().len(), before + 2, "the first one is not");
}

#[test]
fn what_it_needs_is_no_right_too_many() {
    assert!(WANTED_AUTH.iter().all(|wish| !UNWANTED.contains(wish)));
}
