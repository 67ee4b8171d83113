//! Follows the stream of one node: what is kept first, then what comes; again and again, over breaks, restarts and rollouts.
//!
//! Must not know: the other nodes, nor what is done with the events.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::sleep;

use crate::cli::watchdogs::{Ask, Directory, Line, Place, Trouble, Wire};
use crate::stream::EventKind;

/// Three heartbeats: a stream that is silent for longer is broken.
const SILENCE: Duration = Duration::from_secs(45);
/// Who does not follow tries so often.
const TRIES: usize = 3;
/// Between two tries at most.
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// What all followers share.
pub(super) struct Wish {
    pub(super) wire: Wire,
    pub(super) since: Option<Timestamp>,
    /// Empty: all but heartbeats.
    pub(super) types: Vec<EventKind>,
    pub(super) follow: bool,
    /// Connections that are being opened.
    pub(super) gate: Semaphore,
    /// Asks for a new list of the pods.
    pub(super) relist: Notify,
}

/// What a follower has to say.
#[derive(Debug)]
pub(super) enum Told {
    Line(Line),
    /// All that was kept is told.
    CaughtUp,
    /// The stream is open.
    Open,
    /// The stream came to a clean end.
    Ended,
    /// It did not work, and is tried again.
    Trouble(String),
    /// It did not work, and is not tried again.
    Failed(String),
    /// The node has no watchdog any more.
    Gone,
}

/// Of which node.
pub(super) struct Report {
    pub(super) node: Arc<str>,
    pub(super) told: Told,
}

/// The follower of one node.
pub(super) struct Follower {
    node: Arc<str>,
    wish: Arc<Wish>,
    directory: watch::Receiver<Arc<Directory>>,
    out: mpsc::Sender<Report>,
    /// Where to go on.
    place: Option<Place>,
    caught_up: bool,
    /// Something came since the last break.
    lively: bool,
}

impl Follower {
    pub(super) fn new(
        node: Arc<str>,
        wish: Arc<Wish>,
        directory: watch::Receiver<Arc<Directory>>,
        out: mpsc::Sender<Report>,
    ) -> Self {
        let place = wish.since.map(Place::Instant);
        Self { node, wish, directory, out, place, caught_up: false, lively: false }
    }

    pub(super) async fn run(mut self) {
        let mut delays = delays();
        for tries in 1.. {
            let Some(pod) = self.directory.borrow_and_update().get(&self.node).cloned() else {
                self.tell(Told::Gone).await;
                return;
            };
            let tried = match &pod {
                Ok(name) => self.attempt(name).await,
                Err(why) => Err(Trouble::passing(why)),
            };
            match tried {
                Ok(()) if !self.wish.follow => return,
                Ok(()) => self.tell(Told::Ended).await,
                Err(trouble) if !self.wish.follow && (trouble.lasting || tries >= TRIES) => {
                    self.tell(Told::Failed(trouble.why)).await;
                    return;
                }
                Err(trouble) => self.tell(Told::Trouble(trouble.why)).await,
            }
            self.wish.relist.notify_one();
            if std::mem::take(&mut self.lively) {
                delays = self::delays();
            }
            let delay = delays.next().unwrap_or(LONGEST_DELAY);
            let node = Arc::clone(&self.node);
            tokio::select! {
                () = sleep(delay) => {}
                // Another pod need not wait for what the last one did.
                Ok(_) = self.directory.wait_for(|directory| directory.get(&node) != Some(&pod)) => {}
            }
        }
    }

    /// One connection, from its start to a clean end.
    async fn attempt(&mut self, pod: &str) -> Result<(), Trouble> {
        let wish = Arc::clone(&self.wish);
        // The semaphore is never closed.
        let permit = wish.gate.acquire().await.ok();
        let mut link = wish.wire.open(pod).await?;
        if !self.caught_up {
            // Of all types: the last of these events is where following begins.
            let ask = Ask { since: self.place.as_ref(), follow: false, types: &[] };
            let mut lines = link.ask(&ask).await?;
            while let Some(line) = lines.next(wish.wire.timeout).await? {
                self.take(line).await?;
            }
            self.caught_up = true;
            self.tell(Told::CaughtUp).await;
        }
        if !wish.follow {
            return Ok(());
        }
        let ask = Ask { since: self.place.as_ref(), follow: true, types: &wish.types };
        let mut lines = link.ask(&ask).await?;
        drop(permit);
        self.tell(Told::Open).await;
        while let Some(line) = lines.next(SILENCE).await? {
            self.take(line).await?;
        }
        Ok(())
    }

    async fn take(&mut self, line: Vec<u8>) -> Result<(), Trouble> {
        let line = Line::parse(line)?;
        self.lively = true;
        self.place = line.place.map(Place::Event).or(self.place);
        if line.is_wanted(&self.wish.types) {
            self.tell(Told::Line(line)).await;
        }
        Ok(())
    }

    async fn tell(&self, told: Told) {
        // Nobody listens any more only when the program ends.
        drop(self.out.send(Report { node: Arc::clone(&self.node), told }).await);
    }
}

fn delays() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(LONGEST_DELAY)
        .with_jitter()
        .without_max_times()
        .build()
}
