//! Sequences of looks made at random: no history without its proof, whatever comes in between.

use proptest::prelude::*;
use proptest::sample::select;

use super::fixtures::{IP, ago, failure, held_by, holder, ip, pod, stale, unread};
use super::history::{OTHER, at};
use crate::domain::{
    CiliumNode, Events, Histories, Holder, Limits, Lookup, Observation, Pod, PodUid, ReservedUse,
    RestartKind, judge,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    NotHeld,
    Same,
    Other,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Plain,
    Unread,
    Absent,
    Reserved,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Look {
        second: bool,
        failed: i64,
        refused: bool,
        answer: Answer,
        node: Node,
        started: Option<i64>,
        all: bool,
    },
    Deleted {
        second: bool,
        started: i64,
    },
}

/// Mostly what leads to a history: else hardly any would come about.
fn step() -> impl Strategy<Value = (i64, Step)> {
    let mostly = |usual: bool| prop::bool::weighted(if usual { 0.95 } else { 0.1 });
    let answers = prop_oneof![
        8 => Just(Answer::NotHeld), 8 => Just(Answer::Same), 1 => Just(Answer::Other), 1 => Just(Answer::Unknown)
    ];
    let nodes = prop_oneof![
        16 => Just(Node::Plain), 1 => Just(Node::Unread), 1 => Just(Node::Absent), 1 => Just(Node::Reserved)
    ];
    let starts =
        prop_oneof![16 => Just(Some(9000)), 1 => Just(Some(600)), 1 => Just(Some(30)), 1 => Just(None)];
    let failed = prop_oneof![8 => 0_i64..30, 1 => -10_i64..0, 1 => 30_i64..100];
    let look = (mostly(false), failed, mostly(true), answers, nodes, starts, mostly(true)).prop_map(
        |(second, failed, refused, answer, node, started, all)| Step::Look {
            second,
            failed,
            refused,
            answer,
            node,
            started,
            all,
        },
    );
    let deleted = (mostly(false), select(vec![9000_i64, 9000, 9000, 600]))
        .prop_map(|(second, started)| Step::Deleted { second, started });
    let after = prop_oneof![16 => 1_i64..60, 1 => 60_i64..2000];
    (after, prop_oneof![9 => look, 1 => deleted])
}

fn wedged(second: bool) -> Pod {
    if second { pod("tenant-a/web-2", "other") } else { stale().pod }
}

fn observation(now: i64, step: Step) -> Option<Observation> {
    let Step::Look { second, failed, refused, answer, node, started, all } = step else {
        return None;
    };
    let wedged = wedged(second);
    let mut event = failure(&wedged, failed - now);
    if !refused {
        event.message = "429".to_owned();
    }
    let reserved = CiliumNode { reserved: vec![(ReservedUse::Ingress, ip(IP))], addresses: Vec::new() };
    let other = Holder { attachment: format!("{OTHER}:eth0").parse().ok(), ..holder() };
    let plain = Observation {
        now: at(now),
        pod: wedged,
        events: Events { known: vec![event], unreadable: (!all).then(unread) },
        agent_started: started.map(ago),
        cilium_node: match node {
            Node::Plain => Ok(Some(CiliumNode::default())),
            Node::Unread => Err(unread()),
            Node::Absent => Ok(None),
            Node::Reserved => Ok(Some(reserved)),
        },
        ..stale()
    };
    Some(match answer {
        Answer::NotHeld => Observation { lookup: Lookup::NotHeld, ..plain },
        Answer::Same => plain,
        Answer::Other => held_by(other, plain),
        Answer::Unknown => Observation { lookup: Lookup::Unknown(unread()), ..plain },
    })
}

/// The looks, newest first, that say this of the address in this life; ends where something speaks against it.
fn looks_back<'a>(
    log: &'a [(i64, Step)],
    life: i64,
    against: &'a [Answer],
) -> Vec<(i64, bool, i64, Answer, Node)> {
    let mut looks = Vec::new();
    for (now, step) in log.iter().rev() {
        let Step::Look { second, failed, refused: true, answer, node, started, .. } = *step else {
            continue;
        };
        if node == Node::Reserved || started != Some(life) || against.contains(&answer) {
            break;
        }
        looks.push((*now, second, *now - failed, answer, node));
    }
    looks
}

/// Three clean look-ups after refusals that are fresh and distinct.
fn is_hidden(log: &[(i64, Step)], second: bool, life: i64, now: i64) -> bool {
    let mut refusals: Vec<i64> = looks_back(log, life, &[Answer::Same, Answer::Other, Answer::Unknown])
        .into_iter()
        .filter(|(at, of, failed, _, node)| {
            *of == second
                && *node == Node::Plain
                && at - failed <= 30
                && now - failed <= 1800
                && failed + life > 120
        })
        .map(|(_, _, failed, _, _)| failed)
        .collect();
    refusals.sort_unstable();
    refusals.dedup();
    refusals.len() >= 3
}

/// Two looks at the very endpoint, at least a minute after the newest acknowledgement.
fn is_phantom(log: &[(i64, Step)], second: bool, life: i64, now: i64) -> bool {
    let acknowledged = log.iter().rposition(|(_, step)| matches!(step, Step::Deleted { .. }));
    let Some((at, Step::Deleted { second: of, started })) = acknowledged.map(|index| log[index]) else {
        return false;
    };
    let since = &log[acknowledged.unwrap_or_default()..];
    let looks = looks_back(since, life, &[Answer::NotHeld, Answer::Other, Answer::Unknown]);
    let seen = looks.iter().filter(|look| look.1 == second && look.0 - at >= 60 && look.4 == Node::Plain);
    of == second && started == life && now - at <= 1800 && seen.count() >= 2
}

fn check(steps: &[(i64, Step)]) -> Result<[usize; 2], TestCaseError> {
    let mut histories = Histories::default();
    let (mut log, mut now, mut found) = (Vec::new(), 0, [0; 2]);
    let uids: [PodUid; 2] = [wedged(false).uid, wedged(true).uid];
    for (after, step) in steps {
        now += after;
        log.push((now, *step));
        match (*step, observation(now, *step)) {
            (Step::Deleted { second, started }, _) => {
                histories.disconnected(&wedged(second).uid, ip(IP), &holder(), ago(started), at(now));
            }
            (_, Some(obs)) => histories.saw(&obs, &judge(&obs, &Limits::default())),
            (_, None) => {}
        }
        for second in [false, true] {
            let Some(case) = histories.restart_case(&uids[usize::from(second)], ip(IP), at(now)) else {
                continue;
            };
            let life = ago(0).duration_since(case.agent_started).as_secs();
            let proven = match case.kind {
                RestartKind::HiddenHolder => is_hidden(&log, second, life, now),
                RestartKind::PhantomHolder => is_phantom(&log, second, life, now),
            };
            prop_assert!(proven, "{case:?}");
            found[usize::from(case.kind == RestartKind::PhantomHolder)] += 1;
        }
    }
    Ok(found)
}

proptest! {
    #[test]
    fn no_history_without_its_proof(steps in prop::collection::vec(step(), 1..60)) {
        check(&steps)?;
    }
}

/// The sequences above do lead to both histories.
#[test]
fn both_histories_come_about() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut found = [0; 2];
    for _ in 0..300 {
        let steps = prop::collection::vec(step(), 1..60).new_tree(&mut runner).unwrap().current();
        let cases = check(&steps).unwrap();
        found = [found[0] + cases[0], found[1] + cases[1]];
    }
    assert!(found.iter().all(|count| *count > 0), "{found:?}");
}
