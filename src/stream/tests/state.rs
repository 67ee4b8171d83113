use futures::FutureExt as _;

use super::*;

fn after(events: impl IntoIterator<Item = Event>) -> State {
    let hub = new_hub();
    for (number, event) in events.into_iter().enumerate() {
        hub.tell(event, at(i64::try_from(number).unwrap() + 1));
    }
    hub.state(at(100))
}

fn pods(state: &State) -> Vec<&str> {
    state.wedges.iter().map(|wedge| wedge.judged.about.pod.as_str()).collect()
}

fn held(pod: &str, remedy: &str, by: &str) -> Event {
    Event::HeldBack(HeldBack {
        about: about(pod, Some("stale-endpoint")),
        remedy: remedy.to_owned(),
        by: by.to_owned(),
        reason: by.to_owned(),
    })
}

#[test]
fn a_new_one_says_what_runs() {
    let state = after([]);
    assert_eq!((state.node.as_str(), state.mode.as_str(), state.kind), ("worker-1", "heal", "WatchdogState"));
    assert_eq!((state.started, state.time, state.stopping), (start(), at(100), false));
    assert!(state.wedges.is_empty() && state.acts.is_empty() && state.checks.is_empty());
}

#[test]
fn its_position_resumes_where_it_ends() {
    let hub = new_hub();
    hub.tell(judged("a", Some("settling"), 0), at(1));
    let position: Position = hub.state(at(2)).position.parse().unwrap();
    hub.tell(over("a"), at(3));
    let next = hub.read(Start::After(position), false).next(|_| true, start).now_or_never().unwrap().unwrap();
    assert_eq!(next.kind, EventKind::Over);
}

#[test]
fn wedges_come_and_go_and_the_longest_wait_is_first() {
    let events = || {
        vec![
            judged("young", Some("settling"), 9),
            judged("old", Some("settling"), 1),
            judged("old", Some("live-duplicate"), 1),
        ]
    };
    let state = after(events());
    assert_eq!(pods(&state), ["shop/old", "shop/young"]);
    assert_eq!(state.wedges[0].judged.about.verdict.as_deref(), Some("live-duplicate"));
    assert_eq!(state.wedges[0].judged_at, at(3));
    assert_eq!(pods(&after(events().into_iter().chain([over("old")]))), ["shop/young"]);
    assert_eq!(pods(&after(events().into_iter().chain([judged("young", None, 9)]))), ["shop/old"]);
    assert!(after([judged("never", None, 0)]).wedges.is_empty());
}

#[test]
fn what_holds_back_stands_until_it_acts() {
    let before = [
        judged("a", Some("stale-endpoint"), 0),
        held("a", "disconnect-endpoint", "paused"),
        held("a", "disconnect-endpoint", "lease"),
        held("a", "restart-agent", "remedy-off"),
        held("unknown", "delete-pod", "paused"),
    ];
    let words = |state: &State| -> Vec<String> {
        state.wedges[0].held_back.iter().map(|wait| format!("{} {}", wait.remedy, wait.by)).collect()
    };
    let state = after(before.clone());
    assert_eq!(words(&state), ["disconnect-endpoint lease", "restart-agent remedy-off"]);
    assert_eq!(words(&after(before.into_iter().chain([acting("a")]))), ["restart-agent remedy-off"]);
}

#[test]
fn acts_show_their_steps_and_their_end_the_latest_first() {
    let state = after([
        acting("a"),
        acted("a", "freed", false),
        acted("a", "healed", true),
        // Given up before it was begun: no act, and not a step of the ended one.
        acted("a", "aborted", true),
        acting("b"),
        acted("b", "freed", false),
    ]);
    let shown: Vec<_> = state
        .acts
        .iter()
        .map(|act| {
            let steps: Vec<_> = act.steps.iter().map(|step| step.outcome.as_str()).collect();
            (act.acting.about.pod.as_str(), act.ended, steps)
        })
        .collect();
    assert_eq!(shown, [("shop/b", false, vec!["freed"]), ("shop/a", true, vec!["freed", "healed"])]);
}

#[test]
fn acts_of_an_earlier_process_come_before_and_are_ended_here() {
    let earlier = after([acting("a")]).acts;
    let hub = new_hub();
    hub.tell(acting("b"), at(1));
    hub.remember_acts(earlier);
    hub.tell(acted("a", "healed", true), at(2));
    let state = hub.state(at(3));
    let shown: Vec<_> = state.acts.iter().map(|act| (act.acting.about.pod.as_str(), act.ended)).collect();
    assert_eq!(shown, [("shop/b", false), ("shop/a", true)]);
}

#[test]
fn it_is_bounded_and_says_what_it_leaves_out() {
    let wedges = (0..230).map(|number| judged(&format!("w{number}"), Some("settling"), number));
    let acts = (0..60).map(|number| acting(&format!("a{number}")));
    let state = after(wedges.chain(acts));
    assert_eq!((state.wedges.len(), state.wedges_omitted, state.acts.len()), (200, 30, 50));
    assert_eq!((pods(&state)[0], state.acts[0].acting.about.pod.as_str()), ("shop/w0", "shop/a59"));
}

#[test]
fn a_check_says_since_when() {
    let state = after([
        check(CheckState::Ok, None),
        check(CheckState::Failed, Some("no socket")),
        check(CheckState::Failed, Some("no answer")),
    ]);
    let view = &state.checks[0];
    assert_eq!(
        (view.state, view.reason.as_deref(), view.since),
        (CheckState::Failed, Some("no answer"), at(2))
    );
    assert_eq!(state.checks.len(), 1);
}

#[test]
fn the_end_shows() {
    assert!(after([Event::Stopping(Stopping { node: "worker-1".to_owned() })]).stopping);
}
