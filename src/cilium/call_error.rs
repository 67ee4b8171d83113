//! Why a call of the agent gave no answer, all causes told apart: which one it was decides how long to back off.
//!
//! It must not know what was called, nor what follows from the failure.

use std::path::PathBuf;
use std::time::Duration;

use crate::domain::{ReadFailure, Unreadable};
use crate::text::plain;

/// Messages of the agent are cut at this many characters.
const MESSAGE_LIMIT: usize = 512;

/// A call that gave no answer. An *empty* 404 is none of these: it is the registry's answer "nobody".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No file at the socket's path: the agent is down, or in the first seconds of its start.
    #[error("no socket at {}", .0.display())]
    NoSocket(PathBuf),
    /// The socket is there and nobody listens: the agent was killed.
    #[error("connection refused by {}", .0.display())]
    ConnectionRefused(PathBuf),
    /// Any other failure of the connection, before or within the answer.
    #[error("connection failed: {0}")]
    Connection(String),
    /// No whole answer within this time.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// 400, such as `unknown endpoint ID prefix` or `endpoint may not be associated reserved labels`.
    #[error("400 {0}")]
    BadRequest(String),
    /// 403: this call is switched off in the agent.
    #[error("403 {0}")]
    Forbidden(String),
    /// 404 with a body: the router's (no such path), not the registry's; or an empty one where a thing must be.
    #[error("404 {body}")]
    NotFound {
        /// The decoded body.
        body: String,
    },
    /// 429: the API's rate limit, shared with the CNI plugin.
    #[error("429 {0}")]
    TooManyRequests(String),
    /// 422: the request failed the agent's validation.
    #[error("422 {0}")]
    Unprocessable(String),
    /// Another status that is no answer.
    #[error("{status} {message}")]
    OtherStatus {
        /// HTTP status.
        status: u16,
        /// The decoded body.
        message: String,
    },
    /// 5xx, such as 503 `api not ready` during the agent's start.
    #[error("{status} {message}")]
    ServerError {
        /// HTTP status.
        status: u16,
        /// The decoded body.
        message: String,
    },
    /// The answer is longer than this many bytes.
    #[error("the answer is longer than {0} bytes")]
    BodyTooLarge(usize),
    /// The answer is not what the API says it is.
    #[error("unreadable answer: {0}")]
    Undecodable(String),
}

impl CallError {
    /// From a status that is no answer, with its body.
    pub(super) fn of_status(status: u16, body: &[u8]) -> Self {
        let message = decode_message(body);
        match status {
            400 => Self::BadRequest(message),
            403 => Self::Forbidden(message),
            404 => Self::NotFound { body: message },
            422 => Self::Unprocessable(message),
            429 => Self::TooManyRequests(message),
            500..=599 => Self::ServerError { status, message },
            _ => Self::OtherStatus { status, message },
        }
    }

    /// As the domain's unknown; `what` is the request in words a person knows.
    pub fn to_unreadable(&self, what: &str) -> Unreadable {
        let status = |status: u16, message: &String| ReadFailure::Status { status, message: message.clone() };
        let why = match self {
            Self::NoSocket(_) | Self::ConnectionRefused(_) => ReadFailure::Connection(self.to_string()),
            Self::Connection(why) => ReadFailure::Connection(why.clone()),
            Self::Timeout(_) => ReadFailure::Timeout,
            Self::BadRequest(message) => status(400, message),
            Self::Forbidden(message) => status(403, message),
            Self::NotFound { body } => status(404, body),
            Self::TooManyRequests(message) => status(429, message),
            Self::Unprocessable(message) => status(422, message),
            Self::OtherStatus { status: code, message } | Self::ServerError { status: code, message } => {
                status(*code, message)
            }
            Self::BodyTooLarge(_) => ReadFailure::Undecodable(self.to_string()),
            Self::Undecodable(why) => ReadFailure::Undecodable(why.clone()),
        };
        Unreadable { what: what.to_owned(), why }
    }

    /// The metrics' word for it, one of `metrics::AGENT_OUTCOMES`.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::NoSocket(_) => "no-socket",
            Self::ConnectionRefused(_) => "refused",
            Self::Connection(_) => "connection",
            Self::Timeout(_) => "timeout",
            Self::BadRequest(_) => "bad-request",
            Self::Forbidden(_) => "forbidden",
            Self::NotFound { .. } => "no-such-path",
            Self::TooManyRequests(_) => "too-many-requests",
            Self::Unprocessable(_) => "unprocessable",
            Self::OtherStatus { .. } => "other-status",
            Self::ServerError { .. } => "server-error",
            Self::BodyTooLarge(_) => "too-large",
            Self::Undecodable(_) => "undecodable",
        }
    }
}

/// One message of any body that the agent sends with an error: a JSON string, a number, `{"code","message"}`, plain text.
pub(super) fn decode_message(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(serde_json::Value::Object(map))
            if map.get("message").is_some_and(serde_json::Value::is_string) =>
        {
            map.get("message").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
        }
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    // Control characters would break the lines of a log.
    plain(&text, MESSAGE_LIMIT)
}
