//! Who may read the pages that name pods: the real API server's word on real tokens.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use cilium_leak_healer::kube::{Bearer, PodStore, Reader, TokenReviews};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::harness::{Daemon, Mode, Node, Rights, apply, client_of, eventually, own_address, say};

const PAGE: &str = "/v1/log-level";

/// A token of that account, for an audience or for the API server itself.
pub async fn token_of(node: &Node, rights: Rights, audience: Option<&str>) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(node.client.clone(), "cilium-leak-healer");
    let audiences: Vec<&str> = audience.into_iter().collect();
    let spec = json!({"spec": {"audiences": audiences, "expirationSeconds": 3600}});
    let request: TokenRequest = serde_json::from_value(spec).expect("a token request");
    let answer = accounts.create_token_request(rights.account(), &PostParams::default(), &request).await;
    answer.expect("a token").status.expect("a status").token.expect("its text")
}

/// Binds a role to that account.
pub async fn bind(node: &Node, role: &str, rights: Rights) {
    let name = format!("{role}-of-{}", rights.account());
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": rights.account(), "namespace": "cilium-leak-healer"}],
    });
    apply(&node.client, &binding).await;
}

async fn reviews(node: &Node, watchdog: Rights) -> TokenReviews {
    let client = client_of(&node.kubeconfig_without_pod(watchdog).await).await;
    let timeout = Duration::from_secs(10);
    TokenReviews::new(Arc::new(Reader::new(client, timeout, PodStore::default())), timeout)
}

#[tokio::test]
async fn a_token_reads_what_the_role_for_people_gives() {
    let node = Node::new().await;
    bind(&node, "cilium-leak-healer-view", Rights::Read).await;
    let (reader, nobody) =
        (token_of(&node, Rights::Read, None).await, token_of(&node, Rights::Nothing, None).await);
    // The server learns of a binding some time after it is written; a new asker remembers no refusal.
    eventually("the binding to be known", async || {
        let bearer = reviews(&node, Rights::Auth).await.review(&reader, "get", "/v1/state").await;
        (bearer == Bearer::Allowed).then_some(())
    })
    .await;
    let asker = reviews(&node, Rights::Auth).await;
    assert_eq!(asker.review(&reader, "get", "/v1/events").await, Bearer::Allowed);
    let forbidden = |rights: Rights| Bearer::Forbidden { user: rights.user() };
    for (verb, path) in [("put", "/v1/state"), ("get", PAGE), ("get", "/v1/state/x"), ("get", "/v1/")] {
        assert_eq!(asker.review(&reader, verb, path).await, forbidden(Rights::Read), "{verb} {path}");
    }
    assert_eq!(asker.review(&nobody, "get", "/v1/state").await, forbidden(Rights::Nothing));
    // What everybody may see needs no role.
    assert_eq!(asker.review(&nobody, "get", "/version").await, Bearer::Allowed);
    let elsewhere = token_of(&node, Rights::Read, Some("elsewhere")).await;
    let (signed, signature) = reader.rsplit_once('.').expect("a signature");
    // Not its last character: that has bits which mean nothing.
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{signed}.{first}{}", &signature[1..]);
    for (what, token) in
        [("garbage", "garbage"), ("no JWT", "a.b.c"), ("elsewhere", &elsewhere), ("forged", &forged)]
    {
        assert_eq!(asker.review(token, "get", "/v1/state").await, Bearer::Unauthenticated, "{what}");
    }
}

#[tokio::test]
async fn a_watchdog_without_the_right_to_ask_knows_nothing() {
    let node = Node::new().await;
    let reader = token_of(&node, Rights::Read, None).await;
    let asker = reviews(&node, Rights::Observe).await;
    let Bearer::Unknown(why) = asker.review(&reader, "get", "/v1/state").await else { panic!("it knows") };
    assert!(why.contains("tokenreviews") && why.contains("cannot create"), "{why}");
    assert!(!why.contains(&reader), "{why}");
}

/// The binary asks for tokens on the machine's own address; `None`, said aloud, where it has none but loopback's.
pub async fn tokens_are_reviewed(node: &Node) -> Option<Daemon> {
    let Some(own) = own_address() else {
        say("SKIPPED: no address but loopback's, so nobody asks for a token");
        return None;
    };
    bind(node, "cilium-leak-healer-view", Rights::Read).await;
    let listen = SocketAddr::new(own, 0).to_string();
    let daemon = node.daemon(Mode::Observe, Rights::Auth, &["--listen", &listen, "--auth", "token"]).await;
    daemon.ready().await;
    let to = daemon.second_address().await;
    let ask = async |method: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        let page = if method == "PUT" { PAGE } else { "/v1/state" };
        daemon.ask(to, method, page, &[("Authorization", &bearer)], "debug").await
    };
    let reader = token_of(node, Rights::Read, None).await;
    eventually("a page for a token", async || (ask("GET", &reader).await.status == 200).then_some(())).await;
    assert_eq!(ask("PUT", &reader).await.status, 403);
    let nobody = ask("GET", &token_of(node, Rights::Nothing, None).await).await;
    assert_eq!(nobody.status, 403);
    assert!(nobody.body.contains(&Rights::Nothing.user()), "{nobody:?}");
    assert_eq!(ask("GET", "garbage").await.status, 401);
    let told = |line: &Value| line.to_string().contains(&reader);
    assert_eq!(daemon.matching(told), Vec::<Value>::new(), "a token in the log");
    Some(daemon)
}

#[tokio::test]
async fn the_binary_reads_tokens() {
    let node = Node::new().await;
    if let Some(daemon) = tokens_are_reviewed(&node).await {
        daemon.stop().await;
    }
}

#[tokio::test]
async fn the_binary_without_the_right_to_ask_is_closed() {
    let Some(own) = own_address() else { return say("SKIPPED: no address but loopback's") };
    let node = Node::new().await;
    let listen = SocketAddr::new(own, 0).to_string();
    let daemon = node.daemon(Mode::Observe, Rights::Observe, &["--listen", &listen, "--auth", "token"]).await;
    daemon.ready().await;
    let bearer = format!("Bearer {}", token_of(&node, Rights::Read, None).await);
    let to = daemon.second_address().await;
    let answer = daemon.ask(to, "GET", PAGE, &[("Authorization", &bearer)], "").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    let told = |line: &Value| line["message"].as_str().is_some_and(|it| it.contains("rbac/auth.yaml"));
    daemon.line("what is missing", told).await;
    daemon.stop_without_rights().await;
}
