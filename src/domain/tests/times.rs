//! The rules about time, to the second.

use rstest::rstest;

use super::fixtures::{ago, failure, finding, held_by, holder, log, reserved, stale, verdict};
use crate::domain::{EndpointState, Event, Holder, LogEntry, Observation, Pod, Verdict, Withheld};

#[rstest]
#[case::restoring(EndpointState::Restoring, Some(log(EndpointState::Restoring, 599)), true)]
#[case::restoring_for_long(EndpointState::Restoring, Some(log(EndpointState::Restoring, 600)), false)]
#[case::disconnecting_without_log(EndpointState::Disconnecting, None, true)]
#[case::waiting_for_identity_with_an_empty_log(EndpointState::WaitingForIdentity, Some(Vec::new()), true)]
#[case::waiting_to_regenerate(EndpointState::WaitingToRegenerate, Some(log(EndpointState::Ready, 10)), true)]
#[case::first_regeneration(
    EndpointState::Regenerating,
    Some(log(EndpointState::WaitingForIdentity, 10)),
    true
)]
#[case::later_regeneration(EndpointState::Regenerating, Some(log(EndpointState::Ready, 10)), false)]
#[case::ready(EndpointState::Ready, Some(log(EndpointState::Ready, 1)), false)]
#[case::another_state(EndpointState::Other, Some(log(EndpointState::Other, 1)), false)]
#[case::ready_without_log(EndpointState::Ready, None, false)]
fn a_holder_on_its_way_settles(
    #[case] state: EndpointState,
    #[case] log: Option<Vec<LogEntry>>,
    #[case] settling: bool,
) {
    let obs = held_by(Holder { state, log, ..holder() }, stale());
    assert_eq!(verdict(&obs).0 == Verdict::Settling, settling);
}

#[rstest]
#[case::ten_minutes_old(600)]
#[case::a_minute_ahead(-60)]
fn a_failure_at_the_edge_of_its_time_counts(#[case] seconds_ago: i64) {
    let mut obs = stale();
    obs.events.known[0].at = Some(ago(seconds_ago));
    assert_eq!(verdict(&obs), (Verdict::StaleEndpoint, "disconnect-endpoint"));
}

/// A rule about time says when it comes out otherwise; the others, and those without a time, say nothing.
#[rstest]
#[case::the_agent_settles(Observation { agent_started: Some(ago(60)), ..stale() }, Some(60))]
#[case::agent_start_unknown(Observation { agent_started: None, ..stale() }, None)]
#[case::agent_started_after_the_failure(Observation { agent_started: Some(ago(150)), ..failed(151, 3) }, None)]
#[case::a_lone_failure(failed(3, 1), Some(2))]
#[case::the_holder_settles(held_by(on_its_way(Some(10)), stale()), Some(590))]
#[case::a_holder_without_log(held_by(on_its_way(None), stale()), None)]
#[case::an_old_failure(failed(601, 3), None)]
#[case::a_leak(stale(), None)]
#[case::not_moved_while_the_agent_settles(Observation { agent_started: Some(ago(60)), ..reserved() }, Some(60))]
#[case::may_be_moved(reserved(), None)]
fn when_to_look_again(#[case] obs: Observation, #[case] seconds: Option<i64>) {
    assert_eq!(finding(&obs).look_again, seconds.map(|seconds| ago(-seconds)));
}

fn failed(seconds_ago: i64, count: u32) -> Observation {
    let mut obs = stale();
    obs.events.known = vec![Event { count, ..failure(&obs.pod, seconds_ago) }];
    obs
}

fn on_its_way(logged: Option<i64>) -> Holder {
    let log = logged.map(|seconds_ago| log(EndpointState::Restoring, seconds_ago));
    Holder { state: EndpointState::Restoring, log, ..holder() }
}

#[rstest]
#[case::by_its_kind(Observation { pod: Pod { controller: None, ..stale().pod }, ..reserved() }, Some(Withheld::NotMovable))]
#[case::by_the_agents_start(Observation { agent_started: None, ..reserved() }, Some(Withheld::Timing))]
#[case::not_at_all(reserved(), None)]
fn a_move_is_withheld(#[case] obs: Observation, #[case] withheld: Option<Withheld>) {
    assert_eq!((finding(&obs).verdict, finding(&obs).withheld), (Verdict::ReservedHolder, withheld));
}
