//! The turns of the loop: which pods are taken up, looked at and let go of, what is given back, and how it ends.

use std::time::Duration;

use jiff::SignedDuration;
use rstest::rstest;
use tokio::time::Instant;

use super::answers::{Answers, after};
use super::days::{directory, go_on};
use super::fixtures::{reserved, unanswered, waiting_pod};
use super::hands::{ByHand, Hands};
use super::telling::{Heard, ip, wedge};
use super::world::World;
use super::{options, until};
use crate::admin::Check;
use crate::domain::{ActOutcome, Cause, Lookup, Pod, RemedyKind, Verdict, judge};
use crate::engine::wedge::Stage;
use crate::engine::{EngineOptions, Parts};
use crate::kube::Protection;
use crate::ledger::{ActId, Ending, Intent, Ledger, Refused};

use RemedyKind::{DeletePod, DisconnectEndpoint, RestartAgent};

async fn hand(owner_is_gone: bool) -> ByHand {
    let world = World::new(81);
    wedge(&world, owner_is_gone).await;
    ByHand::over(world, options(judge)).await
}

async fn look(hand: &mut ByHand) {
    let (uid, stop) = (hand.world.waits().uid, hand.hands.stopping.clone());
    hand.engine.look(&uid, &stop).await;
}

fn due(hand: &ByHand) -> u64 {
    hand.wedge().due.saturating_duration_since(Instant::now()).as_secs()
}

/// What was refused just before it was stopped is on record.
#[tokio::test(start_paused = true)]
async fn a_stop_ends_it_with_everything_on_record() {
    let (world, dir) = (World::new(82), directory());
    wedge(&world, false).await;
    let heard = Heard::new(&world);
    let (engine, hands) = Hands::on(&world, dir.path(), options(judge), &heard);
    let stopping = async {
        until(|| heard.briefs().len() >= 2).await;
        hands.stop.send_replace(true);
    };
    tokio::join!(engine.run(hands.stopping), stopping);
    let kept = Ledger::read(dir.path()).unwrap();
    let refused: Vec<_> = kept.state().refusals().iter().map(|it| it.refusal().word.clone()).collect();
    assert_eq!(refused, ["live-duplicate"]);
}

#[tokio::test(start_paused = true)]
async fn it_ends_where_nobody_can_stop_it_any_more() {
    let (world, dir) = (World::new(83), directory());
    let heard = Heard::new(&world);
    let (engine, Hands { stop, stopping, .. }) = Hands::on(&world, dir.path(), options(judge), &heard);
    drop(stop);
    tokio::time::timeout(Duration::from_secs(10), engine.run(stopping)).await.unwrap();
}

