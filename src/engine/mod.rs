//! The watchdog's loop: which pods wait, what is judged of each, what is done, and what is told of it.
//!
//! One task, one act at a time. The watch fills the store beside it and is never blocked by it.

mod act;
mod live;
mod memory;
mod observe;
mod options;
mod tell;
mod wedge;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::admin::{Check, Health};
use crate::domain::{Judgement, Lookup, Observation, Pod, PodUid, Remedy, judge};
use crate::metrics::{ActKind, ActOutcome, Metrics};
use act::{Acted, act};
pub use live::Live;
use memory::Memory;
pub use observe::{Sources, observe};
pub use options::{EngineOptions, Mode};
use tell::Teller;
use wedge::{Grounds, Next, Stage, Wedge};

/// The loop turns at least this often, whatever happens.
const TURN: Duration = Duration::from_secs(5);
/// How often the agent's socket is tried while nothing is to be judged.
const AGENT_CHECK: Duration = Duration::from_secs(30);

/// One node's watchdog.
pub struct Engine {
    options: EngineOptions,
    live: Live,
    health: Health,
    metrics: Arc<Metrics>,
    memory: Memory,
    wedges: HashMap<PodUid, Wedge>,
    tell: Teller,
    started: Instant,
    next_agent_check: Instant,
    /// The store's count of pods that went or ended, as last seen.
    ended: u64,
}

impl Engine {
    /// All parts of it; nothing runs yet.
    pub fn new(options: EngineOptions, live: Live, health: Health, metrics: Arc<Metrics>) -> Self {
        let tell = Teller::new(options.node.clone(), options.mode, Arc::clone(&metrics));
        let now = Instant::now();
        Self {
            options,
            live,
            health,
            metrics,
            memory: Memory::default(),
            wedges: HashMap::new(),
            tell,
            started: now,
            next_agent_check: now,
            ended: 0,
        }
    }

