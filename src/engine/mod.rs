//! The watchdog's loop: which pods wait, what is judged of each, what is done, and what is told of it.
//!
//! One task, one act at a time. The watch fills the store beside it and is never blocked by it.

mod act;
mod announce;
mod book;
mod gates;
mod heal;
mod live;
mod log;
mod memory;
mod observe;
mod options;
mod parts;
mod protect;
mod restart;
mod settle;
mod subject;
mod tell;
#[cfg(test)]
mod tests;
mod wedge;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::admin::{Check, Health};
use crate::domain::{
    ActOutcome, Histories, HistoryLimits, Judgement, Lookup, Observation, Pod, PodUid, Remedy, RemedyKind,
    Withheld,
};
use crate::kube::{Held, Protection};
use crate::ledger::{BreakerView, Ending};
use crate::metrics::Metrics;
pub use announce::{NOTES, NoteReason, NoteRow, NoteSink, NoteTail, document as notes_document};
pub use book::Book;
use book::Opened;
use gates::Quiet;
use heal::refusal;
pub use live::Live;
use memory::Memory;
pub use observe::{Sources, observe};
pub use options::{EngineOptions, Judge, Mode, Namespaces};
pub use parts::Parts;
pub use protect::{Guard, Listeners};
use restart::Restarting;
pub use tell::Channels;
use tell::Teller;
use wedge::{Grounds, Next, Wedge};

/// The loop turns at least this often, whatever happens.
const TURN: Duration = Duration::from_secs(5);
/// How often the agent's socket is tried while nothing is to be judged.
const AGENT_CHECK: Duration = Duration::from_secs(30);

/// One node's watchdog.
pub struct Engine<P> {
    options: EngineOptions,
    parts: P,
    book: Book,
    protection: watch::Receiver<Protection>,
    health: Health,
    metrics: Arc<Metrics>,
    memory: Memory,
    histories: Histories,
    wedges: BTreeMap<PodUid, Wedge>,
    tell: Teller,
    /// No act before its end.
    quiet: Quiet,
    /// The restart of the agent that is being followed.
    restarting: Option<Restarting>,
    /// Places in the cluster that are to be given back.
    to_release: Vec<(RemedyKind, Held)>,
    /// Pods that were deleted and are not gone yet: they keep their places in the cluster.
    leaving: Vec<(PodUid, Held)>,
    next_agent_check: Instant,
    next_settling: Instant,
    /// Counts the looks at earlier acts.
    settling: usize,
    /// When this process began.
    began: Instant,
    /// The store's count of pods that went or ended, as last seen.
    ended: u64,
}

impl<P: Parts> Engine<P> {
    /// All parts of it; nothing runs yet.
    pub fn new(
        options: EngineOptions,
        parts: P,
        book: Book,
        protection: watch::Receiver<Protection>,
        channels: Channels,
        health: Health,
        metrics: Arc<Metrics>,
    ) -> Self {
        let tell = Teller::new(options.node.clone(), options.mode, channels, Arc::clone(&metrics));
        let now = Instant::now();
        let histories = Histories::new(HistoryLimits {
            look_gap: options.confirm_gap.min(Duration::from_secs(2)),
            agent_settle: options.limits.agent_settle,
            ..HistoryLimits::default()
        });
        Self {
            quiet: Quiet { until: now + options.startup_quiet, why: "start-up quiet period" },
            options,
            parts,
            book,
            protection,
            health,
            metrics,
            memory: Memory::default(),
            histories,
            wedges: BTreeMap::new(),
            tell,
            restarting: None,
            to_release: Vec::new(),
            leaving: Vec::new(),
            next_agent_check: now,
            next_settling: now,
            settling: 0,
            began: now,
            ended: 0,
        }
    }

