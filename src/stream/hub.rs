//! Where events are told and kept: a ring of the latest, bounded in number and size, and the state that all of them make.
//!
//! Telling never waits for a reader: who is too slow loses its place, and is told so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

use super::envelope::CloudEvent;
use super::event::{Event, EventKind, Started};
use super::position::{Boot, Position};
use super::reader::{Reader, Start};
use super::state::{ActView, State};
use crate::domain::NodeName;
use crate::metrics::Metrics;

/// At most so many events are kept.
pub const KEPT_EVENTS: usize = 1024;
/// And of these at most so many bytes of JSON.
pub const KEPT_BYTES: usize = 512 * 1024;

/// The events of one process; clones share them.
#[derive(Debug, Clone)]
pub struct Hub(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node: NodeName,
    metrics: Arc<Metrics>,
    boot: Boot,
    began: Timestamp,
    kept: Mutex<Kept>,
    /// The number of the latest event, or that no more come.
    latest: watch::Sender<Latest>,
}

/// What readers wait on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Latest {
    pub(super) number: u64,
    pub(super) closed: bool,
}

/// One event as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) kind: EventKind,
    pub(super) time: Timestamp,
    pub(super) json: Arc<str>,
}

#[derive(Debug)]
pub(super) struct Kept {
    /// Events by number: the last of them is the latest.
    ring: VecDeque<Sent>,
    bytes: usize,
    /// The number of the latest event.
    last: u64,
    /// The time of the latest event that was let go.
    let_go: Option<Timestamp>,
    state: State,
}

impl Kept {
    /// The number of the oldest event that is kept; one more than the latest where none is.
    pub(super) fn first(&self) -> u64 {
        self.last + 1 - self.ring.len() as u64
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The event of a number, where it is kept.
    pub(super) fn get(&self, number: u64) -> Option<&Sent> {
        self.ring.get(usize::try_from(number.checked_sub(self.first())?).ok()?)
    }

    /// The number of the first event that is later, and whether an earlier one of those was let go.
    pub(super) fn later_than(&self, time: Timestamp) -> (u64, bool) {
        let at = self.ring.iter().position(|sent| sent.time > time).unwrap_or(self.ring.len());
        (self.first() + at as u64, at == 0 && self.let_go.is_some_and(|gone| gone > time))
    }

    fn push(&mut self, sent: Sent) {
        self.last += 1;
        self.bytes += sent.json.len();
        self.ring.push_back(sent);
        while self.ring.len() > KEPT_EVENTS || self.bytes > KEPT_BYTES {
            let Some(gone) = self.ring.pop_front() else {
                break;
            };
            self.bytes -= gone.json.len();
            self.let_go = Some(gone.time);
        }
    }
}

impl Hub {
    /// The events of a process that has just started; the first of them says so.
    pub fn new(node: NodeName, started: Started, metrics: Arc<Metrics>, now: Timestamp) -> Self {
        let boot = Boot::at(now);
        let kept = Kept {
            ring: VecDeque::new(),
            bytes: 0,
            last: 0,
            let_go: None,
            state: State::new(&started, Position { boot, number: 0 }, now),
        };
        let hub = Self(Arc::new(Inner {
            node,
            metrics,
            boot,
            began: now,
            kept: Mutex::new(kept),
            latest: watch::Sender::new(Latest { number: 0, closed: false }),
        }));
        hub.tell(Event::Started(started), now);
        hub
    }

    /// Tells an event to all who read, now and later.
    pub fn tell(&self, event: Event, now: Timestamp) {
        let mut kept = self.kept();
        let position = Position { boot: self.0.boot, number: kept.last + 1 };
        kept.state.apply(&event, position, now);
        let kind = event.kind();
        self.0.metrics.streamed(kind.as_str());
        let Some(json) = self.json(position.to_string(), event, now) else {
            return;
        };
        kept.push(Sent { kind, time: now, json });
        self.0.latest.send_modify(|latest| latest.number = position.number);
    }

    /// What an earlier process did, from the ledger: part of the state, no news.
    pub fn remember_acts(&self, acts: impl IntoIterator<Item = ActView>) {
        self.kept().state.remember_acts(acts);
    }

    /// What all events so far make.
    pub fn state(&self, now: Timestamp) -> State {
        self.kept().state.clone().at(now)
    }

    /// No event is told any more; readers come to their end.
    pub fn close(&self) {
        self.0.latest.send_modify(|latest| latest.closed = true);
    }

    /// Reads from there on. `follow`: waits for what is yet to come.
    pub fn read(&self, start: Start, follow: bool) -> Reader {
        Reader::new(self.clone(), start, follow)
    }

    /// Names the process.
    pub fn boot(&self) -> Boot {
        self.0.boot
    }

    pub(super) fn began(&self) -> Timestamp {
        self.0.began
    }

    pub(super) fn node(&self) -> &NodeName {
        &self.0.node
    }

    pub(super) fn latest(&self) -> watch::Receiver<Latest> {
        self.0.latest.subscribe()
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The event in its envelope. All of its parts have a JSON form.
    pub(super) fn json(&self, id: String, event: Event, now: Timestamp) -> Option<Arc<str>> {
        let envelope = CloudEvent::of(id, &self.0.node, now, event);
        serde_json::to_string(&envelope).ok().map(Arc::from)
    }
}
