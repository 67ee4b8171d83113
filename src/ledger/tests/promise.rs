//! The bounds over random histories, held against a model that shares nothing with the code: clocks that go back,
//! restarts at any point, outcomes in any order.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::{at, intent, node, refusal};
use crate::domain::{ActOutcome, RemedyKind};
use crate::ledger::{
    ActId, Bound, BoundOptions, BreakerOptions, BreakerView, BucketOptions, Ending, Snapshot, State,
};

#[derive(Debug, Clone)]
enum Step {
    Begin { remedy: usize, pod: usize, cause: usize },
    Sent { which: usize },
    End { which: usize, outcome: usize, nothing_done: bool },
    Refuse { pod: usize },
    Pass { seconds: i64 },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3_usize, 0..12_usize, 0..8_usize).prop_map(|(remedy, pod, cause)| Step::Begin { remedy, pod, cause }),
        1 => (0..8_usize).prop_map(|which| Step::Sent { which }),
        6 => (0..8_usize, 0..7_usize, any::<bool>())
            .prop_map(|(which, outcome, nothing_done)| Step::End { which, outcome, nothing_done }),
        1 => (0..12_usize).prop_map(|pod| Step::Refuse { pod }),
        4 => prop_oneof![6 => 1..120_i64, 2 => 1..4_000_i64, 1 => -4_000..0_i64]
            .prop_map(|seconds| Step::Pass { seconds }),
        1 => Just(Step::Restart),
    ]
}

fn options() -> impl Strategy<Value = BoundOptions> {
    let bucket = || {
        (1..6_u32, 1..200_u64)
            .prop_map(|(burst, refill)| BucketOptions { burst, refill: Duration::from_secs(refill) })
    };
    let breaker = (1..5_u32, 0..60_u32, 2..20_u32, 60..4_000_u64, 10..2_000_u64).prop_map(
        |(floor, share_percent, window, span, cool_down)| BreakerOptions {
            floor,
            share_percent,
            window,
            span: Duration::from_secs(span),
            cool_down: Duration::from_secs(cool_down),
        },
    );
    (bucket(), bucket(), bucket(), breaker, 100..4_000_u64).prop_map(
        |(disconnect, delete_pod, restart_agent, breaker, keep)| BoundOptions {
            disconnect,
            delete_pod,
            restart_agent,
            breaker,
            keep_futile: Duration::from_secs(keep),
        },
    )
}

#[derive(Debug)]
struct ModelAct {
    id: ActId,
    remedy: RemedyKind,
    pod: usize,
    cause: usize,
    sent: bool,
    trial: bool,
    /// How far the clock had gone forward in all.
    forward: Duration,
    ended: Option<(Timestamp, Option<bool>)>,
}

struct Model {
    options: BoundOptions,
    acts: Vec<ModelAct>,
    /// Acts before this one are out of the window.
    from: usize,
    /// By remedy and cause: how far the clock had gone forward when it was used up.
    used: HashMap<(RemedyKind, usize), Duration>,
    now: Timestamp,
    forward: Duration,
}

impl Model {
    fn pending(&self) -> usize {
        self.acts.iter().filter(|act| act.ended.is_none()).count()
    }

    /// The clock went forward at least that much since.
    fn passed(&self, since: Duration) -> Duration {
        self.forward.saturating_sub(since)
    }

    fn began(&mut self, id: ActId, remedy: RemedyKind, pod: usize, cause: usize, half_open: bool) {
        let open = |act: &ModelAct| act.ended.is_none();
        assert!(!self.acts.iter().any(|act| open(act) && act.pod == pod), "two open acts on one pod");
        let deletes = remedy != RemedyKind::DisconnectEndpoint;
        if deletes {
            let same = |act: &&ModelAct| act.remedy == remedy && act.cause == cause;
            assert!(!self.acts.iter().filter(same).any(open), "a cause that an open act has used up");
        }
        if let Some(since) = self.used.get(&(remedy, cause)) {
            assert!(self.passed(*since) >= self.options.keep_futile, "a cause was used twice");
        }
        if deletes {
            self.used.insert((remedy, cause), self.forward);
        }
        let forward = self.forward;
        self.acts.push(ModelAct {
            id,
            remedy,
            pod,
            cause,
            sent: false,
            trial: half_open,
            forward,
            ended: None,
        });
        self.budget(remedy);
        self.breaker(half_open);
    }

    /// From each earlier act on: no more than the burst and what came back.
    fn budget(&self, remedy: RemedyKind) {
        let bounds = self.options.bucket(remedy);
        let same: Vec<&ModelAct> = self.acts.iter().filter(|act| act.remedy == remedy).collect();
        for (first, act) in same.iter().enumerate() {
            let back = self.passed(act.forward).as_secs() / bounds.refill.as_secs();
            assert!((same.len() - first) as u64 <= u64::from(bounds.burst) + back, "over the budget");
        }
    }

