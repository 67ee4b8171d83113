//! From two judgements that agree to the end of an act, step by step: what may hold it back, what follows of each answer, and
//! how its effect is looked for.

use std::time::Duration;

use rstest::rstest;
use tokio::time::Instant;

use super::answers::{Answers, after};
use super::days::go_on;
use super::fixtures::{no_answer, reserved, waiting_pod};
use super::hands::ByHand;
use super::options;
use super::telling::wedge;
use super::world::World;
use crate::cilium::{CallError, Disconnected};
use crate::domain::{ActOutcome, Pod, Read, ReadFailure, RemedyKind, judge};
use crate::engine::EngineOptions;
use crate::engine::wedge::{Grounds, Stage};
use crate::kube::{DeleteOutcome, NoLease};

use RemedyKind::{DeletePod, DisconnectEndpoint, RestartAgent};

fn all() -> EngineOptions {
    EngineOptions { remedies: RemedyKind::ALL.to_vec(), ..options(judge) }
}

/// A pod that waits for the address of a stale endpoint, or for one of Cilium's own: what this remedy is for.
async fn world_for(remedy: RemedyKind) -> World {
    let world = World::new(71);
    if remedy == DeletePod {
        world.pod(&waiting_pod().name, Some("web"), reserved());
        go_on(&world, Duration::from_mins(3), |_| {}).await;
    } else {
        wedge(&world, true).await;
    }
    world
}

async fn hand_for(remedy: RemedyKind) -> ByHand {
    ByHand::over(world_for(remedy).await, options(judge)).await
}

/// Two judgements agree, with these answers from then on.
async fn agreed(hand: &mut ByHand, answers: Answers) {
    let (obs, judgement) = hand.looks().await;
    hand.world.set_answers(answers);
    let grounds = Grounds::of(&obs, judgement.finding().unwrap()).unwrap();
    let stop = hand.hands.stopping.clone();
    hand.engine.agreed(&obs.pod.uid, grounds, &obs, &judgement, &stop).await;
}

fn last(hand: &ByHand) -> String {
    hand.heard.briefs().pop().unwrap()
}

fn is_verifying(hand: &ByHand) -> bool {
    matches!(hand.wedge().stage, Stage::Verifying(_))
}

/// Seconds until the pod is looked at again.
fn due(hand: &ByHand) -> u64 {
    hand.wedge().due.saturating_duration_since(Instant::now()).as_secs()
}

fn disconnect(answer: Result<Disconnected, CallError>) -> Answers {
    Answers { disconnect: Some(answer), ..Answers::default() }
}

fn deletion(answer: DeleteOutcome) -> Answers {
    Answers { deletion: Some(answer), ..Answers::default() }
}

const TIMEOUT: CallError = CallError::Timeout(Duration::from_secs(5));

fn refused() -> CallError {
    CallError::ServerError { status: 503, message: "api not ready".to_owned() }
}

fn denied() -> DeleteOutcome {
    DeleteOutcome::Failed(ReadFailure::Status { status: 403, message: "no".to_owned() })
}

