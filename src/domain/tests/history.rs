//! The two histories, clause by clause: what counts, what does not, and what begins anew.

use jiff::Timestamp;
use rstest::rstest;

use super::fixtures::{IP, ago, failure, held_by, holder, ip, message, node, pod, running, stale, unread};
use crate::domain::{
    CiliumNode, EndpointId, Event, Events, Histories, Holder, Limits, Lookup, Observation, ReservedUse,
    RestartCase, RestartKind, judge,
};

pub(super) const OTHER: &str = "cccc9999cccc2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888";

pub(super) fn at(seconds: i64) -> Timestamp {
    ago(-seconds)
}

/// A look at the wedge of the fixtures at this second, three seconds after a new refusal: the holder is shown.
pub(super) fn held(second: i64) -> Observation {
    let plain = stale();
    let events = Events { known: vec![failure(&plain.pod, 3 - second)], unreadable: None };
    Observation { now: at(second), events, ..plain }
}

/// The same, and the agent says that nobody holds it.
pub(super) fn clean(second: i64) -> Observation {
    Observation { lookup: Lookup::NotHeld, ..held(second) }
}

fn saw(histories: &mut Histories, obs: &Observation) {
    histories.saw(obs, &judge(obs, &Limits::default()));
}

fn case_at(histories: &Histories, second: i64) -> Option<RestartCase> {
    histories.restart_case(&stale().pod.uid, ip(IP), at(second))
}

/// After these looks, in this order: which history there is.
fn after(looks: &[Observation]) -> Option<RestartKind> {
    let mut histories = Histories::default();
    for obs in looks {
        saw(&mut histories, obs);
    }
    let now = looks.last()?.now;
    histories.restart_case(&stale().pod.uid, ip(IP), now).map(|case| case.kind)
}

const HIDDEN: Option<RestartKind> = Some(RestartKind::HiddenHolder);
const PHANTOM: Option<RestartKind> = Some(RestartKind::PhantomHolder);

