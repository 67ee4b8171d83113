//! The ledger as the engine holds it: open, or not, and then no act is begun until it is.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::domain::{Cause, NodeName, PodUid, RemedyKind};
use crate::ledger::{
    Act, ActId, Bound, BoundOptions, BreakerView, Ending, Intent, Ledger, RecordError, Refusal, SetAside,
};
use crate::metrics::Metrics;

/// Between two tries to open it.
const RETRY: Duration = Duration::from_secs(30);

/// Between two writes of what may wait.
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// The ledger, or why there is none.
pub struct Book {
    node: NodeName,
    options: BoundOptions,
    place: PathBuf,
    ledger: Result<Ledger, String>,
    retry_at: Instant,
    flush_at: Instant,
    metrics: Arc<Metrics>,
}

/// What came of a try to open it.
pub(super) enum Opened {
    /// It was open before, or it is not time yet.
    Same,
    /// It is open now; a file that could not be used was set aside.
    Now(Option<SetAside>),
    /// It cannot be opened.
    Not(String),
}

impl Book {
    /// In a directory; opened with the first turn of the loop.
    pub fn at(place: PathBuf, node: NodeName, options: BoundOptions, metrics: Arc<Metrics>) -> Self {
        let ledger = Err("not opened yet".to_owned());
        let now = Instant::now();
        Self { node, options, place, ledger, retry_at: now, flush_at: now, metrics }
    }

    /// Opens it if it is not, at most every half minute.
    pub(super) fn open(&mut self, now: Timestamp) -> Opened {
        let at = Instant::now();
        if self.ledger.is_ok() || at < self.retry_at {
            return Opened::Same;
        }
        self.retry_at = at + RETRY;
        match Ledger::open(&self.place, &self.node, self.options.clone(), now) {
            Ok((ledger, aside)) => {
                self.ledger = Ok(ledger);
                Opened::Now(aside)
            }
            Err(why) => {
                let why = why.to_string();
                self.ledger = Err(why.clone());
                Opened::Not(why)
            }
        }
    }

    /// Writes now and then what is not written yet. Whether it can be written; the error is for people.
    pub(super) fn flush(&mut self, now: Timestamp) -> Result<(), String> {
        let ledger = self.ledger.as_mut().map_err(|why| why.clone())?;
        let at = Instant::now();
        if at >= self.flush_at {
            self.flush_at = at + FLUSH_EVERY;
            // What fails shows in the trouble.
            if ledger.flush(now).is_err() {
                self.metrics.ledger_write_failed();
            }
        }
        ledger.trouble().map_or(Ok(()), |why| Err(why.to_owned()))
    }

    /// Writes all of it, at the end of the process.
    pub(super) fn close(&mut self, now: Timestamp) {
        if let Ok(ledger) = &mut self.ledger {
            unsaved(&self.metrics, ledger.flush(now));
        }
    }

    /// Whether an act of this kind for this cause may be begun.
    pub(super) fn check(
        &mut self,
        remedy: RemedyKind,
        cause: &Cause,
        pod: &PodUid,
        now: Timestamp,
    ) -> Result<(), Bound> {
        match &mut self.ledger {
            Ok(ledger) => unwritten(&self.metrics, ledger.check(remedy, cause, pod, now)),
            Err(why) => Err(Bound::Unrecorded(why.clone())),
        }
    }

    /// Puts an intent on record, and takes what it costs.
    pub(super) fn begin(&mut self, intent: Intent, now: Timestamp) -> Result<ActId, Bound> {
        match &mut self.ledger {
            Ok(ledger) => unwritten(&self.metrics, ledger.begin(intent, now)),
            Err(why) => Err(Bound::Unrecorded(why.clone())),
        }
    }

    /// The call was taken.
    pub(super) fn sent(&mut self, id: ActId, note: &str, now: Timestamp) {
        if let Ok(ledger) = &mut self.ledger {
            unsaved(&self.metrics, ledger.sent(id, note, now));
        }
    }

    /// The act came to its end.
    pub(super) fn end(&mut self, id: ActId, ending: Ending, now: Timestamp) {
        if let Ok(ledger) = &mut self.ledger {
            unsaved(&self.metrics, ledger.end(id, ending, now));
        }
    }

    /// A finding that is left alone.
    pub(super) fn refuse(&mut self, refusal: Refusal, now: Timestamp) {
        if let Ok(ledger) = &mut self.ledger {
            unsaved(&self.metrics, ledger.refuse(refusal, now));
        }
    }

    /// The acts without an end.
    pub(super) fn open_acts(&self) -> impl Iterator<Item = &Act> {
        self.ledger.iter().flat_map(|ledger| ledger.state().open_acts())
    }

    /// All acts that are on record, the oldest first.
    pub(super) fn acts(&self) -> impl Iterator<Item = &Act> {
        self.ledger.iter().flat_map(|ledger| ledger.state().acts())
    }

    /// When the agent was restarted last, as far as that is on record.
    pub(super) fn last_restart(&self) -> Option<Timestamp> {
        let restarts = self.acts().filter(|act| {
            act.intent().remedy == RemedyKind::RestartAgent && (act.sent().is_some() || act.is_open())
        });
        restarts.map(Act::began).max()
    }

    /// What is left of a budget.
    pub(super) fn tokens(&self, remedy: RemedyKind, now: Timestamp) -> u32 {
        self.ledger.as_ref().map_or(0, |ledger| ledger.state().tokens(remedy, now, ledger.options()))
    }

    /// Where the breaker stands; open without a ledger.
    pub(super) fn breaker(&self, now: Timestamp) -> Option<BreakerView> {
        self.ledger.as_ref().ok().map(|ledger| ledger.state().breaker(now))
    }
}

/// What could not be written stays in memory, holds back each further act, and is written with the next turn.
fn unsaved(metrics: &Metrics, result: Result<(), RecordError>) {
    if let Err(why) = result {
        if matches!(why, RecordError::Unsaved(_)) {
            metrics.ledger_write_failed();
        }
        tracing::error!(reason = %why, "what was done could not be put on record yet");
    }
}

/// Counts a bound that is no other than a write that failed.
fn unwritten<T>(metrics: &Metrics, result: Result<T, Bound>) -> Result<T, Bound> {
    result.inspect_err(|bound| {
        if matches!(bound, Bound::Unrecorded(_)) {
            metrics.ledger_write_failed();
        }
    })
}
