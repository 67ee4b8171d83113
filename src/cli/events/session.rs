//! The run of the verb: followers come and go, what they tell is merged and printed, until the end.

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::board::{Board, Say};
use super::follow::{Follower, Report, Told, Wish};
use super::merge::Merge;
use super::text::{Cells, Columns};
use super::until::Until;
use super::{EventsArgs, Output};
use crate::cli::watchdogs::{Directory, Line, aside};

/// Who follows waits so long for what all nodes have kept, to print it in one order.
const HOLD: Duration = Duration::from_secs(10);
/// Reports that are taken in at once.
const BATCH: usize = 1000;
/// Nodes that are named in the end.
const NAMED: usize = 50;

/// What is printed.
#[derive(Debug)]
enum Item {
    Event(Line),
    Note(Timestamp, &'static str),
}

/// Why it goes on no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Nothing more is to come, or nobody could be reached.
    Done,
    /// `--for` is over, or a person had enough.
    Stopped,
    /// The event of `--until` came.
    Met,
    /// Nobody reads standard output any more.
    Closed,
}

/// The run.
pub(super) struct Session {
    wish: Arc<Wish>,
    directory: watch::Receiver<Arc<Directory>>,
    out: mpsc::Sender<Report>,
    output: Output,
    until: Option<Until>,
    limit: Option<Duration>,
    began: Instant,
    board: Board,
    merge: Merge<Item>,
    columns: Columns,
    /// Until then, what is kept is gathered.
    hold: Option<Instant>,
    ending: Option<Ending>,
}

impl Session {
    pub(super) fn new(
        args: &EventsArgs,
        wish: Arc<Wish>,
        directory: watch::Receiver<Arc<Directory>>,
        out: mpsc::Sender<Report>,
    ) -> Self {
        let began = Instant::now();
        // Who does not follow waits for all.
        let hold = if wish.follow { HOLD } else { Duration::from_hours(24) };
        Self {
            wish,
            directory,
            out,
            output: args.output,
            until: args.until.clone(),
            limit: args.limit,
            began,
            board: Board::default(),
            merge: Merge::default(),
            columns: Columns::default(),
            hold: Some(began + hold),
            ending: None,
        }
    }

    /// Until the end that was asked for.
    pub(super) async fn run(
        &mut self,
        mut reports: mpsc::Receiver<Report>,
        followers: &mut JoinSet<()>,
    ) -> Result<()> {
        self.meet(followers, false);
        self.columns = Columns::of(self.directory.borrow().keys().map(|node| &**node));
        let deadline = self.limit.map(|limit| self.began + limit);
        let stopped = tokio::signal::ctrl_c();
        tokio::pin!(stopped);
        let mut batch = Vec::new();
        while self.ending.is_none() {
            let due = self.hold.or_else(|| self.merge.next_due());
            tokio::select! {
                stopped = &mut stopped => { stopped?; self.ending = Some(Ending::Stopped); }
                () = until(deadline) => self.ending = Some(Ending::Stopped),
                () = until(due) => {}
                _ = reports.recv_many(&mut batch, BATCH) => batch.drain(..).for_each(|report| self.take(report)),
                Ok(()) = self.directory.changed() => self.meet(followers, true),
            }
            while followers.try_join_next().is_some() {}
            self.turn()?;
        }
        let rest = self.merge.all();
        self.print(&rest)
    }

    /// Follows each node that is not followed yet.
    fn meet(&mut self, followers: &mut JoinSet<()>, late: bool) {
        let directory = Arc::clone(&self.directory.borrow_and_update());
        // Who does not follow reads the nodes of the start.
        if late && !self.wish.follow {
            return;
        }
        for node in directory.keys() {
            if self.board.expect(node, late) {
                let (wish, out) = (Arc::clone(&self.wish), self.out.clone());
                followers.spawn(Follower::new(Arc::clone(node), wish, self.directory.clone(), out).run());
            }
        }
    }

    fn take(&mut self, Report { node, told }: Report) {
        let (now, came) = (Timestamp::now(), Instant::now());
        match self.board.told(&node, &told) {
            Say::Note(what) => self.merge.push(&node, now, Item::Note(now, what), came),
            Say::Trouble(why) => aside(&format!("{node}: {why}")),
            Say::Nothing => {}
        }
        if let Told::Line(line) = told {
            self.merge.push(&node, line.time, Item::Event(line), came);
        }
    }

    /// Prints what is ready, and looks whether this is the end.
    fn turn(&mut self) -> Result<()> {
        let now = Instant::now();
        let gathered = if self.wish.follow { !self.board.waits() } else { self.board.is_done() };
        if gathered || self.hold.is_some_and(|hold| hold <= now) {
            self.hold = None;
        }
        if self.hold.is_none() {
            let ready = self.merge.ready(now);
            self.print(&ready)?;
        }
        if (!self.wish.follow && self.board.is_done()) || self.board.none_reached() {
            self.ending = self.ending.or(Some(Ending::Done));
        }
        Ok(())
    }

    fn print(&mut self, items: &[(Arc<str>, Item)]) -> Result<()> {
        if items.is_empty() || matches!(self.ending, Some(Ending::Met | Ending::Closed)) {
            return Ok(());
        }
        let met = |item: &Item| match (item, &self.until) {
            (Item::Event(line), Some(until)) => until.is_met(line),
            _ => false,
        };
        let end = items.iter().position(|(_, item)| met(item)).map(|at| at + 1);
        if end.is_some() {
            self.ending = Some(Ending::Met);
        }
        let items = &items[..end.unwrap_or(items.len())];
        let text = match self.output {
            Output::Text => self.columns.lines(&cells(items)),
            Output::Ndjson => ndjson(items),
        };
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            // The reader, `head` for example, has had enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.ending = Some(Ending::Closed);
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// The exit status; names the nodes that are missing where somebody relies on all of them.
    pub(super) fn end(&self) -> ExitCode {
        if matches!(self.ending, Some(Ending::Met | Ending::Closed)) {
            return ExitCode::SUCCESS;
        }
        let none = self.board.none_reached();
        let relied = none || !self.wish.follow || self.limit.is_some();
        let missing = if relied { self.board.missing(self.wish.follow) } else { Vec::new() };
        if none {
            aside("error: no watchdog could be reached");
        } else if !missing.is_empty() {
            aside(&format!("error: not all nodes could be read: {} are missing", missing.len()));
        }
        for (node, why) in missing.iter().take(NAMED) {
            aside(&format!("missing: {node}: {why}"));
        }
        if let Some(more) = missing.len().checked_sub(NAMED).filter(|more| *more > 0) {
            aside(&format!("missing: {more} more"));
        }
        let unmet = self.until.is_some();
        if unmet {
            aside("error: the event of --until did not come");
        }
        if none || unmet || !missing.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Waits for that instant; for ever without one.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn cells(items: &[(Arc<str>, Item)]) -> Vec<Cells> {
    let cells = |(node, item): &(Arc<str>, Item)| match item {
        Item::Event(line) => Cells::of(node, line),
        Item::Note(time, what) => Cells::note(node, *time, what),
    };
    items.iter().map(cells).collect()
}

/// The events as they came; what is said of streams is no event.
fn ndjson(items: &[(Arc<str>, Item)]) -> String {
    let mut text = String::new();
    for (node, item) in items {
        match item {
            Item::Event(line) => text.extend([line.json.as_str(), "\n"]),
            Item::Note(_, what) => aside(&format!("{node}: {what}")),
        }
    }
    text
}
