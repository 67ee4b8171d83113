//! All that is kept of one node, and what may begin. Pure: no file, no clock. Must not know how it is stored.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::act::{Act, ActId, End, Ending, Intent, Note, Refusal, Refused};
use super::bound::Bound;
use super::breaker::{Breaker, BreakerView};
use super::bucket::Bucket;
use super::futile::{self, Futile, Memory};
use super::options::BoundOptions;
use super::text::kept;
use crate::domain::{ActOutcome, Cause, PodUid, RemedyKind};

/// So many acts are kept, and more only where they are open or count for the breaker.
const MOST_ACTS: usize = 128;
/// More than that many acts can't come to be.
const MOST_ACTS_EVER: usize = 512;
/// So many refusals are kept.
const MOST_REFUSALS: usize = 128;
/// No act of that number: a file that holds one is not ours.
const MOST_ID: u64 = u64::MAX / 2;

/// What was meant and refused on one node, what came of it, and the bounds that follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    /// The number of the next act.
    next_id: ActId,
    /// What is left of each remedy's budget.
    budgets: Budgets,
    /// The breaker.
    breaker: Breaker,
    /// Causes that are used up.
    futile: Memory,
    /// The newest acts, in the order in which they began.
    acts: Vec<Act>,
    /// The newest refusals, in the order in which they were last told.
    refusals: Vec<Refused>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Budgets {
    disconnect: Bucket,
    delete_pod: Bucket,
    restart_agent: Bucket,
}

impl Budgets {
    fn of(&self, remedy: RemedyKind) -> Bucket {
        match remedy {
            RemedyKind::DisconnectEndpoint => self.disconnect,
            RemedyKind::DeletePod => self.delete_pod,
            RemedyKind::RestartAgent => self.restart_agent,
        }
    }

    fn of_mut(&mut self, remedy: RemedyKind) -> &mut Bucket {
        match remedy {
            RemedyKind::DisconnectEndpoint => &mut self.disconnect,
            RemedyKind::DeletePod => &mut self.delete_pod,
            RemedyKind::RestartAgent => &mut self.restart_agent,
        }
    }
}

/// No open act has this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no open act {0}")]
pub struct NoSuchAct(pub ActId);