#[test]
fn three_fresh_refusals_with_clean_look_ups_are_a_hidden_holder() {
    let mut histories = Histories::default();
    for second in [0, 15] {
        saw(&mut histories, &clean(second));
        assert_eq!(case_at(&histories, second), None);
    }
    saw(&mut histories, &clean(30));
    let case = case_at(&histories, 30).unwrap();
    assert_eq!((case.kind, case.ip, case.agent_started), (RestartKind::HiddenHolder, ip(IP), ago(86_400)));
    insta::assert_snapshot!(case.evidence.join("\n"), @"
    2026-06-18T10:04:57Z: the agent refused 10.244.1.12; 2026-06-18T10:05:00Z: the look-up says that nobody holds it
    2026-06-18T10:05:12Z: the agent refused 10.244.1.12; 2026-06-18T10:05:15Z: the look-up says that nobody holds it
    2026-06-18T10:05:27Z: the agent refused 10.244.1.12; 2026-06-18T10:05:30Z: the look-up says that nobody holds it
    ");
    let other = "other".parse().unwrap();
    assert_eq!(histories.restart_case(&other, ip(IP), at(30)), None, "of this pod");
    assert_eq!(histories.restart_case(&case.pod, ip("10.244.1.13"), at(30)), None, "of this address");
}

#[test]
fn the_evidence_of_a_history_is_its_newest_part() {
    let mut histories = Histories::default();
    for second in [0, 15, 30, 45] {
        saw(&mut histories, &clean(second));
    }
    let lines = case_at(&histories, 45).unwrap().evidence;
    assert_eq!((lines.len(), lines[0].contains("T10:05:12Z")), (3, true), "{lines:?}");
    histories.disconnected(&stale().pod.uid, ip(IP), &holder(), ago(86_400), at(60));
    for second in [120, 140, 160] {
        saw(&mut histories, &held(second));
    }
    let lines = case_at(&histories, 160).unwrap().evidence;
    assert_eq!((lines.len(), lines[1].contains("T10:07:20Z")), (3, true), "{lines:?}");
}

fn failed(obs: &mut Observation, second: i64) {
    let wedged = obs.pod.clone();
    obs.events.known = vec![failure(&wedged, -second)];
}

/// Another failure of the pod at second 22.
fn with_event(obs: &mut Observation, event: fn(&mut Event)) {
    let mut other = failure(&obs.pod, -22);
    event(&mut other);
    obs.events.known.push(other);
}

/// Two that count, this look at second 30 (its failure at 27), one more at 45: with this one there are three or more,
/// without it three at the most, and after it one.
#[rstest]
#[case::nothing_odd(|_: &mut Observation| (), HIDDEN)]
#[case::unknown_answer(|it: &mut Observation| it.lookup = Lookup::Unknown(unread()), None)]
#[case::somebody_holds_it(|it: &mut Observation| it.lookup = held(30).lookup, None)]
#[case::start_unknown(|it: &mut Observation| it.agent_started = None, None)]
#[case::restarted(|it: &mut Observation| it.agent_started = Some(ago(600)), None)]
#[case::other_life(|it: &mut Observation| it.agent_started = Some(ago(86_401)), None)]
#[case::ingress(|it: &mut Observation| reserve(it, ReservedUse::Ingress), None)]
#[case::health(|it: &mut Observation| reserve(it, ReservedUse::Health), None)]
#[case::router(|it: &mut Observation| reserve(it, ReservedUse::Router), None)]
#[case::fails_by_something_else(|it: &mut Observation| it.events.known[0].message = "429".to_owned(), None)]
#[case::came_up(|it: &mut Observation| it.events.known[0].reason = "Pulled".to_owned(), None)]
#[case::no_wedge(|it: &mut Observation| it.pod.deleting = true, None)]
#[case::a_time_out_in_between(|it: &mut Observation| with_event(it, |event| event.message = "timeout".to_owned()), None)]
#[case::another_address_in_between(
    |it: &mut Observation| with_event(it, |event| event.message = message("ipv4:10.244.1.13", "f")), None
)]
#[case::a_time_out_at_the_instant_of_the_last(|it: &mut Observation| with_event(it, |event| { event.at = Some(at(12)); event.message = "timeout".to_owned(); }), None)]
#[case::a_time_out_before_the_last(|it: &mut Observation| with_event(it, |event| { event.at = Some(at(11)); event.message = "timeout".to_owned(); }), HIDDEN)]
#[case::another_event_in_between(|it: &mut Observation| with_event(it, |event| event.reason = "Scheduled".to_owned()), HIDDEN)]
#[case::another_pods_held_look(|it: &mut Observation| *it = of_other_pod(held(30)), None)]
#[case::another_pods_clean_look(|it: &mut Observation| *it = of_other_pod(clean(30)), HIDDEN)]
fn a_look_that_counts_or_begins_anew(
    #[case] change: fn(&mut Observation),
    #[case] kind: Option<RestartKind>,
) {
    let mut odd = clean(30);
    change(&mut odd);
    assert_eq!(after(&[clean(0), clean(15), odd.clone(), clean(45)]), kind);
    // What begins anew does not stick.
    assert_eq!(after(&[odd, clean(45), clean(60), clean(75)]), HIDDEN);
}

fn reserve(obs: &mut Observation, used: ReservedUse) {
    obs.cilium_node = Ok(Some(CiliumNode { reserved: vec![(used, ip(IP))], addresses: Vec::new() }));
}

fn of_other_pod(obs: Observation) -> Observation {
    let other = pod("tenant-a/web-2", "other");
    let events = Events { known: vec![failure(&other, -27)], unreadable: None };
    Observation { pod: other, events, ..obs }
}

