//! The routes of the server: probes as the Kubernetes API server answers them, metrics, an index, and the status page.
//!
//! Handlers only read what is shared with them and never wait.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::health::{Health, Report};
use super::page;
use crate::metrics::{CONTENT_TYPE, Metrics, TEXT_CONTENT_TYPE};

const TEXT: &str = "text/plain; charset=utf-8";
const INDEX: &str = "\
cilium-leak-healer

/           this; for a browser, the status page
/v1/state   what is wedged, held back and done, as JSON
/v1/events  the same as it happens, as server-sent events; ?format=ndjson
/livez      whether the process works; ?verbose lists the checks
/readyz     whether it has all it needs; ?verbose lists the checks
/healthz    the same as /livez
/metrics    metrics, as Prometheus text, or as OpenMetrics where asked for
";

/// The routes. `GET` has `HEAD` with it; another method is answered with 405, another path with 404.
pub fn router(health: Health, metrics: Arc<Metrics>) -> Router {
    let probes = Router::new()
        .route(
            "/livez",
            get(|State(health): State<Health>, RawQuery(query)| async move {
                probe("livez", &health.liveness(), query.as_deref())
            }),
        )
        .route(
            "/healthz",
            get(|State(health): State<Health>, RawQuery(query)| async move {
                probe("healthz", &health.liveness(), query.as_deref())
            }),
        )
        .route(
            "/readyz",
            get(|State(health): State<Health>, RawQuery(query)| async move {
                probe("readyz", &health.readiness(), query.as_deref())
            }),
        )
        .with_state(health.clone());
    let metrics = Router::new().route("/metrics", get(scrape)).with_state((health, metrics));
    Router::new()
        .route("/", get(index))
        .merge(probes)
        .merge(metrics)
        .fallback(|| async { text(StatusCode::NOT_FOUND, "not found\n") })
        .method_not_allowed_fallback(|| async {
            text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n")
        })
}

/// The status page for a browser, the list of the pages for other clients.
async fn index(headers: HeaderMap) -> Response {
    if page::is_asked_for(&headers) {
        return page::page();
    }
    ([(header::VARY, "accept")], text(StatusCode::OK, INDEX)).into_response()
}

/// `ok` for the short form, the listing for `?verbose`, for what is degraded, and for every failure (500, as the API
/// server does).
fn probe(name: &str, report: &Report, query: Option<&str>) -> Response {
    let verbose = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .any(|pair| pair.split('=').next() == Some("verbose"));
    match (report.passed, verbose) {
        (true, _) if report.degraded => {
            text(StatusCode::OK, format!("{}{name} check passed, degraded\n", report.listing))
        }
        (true, false) => text(StatusCode::OK, "ok"),
        (true, true) => text(StatusCode::OK, format!("{}{name} check passed\n", report.listing)),
        (false, _) => {
            text(StatusCode::INTERNAL_SERVER_ERROR, format!("{}{name} check failed\n", report.listing))
        }
    }
}

async fn scrape(State((health, metrics)): State<(Health, Arc<Metrics>)>, headers: HeaderMap) -> Response {
    for (check, ok) in health.checks() {
        metrics.set_check(check, ok);
    }
    let (content_type, body) = if accepts(&headers, "application/openmetrics-text") {
        (CONTENT_TYPE, metrics.encode())
    } else {
        (TEXT_CONTENT_TYPE, metrics.encode_text())
    };
    match body {
        Ok(body) => ([(header::CONTENT_TYPE, content_type)], body).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("no metrics: {error}\n")),
    }
}

/// Whether the client names that media type among those it takes. A wildcard names none, so it gets the form that every client
/// reads.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(media_type));
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        named && weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
    })
}

/// An answer in words.
pub(super) fn text(status: StatusCode, body: impl Into<String>) -> Response {
    // Nothing here is a page: no browser should guess otherwise.
    const HEADERS: [(HeaderName, &str); 2] =
        [(header::CONTENT_TYPE, TEXT), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, HEADERS, body.into()).into_response()
}
