//! `/v1/events` and `/v1/state`: what the watchdog tells, as it tells it.
//!
//! A reader is never waited for: it takes from the ring what it can, and loses its place if it is too slow.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router, body::Body};
use futures::stream;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::access::StreamLimit;
use super::routes::{accepts, text};
use crate::metrics::Metrics;
use crate::stream::{EventKind, Hub, Item, Reader, Start};

/// Without another event for this long, a heartbeat is sent.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
/// What a browser is asked to wait before it comes back.
const RETRY: &str = "retry: 2000\n\n";
/// What a client that is one too many is asked to wait, in seconds.
const RETRY_AFTER: &str = "10";

/// What the handlers share.
#[derive(Debug, Clone)]
struct Shared {
    hub: Hub,
    metrics: Arc<Metrics>,
    places: Arc<Semaphore>,
    clients: usize,
}

/// The routes, for at most so many streams at one time.
pub fn stream_router(hub: Hub, metrics: Arc<Metrics>, clients: usize) -> Router {
    let places = Arc::new(Semaphore::new(clients));
    Router::new().route("/v1/events", get(events)).route("/v1/state", get(state)).with_state(Shared {
        hub,
        metrics,
        places,
        clients,
    })
}

async fn state(State(shared): State<Shared>) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(shared.hub.state(Timestamp::now()))).into_response()
}

/// The query, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    since: Option<String>,
    follow: Option<String>,
    types: Option<String>,
    format: Option<String>,
}

/// The query, understood.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    start: Start,
    follow: bool,
    /// `None`: all.
    types: Option<Vec<EventKind>>,
    format: Format,
}

/// How events are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Sse,
    Ndjson,
}

async fn events(
    State(shared): State<Shared>,
    limit: Option<Extension<StreamLimit>>,
    headers: HeaderMap,
    query: Result<Query<Asked>, QueryRejection>,
) -> Response {
    let asked = match query {
        Ok(Query(asked)) => asked,
        Err(why) => return text(StatusCode::BAD_REQUEST, format!("{}\n", why.body_text())),
    };
    let wish = match Wish::of(&asked, &headers) {
        Ok(wish) => wish,
        Err(why) => return text(StatusCode::BAD_REQUEST, format!("{why}\n")),
    };
    let Ok(place) = Arc::clone(&shared.places).try_acquire_owned() else {
        shared.metrics.stream_refused();
        let why = format!("{} streams are open, as many as may be; see --stream-clients\n", shared.clients);
        let headers = [(header::RETRY_AFTER, RETRY_AFTER), (header::CONNECTION, "close")];
        return (headers, text(StatusCode::SERVICE_UNAVAILABLE, why)).into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, wish.format.content_type()),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let limit = limit.and_then(|Extension(StreamLimit(limit))| limit);
    let client = Client::new(&shared, place, wish, limit);
    (headers, Body::from_stream(stream::unfold(client, Client::frame))).into_response()
}

impl Wish {
    fn of(asked: &Asked, headers: &HeaderMap) -> Result<Self, String> {
        let follow = match asked.follow.as_deref() {
            None | Some("true") => true,
            Some("false") => false,
            Some(other) => return Err(format!("follow={other:?}: give true or false")),
        };
        let last = headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default());
        let start = match (asked.since.as_deref(), last) {
            // A browser that comes back sends both: the header is where it stands.
            (_, Some(id)) if !id.is_empty() => id.parse().map_or(Start::Unknown, Start::After),
            (Some(since), _) => since_of(since)?,
            (None, _) if follow => Start::Now,
            (None, _) => Start::Oldest,
        };
        let types = asked.types.as_deref().map(kinds).transpose()?;
        Ok(Self { start, follow, types, format: Format::of(asked.format.as_deref(), headers)? })
    }

    fn wants(&self, kind: EventKind) -> bool {
        self.types.as_ref().is_none_or(|types| types.contains(&kind))
    }
}

fn since_of(text: &str) -> Result<Start, String> {
    if let Ok(position) = text.parse() {
        return Ok(Start::After(position));
    }
    let time = text.parse().map(Start::AfterTime);
    time.map_err(|_| {
        format!("since={text:?}: give the id of an event, or an instant such as 2026-06-18T10:00:00Z")
    })
}

fn kinds(list: &str) -> Result<Vec<EventKind>, String> {
    let kind = |word: &str| {
        EventKind::of_word(word.trim())
            .ok_or_else(|| format!("types={word:?}: give some of {}", EventKind::words()))
    };
    list.split(',').map(kind).collect()
}

impl Format {
    fn of(asked: Option<&str>, headers: &HeaderMap) -> Result<Self, String> {
        match asked {
            Some("sse") => Ok(Self::Sse),
            Some("ndjson") => Ok(Self::Ndjson),
            Some(other) => Err(format!("format={other:?}: give sse or ndjson")),
            None if accepts(headers, "application/x-ndjson") => Ok(Self::Ndjson),
            None => Ok(Self::Sse),
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Sse => "text/event-stream",
            Self::Ndjson => "application/x-ndjson",
        }
    }

    /// Before the first event.
    fn opening(self) -> &'static str {
        match self {
            Self::Sse => RETRY,
            Self::Ndjson => "",
        }
    }

    /// After the last one.
    fn closing(self) -> String {
        match self {
            Self::Sse => format!(": the end of this stream\n{RETRY}"),
            Self::Ndjson => String::new(),
        }
    }

    fn frame(self, item: &Item) -> String {
        let mut frame = String::with_capacity(item.json.len() + 64);
        // A String takes all that is written to it. JSON has no line break outside its strings, and none within.
        let _ = match self {
            Self::Sse => write!(frame, "id: {}\ndata: {}\n\n", item.position, item.json),
            Self::Ndjson => writeln!(frame, "{}", item.json),
        };
        frame
    }
}