    /// Runs until `stop` becomes true; the act in hand is finished, none is begun after it.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.live.store.subscribe();
        loop {
            self.health.beat();
            changes.mark_unchanged();
            self.follow_store();
            if *stop.borrow() {
                break;
            }
            self.check_agent().await;
            if let Some(uid) = self.most_due() {
                // On the heap: a look is large, and most of the time there is none.
                Box::pin(self.look(&uid, &stop)).await;
                continue;
            }
            let next =
                self.wedges.values().map(|wedge| wedge.due).min().unwrap_or_else(|| Instant::now() + TURN);
            tokio::select! {
                _ = stop.changed() => {}
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(next.min(Instant::now() + TURN)) => {}
            }
        }
        self.tell.stopped();
    }

    fn most_due(&self) -> Option<PodUid> {
        let now = Instant::now();
        let due = self.wedges.iter().filter(|(_, wedge)| wedge.due <= now).min_by_key(|(_, wedge)| wedge.due);
        due.map(|(uid, _)| uid.clone())
    }

    /// Takes up pods that wait, and lets go of those that do not any more.
    fn follow_store(&mut self) {
        let now = Instant::now();
        for tracked in self.live.store.waiting() {
            let since = tracked.waiting_since.unwrap_or_else(Timestamp::now);
            // A pod that waited before this process saw it is looked at without delay.
            let waited = Timestamp::now().duration_since(tracked.pod.started.unwrap_or(since).min(since));
            let delay =
                self.options.event_delay.saturating_sub(Duration::try_from(waited).unwrap_or_default());
            let (tell, name) = (&mut self.tell, tracked.pod.name);
            self.wedges
                .entry(tracked.pod.uid)
                .or_insert_with(|| Wedge::new(tell.correlation_id(), name, since, now + delay));
        }
        let ended = self.live.store.ended();
        if std::mem::replace(&mut self.ended, ended) != ended {
            self.wedges.values_mut().for_each(|wedge| wedge.hurry(now));
        }
        let gone: Vec<PodUid> = self.wedges.keys().filter(|uid| !self.still_waits(uid)).cloned().collect();
        for uid in gone {
            if let Some(wedge) = self.wedges.remove(&uid) {
                self.let_go(&uid, &wedge);
            }
        }
        self.tell.wedges(self.wedges.values());
    }

    fn still_waits(&self, uid: &PodUid) -> bool {
        self.live.store.get(uid).is_some_and(|pod| pod.not_waiting().is_none())
    }

    /// The pod got its sandbox, or is gone: that settles what was being verified.
    fn let_go(&self, uid: &PodUid, wedge: &Wedge) {
        let pod = self.live.store.get(uid);
        if matches!(wedge.stage, Stage::Verifying(_)) {
            let healed = pod.as_ref().is_some_and(|pod| !pod.deleting && !pod.phase.is_terminal());
            let (outcome, note) = if healed {
                (ActOutcome::Healed, "the pod has its sandbox")
            } else {
                (ActOutcome::Disconnected, "the address is free; the pod went before its sandbox was seen")
            };
            self.metrics.acted(ActKind::DisconnectEndpoint, outcome);
            self.tell.acted(wedge, ActKind::DisconnectEndpoint, outcome.as_str(), note);
        }
        self.tell.over(wedge, pod.as_ref().and_then(Pod::not_waiting).unwrap_or("the pod is gone"));
    }

    /// Whether the agent can be reached, for readiness; costs a connect, no request.
    async fn check_agent(&mut self) {
        let now = Instant::now();
        if now < self.next_agent_check {
            return;
        }
        self.next_agent_check = now + AGENT_CHECK;
        let reached = self.live.agent.reachable().await.map_err(|why| why.to_string());
        self.tell.agent(&reached);
        if reached.is_err() {
            self.next_agent_check = now + TURN;
        }
        self.health.set(Check::Agent, reached);
    }

    /// One look at one pod: observe, judge, tell, and act where two judgements agree.
    async fn look(&mut self, uid: &PodUid, stop: &watch::Receiver<bool>) {
        let Some(pod) = self.live.store.get(uid) else {
            return;
        };
        let memory = &self.memory;
        let observing = observe(&self.live, &self.options.node, pod, Timestamp::now(), |ip, holder| {
            memory.first_seen(ip, holder)
        });
        // Reading may be left at any time: nothing was begun.
        let observed = tokio::select! {
            () = stopped(stop) => return,
            observed = tokio::time::timeout(self.options.judge_timeout, observing) => observed,
        };
        let now = Instant::now();
        let Some(wedge) = self.wedges.get_mut(uid) else {
            return;
        };
        let Ok(obs) = observed else {
            self.tell.too_slow(wedge, self.options.judge_timeout);
            wedge.unjudged(now);
            return;
        };
        if let Stage::Verifying(deadline) = wedge.stage
            && now >= deadline
        {
            self.metrics.acted(ActKind::DisconnectEndpoint, ActOutcome::NotHealed);
            self.tell.acted(
                wedge,
                ActKind::DisconnectEndpoint,
                ActOutcome::NotHealed.as_str(),
                "the pod did not get its sandbox in time",
            );
            wedge.stage = Stage::Watching;
        }
        let judgement = judge(&obs, &self.options.limits);
        self.metrics.judged(&judgement);
        let grounds = judgement.finding().and_then(|finding| Grounds::of(&obs, finding));
        let next = wedge.judged(now, obs.now, &judgement, grounds, &self.options);
        let changed = self.tell.judged(wedge, &obs.pod, &judgement);
        if changed && let Some(finding) = judgement.finding().filter(|finding| finding.remedy == Remedy::None)
        {
            self.metrics.refused(finding);
        }
        self.remember(&obs, &judgement);
        if let Next::Act(grounds) = next {
            self.agreed(uid, grounds, &obs, stop).await;
        }
    }

    /// The watchdog's own sightings prove later that a holder was there before a failure.
    fn remember(&mut self, obs: &Observation, judgement: &Judgement) {
        let ip = judgement.finding().and_then(|finding| finding.ip);
        if let (Some(ip), Lookup::Held(holder)) = (ip, &obs.lookup) {
            // Stamped now, after the reads: earlier would make the holder older than it is.
            self.memory.saw(ip, holder, Timestamp::now());
        }
    }

    /// Two judgements agree: act, or say why not.
    async fn agreed(
        &mut self,
        uid: &PodUid,
        grounds: Grounds,
        obs: &Observation,
        stop: &watch::Receiver<bool>,
    ) {
        let Some(wedge) = self.wedges.get_mut(uid) else {
            return;
        };
        let now = Instant::now();
        if let Some(why) = hold_back(&self.options, &self.memory, &grounds, &obs.pod, self.started) {
            self.tell.held_back(wedge, &grounds, &why.0);
            wedge.hold(now);
            if let Some(until) = why.1 {
                wedge.due = until;
            }
            return;
        }
        let kind = if grounds.target().is_some() { ActKind::DisconnectEndpoint } else { ActKind::DeletePod };
        self.tell.acting(wedge, &grounds);
        if let (ActKind::DeletePod, Some(ip), Some(controller)) = (kind, grounds.ip, &obs.pod.controller) {
            // Remembered before the call: whatever comes of it, this cause is used up.
            self.memory.moving(controller.clone(), ip, obs.now);
        }
        let acted = act(&self.live, &self.memory, &self.options, &grounds, stopped(stop)).await;
        self.health.beat();
        let now = Instant::now();
        let (outcome, note) = match acted {
            Acted::Disconnected(note) => {
                wedge.freed(now, &self.options);
                self.tell.acted(wedge, kind, "freed", &note);
                return;
            }
            Acted::PodDeleted => {
                wedge.hold(now);
                (ActOutcome::Deleted, "the API server took the deletion".to_owned())
            }
            Acted::Aborted(why) => {
                wedge.aborted(now);
                (ActOutcome::Aborted, why)
            }
            Acted::Failed(why) => {
                wedge.retry_later(now);
                (ActOutcome::Failed, why)
            }
        };
        if outcome == ActOutcome::Aborted
            && let (ActKind::DeletePod, Some(ip), Some(controller)) = (kind, grounds.ip, &obs.pod.controller)
        {
            self.memory.not_moved(controller, ip);
        }
        self.metrics.acted(kind, outcome);
        self.tell.acted(wedge, kind, outcome.as_str(), &note);
    }
}