    /// Runs until `stop` becomes true; the act in hand is finished, none is begun after it.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.parts.store().subscribe();
        loop {
            self.health.beat();
            changes.mark_unchanged();
            self.open_book();
            self.follow_store();
            self.release().await;
            if is_stopping(&stop) {
                break;
            }
            self.check_agent().await;
            self.settle_earlier_acts().await;
            self.follow_restart();
            if let Some(uid) = self.most_due() {
                // On the heap: a look is large, and most of the time there is none.
                Box::pin(self.look(&uid, &stop)).await;
                continue;
            }
            let next =
                self.wedges.values().map(|wedge| wedge.due).min().unwrap_or_else(|| Instant::now() + TURN);
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(next.min(Instant::now() + TURN)) => {}
            }
        }
        self.book.close(self.parts.now());
        self.tell.stopped();
    }

    /// The ledger: opened when it can be, written when it could not be before.
    fn open_book(&mut self) {
        let now = self.parts.now();
        match self.book.open(now) {
            Opened::Same => {}
            Opened::Now(aside) => {
                self.tell.ledger_open(aside.as_ref(), self.book.acts());
                self.quiet_after_restart(now);
            }
            Opened::Not(why) => self.tell.ledger_closed(&why),
        }
        let breaker = self.book.breaker(now);
        let state = match (self.book.flush(now), &breaker) {
            (Ok(()), Some(BreakerView::Open { until, why })) => {
                Err(format!("the breaker is open until {until:.0}: {why}; nothing is done until then"))
            }
            (written, _) => written,
        };
        self.health.set(Check::Ledger, state);
        self.metrics.set_bounds(
            RemedyKind::ALL.map(|remedy| (remedy, self.book.tokens(remedy, now))),
            breaker.map(|view| view.as_str()),
        );
    }

    /// The quiet period after a restart of the agent outlives the process that restarted it.
    fn quiet_after_restart(&mut self, now: Timestamp) {
        let Some(began) = self.book.last_restart() else {
            return;
        };
        let since = Duration::try_from(now.duration_since(began)).unwrap_or_default();
        self.keep_quiet(self.options.restart_quiet.saturating_sub(since));
    }

    /// Nothing is done for that long: a new agent settles.
    fn keep_quiet(&mut self, time: Duration) {
        let until = Instant::now() + time;
        if until > self.quiet.until {
            self.quiet = Quiet { until, why: "quiet period after a restart of the agent" };
        }
    }

    /// Gives back what is not needed any more. A failure is no harm: a Lease ends by itself.
    async fn release(&mut self) {
        let store = self.parts.store();
        let is_over =
            |(uid, held): &mut (PodUid, Held)| store.get(uid).is_none() || !held.lasts(Duration::ZERO);
        let over = self.leaving.extract_if(.., is_over);
        self.to_release.extend(over.map(|(_, held)| (RemedyKind::DeletePod, held)));
        for (remedy, held) in std::mem::take(&mut self.to_release) {
            if let Err(why) = self.parts.release(remedy, held).await {
                tracing::debug!(%remedy, %why, "a Lease could not be given back; it ends by itself");
            }
        }
    }

    fn most_due(&self) -> Option<PodUid> {
        let now = Instant::now();
        let due = self.wedges.iter().filter(|(_, wedge)| wedge.due <= now).min_by_key(|(_, wedge)| wedge.due);
        due.map(|(uid, _)| uid.clone())
    }

    /// Takes up pods that wait, and lets go of those that do not any more.
    fn follow_store(&mut self) {
        let now = Instant::now();
        let clock = self.parts.now();
        for tracked in self.parts.store().waiting() {
            let since = tracked.waiting_since.unwrap_or(clock);
            // A pod that waited before this process saw it is looked at without delay.
            let waited = clock.duration_since(tracked.pod.started.unwrap_or(since).min(since));
            let delay =
                self.options.event_delay.saturating_sub(Duration::try_from(waited).unwrap_or_default());
            let (tell, uid) = (&mut self.tell, tracked.pod.uid.clone());
            self.wedges
                .entry(uid)
                .or_insert_with(|| Wedge::new(tell.correlation_id(), tracked.pod, since, now + delay));
        }
        let ended = self.parts.store().ended();
        if std::mem::replace(&mut self.ended, ended) != ended {
            self.wedges.values_mut().for_each(|wedge| wedge.hurry(now));
        }
        let gone: Vec<PodUid> = self.wedges.keys().filter(|uid| !self.still_waits(uid)).cloned().collect();
        for uid in gone {
            if let Some(wedge) = self.wedges.remove(&uid) {
                self.let_go(&uid, wedge);
            }
        }
        self.tell.wedges(self.wedges.values(), clock);
    }

    fn still_waits(&self, uid: &PodUid) -> bool {
        self.parts.store().get(uid).is_some_and(|pod| pod.not_waiting().is_none())
    }

    /// The pod got its sandbox, or is gone: that settles what was being verified.
    fn let_go(&mut self, uid: &PodUid, mut wedge: Wedge) {
        let pod = self.parts.store().get(uid);
        if let Some(mut running) = wedge.take_running() {
            let (outcome, note) = running.shows(pod.as_ref()).unwrap_or_else(|| running.in_vain());
            // What bounds the pods in deletion counts this one until it is gone.
            if outcome == ActOutcome::Deleted && pod.is_some() {
                self.leaving.extend(running.lease.take().map(|held| (uid.clone(), held)));
            }
            self.finish(&wedge, running, &Ending::new(outcome, note));
        }
        let why = pod.as_ref().and_then(Pod::not_waiting).unwrap_or("the pod is gone");
        self.tell.over(&wedge, why, self.parts.now());
    }

    /// Whether the agent can be reached, for readiness; costs a connect, no request.
    async fn check_agent(&mut self) {
        let now = Instant::now();
        if now < self.next_agent_check {
            return;
        }
        self.next_agent_check = now + AGENT_CHECK;
        let reached = self.parts.reachable().await;
        self.tell.agent(&reached);
        if reached.is_err() {
            self.next_agent_check = now + TURN;
        }
        self.health.set(Check::Agent, reached);
    }

    /// One look at one pod: observe, judge, tell, and act where two judgements agree.
    async fn look(&mut self, uid: &PodUid, stop: &watch::Receiver<bool>) {
        if self.is_overdue(uid) {
            self.overdue(uid).await;
        }
        let Some(pod) = self.parts.store().get(uid) else {
            return;
        };
        let memory = &self.memory;
        let observing = observe(&self.parts, &self.options.node, pod, self.parts.now(), |ip, holder| {
            memory.first_seen(ip, holder)
        });
        // Reading may be left at any time: nothing was begun.
        let observed = tokio::select! {
            biased;
            () = stopped(stop) => return,
            observed = tokio::time::timeout(self.options.judge_timeout, observing) => observed,
        };
        self.health.beat();
        let now = Instant::now();
        let observed = observed.map(|obs| ((self.options.judge)(&obs, &self.options.limits), obs));
        self.unseen(uid, observed.as_ref().ok().map(|(judgement, _)| judgement));
        let Some(wedge) = self.wedges.get_mut(uid) else {
            return;
        };
        let Ok((judgement, obs)) = observed else {
            self.tell.too_slow(wedge, self.options.judge_timeout);
            wedge.unjudged(now);
            return;
        };
        self.metrics.judged(&judgement);
        let grounds = judgement.finding().and_then(|finding| Grounds::of(&obs, finding));
        let next = wedge.judged(now, obs.now, &judgement, grounds, &self.options);
        let changed = self.tell.judged(wedge, &obs.pod, &judgement, obs.now);
        if changed && let Some(finding) = judgement.finding().filter(|finding| finding.remedy == Remedy::None)
        {
            self.metrics.refused(finding);
            let word = finding.withheld.map_or(finding.verdict.as_str(), Withheld::as_str);
            self.book.refuse(refusal(wedge, uid, finding, None, word, &finding.reason), obs.now);
        }
        self.remember(&obs, &judgement);
        let ip = judgement.finding().and_then(|finding| finding.ip);
        let case = ip.and_then(|ip| self.histories.restart_case(uid, ip, obs.now));
        if let Some(case) = case
            && self.consider_restart(uid, &case, &obs, &judgement, stop).await
        {
            return;
        }
        if let Next::Act(grounds) = next {
            self.agreed(uid, grounds, &obs, &judgement, stop).await;
        }
    }

    /// What was seen proves things later: that a holder was there before a failure, or that the agent is at odds with itself.
    fn remember(&mut self, obs: &Observation, judgement: &Judgement) {
        let ip = judgement.finding().and_then(|finding| finding.ip);
        if let (Some(ip), Lookup::Held(holder)) = (ip, &obs.lookup) {
            // Stamped now, after the reads: earlier would make the holder older than it is.
            self.memory.saw(ip, holder, self.parts.now());
        }
        self.histories.saw(obs, judgement);
    }
}

/// Whether the watchdog is to stop. Without a sender nobody can ask any more: that is a stop as well.
fn is_stopping(stop: &watch::Receiver<bool>) -> bool {
    *stop.borrow() || stop.has_changed().is_err()
}

/// Ends when [`is_stopping`].
async fn stopped(stop: &watch::Receiver<bool>) {
    drop(stop.clone().wait_for(|stop| *stop).await);
}
