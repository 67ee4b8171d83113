//! An API server of a few lines: each test says what it answers, and reads what it was asked.

#![allow(clippy::unnecessary_wraps, reason = "an answer of the fake API server may be none")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::kube::{PodStore, Reader};

/// The time-out of the readers.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// A request as it came.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub method: String,
    pub path: String,
    pub query: String,
    pub body: Value,
}

impl Asked {
    /// Method and path.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// Status and body; `None`: it never answers.
pub(super) type Answer = Option<(u16, Value)>;

/// What was asked, in order.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<Asked>>>);

impl Log {
    pub(super) fn all(&self) -> Vec<Asked> {
        self.0.lock().unwrap().clone()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.all().iter().map(Asked::line).collect()
    }
}

/// A client of it.
pub(super) fn client(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> (Client, Log) {
    let log = Log::default();
    let (answer, asked) = (Arc::new(answer), log.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answer, asked) = (Arc::clone(&answer), asked.clone());
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let call = Asked {
                method: parts.method.to_string(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            };
            asked.0.lock().unwrap().push(call.clone());
            let Some((status, body)) = answer(&call) else { return std::future::pending().await };
            let body = Full::new(Bytes::from(body.to_string()));
            Ok::<_, std::convert::Infallible>(Response::builder().status(status).body(body).unwrap())
        }
    });
    (Client::new(service, "default"), log)
}

/// A reader of it.
pub(super) fn reader(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> (Reader, Log) {
    let (client, log) = client(answer);
    (Reader::new(client, TIMEOUT, PodStore::default()), log)
}

/// A failure, as the API server words it.
pub(super) fn status(code: u16, reason: &str, message: &str) -> Answer {
    let name = message.split('"').nth(1).unwrap_or_default();
    Some((
        code,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
               "reason": reason, "message": message, "details": {"name": name}}),
    ))
}