/// Ends when the watchdog is to stop.
async fn stopped(stop: &watch::Receiver<bool>) {
    // Without a sender nobody can ask any more: that is a stop as well.
    drop(stop.clone().wait_for(|stop| *stop).await);
}

/// Why no act follows although two judgements agree, and until when if that is known.
fn hold_back(
    options: &EngineOptions,
    memory: &Memory,
    grounds: &Grounds,
    pod: &Pod,
    started: Instant,
) -> Option<(String, Option<Instant>)> {
    let enabled = if grounds.target().is_some() { options.disconnect_endpoint } else { options.delete_pod };
    let quiet_until = started + options.startup_quiet;
    let moved =
        |ip: IpAddr| pod.controller.as_ref().is_some_and(|controller| memory.was_moved(controller, ip));
    if options.mode == Mode::Observe {
        Some(("observe mode: it only tells".to_owned(), None))
    } else if !enabled {
        Some((format!("the remedy {} is off", grounds.remedy.as_str()), None))
    } else if Instant::now() < quiet_until {
        Some(("start-up quiet period".to_owned(), Some(quiet_until)))
    } else if grounds.remedy == Remedy::DeletePod && grounds.ip.is_some_and(moved) {
        Some((
            "a pod of this controller was moved off this address before: moving again would only loop"
                .to_owned(),
            None,
        ))
    } else {
        None
    }
}