/// One that counts, this one, one that counts: that makes two. And one more: three.
#[rstest]
#[case::the_same_failure(|it: &mut Observation| failed(it, -3))]
#[case::an_older_failure(|it: &mut Observation| failed(it, -4))]
#[case::not_fresh(|it: &mut Observation| { it.now = at(29); failed(it, -2); })]
#[case::in_the_future(|it: &mut Observation| failed(it, 21))]
#[case::seen_by_the_same_look(|it: &mut Observation| { it.now = at(0); failed(it, 1); })]
#[case::undated(|it: &mut Observation| it.events.known[0].at = None)]
#[case::events_unread(|it: &mut Observation| it.events.unreadable = Some(unread()))]
#[case::node_unread(|it: &mut Observation| it.cilium_node = Err(unread()))]
#[case::node_absent(|it: &mut Observation| it.cilium_node = Ok(None))]
fn a_look_that_does_not_count(#[case] change: fn(&mut Observation)) {
    let mut odd = clean(15);
    change(&mut odd);
    assert_eq!(after(&[clean(0), odd.clone(), clean(30)]), None);
    assert_eq!(after(&[clean(0), odd, clean(30), clean(45)]), HIDDEN, "nor does it begin anew");
}

#[rstest]
#[case::just_fresh(|it: &mut Observation| { it.now = at(32); failed(it, 2); })]
#[case::just_not_too_far_ahead(|it: &mut Observation| failed(it, 20))]
#[case::a_moment_after_the_last_look(|it: &mut Observation| { it.now = at(1); failed(it, 1); })]
fn a_look_at_the_edge_counts(#[case] change: fn(&mut Observation)) {
    let mut edge = clean(15);
    change(&mut edge);
    assert_eq!(after(&[clean(0), edge, clean(60)]), HIDDEN);
}

#[rstest]
#[case::just_settled(-122, HIDDEN)]
#[case::not_settled(-123 + 2, None)]
fn the_agent_must_have_settled_before_the_failure(#[case] second: i64, #[case] kind: Option<RestartKind>) {
    // The first failure is at second 0.
    let started = |obs| Observation { agent_started: Some(at(second + 1)), ..obs };
    assert_eq!(after(&[started(clean(3)), started(clean(15)), started(clean(30))]), kind);
}

#[rstest]
#[case::within_half_an_hour(1797, HIDDEN)]
#[case::older(1798, None)]
fn a_refusal_is_forgotten(#[case] last: i64, #[case] kind: Option<RestartKind>) {
    // The first failure is at second -3.
    assert_eq!(after(&[clean(0), clean(900), clean(last)]), kind);
    let mut histories = Histories::default();
    for second in [0, 15, 30] {
        saw(&mut histories, &clean(second));
    }
    assert_eq!(case_at(&histories, last).map(|case| case.kind), kind, "also where nobody looked since");
}

#[test]
fn what_is_forgotten_does_not_come_back_with_a_clock_that_is_set_back() {
    let mut histories = Histories::default();
    for second in [0, 15, 30] {
        saw(&mut histories, &clean(second));
    }
    let another = Holder { addresses: vec![ip("10.244.1.13")], ..holder() };
    histories.disconnected(&stale().pod.uid, ip("10.244.1.13"), &another, ago(86_400), at(0));
    for second in [60, 62] {
        saw(&mut histories, &of_other_address(held(second)));
    }
    let kinds = |histories: &Histories| {
        [IP, "10.244.1.13"].map(|address| {
            histories.restart_case(&stale().pod.uid, ip(address), at(62)).map(|case| case.kind)
        })
    };
    assert_eq!(kinds(&histories), [HIDDEN, PHANTOM]);
    saw(&mut histories, &Observation { pod: pod("tenant-a/web-2", "other"), ..held(1801) });
    assert_eq!(kinds(&histories), [None, None]);
}

/// The DELETE was acknowledged at second 0.
fn deleted(looks: &[Observation]) -> Option<RestartKind> {
    let mut histories = Histories::default();
    histories.disconnected(&stale().pod.uid, ip(IP), &holder(), ago(86_400), at(0));
    for obs in looks {
        saw(&mut histories, obs);
    }
    case_at(&histories, looks.last().map_or(0, |obs| obs.now.duration_since(at(0)).as_secs()))
        .map(|case| case.kind)
}