    fn breaker(&self, half_open: bool) {
        if half_open {
            assert_eq!(self.pending(), 1, "not the only act after a cool-down");
            return;
        }
        let breaker = self.options.breaker;
        let counting = self.acts[self.from..].iter().rev();
        let counting = counting.filter(|act| act.ended.is_none_or(|(_, helped)| helped.is_some()));
        let window = counting.take(breaker.window.max(breaker.floor + 1) as usize);
        let young =
            |at: Timestamp| self.now.duration_since(at) <= SignedDuration::try_from(breaker.span).unwrap();
        let ends = window.filter_map(|act| act.ended).filter(|(at, _)| young(*at));
        let told: Vec<bool> = ends.filter_map(|(_, helped)| helped).collect();
        let unhelpful = told.iter().filter(|helped| !**helped).count();
        let share = told.len() * breaker.share_percent as usize / 100;
        let most = share.max(breaker.floor as usize);
        assert!(unhelpful < most, "{unhelpful} of {most} did not help, and another one began");
        let most = most.max(told.len() - unhelpful);
        assert!(unhelpful + self.pending() <= most, "{unhelpful} + {} > {most}", self.pending());
    }

    fn ended(&mut self, id: ActId, outcome: ActOutcome, nothing_done: bool) {
        let at = self.acts.iter().position(|act| act.id == id).unwrap();
        let act = &mut self.acts[at];
        act.ended = Some((self.now, outcome.helped()));
        let used = match act.remedy {
            RemedyKind::DisconnectEndpoint => outcome == ActOutcome::NotHealed,
            _ => act.sent || !nothing_done,
        };
        let key = (act.remedy, act.cause);
        if used {
            self.used.insert(key, self.forward);
        } else if act.remedy != RemedyKind::DisconnectEndpoint {
            self.used.remove(&key);
        }
        if self.acts[at].trial && outcome.helped() == Some(true) {
            self.from = at + 1;
        }
    }
}

/// What another process would read.
fn reread(state: &State, options: &BoundOptions, now: Timestamp) -> State {
    let written = serde_json::to_vec(&Snapshot::new(node(), now, options.clone(), state.clone())).unwrap();
    let read = Snapshot::parse(&written).unwrap().into_state();
    assert_eq!(read, *state);
    read
}

fn run(options: &BoundOptions, steps: Vec<Step>) {
    let mut state = State::fresh(options);
    let mut model = Model {
        options: options.clone(),
        acts: Vec::new(),
        from: 0,
        used: HashMap::new(),
        now: at(0),
        forward: Duration::ZERO,
    };
    for step in steps {
        let now = model.now;
        let open: Vec<ActId> = state.open_acts().map(crate::ledger::Act::id).collect();
        let pick = |which: usize| open.get(which % open.len().max(1)).copied();
        match step {
            Step::Begin { remedy, pod, cause } => {
                let remedy = RemedyKind::ALL[remedy];
                state.catch_up(now, options);
                let half_open = state.breaker(now) == BreakerView::HalfOpen;
                let intent = intent(remedy, pod, cause);
                let checked = state.check(remedy, &intent.cause, &intent.pod_uid, now, options);
                let before = state.clone();
                let began = state.begin(intent, now, options);
                assert_eq!(checked.as_ref().err(), began.as_ref().err(), "check and begin agree");
                match began {
                    Ok(id) => model.began(id, remedy, pod, cause, half_open),
                    Err(bound) => {
                        assert_eq!(state, before, "what did not begin changes nothing");
                        let in_time = bound.until().is_none_or(|until| until > now);
                        assert!(in_time || matches!(bound, Bound::Futile { .. }), "{bound:?} at {now}");
                    }
                }
            }
            Step::Sent { which } => {
                if let Some(id) = pick(which) {
                    state.sent(id, "taken", now).unwrap();
                    model.acts.iter_mut().find(|act| act.id == id).unwrap().sent = true;
                }
            }
            Step::End { which, outcome, nothing_done } => {
                if let Some(id) = pick(which) {
                    let outcome = ActOutcome::ALL[outcome];
                    let ending = Ending::new(outcome, "seen");
                    let ending = if nothing_done { ending.nothing_done() } else { ending };
                    state.end(id, ending, now, options).unwrap();
                    model.ended(id, outcome, nothing_done || outcome == ActOutcome::Aborted);
                }
            }
            Step::Refuse { pod } => state.refuse(refusal(pod, "budget"), now),
            Step::Pass { seconds } => {
                model.now += SignedDuration::from_secs(seconds);
                model.forward += Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            }
            Step::Restart => {
                state = reread(&state, options, now);
                state.catch_up(now, options);
            }
        }
        assert_eq!(state.open_acts().count(), model.pending(), "open acts are never lost");
        assert!(state.acts().len() <= 256 && state.refusals().len() <= 128);
    }
    reread(&state, options, model.now);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_exceeds_the_bounds(options in options(), steps in prop::collection::vec(step(), 1..250)) {
        run(&options, steps);
    }
}
