//! When a pod that waits is looked at again, when two judgements agree, and what shows of an act.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use tokio::time::Instant;

use super::fixtures::waiting_pod;
use super::options;
use crate::domain::{
    ActOutcome, Failure, Finding, Judgement, NotWedged, Phase, Pod, Proof, Remedy, RemedyKind, Verdict,
    Withheld, judge,
};
use crate::engine::wedge::{Grounds, Next, Running, Told, Wedge};
use crate::ledger::ActId;

fn clock() -> Timestamp {
    "2026-06-18T10:05:00Z".parse().unwrap()
}

fn finding(verdict: Verdict, remedy: Remedy, look_again: Option<Timestamp>) -> Judgement {
    wedged(Finding { remedy, look_again, ..refusal(verdict) })
}

fn wedged(finding: Finding) -> Judgement {
    Judgement::Wedged(Box::new(finding))
}

fn refusal(verdict: Verdict) -> Finding {
    Finding {
        ip: "10.0.0.1".parse().ok(),
        verdict,
        remedy: Remedy::None,
        withheld: None,
        proof: None,
        owner: None,
        reason: String::new(),
        evidence: Vec::new(),
        failure: None,
        look_again: None,
    }
}

fn no_wedge() -> Judgement {
    Judgement::NotWedged(NotWedged { reason: String::new(), evidence: Vec::new() })
}

fn act(number: u64) -> ActId {
    serde_json::from_value(number.into()).unwrap()
}

/// An act whose call was answered now.
fn running(remedy: RemedyKind, deadline: Instant) -> Running {
    Running {
        id: act(1),
        remedy,
        deadline,
        lease: None,
        answered: true,
        unread: 0,
        taken: clock(),
        longer: 0,
    }
}

fn told(verdict: Verdict) -> Told {
    Told { verdict: Some(verdict), ip: None, remedy: "none", withheld: None }
}

fn grounds() -> Grounds {
    Grounds {
        ip: "10.0.0.1".parse().ok(),
        remedy: Remedy::DeletePod,
        proof: None,
        pod: ("uid".parse().unwrap(), "1".to_owned()),
        owner: None,
    }
}

/// Time moves by hand, so nothing waits.
struct Machine {
    wedge: Wedge,
    now: Instant,
}

impl Machine {
    fn new() -> Self {
        let now = Instant::now();
        Self { wedge: Wedge::new("id".to_owned(), waiting_pod(), clock(), now), now }
    }

    fn after(&mut self, seconds: u64) -> &mut Self {
        self.now += Duration::from_secs(seconds);
        self
    }

    /// Until the next look.
    fn pause(&self) -> Duration {
        self.wedge.due - self.now
    }

    fn sees(&mut self, grounds: Grounds) -> Next {
        let judgement = finding(Verdict::ReservedHolder, grounds.remedy.clone(), None);
        self.wedge.judged(self.now, clock(), &judgement, Some(grounds), &options(judge))
    }

    fn hears(&mut self, judgement: &Judgement) -> Duration {
        assert_eq!(self.wedge.judged(self.now, clock(), judgement, None, &options(judge)), Next::Wait);
        self.pause()
    }

    fn refused(&mut self, verdict: Verdict, look_again: Option<Timestamp>) -> Duration {
        self.hears(&finding(verdict, Remedy::None, look_again))
    }

    fn nothing(&mut self) -> Duration {
        self.hears(&no_wedge())
    }

    fn is_overdue(&self) -> bool {
        self.wedge.is_overdue(self.now)
    }

    fn unjudged(&mut self) -> Duration {
        self.wedge.unjudged(self.now);
        self.pause()
    }
}

#[test]
fn one_judgement_never_acts_and_the_second_only_after_the_gap() {
    let mut machine = Machine::new();
    assert_eq!(machine.sees(grounds()), Next::Wait);
    assert_eq!(machine.pause(), Duration::from_secs(2));
    assert_eq!(machine.after(1).sees(grounds()), Next::Wait);
    assert_eq!(machine.pause(), Duration::from_secs(1));
    assert_eq!(machine.after(1).sees(grounds()), Next::Act(grounds()));
}