#[test]
fn an_endpoint_that_was_deleted_and_is_shown_twice_is_a_phantom_holder() {
    let mut histories = Histories::default();
    histories.disconnected(&stale().pod.uid, ip(IP), &holder(), ago(86_400), at(0));
    saw(&mut histories, &held(60));
    assert_eq!(case_at(&histories, 60), None);
    saw(&mut histories, &held(62));
    let case = case_at(&histories, 62).unwrap();
    assert_eq!((case.kind, case.agent_started), (RestartKind::PhantomHolder, ago(86_400)));
    insta::assert_snapshot!(case.evidence.join("\n"), @"
    2026-06-18T10:05:00Z: the agent said that it deleted endpoint 482 of container aaaa1111bbbb2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888
    2026-06-18T10:06:00Z: the look-up by 10.244.1.12 still shows endpoint 482 of that container
    2026-06-18T10:06:02Z: the look-up by 10.244.1.12 still shows endpoint 482 of that container
    ");
    assert_eq!(histories.restart_case(&"other".parse().unwrap(), ip(IP), at(62)), None, "of this pod");
}

#[rstest]
#[case::too_early(&[30, 59], None)]
#[case::one_is_too_early(&[59, 62], None)]
#[case::too_close(&[60, 61], None)]
#[case::close_and_then_not(&[60, 61, 62], PHANTOM)]
#[case::late(&[60, 1800], PHANTOM)]
#[case::forgotten(&[60, 1801], None)]
fn looks_at_a_phantom_by_time(#[case] seconds: &[i64], #[case] kind: Option<RestartKind>) {
    let looks: Vec<Observation> = seconds.iter().map(|second| held(*second)).collect();
    assert_eq!(deleted(&looks), kind);
}

#[test]
fn without_an_acknowledgement_there_is_no_phantom() {
    assert_eq!(after(&[held(60), held(62), held(64)]), None);
    let mut histories = Histories::default();
    let nameless = Holder { attachment: None, container_field: None, ..holder() };
    histories.disconnected(&stale().pod.uid, ip(IP), &nameless, ago(86_400), at(0));
    for second in [60, 62] {
        saw(&mut histories, &held_by(nameless.clone(), held(second)));
    }
    assert_eq!(case_at(&histories, 62), None, "nothing tells that it is the same");
}

#[test]
fn each_acknowledgement_begins_anew() {
    let mut histories = Histories::default();
    for second in [0, 50] {
        histories.disconnected(&stale().pod.uid, ip(IP), &holder(), ago(86_400), at(second));
    }
    for second in [60, 62, 110] {
        saw(&mut histories, &held(second));
        assert_eq!(case_at(&histories, second), None);
    }
    saw(&mut histories, &held(112));
    assert_eq!(case_at(&histories, 112).map(|case| case.kind), PHANTOM);
}

/// One look that counts, this one, one that counts: no case. And one more: a case, or none for good.
#[rstest]
#[case::unknown_answer(|it: &mut Observation| it.lookup = Lookup::Unknown(unread()), PHANTOM)]
#[case::start_unknown(|it: &mut Observation| it.agent_started = None, PHANTOM)]
#[case::owner_lives_again(|it: &mut Observation| it.owner = Ok(Some(running("backup/agent-0", "o", &[IP]))), PHANTOM)]
#[case::owner_unread(|it: &mut Observation| it.owner = Err(unread()), PHANTOM)]
#[case::node_unread(|it: &mut Observation| it.cilium_node = Err(unread()), PHANTOM)]
#[case::gone(|it: &mut Observation| it.lookup = Lookup::NotHeld, None)]
#[case::another_number(|it: &mut Observation| *it = held_by(Holder { id: EndpointId(7), ..holder() }, held(70)), None)]
#[case::another_container(
    |it: &mut Observation| *it = held_by(Holder { attachment: format!("{OTHER}:eth0").parse().ok(), ..holder() }, held(70)), None
)]
#[case::restarted(|it: &mut Observation| it.agent_started = Some(ago(600)), None)]
#[case::reserved(|it: &mut Observation| reserve(it, ReservedUse::Health), None)]
#[case::reserved_by_label(
    |it: &mut Observation| *it = held_by(Holder { labels: vec!["reserved:ingress".to_owned()], ..holder() }, held(70)), None
)]
fn a_look_that_contradicts_a_phantom(
    #[case] change: fn(&mut Observation),
    #[case] then: Option<RestartKind>,
) {
    let mut odd = held(70);
    change(&mut odd);
    assert_eq!(deleted(&[held(60), odd.clone(), held(80)]), None);
    assert_eq!(deleted(&[held(60), odd, held(80), held(90)]), then);
}

