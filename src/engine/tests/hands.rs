//! An engine with all that it is held by, and one that a test turns by hand.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;

use super::days::directory;
use super::fixtures::agent_pod;
use super::node;
use super::telling::{Heard, ip};
use super::world::World;
use crate::admin::{Check, Health};
use crate::domain::{ActOutcome, Cause, Judgement, Observation, Pod, RemedyKind, Verdict};
use crate::engine::observe::observe;
use crate::engine::restart::Restarting;
use crate::engine::wedge::{Running, Stage, Wedge};
use crate::engine::{Book, Engine, EngineOptions};
use crate::kube::{Held, Protection};
use crate::ledger::{Act, ActId, BoundOptions, Intent, Ledger, Refused};
use crate::metrics::Metrics;

/// What an engine is held by from outside.
pub(super) struct Hands {
    pub(super) stop: watch::Sender<bool>,
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) found: watch::Sender<Protection>,
    pub(super) health: Health,
    pub(super) metrics: Arc<Metrics>,
    checks: Arc<Mutex<HashMap<&'static str, Result<(), String>>>>,
}

impl Hands {
    /// How a check stands.
    pub(super) fn check(&self, check: Check) -> Result<(), String> {
        self.checks.lock().unwrap()[check.as_str()].clone()
    }

    /// The value of a metric's line.
    pub(super) fn metric(&self, line: &str) -> Option<String> {
        let text = self.metrics.encode().unwrap();
        let value = text.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(' '));
        value.map(str::to_owned)
    }

    /// An engine over a world, with its ledger in this directory. It does not run yet.
    pub(super) fn on(
        world: &World,
        dir: &Path,
        options: EngineOptions,
        heard: &Heard,
    ) -> (Engine<World>, Self) {
        let (stop, stopping) = watch::channel(false);
        let (found, protection) = watch::channel(Protection::Working);
        let (health, metrics) = (Health::new(Duration::from_mins(3)), Arc::new(Metrics::new()));
        let checks = Arc::<Mutex<HashMap<_, _>>>::default();
        let heard_checks = Arc::clone(&checks);
        health.listen(move |check, state| {
            heard_checks.lock().unwrap().insert(check.as_str(), state.clone());
        });
        let book = Book::at(dir.to_owned(), node(), BoundOptions::default(), Arc::clone(&metrics));
        let (world, channels) = (world.clone(), heard.channels());
        let engine =
            Engine::new(options, world, book, protection, channels, health.clone(), Arc::clone(&metrics));
        (engine, Self { stop, stopping, found, health, metrics, checks })
    }
}

/// An engine whose steps a test takes one by one, past its start-up quiet period, over a world with one pod that waits.
pub(super) struct ByHand {
    pub(super) world: World,
    pub(super) engine: Engine<World>,
    pub(super) hands: Hands,
    pub(super) heard: Heard,
    pub(super) dir: TempDir,
}

impl ByHand {
    pub(super) async fn over(world: World, options: EngineOptions) -> Self {
        let (dir, heard) = (directory(), Heard::new(&world));
        let quiet = options.startup_quiet;
        let (mut engine, hands) = Hands::on(&world, dir.path(), options, &heard);
        engine.open_book();
        engine.follow_store();
        tokio::time::sleep(quiet).await;
        Self { world, engine, hands, heard, dir }
    }

    /// What is seen and judged of it now, and told.
    pub(super) async fn looks(&mut self) -> (Observation, Judgement) {
        let obs = observe(&self.world, &node(), self.world.waits(), self.world.clock(), |_, _| None).await;
        let judgement = (self.engine.options.judge)(&obs, &self.engine.options.limits);
        let wedge = self.engine.wedges.get_mut(&obs.pod.uid).unwrap();
        self.engine.tell.judged(wedge, &obs.pod, &judgement, obs.now);
        (obs, judgement)
    }

    /// An act for a pod that waits for an address is on record.
    pub(super) fn begins(&mut self, remedy: RemedyKind, pod: Pod, ip: IpAddr) -> ActId {
        let intent = Intent {
            remedy,
            cause: Cause::of(&pod, ip),
            pod: pod.name,
            pod_uid: pod.uid,
            target: (remedy == RemedyKind::RestartAgent).then(|| agent_pod().uid.to_string()),
            container: self.world.container_at(ip),
            verdict: Verdict::StaleEndpoint,
            reason: String::new(),
            correlation_id: "1".to_owned(),
        };
        self.engine.book.begin(intent, self.world.clock()).unwrap()
    }

    /// An act on the pod that waits is on record, and its effect is waited for.
    pub(super) fn verifies(&mut self, remedy: RemedyKind) {
        let (clock, pod) = (self.world.clock(), self.world.waits());
        let id = self.begins(remedy, pod.clone(), ip());
        let wedge = self.engine.wedges.get_mut(&pod.uid).unwrap();
        let lease = Some(Held::made(Instant::now() + Duration::from_mins(4)));
        let deadline = Instant::now() + self.engine.options.verify_timeout;
        wedge.sent(Running {
            id,
            remedy,
            deadline,
            lease,
            answered: true,
            unread: 0,
            taken: clock,
            longer: 0,
        });
    }

    /// The act that [`Self::verifies`] made, to be changed.
    pub(super) fn running(&mut self) -> &mut Running {
        let uid = self.world.waits().uid;
        match &mut self.engine.wedges.get_mut(&uid).unwrap().stage {
            Stage::Verifying(running) => running,
            stage => panic!("{stage:?}"),
        }
    }

    /// The act of that id is a restart whose effect is waited for.
    pub(super) fn restarts(&mut self, id: ActId, lease: Held) {
        let (wedged, agent) = (self.wedge().subject(), agent_pod().uid);
        let deadline = Instant::now() + self.engine.options.restart_timeout;
        self.engine.restarting = Some(Restarting { id, wedged, agent, deadline, lease });
    }

    /// The machine of the pod that waits.
    pub(super) fn wedge(&self) -> &Wedge {
        &self.engine.wedges[&self.world.waits().uid]
    }

    /// The word of each refusal on record, and the remedy that was held back.
    pub(super) fn refusals(&mut self) -> Vec<(String, Option<RemedyKind>)> {
        self.engine.book.close(self.world.clock());
        let kept = Ledger::read(self.dir.path()).unwrap();
        let refusals = kept.state().refusals().iter().map(Refused::refusal);
        refusals.map(|it| (it.word.clone(), it.remedy)).collect()
    }

    /// The outcomes of all acts on record, `None` for those without an end, and their notes.
    pub(super) fn outcomes(&self) -> Vec<(Option<ActOutcome>, String)> {
        let end = |act: &Act| {
            act.ended().map_or((None, String::new()), |end| (Some(end.outcome), end.note.clone()))
        };
        self.engine.book.acts().map(end).collect()
    }
}
