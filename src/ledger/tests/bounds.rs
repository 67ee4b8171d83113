//! Each bound by itself, named by the situation.

use rstest::rstest;

use super::{MINUTE, at, ending, intent, refusal};
use crate::domain::ActOutcome::{
    self, Aborted, Deleted, Disconnected, Failed, Healed, Interrupted, NotHealed,
};
use crate::domain::RemedyKind::{self, DeletePod, DisconnectEndpoint, RestartAgent};
use crate::ledger::{ActId, Bound, BoundOptions, BreakerView, Ending, State};

fn fresh() -> (State, BoundOptions) {
    let options = BoundOptions::default();
    (State::fresh(&options), options)
}

/// Begins and ends a disconnect for the pod of that number.
fn act(state: &mut State, options: &BoundOptions, pod: usize, now: i64, outcome: ActOutcome) {
    let id = state.begin(intent(DisconnectEndpoint, pod, pod), at(now), options).unwrap();
    state.end(id, ending(outcome), at(now), options).unwrap();
}

fn word(result: Result<ActId, Bound>) -> &'static str {
    result.map_or_else(|bound| bound.as_str(), |_| "ok")
}

#[test]
fn each_budget_is_spent_and_comes_back() {
    let (mut state, options) = fresh();
    for pod in 0..3 {
        let id = state.begin(intent(DeletePod, pod, pod), at(0), &options).unwrap();
        state.end(id, ending(Deleted), at(1), &options).unwrap();
    }
    let bound = state.begin(intent(DeletePod, 3, 3), at(2), &options).unwrap_err();
    assert_eq!(bound, Bound::Budget { remedy: DeletePod, next: Some(at(600)) });
    assert_eq!(bound.to_string(), "the budget of delete-pod is spent; the next one at 2027-01-15T08:10:00Z");
    assert_eq!(state.tokens(DisconnectEndpoint, at(2), &options), 30);
    assert_eq!(state.next_token(DisconnectEndpoint, at(2), &options), None);
    state.begin(intent(DeletePod, 3, 3), at(600), &options).unwrap();
}

#[test]
fn an_act_that_did_nothing_keeps_its_token() {
    let (mut state, options) = fresh();
    let id = state.begin(intent(RestartAgent, 0, 0), at(0), &options).unwrap();
    state.end(id, ending(Aborted), at(0), &options).unwrap();
    assert_eq!(word(state.begin(intent(RestartAgent, 0, 0), at(86_399), &options)), "budget");
    assert_eq!(word(state.begin(intent(RestartAgent, 0, 0), at(86_400), &options)), "ok");
}

#[rstest]
#[case::not_healed(NotHealed)]
#[case::failed(Failed)]
#[case::interrupted(Interrupted)]
fn three_that_did_not_help_open_the_breaker(#[case] outcome: ActOutcome) {
    let (mut state, options) = fresh();
    (0..3).for_each(|pod| act(&mut state, &options, pod, 0, outcome));
    assert!(matches!(state.breaker(at(1)), BreakerView::Open { until, .. } if until == at(1_800)));
    let bound = state.begin(intent(DisconnectEndpoint, 9, 9), at(1), &options).unwrap_err();
    assert_eq!((bound.as_str(), bound.until()), ("breaker", Some(at(1_800))));
    assert!(bound.to_string().ends_with("3 of the last 3 acts did not help"), "{bound}");
    assert_eq!(state.breaker(at(1_800)), BreakerView::HalfOpen);
}

#[test]
fn acts_without_an_outcome_are_waited_for() {
    let (mut state, options) = fresh();
    let ids: Vec<ActId> = (0..3)
        .map(|pod| state.begin(intent(DisconnectEndpoint, pod, pod), at(0), &options).unwrap())
        .collect();
    let bound = state.begin(intent(DisconnectEndpoint, 3, 3), at(0), &options).unwrap_err();
    assert_eq!(bound, Bound::Unproven { pending: 3 });
    assert_eq!(state.breaker(at(0)), BreakerView::Closed);
    // One that says nothing is no longer waited for.
    state.end(ids[0], ending(Disconnected), at(1), &options).unwrap();
    state.begin(intent(DisconnectEndpoint, 3, 3), at(1), &options).unwrap();
    assert_eq!(word(state.begin(intent(DisconnectEndpoint, 4, 4), at(1), &options)), "unproven");
}