#[test]
fn looks_at_another_pod_do_not_count_for_this_one() {
    assert_eq!(deleted(&[of_other_pod(held(60)), of_other_pod(held(62)), held(64)]), None);
    assert_eq!(deleted(&[held(60), of_other_pod(held(62)), held(64)]), PHANTOM);
}

/// The same look at the same pod, which is refused another address.
fn of_other_address(obs: Observation) -> Observation {
    let mut other = match &obs.lookup {
        Lookup::Held(holder) => {
            let other = Holder { addresses: vec![ip("10.244.1.13")], ..(**holder).clone() };
            held_by(other, obs.clone())
        }
        _ => obs,
    };
    other.events.known[0].message = message("ipv4:10.244.1.13", "f");
    other
}

#[test]
fn looks_at_another_address_neither_count_nor_contradict() {
    let other = of_other_address(held(62));
    assert_eq!(deleted(&[held(60), other.clone()]), None);
    assert_eq!(deleted(&[held(60), other.clone(), held(64)]), PHANTOM);
    let alive = running("backup/agent-0", "o", &["10.244.1.13"]);
    assert_eq!(
        deleted(&[held(60), Observation { owner: Ok(Some(alive)), ..other.clone() }, held(64)]),
        PHANTOM
    );
    let unknown = Observation { lookup: Lookup::Unknown(unread()), ..other };
    assert_eq!(deleted(&[held(60), unknown, held(64)]), PHANTOM);
}

#[test]
fn histories_are_bounded_and_the_oldest_goes_first() {
    let mut histories = Histories::default();
    let address = |number: u8| ip(&format!("10.9.0.{number}"));
    let of = |number: u8, obs: Observation| {
        let wedged = pod(&format!("tenant-a/web-{number}"), &format!("uid-{number}"));
        let known = obs.events.known.iter().map(|event| Event {
            object_uid: wedged.uid.to_string(),
            message: message(&format!("ipv4:{}", address(number)), "f"),
            ..event.clone()
        });
        let events = Events { known: known.collect(), unreadable: None };
        let of_it = Holder { addresses: vec![address(number)], ..holder() };
        let lookup =
            if obs.lookup == Lookup::NotHeld { Lookup::NotHeld } else { Lookup::Held(Box::new(of_it)) };
        Observation { pod: wedged, node: node(), events, lookup, ..obs }
    };
    let case = |histories: &Histories, number: u8| {
        let uid = format!("uid-{number}").parse().unwrap();
        histories.restart_case(&uid, address(number), at(62)).map(|case| case.kind)
    };
    for number in 0..66 {
        for second in [0, 15, 30] {
            saw(&mut histories, &of(number, clean(second)));
        }
    }
    assert_eq!([0, 1, 2, 65].map(|number| case(&histories, number)), [None, None, HIDDEN, HIDDEN]);
    for number in 0..66 {
        let uid = format!("uid-{number}").parse().unwrap();
        histories.disconnected(&uid, address(number), &holder(), ago(86_400), at(0));
    }
    for second in [60, 62] {
        for number in 0..66 {
            saw(&mut histories, &of(number, held(second)));
        }
    }
    assert_eq!([0, 1, 2, 65].map(|number| case(&histories, number)), [None, None, PHANTOM, PHANTOM]);
}
