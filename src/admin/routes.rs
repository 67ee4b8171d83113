//! The routes of the server: probes as the Kubernetes API server answers them, metrics, and an index.
//!
//! Handlers only read what is shared with them and never wait.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::health::{Health, Report};
use crate::metrics::{CONTENT_TYPE, Metrics};

const TEXT: &str = "text/plain; charset=utf-8";
const INDEX: &str = "\
cilium-leak-healer

/livez    whether the process works; ?verbose lists the checks
/readyz   whether it has all it needs; ?verbose lists the checks
/healthz  the same as /livez
/metrics  metrics, as OpenMetrics text
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
        .with_state(health);
    let metrics = Router::new().route("/metrics", get(scrape)).with_state(metrics);
    Router::new()
        .route("/", get(|| async { text(StatusCode::OK, INDEX) }))
        .merge(probes)
        .merge(metrics)
        .fallback(|| async { text(StatusCode::NOT_FOUND, "not found\n") })
        .method_not_allowed_fallback(|| async {
            text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n")
        })
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

async fn scrape(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.encode() {
        Ok(body) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("no metrics: {error}\n")),
    }
}

fn text(status: StatusCode, body: impl Into<String>) -> Response {
    // Nothing here is a page: no browser should guess otherwise.
    const HEADERS: [(HeaderName, &str); 2] =
        [(header::CONTENT_TYPE, TEXT), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (status, HEADERS, body.into()).into_response()
}
