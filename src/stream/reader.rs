//! One reader's way through the events: where it starts, what it gets next, and what it has lost.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use super::event::{Event, EventKind, Gap, GapReason, Heartbeat};
use super::hub::{Hub, Latest};
use super::position::Position;

/// Where to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the next event.
    Now,
    /// With the oldest that is kept.
    Oldest,
    /// After this one.
    After(Position),
    /// After this instant.
    AfterTime(Timestamp),
    /// After an id that nobody can read.
    Unknown,
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its kind.
    pub kind: EventKind,
    /// The latest event that the reader has been offered.
    pub position: Position,
    /// The CloudEvent.
    pub json: Arc<str>,
    /// The stream ends after this one.
    pub last: bool,
}

/// A reader.
#[derive(Debug)]
pub struct Reader {
    hub: Hub,
    latest: watch::Receiver<Latest>,
    /// The number of the event to be offered next.
    next: u64,
    /// Where a reader that does not follow ends.
    until: Option<u64>,
    /// What it has to be told of first.
    gap: Option<(GapReason, Option<u64>)>,
    /// Whether it is past its start: what it loses then is its own fault.
    reading: bool,
    over: bool,
}

impl Reader {
    pub(super) fn new(hub: Hub, start: Start, follow: bool) -> Self {
        let latest = hub.latest();
        let kept = hub.kept();
        let (next, gap) = begin(start, &hub, kept.first(), kept.last(), |time| kept.later_than(time));
        let until = (!follow).then(|| kept.last());
        drop(kept);
        Self { hub, latest, next, until, gap, reading: false, over: false }
    }

    /// The next event of these kinds; `None`: there are no more. May be dropped and asked again at any time.
    pub async fn next(
        &mut self,
        wanted: impl Fn(EventKind) -> bool,
        now: impl Fn() -> Timestamp,
    ) -> Option<Item> {
        loop {
            if self.over {
                return None;
            }
            // Before the look, so that what is told after it wakes.
            let closed = self.latest.borrow_and_update().closed;
            if let Some((reason, lost)) = self.gap.take() {
                return self.gap(reason, lost, now());
            }
            let number = self.next;
            let (sent, first, last) = {
                let kept = self.hub.kept();
                (kept.get(number).cloned(), kept.first(), kept.last())
            };
            if number < first {
                self.next = first;
                let reason = if self.reading { GapReason::Slow } else { GapReason::Overwritten };
                self.over = self.reading;
                return self.gap(reason, Some(first - number), now());
            }
            if self.until.is_some_and(|until| number > until) || (closed && number > last) {
                self.over = true;
                return None;
            }
            if let Some(sent) = sent {
                self.next += 1;
                self.reading = true;
                if wanted(sent.kind) {
                    let position = self.position(number);
                    return Some(Item { kind: sent.kind, position, json: sent.json, last: false });
                }
                continue;
            }
            self.reading = true;
            // The sender lives as long as the hub, of which this reader has a share.
            drop(self.latest.changed().await);
        }
    }

    /// A sign of life, with what the reader has been offered.
    pub fn heartbeat(&self, now: Timestamp) -> Option<Item> {
        let position = self.position(self.next.saturating_sub(1));
        let event =
            Event::Heartbeat(Heartbeat { node: self.hub.node().to_string(), last: position.to_string() });
        self.aside(EventKind::Heartbeat, event, position, now)
    }

    fn gap(&self, reason: GapReason, lost: Option<u64>, now: Timestamp) -> Option<Item> {
        let position = self.position(self.next.saturating_sub(1));
        let event = Event::Gap(Gap { node: self.hub.node().to_string(), reason, lost });
        self.aside(EventKind::Gap, event, position, now)
    }

    /// What is told to this reader alone: it takes no number of the stream.
    fn aside(&self, kind: EventKind, event: Event, position: Position, now: Timestamp) -> Option<Item> {
        let id = format!("{position}-{}-{}", kind.as_str(), now.as_nanosecond());
        let json = self.hub.json(id, event, now)?;
        Some(Item { kind, position, json, last: self.over })
    }

    fn position(&self, number: u64) -> Position {
        Position { boot: self.hub.boot(), number }
    }
}

/// The number to start with, and what is lost before it.
fn begin(
    start: Start,
    hub: &Hub,
    first: u64,
    last: u64,
    later_than: impl Fn(Timestamp) -> (u64, bool),
) -> (u64, Option<(GapReason, Option<u64>)>) {
    match start {
        Start::Now => (last + 1, None),
        Start::Oldest => (first, None),
        Start::Unknown => (first, Some((GapReason::UnknownId, None))),
        Start::After(position) if position.boot != hub.boot() => (first, Some((GapReason::Restarted, None))),
        Start::After(position) if position.number > last => (first, Some((GapReason::UnknownId, None))),
        Start::After(position) if position.number + 1 < first => {
            (first, Some((GapReason::Overwritten, Some(first - position.number - 1))))
        }
        Start::After(position) => (position.number + 1, None),
        Start::AfterTime(time) if time < hub.began() => (first, Some((GapReason::Restarted, None))),
        Start::AfterTime(time) => match later_than(time) {
            (number, true) => (number, Some((GapReason::Overwritten, None))),
            (number, false) => (number, None),
        },
    }
}
