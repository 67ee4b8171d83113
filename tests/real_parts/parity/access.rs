//! Reviews of others' tokens and rights, by one who may ask and by one who may not.

use std::sync::Arc;

use cilium_leak_healer::sim::{ApiOptions, Attributes, Cluster, ClusterOptions};
use hyper::Method;
use serde_json::{Value, json};

use super::{Seen, assert_alike, requests::Requests};
use crate::{
    access::{bind, token_of},
    harness::{Node, Rights, client_of, eventually},
};

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const OWN: &str = "cilium-leak-healer";

fn token_review(token: &str) -> Value {
    json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": token}})
}

fn access_review(user: &str, verb: &str) -> Value {
    let spec = json!({"user": user, "nonResourceAttributes": {"path": "/v1/state", "verb": verb}});
    json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": spec})
}

/// What `reviewer` may ask of the token and the user of an account that may read, and what `other` may not.
async fn ask(reviewer: &mut Requests, other: &mut Requests, token: &str) {
    let known = reviewer.call(Method::POST, TOKENS, Some(token_review(token))).await;
    let fields = ["/kind", "/apiVersion", "/status/authenticated", "/status/error", "/status/user/username"];
    let mut seen = Seen::part("a token", &known, &fields);
    let known = known.json();
    for (name, value) in known["status"]["user"]["extra"].as_object().into_iter().flatten() {
        seen.body.insert(format!("{name}: {} values", value.as_array().expect("values").len()));
    }
    let texts = |value: &Value| value.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    seen.body.insert(format!("groups {}", known["status"]["user"]["groups"]));
    seen.body.insert(format!("uid: {}", known["status"]["user"]["uid"].is_string()));
    seen.body.insert(format!("audiences: {}", texts(&known["status"]["audiences"])));
    seen.body.insert(format!("the token comes back: {}", known["spec"]["token"] == token));
    reviewer.seen.push(seen);

    let garbage = reviewer.call(Method::POST, TOKENS, Some(token_review("garbage"))).await;
    let mut seen = Seen::part("garbage", &garbage, &["/kind", "/status/authenticated", "/status/user"]);
    let error = garbage.json()["status"]["error"].as_str().unwrap_or_default().to_owned();
    seen.body.insert(format!("it says why: {}", error.contains("invalid bearer token")));
    reviewer.seen.push(seen);
    let empty = reviewer.call(Method::POST, TOKENS, Some(token_review(""))).await;
    reviewer.seen.push(Seen::text("no token", &empty));

    let user = Rights::Read.user();
    for verb in ["get", "put"] {
        let answer = reviewer.call(Method::POST, ACCESS, Some(access_review(&user, verb))).await;
        let fields = ["/kind", "/apiVersion", "/spec", "/status/allowed", "/status/denied"];
        reviewer.seen.push(Seen::part(verb, &answer, &fields));
    }
    let refused = other.call(Method::POST, TOKENS, Some(token_review(token))).await;
    other.seen.push(Seen::text("a token, without the right", &refused));
    let refused = other.call(Method::POST, ACCESS, Some(access_review(&user, "get"))).await;
    other.seen.push(Seen::text("an access, without the right", &refused));
}

#[tokio::test]
async fn reviews_of_others_are_answered_alike() {
    let node = Node::new().await;
    bind(&node, "cilium-leak-healer-view", Rights::Read).await;
    let requests =
        async |rights: Rights| Requests::of(client_of(&node.kubeconfig_without_pod(rights).await).await);
    let (mut reviewer, mut other) = (requests(Rights::Auth).await, requests(Rights::Heal).await);
    eventually("the binding to be known", async || {
        let review = access_review(&Rights::Read.user(), "get");
        let answer = reviewer.call(Method::POST, ACCESS, Some(review)).await;
        (answer.json()["status"]["allowed"] == true).then_some(())
    })
    .await;
    ask(&mut reviewer, &mut other, &token_of(&node, Rights::Read, None).await).await;

    let (own, reader) = (Rights::Heal.user(), Rights::Read.user());
    let authorizer = move |wish: &Attributes| match wish.path.as_str() {
        "/v1/state" => wish.user == reader && wish.verb == "get",
        _ => wish.user != own,
    };
    let api = ApiOptions { authorizer: Some(Arc::new(authorizer)), ..ApiOptions::default() };
    let cluster =
        Cluster::start(ClusterOptions { api, ..ClusterOptions::default() }).await.expect("a cluster");
    let token = |rights: Rights| cluster.api().token_of_account(OWN, rights.account());
    let requests =
        async |rights: Rights| Requests::of(client_of(&cluster.kubeconfig_for(&token(rights))).await);
    let (mut simulated, mut simulated_other) = (requests(Rights::Auth).await, requests(Rights::Heal).await);
    ask(&mut simulated, &mut simulated_other, &token(Rights::Read)).await;
    assert_alike(&reviewer.seen, &simulated.seen);
    assert_alike(&other.seen, &simulated_other.seen);
}