#[test]
fn as_many_may_be_without_outcome_as_helped() {
    let (mut state, options) = fresh();
    (0..5).for_each(|pod| act(&mut state, &options, pod, 0, Healed));
    act(&mut state, &options, 5, 0, Failed);
    // One that did not help takes the place of one.
    for pod in 10..14 {
        assert_eq!(word(state.begin(intent(DisconnectEndpoint, pod, pod), at(1), &options)), "ok");
    }
    assert_eq!(
        state.begin(intent(DisconnectEndpoint, 14, 14), at(1), &options),
        Err(Bound::Unproven { pending: 4 })
    );
}

#[test]
fn a_share_of_many_that_helped_may_fail() {
    let (mut state, options) = fresh();
    for pod in 0..25 {
        act(&mut state, &options, pod, 0, Healed);
    }
    for pod in 30..35 {
        act(&mut state, &options, pod, 0, Failed);
        let open = matches!(state.breaker(at(0)), BreakerView::Open { .. });
        // 20 % of 30 are 6: 5 leave room for one more.
        assert!(!open, "after {pod}");
    }
}

#[test]
fn after_a_cool_down_one_act_tries_and_closes_it() {
    let (mut state, options) = fresh();
    (0..3).for_each(|pod| act(&mut state, &options, pod, 0, Failed));
    let trial = state.begin(intent(DisconnectEndpoint, 5, 5), at(1_800), &options).unwrap();
    assert_eq!(
        state.begin(intent(DisconnectEndpoint, 6, 6), at(1_800), &options),
        Err(Bound::HalfOpen { pending: 1 })
    );
    state.end(trial, ending(Healed), at(1_810), &options).unwrap();
    assert_eq!(state.breaker(at(1_810)), BreakerView::Closed);
    // The window began anew: the three of before do not count.
    act(&mut state, &options, 6, 1_811, Failed);
    act(&mut state, &options, 7, 1_811, Failed);
    assert_eq!(state.breaker(at(1_811)), BreakerView::Closed);
}

#[rstest]
#[case::did_not_help(NotHealed, "breaker")]
#[case::says_nothing(Aborted, "ok")]
fn what_the_trial_leaves(#[case] outcome: ActOutcome, #[case] next: &str) {
    let (mut state, options) = fresh();
    (0..3).for_each(|pod| act(&mut state, &options, pod, 0, Failed));
    act(&mut state, &options, 5, 1_800, outcome);
    assert_eq!(word(state.begin(intent(DisconnectEndpoint, 6, 6), at(1_801), &options)), next);
    if next == "ok" {
        assert_eq!(word(state.begin(intent(DisconnectEndpoint, 7, 7), at(1_801), &options)), "half-open");
    }
}

#[test]
fn no_trial_while_an_act_of_before_has_no_outcome() {
    let (mut state, options) = fresh();
    // 25 that helped, so that five may be without help.
    (0..25).for_each(|pod| act(&mut state, &options, pod, 0, Healed));
    (30..33).for_each(|pod| act(&mut state, &options, pod, 200, Failed));
    let open = state.begin(intent(DisconnectEndpoint, 40, 40), at(200), &options).unwrap();
    assert_eq!(state.breaker(at(200)), BreakerView::Closed);
    // An hour later those that helped are out of sight: what did not help is all there is.
    state.catch_up(at(3_601), &options);
    assert!(matches!(state.breaker(at(3_601)), BreakerView::Open { .. }));
    assert_eq!(
        state.begin(intent(DisconnectEndpoint, 60, 60), at(9_000), &options),
        Err(Bound::HalfOpen { pending: 1 })
    );
    state.end(open, ending(Healed), at(9_000), &options).unwrap();
    state.begin(intent(DisconnectEndpoint, 60, 60), at(9_000), &options).unwrap();
}

