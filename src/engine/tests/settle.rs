//! What became of acts of an earlier process, case by case.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;

use super::fixtures::waiting_pod;
use super::{node, options};
use crate::domain::{ActOutcome, Cause, Phase, Pod, RemedyKind, Verdict, judge};
use crate::engine::settle::{HeldBy, Shows, settle};
use crate::ledger::{Act, BoundOptions, Intent, Ledger};

use ActOutcome::{Deleted, Disconnected, Failed, Healed, Interrupted, NotHealed};
use HeldBy::{Nobody, Other, Target, Unknown};
use RemedyKind::{DeletePod, DisconnectEndpoint, RestartAgent};

fn begin() -> Timestamp {
    "2026-06-18T10:00:00Z".parse().unwrap()
}

/// An act without an end; `taken`: its call is known to have been taken.
fn act(remedy: RemedyKind, taken: bool) -> Act {
    let mut ledger = Ledger::volatile(&node(), BoundOptions::default());
    let pod = waiting_pod();
    let intent = Intent {
        remedy,
        pod: pod.name.clone(),
        pod_uid: pod.uid.clone(),
        cause: Cause::of(&pod, "10.0.0.9".parse().unwrap()),
        target: None,
        container: None,
        verdict: Verdict::StaleEndpoint,
        reason: String::new(),
        correlation_id: "1".to_owned(),
    };
    let id = ledger.begin(intent, begin()).unwrap();
    if taken {
        ledger.sent(id, "removed", begin()).unwrap();
    }
    ledger.state().acts()[0].clone()
}

/// How the pod stands.
#[derive(Clone, Copy)]
enum Is {
    Waiting,
    Running,
    Leaving,
    Ended,
    Gone,
}

impl Is {
    fn pod(self) -> Option<Pod> {
        match self {
            Self::Waiting => Some(waiting_pod()),
            Self::Running => Some(Pod { sandbox_ready: Some(true), ..waiting_pod() }),
            Self::Leaving => Some(Pod { deleting: true, ..waiting_pod() }),
            Self::Ended => Some(Pod { phase: Phase::Failed, ..waiting_pod() }),
            Self::Gone => None,
        }
    }
}

#[rstest]
#[case::freed_and_running(DisconnectEndpoint, true, Is::Running, Other, 5, Some(Healed))]
#[case::freed_unseen_and_running(DisconnectEndpoint, false, Is::Running, Other, 5, Some(Healed))]
#[case::freed_and_gone(DisconnectEndpoint, true, Is::Gone, Other, 5, Some(Disconnected))]
#[case::freed_and_leaving(DisconnectEndpoint, true, Is::Leaving, Other, 5, Some(Disconnected))]
#[case::freed_and_waiting_still(DisconnectEndpoint, true, Is::Waiting, Other, 60, None)]
#[case::freed_and_waiting_too_long(DisconnectEndpoint, true, Is::Waiting, Other, 150, Some(NotHealed))]
#[case::free_and_running(DisconnectEndpoint, true, Is::Running, Nobody, 5, Some(Healed))]
#[case::free_and_gone(DisconnectEndpoint, true, Is::Gone, Nobody, 5, Some(Disconnected))]
#[case::free_and_waiting_for_its_turn(DisconnectEndpoint, true, Is::Waiting, Nobody, 660, None)]
#[case::free_and_waiting_too_long(DisconnectEndpoint, true, Is::Waiting, Nobody, 661, Some(NotHealed))]
#[case::not_freed_yet_as_a_delete_can_come_late(DisconnectEndpoint, false, Is::Waiting, Target, 45, None)]
#[case::not_freed_within_the_time(DisconnectEndpoint, false, Is::Waiting, Target, 60, None)]
#[case::never_freed(DisconnectEndpoint, false, Is::Waiting, Target, 61, Some(Interrupted))]
#[case::never_freed_and_gone(DisconnectEndpoint, false, Is::Gone, Target, 61, Some(Interrupted))]
#[case::held_again(DisconnectEndpoint, true, Is::Waiting, Target, 5, Some(Failed))]
#[case::nobody_knows(DisconnectEndpoint, true, Is::Running, Unknown, 600, None)]
#[case::nobody_knows_for_an_hour(DisconnectEndpoint, true, Is::Running, Unknown, 3601, Some(Interrupted))]
#[case::deleted(DeletePod, true, Is::Gone, Other, 1, Some(Deleted))]
#[case::deleted_unseen(DeletePod, false, Is::Leaving, Other, 1, Some(Deleted))]
#[case::not_deleted_yet(DeletePod, false, Is::Waiting, Other, 30, None)]
#[case::never_deleted(DeletePod, false, Is::Waiting, Other, 61, Some(Interrupted))]
#[case::accepted_and_there(DeletePod, true, Is::Waiting, Other, 61, Some(NotHealed))]
#[case::restarted_and_running(RestartAgent, true, Is::Running, Other, 90, Some(Healed))]
#[case::restarted_and_waiting(RestartAgent, true, Is::Waiting, Other, 90, None)]
#[case::restarted_and_gone(RestartAgent, true, Is::Gone, Other, 90, Some(Disconnected))]
#[case::freed_and_ended(DisconnectEndpoint, true, Is::Ended, Other, 150, Some(NotHealed))]
#[case::restarted_in_vain(RestartAgent, true, Is::Waiting, Other, 601, Some(NotHealed))]
fn the_end_of_an_act(
    #[case] remedy: RemedyKind,
    #[case] taken: bool,
    #[case] is: Is,
    #[case] held: HeldBy,
    #[case] seconds: i64,
    #[case] outcome: Option<ActOutcome>,
) {
    let pod = is.pod();
    let shows = Shows { pod: pod.as_ref(), held, seen_for: Duration::ZERO, same_agent: false };
    let now = begin() + SignedDuration::from_secs(seconds);
    let settled = settle(&act(remedy, taken), shows, &options(judge), now);
    assert_eq!(settled.map(|(outcome, _)| outcome), outcome);
}

#[rstest]
#[case::on_its_way(30, None)]
#[case::never_taken(61, Some(Interrupted))]
fn an_agent_that_is_still_the_same(#[case] seconds: i64, #[case] outcome: Option<ActOutcome>) {
    let pod = waiting_pod();
    let shows = Shows { pod: Some(&pod), held: Other, seen_for: Duration::ZERO, same_agent: true };
    let now = begin() + SignedDuration::from_secs(seconds);
    let settled = settle(&act(RestartAgent, false), shows, &options(judge), now);
    assert_eq!(settled.map(|(outcome, _)| outcome), outcome);
}

#[test]
fn a_clock_that_was_ahead_holds_no_act_for_ever() {
    let pod = waiting_pod();
    let behind = begin() - SignedDuration::from_hours(24);
    let shows = |seen_for| Shows { pod: Some(&pod), held: Target, seen_for, same_agent: false };
    let act = act(DisconnectEndpoint, false);
    assert_eq!(settle(&act, shows(Duration::from_mins(1)), &options(judge), behind), None);
    let settled = settle(&act, shows(Duration::from_secs(61)), &options(judge), behind);
    assert_eq!(settled.map(|(outcome, _)| outcome), Some(Interrupted));
}