#[rstest]
#[case::another_address(Grounds { ip: "10.0.0.2".parse().ok(), ..grounds() })]
#[case::another_pod(Grounds { pod: ("other".parse().unwrap(), "1".to_owned()), ..grounds() })]
#[case::an_owner_appeared(Grounds { owner: Some(("o".parse().unwrap(), "Pending", None)), ..grounds() })]
#[case::another_proof(Grounds { proof: Some(Proof::OwnerGone), ..grounds() })]
fn other_grounds_begin_again(#[case] other: Grounds) {
    let mut machine = Machine::new();
    machine.sees(grounds());
    assert_eq!(machine.after(2).sees(other.clone()), Next::Wait);
    assert_eq!(machine.after(2).sees(other.clone()), Next::Act(other));
}

#[test]
fn a_new_version_of_the_pod_is_the_same_case_and_the_act_gets_the_newest() {
    let mut machine = Machine::new();
    machine.sees(grounds());
    let newer = Grounds { pod: ("uid".parse().unwrap(), "2".to_owned()), ..grounds() };
    assert_eq!(machine.after(2).sees(newer.clone()), Next::Act(newer));
}

#[test]
fn a_refusal_or_no_finding_between_begins_again() {
    let mut machine = Machine::new();
    machine.sees(grounds());
    machine.after(2).refused(Verdict::AgentUnknown, None);
    assert_eq!(machine.after(2).sees(grounds()), Next::Wait);
    machine.after(2).nothing();
    assert_eq!(machine.after(2).sees(grounds()), Next::Wait);
}

#[test]
fn a_rule_about_time_is_looked_at_when_it_may_come_out_otherwise() {
    let mut machine = Machine::new();
    let in_3_s = clock() + Duration::from_secs(3);
    assert_eq!(machine.refused(Verdict::Settling, Some(in_3_s)), Duration::from_secs(3));
    let in_an_hour = clock() + Duration::from_hours(1);
    assert_eq!(machine.refused(Verdict::Settling, Some(in_an_hour)), Duration::from_secs(10));
    assert_eq!(machine.refused(Verdict::Settling, Some(clock())), Duration::from_millis(100));
    assert_eq!(machine.refused(Verdict::Settling, None), Duration::from_secs(10));
    assert_eq!(machine.refused(Verdict::LiveDuplicate, None), Duration::from_secs(30));
    let withheld = |withheld| {
        let look_again = Some(in_3_s);
        wedged(Finding { withheld: Some(withheld), look_again, ..refusal(Verdict::ReservedHolder) })
    };
    assert_eq!(machine.hears(&withheld(Withheld::Timing)), Duration::from_secs(3));
    assert_eq!(machine.hears(&withheld(Withheld::NotMovable)), Duration::from_secs(30));
    for verdict in [Verdict::NotHeld, Verdict::InsufficientEvidence] {
        assert_eq!(machine.refused(verdict, None), Duration::from_secs(15), "{verdict}");
    }
}

#[test]
fn an_agent_that_does_not_answer_is_asked_ever_less() {
    let mut machine = Machine::new();
    let delays: Vec<Duration> = (0..12).map(|_| machine.refused(Verdict::AgentUnknown, None)).collect();
    assert!(is_first(delays[0]), "{delays:?}");
    assert!(delays[11] >= Duration::from_mins(2), "{delays:?}");
    // A look that took too long is no answer either; one answer, and all begins anew.
    assert!(machine.unjudged() >= Duration::from_mins(2));
    machine.refused(Verdict::NotHeld, None);
    assert!(is_first(machine.unjudged()));
    assert!(machine.refused(Verdict::AgentUnknown, None) >= Duration::from_secs(10));
}

/// The first of pauses that grow, which are up to twice as long by chance.
fn is_first(pause: Duration) -> bool {
    (Duration::from_secs(5)..Duration::from_secs(10)).contains(&pause)
}

#[test]
fn a_pod_that_waits_for_something_else_is_read_ever_less() {
    let mut machine = Machine::new();
    let delays: Vec<u64> = (0..130).map(|_| machine.nothing().as_secs()).collect();
    assert_eq!((delays[0], delays[59], delays[60], delays[129]), (5, 5, 15, 30));
    machine.refused(Verdict::NotHeld, None);
    assert_eq!(machine.nothing(), Duration::from_secs(5));
}