/// Every half minute; while it cannot be reached, every five seconds.
#[rstest]
#[case::reached(Ok(()), 30_000)]
#[case::not_reached(Err("connection refused".to_owned()), 5_000)]
#[tokio::test(start_paused = true)]
async fn the_agents_socket_is_tried(#[case] answer: Result<(), String>, #[case] millis: u64) {
    let mut hand = hand(true).await;
    hand.world.set_answers(Answers { reachable: Some(answer.clone()), ..Answers::default() });
    for tried in 1..4 {
        hand.engine.check_agent().await;
        assert_eq!(hand.world.record(|record| record.tried), tried);
        assert_eq!(hand.hands.check(Check::Agent), answer);
        tokio::time::advance(Duration::from_millis(millis - 1)).await;
        hand.engine.check_agent().await;
        assert_eq!(hand.world.record(|record| record.tried), tried);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
}

/// With each turn: the socket, the effect of acts, and the gauges.
#[tokio::test(start_paused = true)]
async fn a_turn_does_all_of_it() {
    let (world, dir) = (World::new(84), directory());
    wedge(&world, false).await;
    let heard = Heard::new(&world);
    let (engine, hands) = Hands::on(&world, dir.path(), options(judge), &heard);
    let metric = |line: &str| hands.metric(&format!("cilium_leak_healer_{line}"));
    let life = async {
        go_on(&world, Duration::from_secs(65), |_| {}).await;
        assert_eq!(world.record(|record| record.tried), 3);
        assert_eq!((hands.check(Check::Agent), hands.check(Check::Ledger)), (Ok(()), Ok(())));
        assert_eq!(metric("wedges{verdict=\"live-duplicate\"}").as_deref(), Some("1"));
        assert_eq!(metric("budget_tokens{remedy=\"disconnect-endpoint\"}").as_deref(), Some("30"));
        world.remove(&waiting_pod().name, false);
        go_on(&world, Duration::from_secs(6), |_| {}).await;
        assert_eq!(metric("wedges{verdict=\"live-duplicate\"}").as_deref(), Some("0"));
        hands.stop.send_replace(true);
    };
    tokio::join!(engine.run(hands.stopping.clone()), life);
}

/// Without a ledger nothing is done, and everybody can see it.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_cannot_be_opened_is_tried_again() {
    let (world, dir) = (World::new(85), directory());
    let place = dir.path().join("file");
    std::fs::write(&place, "").unwrap();
    let heard = Heard::new(&world);
    let (mut engine, hands) = Hands::on(&world, &place, options(judge), &heard);
    let tokens = || hands.metric("cilium_leak_healer_budget_tokens{remedy=\"delete-pod\"}").unwrap();
    engine.open_book();
    assert!(hands.check(Check::Ledger).is_err());
    assert_eq!(tokens(), "0");
    std::fs::remove_file(&place).unwrap();
    tokio::time::advance(Duration::from_secs(30)).await;
    engine.open_book();
    assert_eq!((hands.check(Check::Ledger), tokens().as_str()), (Ok(()), "3"));
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_shows_in_readiness() {
    let mut hand = hand(true).await;
    let clock = hand.world.clock();
    for host in 1..=3 {
        let pod = Pod { uid: format!("pod-{host}").parse().unwrap(), ..waiting_pod() };
        let intent = Intent {
            remedy: DisconnectEndpoint,
            cause: Cause::of(&pod, format!("10.0.9.{host}").parse().unwrap()),
            pod: pod.name,
            pod_uid: pod.uid,
            target: None,
            container: None,
            verdict: Verdict::StaleEndpoint,
            reason: String::new(),
            correlation_id: host.to_string(),
        };
        let id = hand.engine.book.begin(intent, clock).unwrap();
        hand.engine.book.end(id, Ending::new(ActOutcome::NotHealed, ""), clock);
    }
    hand.engine.open_book();
    let state = hand.hands.check(Check::Ledger).unwrap_err();
    assert!(
        state.starts_with("the breaker is open until ") && state.ends_with("nothing is done until then"),
        "{state}"
    );
}

/// A pod that was deleted keeps its place in the cluster until it is gone, or until the place runs out.
#[rstest]
#[case::until_it_is_gone(true)]
#[case::until_the_place_runs_out(false)]
#[tokio::test(start_paused = true)]
async fn a_pod_on_its_way_out_keeps_its_place(#[case] goes: bool) {
    let world = World::new(86);
    world.pod(&waiting_pod().name, Some("web"), reserved());
    go_on(&world, Duration::from_mins(3), |_| {}).await;
    let mut hand = ByHand::over(world, options(judge)).await;
    hand.verifies(DeletePod);
    let pod = hand.world.waits();
    hand.world.shows(Pod { deleting: true, ..pod.clone() });
    hand.engine.follow_store();
    hand.engine.release().await;
    let released = |hand: &ByHand| hand.world.record(|record| record.released.clone());
    assert_eq!((hand.outcomes()[0].0, hand.engine.leaving.len()), (Some(ActOutcome::Deleted), 1));
    assert_eq!(released(&hand), []);
    if goes {
        hand.world.store().remove(&pod.uid);
    } else {
        tokio::time::advance(Duration::from_mins(5)).await;
    }
    hand.engine.release().await;
    assert_eq!((released(&hand), hand.engine.leaving.len()), (vec![DeletePod], 0));
    hand.engine.release().await;
    assert_eq!(released(&hand).len(), 1, "it is given back once");
}

/// Others give it back with their end.
#[rstest]
#[case::gone_at_once(DeletePod, None, ActOutcome::Deleted)]
#[case::running_instead(DeletePod, Some(true), ActOutcome::NotHealed)]
#[case::going_after_a_disconnect(DisconnectEndpoint, Some(false), ActOutcome::Disconnected)]
#[case::running_after_a_disconnect(DisconnectEndpoint, Some(true), ActOutcome::Healed)]
#[tokio::test(start_paused = true)]
async fn an_act_that_shows_its_end(
    #[case] remedy: RemedyKind,
    #[case] runs: Option<bool>,
    #[case] outcome: ActOutcome,
) {
    let mut hand = hand(true).await;
    look(&mut hand).await;
    hand.verifies(remedy);
    let pod = hand.world.waits();
    match runs {
        None => hand.world.store().remove(&pod.uid),
        Some(true) => hand.world.shows(Pod { sandbox_ready: Some(true), ..pod }),
        Some(false) => hand.world.shows(Pod { deleting: true, ..pod }),
    }
    hand.engine.follow_store();
    assert_eq!(hand.outcomes()[0].0, Some(outcome));
    assert_eq!((hand.engine.leaving.len(), hand.engine.to_release.len()), (0, 1));
    assert!(hand.engine.wedges.is_empty());
    assert_eq!(hand.heard.briefs().last().unwrap(), "over");
}

/// Seconds since its start until the watch told of it, and until it is looked at from then on.
#[rstest]
#[case::new(0, 3)]
#[case::a_second_old(1, 2)]
#[case::waiting_for_long(3600, 0)]
#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_is_looked_at(#[case] waited: u64, #[case] seconds: u64) {
    let mut hand = hand(true).await;
    let started = hand.world.clock() - SignedDuration::try_from(Duration::from_secs(waited)).unwrap();
    let name = "shop/new".parse().unwrap();
    hand.world.shows(Pod { name, uid: "new".parse().unwrap(), started: Some(started), ..waiting_pod() });
    hand.engine.follow_store();
    assert_eq!(
        hand.engine.wedges[&"new".parse().unwrap()].due - Instant::now(),
        Duration::from_secs(seconds)
    );
}

