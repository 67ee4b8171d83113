//! Who counts as cut off by a disconnect, pod by pod.

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;

use super::fixtures::waiting_pod;
use crate::domain::{Phase, Pod};
use crate::engine::act::may_be_victim;

fn began() -> Timestamp {
    "2026-06-18T10:00:00Z".parse().unwrap()
}

/// A pod that was there for a minute.
fn another() -> Pod {
    Pod {
        name: "shop/lives".parse().unwrap(),
        uid: "lives".parse().unwrap(),
        created: Some(began() - SignedDuration::from_mins(1)),
        ..waiting_pod()
    }
}

#[rstest]
#[case::that_lives(another(), true)]
#[case::that_ended(Pod { phase: Phase::Succeeded, ..another() }, false)]
#[case::on_the_hosts_network(Pod { host_network: true, ..another() }, false)]
#[case::that_came_since(Pod { created: Some(began()), ..another() }, false)]
#[case::of_an_age_that_is_not_told(Pod { created: None, ..another() }, false)]
#[case::that_is_the_wedged_one(Pod { name: waiting_pod().name, uid: waiting_pod().uid, ..another() }, false)]
// A clock that is ahead makes it look older than the call: found by the fault run of seed 7193.
#[case::that_came_in_place_of_the_wedged_one(Pod { name: waiting_pod().name, ..another() }, false)]
fn a_pod(#[case] pod: Pod, #[case] victim: bool) {
    assert_eq!(may_be_victim(&pod, &waiting_pod(), began()), victim);
}