/// What came back, the step that is told, the end on record, and the seconds until the next look.
#[rstest]
#[case::freed(options(judge), DisconnectEndpoint, Answers::default(), "freed", None, 60..=60)]
#[case::without_an_answer(options(judge), DisconnectEndpoint, disconnect(Err(TIMEOUT)), "unanswered", None, 60..=60)]
#[case::refused(options(judge), DisconnectEndpoint, disconnect(Err(refused())), "failed", Some(ActOutcome::Failed), 5..=10)]
#[case::held_still(
    options(judge),
    DisconnectEndpoint,
    disconnect(Ok(Disconnected::Removed)),
    "failed",
    Some(ActOutcome::Failed),
    5..=10
)]
#[case::held_still_where_a_restart_may_follow(
    all(),
    DisconnectEndpoint,
    disconnect(Ok(Disconnected::Removed)),
    "failed",
    Some(ActOutcome::Failed),
    61..=61
)]
#[case::deleted(options(judge), DeletePod, Answers::default(), "accepted", None, 60..=60)]
#[case::deleted_without_an_answer(
    options(judge),
    DeletePod,
    deletion(DeleteOutcome::Failed(ReadFailure::Timeout)),
    "unanswered",
    None,
    60..=60
)]
#[case::gone_before(options(judge), DeletePod, deletion(DeleteOutcome::Gone), "aborted", Some(ActOutcome::Aborted), 1..=1)]
#[case::denied(options(judge), DeletePod, deletion(denied()), "failed", Some(ActOutcome::Failed), 5..=10)]
#[tokio::test(start_paused = true)]
async fn what_follows_of_an_answer(
    #[case] options: EngineOptions,
    #[case] remedy: RemedyKind,
    #[case] answers: Answers,
    #[case] step: &str,
    #[case] outcome: Option<ActOutcome>,
    #[case] seconds: std::ops::RangeInclusive<u64>,
) {
    let mut hand = ByHand::over(world_for(remedy).await, options).await;
    agreed(&mut hand, answers).await;
    let told = hand.heard.briefs();
    let steps = [format!("acting {remedy}"), format!("acted {remedy} {step}")];
    assert_eq!(told[told.len() - 2..], steps, "{told:?}");
    assert_eq!(hand.outcomes()[0].0, outcome);
    assert_eq!(is_verifying(&hand), outcome.is_none());
    let act = hand.engine.book.acts().next().unwrap();
    assert_eq!(act.sent().is_some(), matches!(step, "freed" | "accepted"));
    assert!(seconds.contains(&due(&hand)), "{} s", due(&hand));
    // A deletion takes a place in the cluster for as long as it is under way.
    let ended_deletion = usize::from(remedy == DeletePod && outcome.is_some());
    assert_eq!(hand.engine.to_release.len(), ended_deletion);
    if is_verifying(&hand) {
        assert_eq!(hand.running().answered, step != "unanswered");
        assert_eq!(hand.running().lease.is_some(), remedy == DeletePod);
    }
}

/// Something changed since, or somebody said no after the permit: the place in the cluster is given back.
#[rstest]
#[case::a_pod_that_changed(Answers { pods: after(0, [Ok(None)]), ..Answers::default() }, false, "acted delete-pod aborted", 1)]
#[case::a_pause(Answers::default(), true, "held-back delete-pod paused", 30)]
#[tokio::test(start_paused = true)]
async fn nothing_is_begun_after(
    #[case] answers: Answers,
    #[case] pauses: bool,
    #[case] told: &str,
    #[case] seconds: u64,
) {
    let mut hand = hand_for(DeletePod).await;
    let world = hand.world.clone();
    let pausing = async {
        world.asked_for(2).await;
        world.set_paused(pauses);
    };
    tokio::join!(agreed(&mut hand, answers), pausing);
    assert_eq!(last(&hand), told);
    assert_eq!((hand.outcomes().len(), hand.engine.to_release.len(), due(&hand)), (0, 1, seconds));
    assert_eq!(world.record(|record| record.acts.len()), 0);
}

/// What says no before anything is read again or taken.
#[tokio::test(start_paused = true)]
async fn no_place_in_the_cluster_is_taken_in_vain() {
    let taken = |hand: &ByHand| hand.world.record(|record| record.acquired);
    let mut hand = hand_for(DeletePod).await;
    hand.world.set_paused(true);
    agreed(&mut hand, Answers::default()).await;
    assert_eq!((last(&hand).as_str(), taken(&hand)), ("held-back delete-pod paused", 0));

    let mut hand = hand_for(DeletePod).await;
    let none = Answers { leases: [Err(NoLease::AllHeld { by: Vec::new() })].into(), ..Answers::default() };
    agreed(&mut hand, none).await;
    assert_eq!((last(&hand).as_str(), due(&hand)), ("held-back delete-pod lease", 9));

    let mut hand = hand_for(DisconnectEndpoint).await;
    agreed(&mut hand, Answers::default()).await;
    assert_eq!(taken(&hand), 0, "an endpoint is disconnected without one");
}

