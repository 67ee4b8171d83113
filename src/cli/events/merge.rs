//! Puts the events of all nodes in the order of their times, as far as they come close enough to each other.
//!
//! Those of one node stay in the order in which they came, also where its clock was set back. Must not know: where
//! they come from, nor what they say.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// How long an event waits for earlier ones of other nodes.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
/// So many wait at most.
const MOST: usize = 20_000;

/// What waits for its turn.
#[derive(Debug)]
pub(super) struct Merge<T> {
    heap: BinaryHeap<Reverse<Held<T>>>,
    /// When each of those that wait came, by its number.
    waiting: BTreeMap<u64, Instant>,
    /// The latest time of each node.
    marks: HashMap<Arc<str>, Timestamp>,
    count: u64,
}

#[derive(Debug)]
struct Held<T> {
    time: Timestamp,
    node: Arc<str>,
    number: u64,
    what: T,
}

impl<T> Held<T> {
    fn key(&self) -> (Timestamp, &str, u64) {
        (self.time, &self.node, self.number)
    }
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Held<T> {}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T> Default for Merge<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), waiting: BTreeMap::new(), marks: HashMap::new(), count: 0 }
    }
}

impl<T> Merge<T> {
    /// Takes one in that has just come.
    pub(super) fn push(&mut self, node: &Arc<str>, time: Timestamp, what: T, now: Instant) {
        let mark = self.marks.entry(Arc::clone(node)).or_insert(time);
        *mark = time.max(*mark);
        let held = Held { time: *mark, node: Arc::clone(node), number: self.count, what };
        self.waiting.insert(self.count, now);
        self.count += 1;
        self.heap.push(Reverse(held));
    }

    /// Those that have waited long enough, and all that are earlier, in order.
    pub(super) fn ready(&mut self, now: Instant) -> Vec<(Arc<str>, T)> {
        let mut out = Vec::new();
        while self.is_due(now) || self.heap.len() > MOST {
            out.extend(self.pop());
        }
        out
    }

    /// All that are there, in order.
    pub(super) fn all(&mut self) -> Vec<(Arc<str>, T)> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// When the next one has waited long enough.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|(_, came)| *came + WINDOW)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next_due().is_some_and(|due| due <= now)
    }

    fn pop(&mut self) -> Option<(Arc<str>, T)> {
        let Reverse(held) = self.heap.pop()?;
        self.waiting.remove(&held.number);
        Some((held.node, held.what))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Pushed = (u8, i64, u64);

    /// Pushes events (node, second of its time, milliseconds until the next one comes); gives what comes out, and when.
    fn run(events: &[Pushed]) -> (Vec<(u8, usize)>, Vec<Duration>) {
        let start = Instant::now();
        let (mut now, mut merge, mut out, mut waits) = (start, Merge::default(), Vec::new(), Vec::new());
        let mut came = Vec::new();
        let mut take = |all: Vec<(Arc<str>, (u8, usize))>, now: Instant, came: &[Instant]| {
            for (node, (number, index)) in all {
                assert_eq!(*node, number.to_string());
                waits.push(now - came[index]);
                out.push((number, index));
            }
        };
        for (index, (node, second, gap)) in events.iter().enumerate() {
            came.push(now);
            let time = Timestamp::from_second(*second).unwrap();
            merge.push(&node.to_string().into(), time, (*node, index), now);
            let until = now + Duration::from_millis(*gap);
            while let Some(due) = merge.next_due().filter(|due| *due <= until) {
                now = due;
                take(merge.ready(now), now, &came);
            }
            now = until;
        }
        take(merge.all(), now, &came);
        (out, waits)
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_doubled_and_each_node_keeps_its_order(
            events in prop::collection::vec((0_u8..4, 0_i64..50, 0_u64..2_500), 0..60),
        ) {
            let (out, waits) = run(&events);
            let mut indices: Vec<usize> = out.iter().map(|(_, index)| *index).collect();
            for node in 0..4 {
                let own: Vec<usize> = out.iter().filter(|(n, _)| *n == node).map(|(_, index)| *index).collect();
                prop_assert!(own.is_sorted(), "{own:?}");
            }
            indices.sort_unstable();
            prop_assert_eq!(indices, (0..events.len()).collect::<Vec<_>>());
            prop_assert!(waits.iter().all(|wait| *wait <= WINDOW), "{waits:?}");
        }

        #[test]
        fn what_is_taken_at_once_is_sorted_by_time_and_node(
            mut events in prop::collection::vec((0_u8..4, 0_i64..50, Just(0_u64)), 0..60),
        ) {
            // Clocks that run forward.
            events.sort_by_key(|(node, second, _)| (node % 2, *second));
            events.sort_by_key(|(node, ..)| *node);
            let (out, _) = run(&events);
            let keys: Vec<(i64, u8)> = out.iter().map(|(node, index)| (events[*index].1, *node)).collect();
            prop_assert!(keys.is_sorted(), "{keys:?}");
        }
    }

    #[test]
    fn an_event_that_comes_a_little_late_gets_its_place() {
        let (out, _) = run(&[(1, 10, 300), (2, 9, 300), (1, 11, 5_000), (2, 8, 0)]);
        assert_eq!(out, [(2, 1), (1, 0), (1, 2), (2, 3)]);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_turn_the_order_of_its_node() {
        let (out, _) = run(&[(1, 100, 0), (1, 40, 0), (2, 50, 0), (1, 41, 0)]);
        assert_eq!(out, [(2, 2), (1, 0), (1, 1), (1, 3)]);
    }
}