/// Where a stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Reading,
    Closing,
    Over,
}

/// One reader with its place among the clients.
struct Client {
    reader: Reader,
    wish: Wish,
    stage: Stage,
    heartbeat_at: Instant,
    /// It ends then, and its reader comes back with a token that is looked at anew.
    end_at: Option<Instant>,
    place: Place,
}

/// A place among the clients, counted as long as it is held.
struct Place {
    shared: Shared,
    permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    fn count(&self) {
        let Shared { metrics, places, clients, .. } = &self.shared;
        metrics.set_stream_clients(clients - places.available_permits().min(*clients));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.count();
    }
}

impl Client {
    fn new(shared: &Shared, permit: OwnedSemaphorePermit, wish: Wish, limit: Option<Duration>) -> Self {
        let place = Place { shared: shared.clone(), permit: Some(permit) };
        place.count();
        let reader = shared.hub.read(wish.start, wish.follow);
        let now = Instant::now();
        Self {
            reader,
            wish,
            stage: Stage::Opening,
            heartbeat_at: now + HEARTBEAT,
            end_at: limit.map(|limit| now + limit),
            place,
        }
    }

    /// The next frame; asked for when the one before is on its way.
    async fn frame(mut self) -> Option<(Result<String, Infallible>, Self)> {
        let format = self.wish.format;
        let frame = match self.stage {
            Stage::Opening => {
                self.stage = Stage::Reading;
                format.opening().to_owned()
            }
            Stage::Reading => {
                if let Some(item) = self.item().await {
                    self.heartbeat_at = Instant::now() + HEARTBEAT;
                    if item.last {
                        self.place.shared.metrics.stream_dropped();
                        self.stage = Stage::Closing;
                    }
                    format.frame(&item)
                } else {
                    self.stage = Stage::Over;
                    format.closing()
                }
            }
            Stage::Closing => {
                self.stage = Stage::Over;
                format.closing()
            }
            Stage::Over => return None,
        };
        Some((Ok(frame), self))
    }

    async fn item(&mut self) -> Option<Item> {
        let wish = &self.wish;
        let end = async {
            match self.end_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = end => return None,
            item = self.reader.next(|kind| wish.wants(kind), Timestamp::now) => return item,
            () = tokio::time::sleep_until(self.heartbeat_at) => {}
        }
        self.reader.heartbeat(Timestamp::now())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn wish(query: &str, headers: &[(&'static str, &'static str)]) -> Result<Wish, String> {
        let uri = format!("/v1/events?{query}").parse().unwrap();
        let Query(asked) = Query::<Asked>::try_from_uri(&uri).map_err(|why| why.body_text())?;
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        Wish::of(&asked, &headers.collect())
    }

    #[rstest]
    #[case::live("", &[], Start::Now)]
    #[case::all_that_is_kept("follow=false", &[], Start::Oldest)]
    #[case::after_an_event("since=1f.7", &[], Start::After("1f.7".parse().unwrap()))]
    #[case::after_an_instant("since=2026-06-18T10:00:00Z", &[], Start::AfterTime("2026-06-18T10:00:00Z".parse().unwrap()))]
    #[case::a_browser_that_comes_back("since=1f.7", &[("last-event-id", "1f.9")], Start::After("1f.9".parse().unwrap()))]
    #[case::an_id_of_something_else("", &[("last-event-id", "17")], Start::Unknown)]
    #[case::an_empty_id("", &[("last-event-id", "")], Start::Now)]
    fn where_it_starts(
        #[case] query: &str,
        #[case] headers: &[(&'static str, &'static str)],
        #[case] start: Start,
    ) {
        assert_eq!(wish(query, headers).unwrap().start, start);
    }

    #[rstest]
    #[case("", &[], Format::Sse)]
    #[case("", &[("accept", "*/*")], Format::Sse)]
    #[case("", &[("accept", "text/plain, application/x-ndjson;q=0.9")], Format::Ndjson)]
    #[case("format=sse", &[("accept", "application/x-ndjson")], Format::Sse)]
    #[case("format=ndjson", &[], Format::Ndjson)]
    fn its_form(
        #[case] query: &str,
        #[case] headers: &[(&'static str, &'static str)],
        #[case] format: Format,
    ) {
        assert_eq!(wish(query, headers).unwrap().format, format);
    }

    #[rstest]
    #[case(
        "since=yesterday",
        "since=\"yesterday\": give the id of an event, or an instant such as 2026-06-18T10:00:00Z"
    )]
    #[case("follow=no", "follow=\"no\": give true or false")]
    #[case("types=judged,jugded", "types=\"jugded\": give some of started, stopping, judged, ")]
    #[case("types=", "types=\"\": give some of ")]
    #[case("format=xml", "format=\"xml\": give sse or ndjson")]
    #[case("begin=1.2", "unknown field `begin`, expected one of `since`, `follow`, `types`, `format`")]
    fn what_is_wrong_is_named(#[case] query: &str, #[case] why: &str) {
        let said = wish(query, &[]).unwrap_err();
        assert!(said.contains(why), "{said}");
    }

    #[test]
    fn kinds_by_word_or_type() {
        let wish = wish("types=judged,cilium-leak-healer.acted.v1", &[]).unwrap();
        assert!(
            wish.wants(EventKind::Judged) && wish.wants(EventKind::Acted) && !wish.wants(EventKind::Over)
        );
    }
}
