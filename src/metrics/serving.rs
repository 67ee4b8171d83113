//! What is served and to whom: the checks of health, clients of the stream, who was let in.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::register::create;
use super::{Counters, Metrics, One};

/// The checks of health, by the words of `/readyz`.
pub const CHECKS: [&str; 4] = ["pod-watch", "agent", "ledger", "fence"];

/// The types of events that the stream has.
pub const STREAM_TYPES: [&str; 8] =
    ["started", "stopping", "judged", "held-back", "acting", "acted", "over", "check"];

/// Why a client of the stream is refused.
const REFUSED: [&str; 1] = ["limit"];
/// Why a client of the stream is dropped.
const DROPPED: [&str; 1] = ["slow"];

/// What became of a request that had to say who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthOutcome {
    /// Let in.
    Allowed,
    /// No token, or one that the API server does not take.
    Unauthenticated,
    /// A known user without the right.
    Forbidden,
    /// The API server did not say.
    Error,
}

impl AuthOutcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Allowed, Self::Unauthenticated, Self::Forbidden, Self::Error];

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::Error => "error",
        }
    }
}

/// These metrics.
#[derive(Debug, Default)]
pub(super) struct Serving {
    checks: Family<One, Gauge>,
    clients: Gauge,
    refused: Counters<One>,
    dropped: Counters<One>,
    events: Counters<One>,
    auth: Counters<One>,
    ledger_errors: Counter,
}

impl Serving {
    pub(super) fn start_at_zero(&self) {
        for check in CHECKS {
            create(&self.checks, &[("check", check)]);
        }
        for reason in REFUSED {
            create(&self.refused, &[("reason", reason)]);
        }
        for reason in DROPPED {
            create(&self.dropped, &[("reason", reason)]);
        }
        for kind in STREAM_TYPES {
            create(&self.events, &[("type", kind)]);
        }
        for outcome in AuthOutcome::ALL {
            create(&self.auth, &[("outcome", outcome.as_str())]);
        }
    }

    pub(super) fn register(&self, r: &mut Registry) {
        r.register(
            "check_ok",
            "1 for a check of readiness that is well, 0 for one that is not or only degrades",
            self.checks.clone(),
        );
        r.register("stream_clients", "Clients that the stream of events has now", self.clients.clone());
        r.register(
            "stream_clients_refused",
            "Clients that the stream of events did not take, by reason",
            self.refused.clone(),
        );
        r.register(
            "stream_clients_dropped",
            "Clients that the stream of events cut off, by reason",
            self.dropped.clone(),
        );
        r.register(
            "stream_events",
            "Events that were put on the stream, by type; each counts once, whoever listens",
            self.events.clone(),
        );
        r.register(
            "auth_decisions",
            "Requests that had to say who they are, by what became of them",
            self.auth.clone(),
        );
        r.register(
            "ledger_write_errors",
            "Writes of the ledger that failed, each try once",
            self.ledger_errors.clone(),
        );
    }
}

impl Metrics {
    /// Says whether a check of health is well; `check` is one of [`CHECKS`].
    pub fn set_check(&self, check: &'static str, ok: bool) {
        self.serving.checks.get_or_create(&[("check", check)]).set(i64::from(ok));
    }

    /// Sets the number of clients of the stream.
    pub fn set_stream_clients(&self, n: usize) {
        self.serving.clients.set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// Counts a client that was not taken, since there are as many as may be.
    pub fn stream_refused(&self) {
        self.serving.refused.get_or_create(&[("reason", REFUSED[0])]).inc();
    }

    /// Counts a client that was cut off, since it did not keep up.
    pub fn stream_dropped(&self) {
        self.serving.dropped.get_or_create(&[("reason", DROPPED[0])]).inc();
    }

    /// Counts an event of the stream; `kind` is one of [`STREAM_TYPES`].
    pub fn streamed(&self, kind: &'static str) {
        self.serving.events.get_or_create(&[("type", kind)]).inc();
    }

    /// Counts a request that had to say who it is.
    pub fn auth(&self, outcome: AuthOutcome) {
        self.serving.auth.get_or_create(&[("outcome", outcome.as_str())]).inc();
    }

    /// Counts a write of the ledger that failed.
    pub fn ledger_write_failed(&self) {
        self.serving.ledger_errors.inc();
    }
}