#[test]
fn a_live_duplicate_is_looked_at_soon_when_a_pod_ends_and_nothing_else_is() {
    let mut machine = Machine::new();
    machine.refused(Verdict::LiveDuplicate, None);
    machine.wedge.told = Some(told(Verdict::UnmanagedHolder));
    machine.after(1);
    machine.wedge.hurry(machine.now);
    assert_eq!(machine.pause(), Duration::from_secs(29));
    machine.wedge.told = Some(told(Verdict::LiveDuplicate));
    machine.wedge.hurry(machine.now);
    assert_eq!(machine.pause(), Duration::from_secs(4), "5 s after the last look");
    machine.after(9);
    machine.wedge.hurry(machine.now);
    assert!(machine.wedge.due <= machine.now);
}

#[test]
fn aborts_are_tried_again_soon_and_then_later() {
    let mut machine = Machine::new();
    for _ in 0..3 {
        machine.wedge.aborted(machine.now);
        assert_eq!(machine.pause(), Duration::from_secs(1));
    }
    machine.wedge.aborted(machine.now);
    assert!(is_first(machine.pause()));
}

/// What became of an act, or of a look, after which one judgement is not enough again.
#[rstest]
#[case::aborted(Wedge::aborted)]
#[case::put_off(Wedge::retry_later)]
#[case::no_judgement_came_out(Wedge::unjudged)]
fn two_judgements_are_needed_again(#[case] then: fn(&mut Wedge, Instant)) {
    let mut machine = Machine::new();
    machine.sees(grounds());
    assert_eq!(machine.after(2).sees(grounds()), Next::Act(grounds()));
    then(&mut machine.wedge, machine.now);
    assert!(machine.pause() >= Duration::from_secs(1));
    assert_eq!(machine.after(2).sees(grounds()), Next::Wait);
    assert_eq!(machine.after(2).sees(grounds()), Next::Act(grounds()));
}

#[test]
fn grounds_that_are_held_back_stand_and_are_looked_at_when_it_may_come_out_otherwise() {
    let mut machine = Machine::new();
    machine.sees(grounds());
    machine.after(2);
    let now = machine.now;
    for (until, pause) in [(None, 30), (Some(0), 1), (Some(7), 7), (Some(3600), 30)] {
        machine.wedge.hold(now, until.map(|seconds| now + Duration::from_secs(seconds)));
        assert_eq!(machine.pause(), Duration::from_secs(pause), "{until:?}");
    }
    assert!(machine.wedge.take_running().is_none());
    assert_eq!(machine.after(1).sees(grounds()), Next::Act(grounds()));
}

#[test]
fn while_an_act_is_to_show_nothing_else_counts_until_its_time_is_over() {
    let mut machine = Machine::new();
    let minute = Duration::from_mins(1);
    machine.wedge.told = Some(told(Verdict::LiveDuplicate));
    assert!(!machine.wedge.is_verifying() && !machine.is_overdue());
    machine.wedge.sent(running(RemedyKind::DisconnectEndpoint, machine.now + minute));
    assert!(machine.wedge.is_verifying());
    assert!(machine.wedge.follows(act(1)) && !machine.wedge.follows(act(2)));
    assert_eq!(machine.pause(), minute);
    machine.wedge.hurry(machine.now);
    assert_eq!(machine.pause(), minute, "a pod that ends does not hurry it");
    let hold = |machine: &mut Machine| machine.wedge.hold(machine.now, None);
    hold(&mut machine);
    assert_eq!((machine.sees(grounds()), machine.pause()), (Next::Wait, minute));
    hold(&mut machine);
    assert_eq!(machine.unjudged(), minute);
    hold(&mut machine);
    assert_eq!(machine.nothing(), minute);

    assert!(!machine.after(59).is_overdue());
    assert!(machine.after(1).is_overdue());
    assert!(machine.wedge.take_running().is_some_and(|it| it.id == act(1)));
    assert!(!machine.wedge.is_verifying() && !machine.is_overdue());
    assert!(!machine.wedge.follows(act(1)));
}

fn ready() -> Pod {
    Pod { sandbox_ready: Some(true), ..waiting_pod() }
}

