//! What is logged, at run time: `GET` and `PUT /v1/log-level`.
//!
//! A change goes back to the filter of the start by itself, so that nobody's debug lines fill a disk for weeks. It must not know
//! how the log is made.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use jiff::SignedDuration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::routes::text;
use super::server::Ends;

const PATH: &str = "/v1/log-level";
/// How long a filter stays that comes without `for`.
const STAYS: Duration = Duration::from_mins(30);
const AT_MOST: Duration = Duration::from_hours(24);
/// Bytes of a filter.
const LONGEST: usize = 1024;
/// The time that a client may take for the body.
const BODY: Duration = Duration::from_secs(5);

/// The filter of the log.
pub trait LogFilter: Send + Sync + 'static {
    /// Whether it is a filter; the error is the sentence for whoever wrote it.
    fn check(&self, filter: &str) -> Result<(), String>;
    /// Puts it in force.
    fn set(&self, filter: &str) -> Result<(), String>;
}

/// The route; `usual` is the filter of the start, which is in force.
pub fn log_level(filter: impl LogFilter, usual: &str) -> Router {
    let level = Level { usual: usual.to_owned(), filter: Box::new(filter), now: Mutex::default() };
    Router::new().route(PATH, get(show).put(change)).with_state(Arc::new(level))
}

struct Level {
    usual: String,
    filter: Box<dyn LogFilter>,
    now: Mutex<Now>,
}

/// What is in force, and until when, if it is not the usual one.
#[derive(Default)]
struct Now {
    other: Option<(String, Instant)>,
    /// Waits to set it back.
    waits: Option<AbortHandle>,
}

impl Level {
    fn shown(&self) -> String {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        match &now.other {
            None => format!("{}\n", self.usual),
            Some((filter, until)) => {
                let left = until.saturating_duration_since(Instant::now()).as_secs();
                format!("{filter}\nback to {} in {left} s\n", self.usual)
            }
        }
    }

    fn set(self: &Arc<Self>, filter: &str, stays: Duration, ends: Option<Ends>) -> Result<(), String> {
        self.filter.check(filter)?;
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let old = now.other.as_ref().map_or(self.usual.as_str(), |(old, _)| old);
        let from = ends.map(|ends| ends.remote.to_string());
        // Before it is in force: it may be `off`.
        tracing::warn!(old, new = filter, from, "the log level is changed by a request");
        self.filter.set(filter)?;
        if let Some(waits) = now.waits.take() {
            waits.abort();
        }
        now.other = None;
        if filter != self.usual {
            let until = Instant::now() + stays;
            now.other = Some((filter.to_owned(), until));
            let level = Arc::clone(self);
            let waits = tokio::spawn(async move {
                sleep_until(until).await;
                level.set_back();
            });
            now.waits = Some(waits.abort_handle());
        }
        Ok(())
    }

    /// Goes back to the usual filter, if it is time.
    fn set_back(&self) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((old, _)) = now.other.take_if(|(_, until)| *until <= Instant::now()) else { return };
        match self.filter.set(&self.usual) {
            Ok(()) => tracing::warn!(old, new = self.usual, "the log level is set back"),
            Err(error) => tracing::error!(old, new = self.usual, error, "the log level cannot be set back"),
        }
    }
}

async fn show(State(level): State<Arc<Level>>) -> Response {
    text(StatusCode::OK, level.shown())
}

async fn change(
    State(level): State<Arc<Level>>,
    RawQuery(query): RawQuery,
    ends: Option<Extension<Ends>>,
    body: Body,
) -> Response {
    let stays = match stays(query.as_deref().unwrap_or_default()) {
        Ok(stays) => stays,
        Err(why) => return text(StatusCode::BAD_REQUEST, why + "\n"),
    };
    let body = match timeout(BODY, to_bytes(body, LONGEST)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return text(StatusCode::PAYLOAD_TOO_LARGE, format!("a filter has at most {LONGEST} bytes\n"));
        }
        Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "the filter did not come in time\n"),
    };
    match level.set(String::from_utf8_lossy(&body).trim(), stays, ends.map(|Extension(ends)| ends)) {
        Ok(()) => text(StatusCode::OK, level.shown()),
        Err(why) => text(StatusCode::BAD_REQUEST, why + "\n"),
    }
}

/// How long the filter stays, by the query: `for=10m`.
fn stays(query: &str) -> Result<Duration, String> {
    let mut stays = STAYS;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        // A typing error must not leave debug lines on for longer than was meant.
        let value =
            pair.strip_prefix("for=").ok_or_else(|| format!("{pair:?} is not known here: give for=10m"))?;
        let parsed = value.parse::<SignedDuration>().ok().and_then(|it| Duration::try_from(it).ok());
        stays = parsed.filter(|it| !it.is_zero() && *it <= AT_MOST).ok_or_else(|| {
            format!("for={value} is no duration from 1s to 24h: give a number with its unit, such as 10m")
        })?;
    }
    Ok(stays)
}

#[cfg(test)]
mod tests;
