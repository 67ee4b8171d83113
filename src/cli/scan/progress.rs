//! What a scan does just now, on one line of a terminal; in a pipe it says nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

/// Between two drawings.
const PAUSE: Duration = Duration::from_millis(100);
const COLUMNS: usize = 98;

/// Counts of what was read so far, each with its end where one is known.
pub(super) struct Progress {
    shown: bool,
    counts: RefCell<BTreeMap<&'static str, (usize, Option<usize>)>>,
    last: Cell<Option<Instant>>,
}

impl Progress {
    /// On a terminal, unless the caller wants nothing.
    pub(super) fn new(wanted: bool) -> Self {
        let shown = wanted && stderr().is_terminal();
        Self { shown, counts: RefCell::default(), last: Cell::default() }
    }

    /// One more of these.
    pub(super) fn add(&self, what: &'static str) {
        if self.shown {
            self.counts.borrow_mut().entry(what).or_default().0 += 1;
            self.draw();
        }
    }

    /// So many will come.
    pub(super) fn expect(&self, what: &'static str, end: usize) {
        if self.shown {
            self.counts.borrow_mut().entry(what).or_default().1 = Some(end);
        }
    }

    fn draw(&self) {
        if self.last.get().is_some_and(|last| last.elapsed() < PAUSE) {
            return;
        }
        self.last.set(Some(Instant::now()));
        let parts: Vec<String> = self
            .counts
            .borrow()
            .iter()
            .map(|(what, (done, end))| match end {
                Some(end) => format!("{done}/{end} {what}"),
                None => format!("{done} {what}"),
            })
            .collect();
        let line: String = format!("reading: {}", parts.join(", ")).chars().take(COLUMNS).collect();
        drop(write!(stderr(), "\r\x1b[K{line}"));
    }

    /// Wipes the line.
    pub(super) fn end(&self) {
        if self.shown && self.last.take().is_some() {
            drop(write!(stderr(), "\r\x1b[K"));
        }
        self.counts.borrow_mut().clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