#[rstest]
#[case::deleted(DeletePod, Ending::new(Deleted, ""), "futile")]
#[case::not_healed(DeletePod, Ending::new(NotHealed, ""), "futile")]
#[case::interrupted(DeletePod, Ending::new(Interrupted, ""), "futile")]
#[case::failed(DeletePod, Ending::new(Failed, ""), "futile")]
#[case::refused_by_the_server(DeletePod, Ending::new(Failed, "403").nothing_done(), "ok")]
#[case::aborted(DeletePod, Ending::new(Aborted, ""), "ok")]
#[case::agent_restarted(RestartAgent, Ending::new(Healed, ""), "futile")]
#[case::endpoint_healed(DisconnectEndpoint, Ending::new(Healed, ""), "ok")]
#[case::endpoint_failed(DisconnectEndpoint, Ending::new(Failed, ""), "ok")]
#[case::endpoint_not_healed(DisconnectEndpoint, Ending::new(NotHealed, ""), "futile")]
fn what_uses_a_cause_up(#[case] remedy: RemedyKind, #[case] ending: Ending, #[case] next: &str) {
    let (mut state, options) = fresh();
    let id = state.begin(intent(remedy, 0, 7), at(0), &options).unwrap();
    state.end(id, ending, at(10), &options).unwrap();
    let bounds = BoundOptions { restart_agent: options.delete_pod, ..options.clone() };
    assert_eq!(word(state.clone().begin(intent(remedy, 1, 7), at(20), &bounds)), next);
    // Another cause is not touched by it, and a day after the end it is forgotten.
    assert_eq!(word(state.clone().begin(intent(remedy, 1, 8), at(86_400), &bounds)), "ok");
    if next == "futile" {
        assert_eq!(word(state.clone().begin(intent(remedy, 1, 7), at(86_409), &bounds)), "futile");
    }
    assert_eq!(word(state.begin(intent(remedy, 1, 7), at(86_410), &bounds)), "ok");
}

#[test]
fn what_was_sent_was_not_nothing() {
    let (mut state, options) = fresh();
    let id = state.begin(intent(DeletePod, 0, 7), at(0), &options).unwrap();
    state.sent(id, "accepted", at(1)).unwrap();
    state.end(id, Ending::new(Failed, "").nothing_done(), at(2), &options).unwrap();
    assert_eq!(word(state.begin(intent(DeletePod, 1, 7), at(3), &options)), "futile");
}

#[test]
fn an_open_act_holds_its_pod_and_its_cause_for_any_time() {
    let (mut state, options) = fresh();
    let id = state.begin(intent(DeletePod, 0, 7), at(0), &options).unwrap();
    let later = at(1_000_000);
    let bound = state.begin(intent(DisconnectEndpoint, 0, 8), later, &options).unwrap_err();
    assert_eq!(bound, Bound::UnderWay { act: id, since: at(0) });
    let bound = state.begin(intent(DeletePod, 1, 7), later, &options).unwrap_err();
    assert_eq!((bound.as_str(), bound.until()), ("futile", None));
}

#[test]
fn a_full_memory_refuses_and_forgets_nothing() {
    let mut options = BoundOptions::default();
    options.delete_pod.burst = 5_000;
    let mut state = State::fresh(&options);
    for number in 0..1_024 {
        let id = state.begin(intent(DeletePod, number, number), at(0), &options).unwrap();
        state.end(id, ending(Deleted), at(0), &options).unwrap();
    }
    assert_eq!(word(state.begin(intent(DeletePod, 5_000, 5_000), at(1), &options)), "memory-full");
    assert_eq!(word(state.begin(intent(DeletePod, 5_001, 0), at(1), &options)), "futile");
    assert_eq!(word(state.begin(intent(DeletePod, 5_000, 5_000), at(86_400), &options)), "ok");
}

