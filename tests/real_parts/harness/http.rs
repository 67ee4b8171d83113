//! One HTTP/1.1 exchange over a unix socket, and nothing hidden of the answer.

use std::{io, path::Path};

use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, body::Bytes, client::conn::http1, header::CONTENT_TYPE};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: Option<String>,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }
}

pub async fn over_unix(
    socket: &Path,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> io::Result<Answer> {
    let stream = TokioIo::new(UnixStream::connect(socket).await?);
    let (mut sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = request.body(Full::new(Bytes::from(body))).map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    Ok(Answer {
        status: head.status.as_u16(),
        content_type: head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned),
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}