/// Its owner may be the pod that ended.
#[tokio::test(start_paused = true)]
async fn a_live_duplicate_is_looked_at_soon_after_a_pod_ends() {
    let mut hand = hand(false).await;
    hand.engine.follow_store();
    look(&mut hand).await;
    hand.engine.follow_store();
    assert_eq!(due(&hand), 30);
    hand.world.remove(&"shop/owner".parse().unwrap(), true);
    hand.engine.follow_store();
    assert_eq!(due(&hand), 5);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_counted_and_recorded_when_it_changes() {
    let mut hand = hand(false).await;
    for looks in 1..=3 {
        look(&mut hand).await;
        let count = |line: &str| hand.hands.metric(line).unwrap();
        assert_eq!(
            count("cilium_leak_healer_judgements_total{verdict=\"live-duplicate\"}"),
            looks.to_string()
        );
        assert_eq!(count("cilium_leak_healer_refusals_total{reason=\"live-duplicate\"}"), "1");
    }
    assert_eq!(hand.refusals(), [("live-duplicate".to_owned(), None)]);
    let kept = Ledger::read(hand.dir.path()).unwrap();
    assert_eq!(kept.state().refusals().iter().map(Refused::count).sum::<u64>(), 1);
}

/// What is to be acted on is no refusal; and who holds the address is remembered.
#[tokio::test(start_paused = true)]
async fn a_look_at_a_stale_endpoint() {
    let mut hand = hand(true).await;
    let Lookup::Held(holder) = crate::engine::Sources::lookup(&hand.world, ip()).await else {
        panic!("not held");
    };
    assert_eq!(hand.engine.memory.first_seen(ip(), &holder), None);
    look(&mut hand).await;
    assert_eq!(hand.engine.memory.first_seen(ip(), &holder), Some(hand.world.clock()));
    assert_eq!(hand.refusals(), []);
    assert!(matches!(hand.wedge().stage, Stage::Suspected(..)));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_takes_too_long_is_no_judgement() {
    let world = World::new(87);
    wedge(&world, true).await;
    let hasty = EngineOptions { judge_timeout: Duration::from_millis(1), ..options(judge) };
    let mut hand = ByHand::over(world, hasty).await;
    look(&mut hand).await;
    assert_eq!(hand.heard.briefs(), ["started"]);
    assert!((5..=10).contains(&due(&hand)), "{} s", due(&hand));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_look() {
    let mut hand = hand(true).await;
    hand.hands.stop.send_replace(true);
    look(&mut hand).await;
    assert_eq!(hand.heard.briefs(), ["started"]);
}

/// Where the time of an act is over, the API server is asked before anything is judged.
#[tokio::test(start_paused = true)]
async fn a_look_after_an_acts_time_asks_the_api_server() {
    let mut hand = hand(true).await;
    hand.verifies(DisconnectEndpoint);
    tokio::time::advance(Duration::from_mins(1)).await;
    hand.world.set_answers(Answers { pods: after(0, [Ok(None)]), ..Answers::default() });
    look(&mut hand).await;
    assert_eq!(hand.outcomes()[0].0, Some(ActOutcome::Disconnected));
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_breaks_holds_back_from_then_on() {
    let world = World::new(88);
    wedge(&world, true).await;
    let mut hand = ByHand::over(world, options(judge)).await;
    hand.hands.found.send_replace(Protection::Missing(vec!["gone".to_owned()]));
    for _ in 0..3 {
        look(&mut hand).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(hand.heard.briefs().last().unwrap(), "held-back disconnect-endpoint fence");
    assert_eq!(hand.outcomes(), []);
}

/// An act of an earlier process: nobody here waits for its effect.
async fn earlier(remedy: RemedyKind, taken: bool) -> ByHand {
    let mut hand = hand(true).await;
    hand.verifies(remedy);
    let (id, uid) = (hand.running().id, hand.world.waits().uid);
    hand.engine.wedges.get_mut(&uid).unwrap().stage = Stage::Watching;
    if taken {
        hand.engine.book.sent(id, "removed", hand.world.clock());
    }
    hand
}

/// Who has the address, whether the pod got its sandbox, and the end that shows.
#[rstest]
#[case::its_endpoint_has_it(None, false, Some(ActOutcome::Failed))]
#[case::nobody_has_it(Some(Lookup::NotHeld), false, None)]
#[case::nobody_has_it_and_the_pod_runs(Some(Lookup::NotHeld), true, Some(ActOutcome::Healed))]
#[case::nobody_knows(Some(unanswered()), true, None)]
#[tokio::test(start_paused = true)]
async fn an_earlier_disconnect_is_settled(
    #[case] found: Option<Lookup>,
    #[case] runs: bool,
    #[case] outcome: Option<ActOutcome>,
) {
    let mut hand = earlier(DisconnectEndpoint, true).await;
    if runs {
        hand.world.shows(Pod { sandbox_ready: Some(true), ..hand.world.waits() });
    }
    hand.world.set_answers(Answers { lookups: after(0, found), ..Answers::default() });
    hand.engine.settle_earlier_acts().await;
    assert_eq!(hand.outcomes()[0].0, outcome);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_disconnect_is_settled_where_another_endpoint_has_the_address() {
    let mut hand = earlier(DisconnectEndpoint, true).await;
    let Lookup::Held(mut holder) = crate::engine::Sources::lookup(&hand.world, ip()).await else {
        panic!("not held");
    };
    holder.attachment = Some("another:eth0".parse().unwrap());
    hand.world.set_answers(Answers { lookups: after(0, [Lookup::Held(holder)]), ..Answers::default() });
    hand.world.shows(Pod { sandbox_ready: Some(true), ..hand.world.waits() });
    hand.engine.settle_earlier_acts().await;
    assert_eq!(hand.outcomes()[0].0, Some(ActOutcome::Healed));
}

/// Its effect is waited for elsewhere.
#[rstest]
#[case::of_a_pod_that_waits(false)]
#[case::a_restart(true)]
#[tokio::test(start_paused = true)]
async fn an_act_of_this_process_is_not_settled_here(#[case] is_restart: bool) {
    let mut hand = hand(true).await;
    hand.verifies(if is_restart { RestartAgent } else { DisconnectEndpoint });
    tokio::time::advance(Duration::from_hours(2)).await;
    let running = hand.running();
    let (id, lease) = (running.id, running.lease.take().unwrap());
    if is_restart {
        hand.restarts(id, lease);
    }
    hand.engine.settle_earlier_acts().await;
    assert_eq!(hand.outcomes()[0].0, None);
    hand.engine.restarting = None;
    let uid = hand.world.waits().uid;
    hand.engine.wedges.get_mut(&uid).unwrap().stage = Stage::Watching;
    tokio::time::advance(Duration::from_secs(5)).await;
    hand.engine.settle_earlier_acts().await;
    assert!(hand.outcomes()[0].0.is_some());
}

/// The agent of an earlier restart, by the watch: there, on its way out, or another one.
#[rstest]
#[case::there(Some(false), ActOutcome::Interrupted)]
#[case::on_its_way_out(Some(true), ActOutcome::NotHealed)]
#[case::another(None, ActOutcome::NotHealed)]
#[tokio::test(start_paused = true)]
async fn an_earlier_restart_is_settled(#[case] agent: Option<bool>, #[case] outcome: ActOutcome) {
    let mut hand = earlier(RestartAgent, true).await;
    hand.world.shows_agent(agent);
    tokio::time::advance(Duration::from_secs(601)).await;
    let asked = |hand: &ByHand| hand.world.record(|record| record.looked_up);
    let before = asked(&hand);
    hand.engine.settle_earlier_acts().await;
    assert_eq!(hand.outcomes()[0].0, Some(outcome));
    assert_eq!(asked(&hand), before, "who has the address says nothing about the agent");
}

/// An act for another pod, which is gone, and whose address is free: it has its end as soon as it is looked at.
fn for_a_pod_that_is_gone(hand: &mut ByHand, uid: &str) -> ActId {
    let pod =
        Pod { uid: uid.parse().unwrap(), name: format!("shop/{uid}").parse().unwrap(), ..waiting_pod() };
    hand.begins(DisconnectEndpoint, pod, "10.0.0.8".parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_is_followed_keeps_no_other_act_open() {
    let mut hand = hand(true).await;
    for_a_pod_that_is_gone(&mut hand, "gone");
    hand.verifies(RestartAgent);
    let running = hand.running();
    let (id, lease) = (running.id, running.lease.take().unwrap());
    hand.restarts(id, lease);
    hand.engine.settle_earlier_acts().await;
    assert_eq!(hand.outcomes()[0].0, Some(ActOutcome::Disconnected));
    assert_eq!(hand.outcomes()[1].0, None);
}

/// One that nobody can tell the end of does not keep the others from theirs.
#[tokio::test(start_paused = true)]
async fn several_earlier_acts_are_looked_at_in_turn_each_second() {
    let mut hand = earlier(DisconnectEndpoint, false).await;
    for_a_pod_that_is_gone(&mut hand, "second");
    for_a_pod_that_is_gone(&mut hand, "third");
    let ended = |hand: &ByHand| hand.outcomes().iter().map(|(end, _)| end.is_some()).collect::<Vec<_>>();
    for want in [[false, true, false], [false, true, false], [false, true, true]] {
        hand.engine.settle_earlier_acts().await;
        assert_eq!(ended(&hand), want);
        hand.engine.settle_earlier_acts().await;
        assert_eq!(ended(&hand), want, "within the second");
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

/// One look-up at a time: every five seconds, and every second in turn where there are several.
#[tokio::test(start_paused = true)]
async fn earlier_acts_are_looked_at_in_turn() {
    let mut hand = earlier(DisconnectEndpoint, false).await;
    let asked = |hand: &ByHand| hand.world.record(|record| record.looked_up);
    let before = asked(&hand);
    let mut looks = Vec::new();
    for _ in 0..12 {
        hand.engine.settle_earlier_acts().await;
        looks.push(asked(&hand) - before);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(looks, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_period_is_never_cut_short() {
    let mut hand = hand(true).await;
    hand.engine.keep_quiet(Duration::from_mins(1));
    let until = hand.engine.quiet.until;
    hand.engine.keep_quiet(Duration::from_secs(1));
    assert_eq!(hand.engine.quiet.until, until);
}