/// The ledger's bounds are asked before anybody else is.
#[tokio::test(start_paused = true)]
async fn a_bound_is_asked_first() {
    let mut hand = hand_for(DisconnectEndpoint).await;
    hand.verifies(DisconnectEndpoint);
    agreed(&mut hand, Answers::default()).await;
    assert_eq!(last(&hand), "held-back disconnect-endpoint under-way");
    assert_eq!(hand.world.record(|record| record.namespaces.len()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_takes_too_long_is_none() {
    let hasty = EngineOptions { judge_timeout: Duration::from_millis(1), ..options(judge) };
    let mut hand = ByHand::over(world_for(DeletePod).await, hasty).await;
    agreed(&mut hand, Answers::default()).await;
    assert_eq!((last(&hand).as_str(), hand.outcomes().len()), ("held-back delete-pod unreadable", 0));
}

/// An act without an end on record, and the acts that wait for it.
#[rstest]
#[case::nothing(None, &[])]
#[case::a_disconnect(Some(DisconnectEndpoint), &[])]
#[case::a_pod_in_deletion(Some(DeletePod), &[DeletePod])]
#[case::a_restart(Some(RestartAgent), &RemedyKind::ALL)]
#[tokio::test(start_paused = true)]
async fn others_wait_for(#[case] open: Option<RemedyKind>, #[case] waiting: &[RemedyKind]) {
    let mut hand = hand_for(DisconnectEndpoint).await;
    if let Some(remedy) = open {
        hand.verifies(remedy);
    }
    let wait: Vec<_> = RemedyKind::ALL.into_iter().filter(|it| hand.engine.others_wait_for(*it)).collect();
    assert_eq!(wait, waiting);
}

#[tokio::test(start_paused = true)]
async fn one_pod_is_in_deletion_at_a_time() {
    let mut hand = hand_for(DeletePod).await;
    hand.verifies(DeletePod);
    agreed(&mut hand, Answers::default()).await;
    assert_eq!(last(&hand), "held-back delete-pod quiet-period");
    assert_eq!(hand.world.record(|record| (record.acquired, record.acts.len())), (0, 0));
}

/// Once told, counted and recorded, however often it is held back.
#[tokio::test(start_paused = true)]
async fn what_is_held_back_is_counted_and_recorded_once() {
    let mut hand = hand_for(DisconnectEndpoint).await;
    hand.world.set_paused(true);
    for _ in 0..3 {
        agreed(&mut hand, Answers::default()).await;
        assert_eq!(due(&hand), 30);
    }
    let counted = "cilium_leak_healer_held_back_total{reason=\"paused\"}";
    assert_eq!(hand.hands.metric(counted).as_deref(), Some("1"));
    let refusals: Vec<_> = hand.refusals();
    assert_eq!(refusals, [("paused".to_owned(), Some(DisconnectEndpoint))]);
}

/// Whether somebody answered, how often it could not be read since, and how often it was given more time.
type SoFar = (bool, u32, u32);
const SO_FAR: SoFar = (true, 0, 0);
const UNANSWERED: SoFar = (false, 0, 0);
const LONGEST: SoFar = (true, 0, 9);

/// How the pod reads when its time is over, and what that makes of the act. `None`: it goes on.
#[rstest]
#[case::it_waits(DisconnectEndpoint, SO_FAR, |pod| Ok(Some(pod)), None)]
#[case::it_waits_and_nobody_answered(DisconnectEndpoint, UNANSWERED, |pod| Ok(Some(pod)), Some(ActOutcome::Failed))]
#[case::it_waits_and_had_all_its_time(DisconnectEndpoint, LONGEST, |pod| Ok(Some(pod)), Some(ActOutcome::NotHealed))]
#[case::it_runs(DisconnectEndpoint, SO_FAR, |pod| Ok(Some(Pod { sandbox_ready: Some(true), ..pod })), Some(ActOutcome::Healed))]
#[case::it_goes(DisconnectEndpoint, SO_FAR, |pod| Ok(Some(Pod { deleting: true, ..pod })), Some(ActOutcome::Disconnected))]
#[case::it_is_gone(DisconnectEndpoint, SO_FAR, |_| Ok(None), Some(ActOutcome::Disconnected))]
#[case::another_has_its_name(DisconnectEndpoint, SO_FAR, |pod| Ok(Some(Pod { uid: "new".parse().unwrap(), ..pod })), Some(ActOutcome::Disconnected))]
#[case::unread(DisconnectEndpoint, (true, 4, 0), |_| no_answer("GET pods"), None)]
#[case::unread_too_often(DisconnectEndpoint, (true, 5, 0), |_| no_answer("GET pods"), Some(ActOutcome::Interrupted))]
#[case::it_waits_and_was_to_go(DeletePod, SO_FAR, |pod| Ok(Some(pod)), Some(ActOutcome::NotHealed))]
#[case::it_waits_and_nobody_took_its_deletion(DeletePod, UNANSWERED, |pod| Ok(Some(pod)), Some(ActOutcome::Failed))]
#[case::it_went(DeletePod, SO_FAR, |_| Ok(None), Some(ActOutcome::Deleted))]
#[case::it_is_on_its_way_out(DeletePod, SO_FAR, |pod| Ok(Some(Pod { deleting: true, ..pod })), Some(ActOutcome::Deleted))]
#[case::it_runs_instead(DeletePod, SO_FAR, |pod| Ok(Some(Pod { sandbox_ready: Some(true), ..pod })), Some(ActOutcome::NotHealed))]
#[tokio::test(start_paused = true)]
async fn when_its_time_is_over(
    #[case] remedy: RemedyKind,
    #[case] (answered, unread, longer): SoFar,
    #[case] reads: fn(Pod) -> Read<Option<Pod>>,
    #[case] outcome: Option<ActOutcome>,
) {
    let mut hand = hand_for(remedy).await;
    hand.verifies(remedy);
    let pod = hand.world.waits();
    let running = hand.running();
    (running.answered, running.unread, running.longer) = (answered, unread, longer);
    let reads = reads(pod.clone());
    let is_unread = reads.is_err();
    hand.world.set_answers(Answers { pods: after(0, [reads]), ..Answers::default() });
    tokio::time::advance(Duration::from_mins(1)).await;
    assert!(hand.engine.is_overdue(&pod.uid));
    hand.engine.overdue(&pod.uid).await;
    assert_eq!(hand.outcomes()[0].0, outcome);
    let goes_on = outcome.is_none();
    assert_eq!((is_verifying(&hand), hand.engine.to_release.len()), (goes_on, usize::from(!goes_on)));
    if goes_on {
        assert_eq!(
            (hand.running().unread, due(&hand)),
            (unread + u32::from(is_unread), if is_unread { 60 } else { 0 })
        );
    }
}

/// Nothing comes to an end before its time.
#[tokio::test(start_paused = true)]
async fn before_its_time() {
    let mut hand = hand_for(DisconnectEndpoint).await;
    hand.verifies(DisconnectEndpoint);
    tokio::time::advance(Duration::from_millis(59_999)).await;
    let uid = hand.world.waits().uid;
    assert!(!hand.engine.is_overdue(&uid));
    hand.engine.unseen(&uid, None);
    assert!(is_verifying(&hand) && hand.running().longer == 0);
}

/// A judgement after its time: given more, up to nine times, or in vain.
#[tokio::test(start_paused = true)]
async fn is_given_more_time_where_nobody_can_tell() {
    let mut hand = hand_for(DisconnectEndpoint).await;
    hand.verifies(DisconnectEndpoint);
    let uid = hand.world.waits().uid;
    for time in 1..=9 {
        tokio::time::advance(Duration::from_mins(1)).await;
        hand.engine.unseen(&uid, None);
        assert_eq!((hand.running().longer, due(&hand)), (time, 60));
    }
    tokio::time::advance(Duration::from_mins(1)).await;
    hand.engine.unseen(&uid, None);
    assert_eq!(hand.outcomes()[0].0, Some(ActOutcome::NotHealed));
    assert_eq!(hand.engine.to_release.len(), 1);

    let mut hand = hand_for(DisconnectEndpoint).await;
    hand.verifies(DisconnectEndpoint);
    let (_, judgement) = hand.looks().await;
    tokio::time::advance(Duration::from_mins(1)).await;
    hand.engine.unseen(&uid, Some(&judgement));
    assert_eq!(hand.outcomes()[0].0, Some(ActOutcome::NotHealed), "it is held again");
}