/// What a state must not be. A file that says so is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it contradicts itself: {0}")]
pub(super) struct Contradiction(&'static str);

impl State {
    /// One of a node on which nothing was done: all bounds are full.
    pub fn fresh(options: &BoundOptions) -> Self {
        Self::with(|remedy| Bucket::full(options.bucket(remedy)))
    }

    /// One of a node of which nothing is known: the budgets are empty and refill, the breaker is open for a cool-down.
    pub fn closed(why: &str, now: Timestamp, options: &BoundOptions) -> Self {
        let mut state = Self::with(|_| Bucket::empty(now));
        state.breaker.open(why, now, &options.breaker);
        state
    }

    fn with(bucket: impl Fn(RemedyKind) -> Bucket) -> Self {
        Self {
            next_id: ActId(1),
            budgets: Budgets {
                disconnect: bucket(RemedyKind::DisconnectEndpoint),
                delete_pod: bucket(RemedyKind::DeletePod),
                restart_agent: bucket(RemedyKind::RestartAgent),
            },
            breaker: Breaker::closed(),
            futile: Memory::default(),
            acts: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Whether such an act may begin now; [`State::begin`] would give the same answer.
    pub fn check(
        &self,
        remedy: RemedyKind,
        cause: &Cause,
        pod: &PodUid,
        now: Timestamp,
        options: &BoundOptions,
    ) -> Result<(), Bound> {
        if kept(&cause.of) != cause.of {
            return Err(Bound::Unrecorded("the name of the cause is too long, or no name".to_owned()));
        }
        if let Some(act) = self.open_acts().find(|act| act.intent.pod_uid == *pod) {
            return Err(Bound::UnderWay { act: act.id, since: act.began });
        }
        self.futile.check(remedy, cause, |id| self.is_open(id), now, options.keep_futile)?;
        if !self.futile.has_room(self.open_acts().count()) || self.next_id.0 >= MOST_ID {
            return Err(Bound::MemoryFull);
        }
        self.breaker.check(&self.acts, now, &options.breaker)?;
        let (budget, bounds) = (self.budgets.of(remedy), options.bucket(remedy));
        if budget.tokens(now, bounds) == 0 {
            return Err(Bound::Budget { remedy, next: budget.next(now, bounds) });
        }
        Ok(())
    }

    /// An act begins: its token is taken, and its cause is used up if it is to delete or restart something.
    pub fn begin(&mut self, intent: Intent, now: Timestamp, options: &BoundOptions) -> Result<ActId, Bound> {
        self.catch_up(now, options);
        let intent = intent.kept();
        let remedy = intent.remedy;
        self.check(remedy, &intent.cause, &intent.pod_uid, now, options)?;
        let (budget, bounds) = (self.budgets.of(remedy), options.bucket(remedy));
        let Some(left) = budget.take(now, bounds) else {
            return Err(Bound::Budget { remedy, next: budget.next(now, bounds) });
        };
        *self.budgets.of_mut(remedy) = left;
        let id = self.next_id;
        self.next_id = ActId(id.0.saturating_add(1));
        if remedy != RemedyKind::DisconnectEndpoint {
            self.futile.arm(remedy, &intent.cause, id, "it was meant", now);
        }
        self.breaker.began(id);
        self.acts.push(Act { id, began: now, intent, sent: None, ended: None });
        self.forget_acts(options);
        Ok(id)
    }

    /// The call of an open act is known to have been taken.
    pub fn sent(&mut self, id: ActId, note: &str, now: Timestamp) -> Result<(), NoSuchAct> {
        let act = self.acts.iter_mut().find(|act| act.id == id && act.is_open()).ok_or(NoSuchAct(id))?;
        act.sent = Some(Note { at: now, note: kept(note) });
        Ok(())
    }

    /// An open act has its outcome.
    pub fn end(
        &mut self,
        id: ActId,
        ending: Ending,
        now: Timestamp,
        options: &BoundOptions,
    ) -> Result<(), NoSuchAct> {
        let act = self.acts.iter_mut().find(|act| act.id == id && act.is_open()).ok_or(NoSuchAct(id))?;
        let Ending { outcome, note, nothing_done } = ending;
        act.ended = Some(End { at: now, outcome, note: kept(&note) });
        let act = act.clone();
        let (remedy, cause) = (act.intent.remedy, &act.intent.cause);
        if remedy == RemedyKind::DisconnectEndpoint {
            if outcome == ActOutcome::NotHealed {
                self.futile.arm(remedy, cause, id, outcome.as_str(), now);
            }
        } else if nothing_done && act.sent.is_none() {
            self.futile.disarm(id);
        } else {
            self.futile.arm(remedy, cause, id, outcome.as_str(), now);
        }
        self.breaker.ended(&act, &self.acts, now, &options.breaker);
        self.forget_acts(options);
        self.catch_up(now, options);
        Ok(())
    }

    /// Something was not done. The same refusal of the same pod is kept once, and counted.
    pub fn refuse(&mut self, refusal: Refusal, now: Timestamp) {
        let refusal = refusal.kept();
        let same = |it: &Refusal| {
            (&it.pod_uid, it.ip, it.verdict, it.remedy, &it.word) == {
                (&refusal.pod_uid, refusal.ip, refusal.verdict, refusal.remedy, &refusal.word)
            }
        };
        let found = self.refusals.iter().position(|it| same(&it.refusal));
        let (first, count) = match found.map(|at| self.refusals.remove(at)) {
            Some(earlier) => (earlier.first, earlier.count.saturating_add(1)),
            None => (now, 1),
        };
        self.refusals.push(Refused { refusal, first, last: now, count });
        let over = self.refusals.len().saturating_sub(MOST_REFUSALS);
        self.refusals.drain(..over);
    }

    /// Follows the clock: forgets what is old enough, opens the breaker where only acts without help are left in the
    /// window, and dates nothing ahead of a clock that was set back. Never makes more possible than `check` says.
    pub fn catch_up(&mut self, now: Timestamp, options: &BoundOptions) {
        for remedy in RemedyKind::ALL {
            let budget = self.budgets.of_mut(remedy);
            *budget = budget.as_of(now, options.bucket(remedy));
        }
        self.breaker.catch_up(&self.acts, now, &options.breaker);
        let acts = &self.acts;
        let open = |id| acts.iter().any(|act| act.id == id && act.is_open());
        self.futile.catch_up(open, now, options.keep_futile);
    }

    /// The acts that are kept, the newest last.
    pub fn acts(&self) -> &[Act] {
        &self.acts
    }

    /// The acts without an outcome, the newest last.
    pub fn open_acts(&self) -> impl Iterator<Item = &Act> {
        self.acts.iter().filter(|act| act.is_open())
    }

    /// The refusals that are kept, in the order in which they were last told.
    pub fn refusals(&self) -> &[Refused] {
        &self.refusals
    }

    /// The causes that are used up, and those that were and are not yet forgotten.
    pub fn futile(&self) -> &[Futile] {
        self.futile.all()
    }

    /// How many acts of this remedy its budget allows now.
    pub fn tokens(&self, remedy: RemedyKind, now: Timestamp, options: &BoundOptions) -> u32 {
        self.budgets.of(remedy).tokens(now, options.bucket(remedy))
    }

    /// When the budget of this remedy grows by one; `None`: it is as full as it gets.
    pub fn next_token(
        &self,
        remedy: RemedyKind,
        now: Timestamp,
        options: &BoundOptions,
    ) -> Option<Timestamp> {
        let (budget, bounds) = (self.budgets.of(remedy), options.bucket(remedy));
        (budget.tokens(now, bounds) < bounds.burst).then(|| budget.next(now, bounds)).flatten()
    }

    /// The breaker now.
    pub fn breaker(&self, now: Timestamp) -> BreakerView {
        match &self.breaker.opened {
            None => BreakerView::Closed,
            Some(opened) if now < opened.until => {
                BreakerView::Open { until: opened.until, why: opened.why.clone() }
            }
            Some(_) => BreakerView::HalfOpen,
        }
    }

    fn is_open(&self, id: ActId) -> bool {
        self.open_acts().any(|act| act.id == id)
    }

    /// Drops the oldest acts that are neither open nor count for the breaker.
    fn forget_acts(&mut self, options: &BoundOptions) {
        let counting = self.acts.iter().rev().filter(|act| self.breaker.counts(act));
        let looked_at = counting.take(options.breaker.looked_at()).last().map(|act| act.id);
        let breaker = &self.breaker;
        let needed = |act: &Act| {
            act.is_open() || (breaker.counts(act) && looked_at.is_some_and(|from| act.id >= from))
        };
        let mut over = self.acts.len().saturating_sub(MOST_ACTS);
        let keep: Vec<bool> = self
            .acts
            .iter()
            .map(|act| {
                let drop = over > 0 && !needed(act);
                over -= usize::from(drop);
                !drop
            })
            .collect();
        let mut keep = keep.into_iter();
        self.acts.retain(|_| keep.next().unwrap_or(true));
    }

    /// What was read must be what this program writes.
    pub(super) fn verify(&self) -> Result<(), Contradiction> {
        let ids = self.acts.iter().map(|act| act.id);
        if !ids.clone().is_sorted_by(|a, b| a < b) || ids.clone().any(|id| id >= self.next_id) {
            return Err(Contradiction("the acts' numbers are not in order"));
        }
        if self.next_id.0 > MOST_ID {
            return Err(Contradiction("the acts' numbers are too high"));
        }
        let trial = self.breaker.opened.as_ref().and_then(|opened| opened.trial);
        if trial.is_some_and(|trial| !self.is_open(trial)) {
            return Err(Contradiction("the act that tries after a cool-down is not open"));
        }
        let causes = self.acts.iter().map(|act| &act.intent.cause);
        if causes.chain(self.futile.all().iter().map(Futile::cause)).any(|cause| kept(&cause.of) != cause.of)
        {
            return Err(Contradiction("the name of a cause is no name"));
        }
        if self.acts.len() > MOST_ACTS_EVER
            || self.refusals.len() > MOST_REFUSALS
            || self.futile.all().len() > futile::MOST
        {
            return Err(Contradiction("it holds more than is ever kept"));
        }
        Ok(())
    }

    /// Whoever wrote it: each text as short and harmless as if it had come by [`State::begin`].
    pub(super) fn harmless(mut self) -> Self {
        for act in &mut self.acts {
            act.intent = act.intent.clone().kept();
            let notes = act.sent.iter_mut().map(|sent| &mut sent.note);
            notes.chain(act.ended.iter_mut().map(|end| &mut end.note)).for_each(|note| *note = kept(note));
        }
        for refused in &mut self.refusals {
            refused.refusal = refused.refusal.clone().kept();
        }
        self.breaker.opened.iter_mut().for_each(|opened| opened.why = kept(&opened.why));
        self.futile.harmless();
        self
    }
}
