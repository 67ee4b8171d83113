//! Requests to an API server, past kube's types, and what is kept of the answers.

use http_body_util::BodyExt;
use hyper::{Method, Request, header::CONTENT_TYPE};
use kube::Client;
use serde_json::{Value, json};

use super::{Seen, masked};
use crate::harness::Answer;

pub struct Requests {
    client: Client,
    pub seen: Vec<Seen>,
}

impl Requests {
    pub fn of(client: Client) -> Self {
        Self { client, seen: Vec::new() }
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.send(method, path, "application/json", body).await
    }

    pub async fn patch(&self, path: &str, content_type: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, content_type, Some(body)).await
    }

    /// The whole text of a failure, the mere status of a success.
    pub async fn text(&mut self, path: &str) {
        let answer = self.call(Method::GET, path, None).await;
        let seen = if answer.status == 200 { Seen::status(path, &answer) } else { Seen::text(path, &answer) };
        self.seen.push(seen);
    }

    pub async fn list(&mut self, path: &str) -> Value {
        self.list_as(&masked(path), path).await
    }

    /// The names of the items and the list's own fields.
    pub async fn list_as(&mut self, step: &str, path: &str) -> Value {
        let answer = self.call(Method::GET, path, None).await;
        let list = answer.json();
        let mut seen =
            Seen::part(step, &answer, &["/kind", "/apiVersion", "/message", "/metadata/remainingItemCount"]);
        for item in list["items"].as_array().into_iter().flatten() {
            seen.body.insert(json!([item["metadata"]["name"], item["kind"], item["apiVersion"]]).to_string());
        }
        let own = &list["metadata"];
        let continues = own["continue"].as_str().is_some_and(|token| !token.is_empty());
        seen.body
            .insert(format!("continues: {continues}, has a version: {}", own["resourceVersion"].is_string()));
        self.seen.push(seen);
        list
    }

    /// A second of a watch on pods.
    pub async fn watch(&mut self, step: &str, query: &str) {
        let path = format!("/api/v1/namespaces/parity/pods?watch=true&timeoutSeconds=1&{query}");
        let answer = self.call(Method::GET, &path, None).await;
        let step = format!("watch {step}");
        if answer.status != 200 {
            return self.seen.push(Seen::text(step, &answer));
        }
        let mut seen = Seen::status(step, &answer);
        // The first events of a watch without a version come in no order.
        seen.body.extend(answer.body.lines().map(event_of_watch));
        self.seen.push(seen);
    }

    async fn send(&self, method: Method, path: &str, content_type: &str, body: Option<Value>) -> Answer {
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content_type);
        let body = body.map(|body| body.to_string()).unwrap_or_default().into_bytes();
        let request = request.body(body.into()).expect("a request");
        let response = self.client.send(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        Answer {
            status: head.status.as_u16(),
            content_type: head
                .headers
                .get(CONTENT_TYPE)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }
}

/// Type, kind and name; of an error what it says, but for the versions.
fn event_of_watch(line: &str) -> String {
    let event: Value = serde_json::from_str(line).expect("an event of a watch");
    let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
    if kind == "ERROR" {
        let message = object["message"].as_str().and_then(|message| message.split(" (").next());
        return json!([object["code"], object["reason"], message]).to_string();
    }
    format!("{kind} {} {}", object["kind"], object["metadata"]["name"])
}