#[rstest]
#[case::back(-100_000)]
#[case::far_back(-40_000_000)]
fn a_clock_that_was_ahead_holds_nothing_for_ever(#[case] back: i64) {
    let (mut state, options) = fresh();
    let id = state.begin(intent(RestartAgent, 0, 7), at(0), &options).unwrap();
    state.end(id, ending(NotHealed), at(0), &options).unwrap();
    (1..3).for_each(|pod| act(&mut state, &options, pod, 0, Failed));
    state.catch_up(at(back), &options);
    assert!(matches!(state.breaker(at(back + 1_799)), BreakerView::Open { .. }));
    assert_eq!(state.breaker(at(back + 1_800)), BreakerView::HalfOpen);
    assert_eq!(word(state.clone().begin(intent(RestartAgent, 9, 7), at(back + 86_399), &options)), "futile");
    assert_eq!(word(state.clone().begin(intent(RestartAgent, 9, 8), at(back + 86_399), &options)), "budget");
    assert_eq!(word(state.begin(intent(RestartAgent, 9, 7), at(back + 2 * 86_400), &options)), "ok");
}

#[test]
fn an_act_has_one_ending() {
    let (mut state, options) = fresh();
    let id = state.begin(intent(DisconnectEndpoint, 0, 0), at(0), &options).unwrap();
    state.end(id, ending(Healed), at(1), &options).unwrap();
    let before = state.clone();
    assert!(state.end(id, ending(Failed), at(2), &options).is_err());
    assert!(state.sent(id, "", at(2)).is_err());
    assert_eq!(state, before);
}

#[test]
fn a_refusal_that_repeats_is_kept_once() {
    let (mut state, _) = fresh();
    for second in 0..300 {
        state.refuse(refusal(0, "live-duplicate"), at(second));
        state.refuse(refusal(usize::try_from(second).unwrap() + 1, "budget"), at(second));
    }
    assert_eq!(state.refusals().len(), 128);
    let repeated = state.refusals().iter().find(|it| it.refusal().word == "live-duplicate").unwrap();
    assert_eq!((repeated.first(), repeated.last(), repeated.count()), (at(0), at(299), 300));
}

#[test]
fn a_watchdog_that_is_always_wrong_does_three_acts_and_one_in_a_cool_down() {
    let (mut state, options) = fresh();
    let mut wrong = 0;
    let mut now = at(0);
    for pod in 0..24 * 60 {
        if let Ok(id) = state.begin(intent(DisconnectEndpoint, pod, pod), now, &options) {
            state.end(id, ending(NotHealed), now, &options).unwrap();
            wrong += 1;
        }
        now += MINUTE;
    }
    assert_eq!(wrong, 3 + 47);
}

#[test]
fn a_cause_whose_name_could_not_be_kept_is_not_acted_on() {
    let (mut state, options) = fresh();
    for of in ["x".repeat(513), "ReplicaSet/a/b\n/c".to_owned()] {
        let mut intent = intent(DeletePod, 0, 0);
        intent.cause.of = of;
        assert_eq!(word(state.begin(intent, at(0), &options)), "unrecorded");
    }
}

#[test]
fn the_words_of_the_bounds_are_closed() {
    let bounds = [
        Bound::Budget { remedy: DeletePod, next: None },
        Bound::Breaker { until: at(0), why: String::new() },
        Bound::HalfOpen { pending: 1 },
        Bound::Unproven { pending: 2 },
        Bound::UnderWay { act: ActId(1), since: at(0) },
        Bound::Futile { since: at(0), until: None, how: "deleted".to_owned() },
        Bound::MemoryFull,
        Bound::Unrecorded("disk full".to_owned()),
    ];
    assert_eq!(bounds.each_ref().map(Bound::as_str), Bound::WORDS);
}
