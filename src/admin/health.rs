//! What the process knows of its own health: whether its loop still turns, and whether each part has come up.
//!
//! Liveness depends on the loop alone: no outage of the agent or the API server is mended by a restart of this process.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::stream::CheckState;
use crate::text::one_line;

/// A part of the process that readiness asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The watch on this node's pods has delivered its first list and goes on.
    PodWatch,
    /// The agent answers.
    Agent,
    /// What is done and refused can be put on record. Without it nothing is done.
    Ledger,
    /// The admission fence is at work, and the rights are those that they should be. Without it nothing is done.
    Fence,
}

impl Check {
    /// All of them, in the order of the listing.
    pub const ALL: [Self; 4] = [Self::PodWatch, Self::Agent, Self::Ledger, Self::Fence];

    /// The word for it in the listing.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PodWatch => "pod-watch",
            Self::Agent => "agent",
            Self::Ledger => "ledger",
            Self::Fence => "fence",
        }
    }

    /// How it stands with this outcome.
    pub fn state(self, outcome: &Result<(), String>) -> CheckState {
        match outcome {
            Ok(()) => CheckState::Ok,
            Err(_) if self.only_degrades() => CheckState::Degraded,
            Err(_) => CheckState::Failed,
        }
    }

    /// Whether the watchdog can watch and tell without it: then it is degraded, and ready all the same.
    fn only_degrades(self) -> bool {
        match self {
            Self::PodWatch | Self::Agent => false,
            Self::Ledger | Self::Fence => true,
        }
    }
}

/// The health of the process; clones share it.
#[derive(Debug, Clone)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    stale_after: Duration,
    /// Milliseconds from `start` to the last turn of the loop.
    last_beat: AtomicU64,
    checks: Mutex<[Result<(), String>; Check::ALL.len()]>,
    shutting_down: AtomicBool,
    listener: OnceLock<Listener>,
}

/// Hears of each check that comes out otherwise than before.
struct Listener(Box<Hearing>);

type Hearing = dyn Fn(Check, &Outcome) + Send + Sync;

/// How a check came out; the error is the reason that people read.
type Outcome = Result<(), String>;

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

/// The lines of a probe's listing, and whether all of them are well.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) listing: String,
    pub(super) passed: bool,
    /// It works, but not as it was asked to.
    pub(super) degraded: bool,
}

impl Health {
    /// Every check fails until it is set. The loop counts as turned now, and as stuck `stale_after` its last turn.
    pub fn new(stale_after: Duration) -> Self {
        Self(Arc::new(Inner {
            start: Instant::now(),
            stale_after,
            last_beat: AtomicU64::new(0),
            checks: Mutex::new(std::array::from_fn(|_| Err("not yet".to_owned()))),
            shutting_down: AtomicBool::new(false),
            listener: OnceLock::new(),
        }))
    }

    /// Tells each change of a check from now on, and how all of them stand now. The first listener stays.
    pub fn listen(&self, listener: impl Fn(Check, &Result<(), String>) + Send + Sync + 'static) {
        let listener = self.0.listener.get_or_init(|| Listener(Box::new(listener)));
        let states = self.0.checks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (check, state) in Check::ALL.into_iter().zip(&states) {
            (listener.0)(check, state);
        }
    }

    /// Says that the loop has turned.
    pub fn beat(&self) {
        let millis = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_beat.fetch_max(millis, Ordering::Relaxed);
    }

    /// Sets a check; the error is the reason that people read. Whether that is a change.
    pub fn set(&self, check: Check, state: Result<(), String>) -> bool {
        let told = state.clone();
        {
            let mut states = self.0.checks.lock().unwrap_or_else(PoisonError::into_inner);
            if states[check as usize] == state {
                return false;
            }
            states[check as usize] = state;
        }
        if let Some(listener) = self.0.listener.get() {
            (listener.0)(check, &told);
        }
        true
    }

    /// Not ready from now on: the process is about to end.
    pub fn shutting_down(&self) {
        self.0.shutting_down.store(true, Ordering::Relaxed);
    }

    /// Whether the loop still turns.
    pub fn is_live(&self) -> bool {
        self.since_beat() <= self.0.stale_after
    }

    /// Whether every check passes and no shutdown has begun.
    pub fn is_ready(&self) -> bool {
        self.readiness().passed
    }

    /// Each check by its word, and whether it is well.
    pub(super) fn checks(&self) -> [(&'static str, bool); Check::ALL.len()] {
        let states = self.0.checks.lock().unwrap_or_else(PoisonError::into_inner);
        Check::ALL.map(|check| (check.as_str(), states[check as usize].is_ok()))
    }

    fn since_beat(&self) -> Duration {
        let last_beat = Duration::from_millis(self.0.last_beat.load(Ordering::Relaxed));
        self.0.start.elapsed().saturating_sub(last_beat)
    }

    pub(super) fn liveness(&self) -> Report {
        let since = self.since_beat();
        let state = if since <= self.0.stale_after {
            Ok(())
        } else {
            Err(format!("no turn for {} s, {} s allowed", since.as_secs(), self.0.stale_after.as_secs()))
        };
        Report::of([("loop", state, false)])
    }

    pub(super) fn readiness(&self) -> Report {
        let states = self.0.checks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shutdown = if self.0.shutting_down.load(Ordering::Relaxed) {
            Err("shutting down".to_owned())
        } else {
            Ok(())
        };
        let checks = Check::ALL.into_iter().zip(states);
        let checks = checks.map(|(check, state)| (check.as_str(), state, check.only_degrades()));
        Report::of(checks.chain([("shutdown", shutdown, false)]))
    }
}

impl Report {
    /// One line a check, as the Kubernetes API server writes them.
    fn of(checks: impl IntoIterator<Item = (&'static str, Result<(), String>, bool)>) -> Self {
        let mut report = Self { listing: String::new(), passed: true, degraded: false };
        for (name, state, only_degrades) in checks {
            let Err(reason) = state.map_err(|reason| one_line(&reason)) else {
                // Writing to a String cannot fail.
                let _ = writeln!(report.listing, "[+]{name} ok");
                continue;
            };
            let _ = if only_degrades {
                report.degraded = true;
                writeln!(report.listing, "[!]{name} degraded: {reason}")
            } else {
                report.passed = false;
                writeln!(report.listing, "[-]{name} failed: {reason}")
            };
        }
        report
    }
}