#[rstest]
#[case::waits(Some(waiting_pod()), None, None)]
#[case::has_its_sandbox(Some(ready()), Some(ActOutcome::Healed), Some(ActOutcome::NotHealed))]
#[case::is_going(Some(Pod { deleting: true, ..waiting_pod() }), Some(ActOutcome::Disconnected), Some(ActOutcome::Deleted))]
#[case::is_going_with_a_sandbox(Some(Pod { deleting: true, ..ready() }), Some(ActOutcome::Disconnected), Some(ActOutcome::Deleted))]
#[case::has_ended(Some(Pod { phase: Phase::Failed, ..ready() }), Some(ActOutcome::Disconnected), Some(ActOutcome::NotHealed))]
#[case::is_gone(None, Some(ActOutcome::Disconnected), Some(ActOutcome::Deleted))]
fn what_a_pod_shows_of_a_disconnect_and_of_its_deletion(
    #[case] pod: Option<Pod>,
    #[case] disconnect: Option<ActOutcome>,
    #[case] deletion: Option<ActOutcome>,
) {
    let shows = |remedy| running(remedy, Instant::now()).shows(pod.as_ref()).map(|(outcome, _)| outcome);
    assert_eq!(shows(RemedyKind::DisconnectEndpoint), disconnect);
    assert_eq!(shows(RemedyKind::DeletePod), deletion);
}

#[rstest]
#[case::a_disconnect(RemedyKind::DisconnectEndpoint, true, 0, true)]
#[case::for_the_last_time(RemedyKind::DisconnectEndpoint, true, 8, true)]
#[case::not_without_end(RemedyKind::DisconnectEndpoint, true, 9, false)]
#[case::not_what_nobody_answered(RemedyKind::DisconnectEndpoint, false, 0, false)]
#[case::not_a_deletion(RemedyKind::DeletePod, true, 0, false)]
fn an_act_may_take_longer(
    #[case] remedy: RemedyKind,
    #[case] answered: bool,
    #[case] longer: u32,
    #[case] may: bool,
) {
    let act = Running { answered, longer, ..running(remedy, Instant::now()) };
    assert_eq!((act.may_take_longer(), act.may_yet_show(None)), (may, may));
}

/// A refusal of the address by now, so many seconds after the call.
fn refused_again(verdict: Verdict, seconds: Option<i64>) -> Judgement {
    let failure = Failure {
        at: seconds.map(|seconds| clock() + SignedDuration::from_secs(seconds)),
        addresses: Vec::new(),
        sandboxes: Vec::new(),
        earlier_sandboxes: Vec::new(),
        lone: false,
        count: 1,
    };
    wedged(Finding { failure: Some(failure), ..refusal(verdict) })
}

#[rstest]
#[case::no_judgement(None, true)]
#[case::waits_for_something_else(Some(no_wedge()), true)]
#[case::agent_is_silent(Some(wedged(refusal(Verdict::AgentUnknown))), true)]
#[case::agent_settles(Some(wedged(refusal(Verdict::Settling))), true)]
#[case::something_is_unread(Some(wedged(refusal(Verdict::InsufficientEvidence))), true)]
#[case::has_not_tried_since(Some(refused_again(Verdict::NotHeld, Some(-1))), true)]
#[case::tried_at_that_time(Some(refused_again(Verdict::NotHeld, Some(0))), true)]
#[case::was_refused_since(Some(refused_again(Verdict::NotHeld, Some(1))), false)]
#[case::was_refused_nobody_knows_when(Some(refused_again(Verdict::NotHeld, None)), false)]
#[case::of_no_known_failure(Some(wedged(refusal(Verdict::NotHeld))), false)]
#[case::is_in_use_again(Some(refused_again(Verdict::LiveDuplicate, Some(-1))), false)]
#[case::is_stale_again(Some(refused_again(Verdict::StaleEndpoint, Some(-1))), false)]
fn an_act_may_yet_show(#[case] judgement: Option<Judgement>, #[case] may: bool) {
    let act = running(RemedyKind::DisconnectEndpoint, Instant::now());
    assert_eq!(act.may_yet_show(judgement.as_ref()), may);
}
