//! What holds an act back: without asking anybody, and by what people and the agent say.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use tokio::time::Instant;

use super::answers::Answers;
use super::fixtures::{no_answer, waiting_pod};
use super::options;
use super::telling::wedge;
use super::world::World;
use crate::domain::{
    CiliumVersion, IpamMode, Judgement, Lookup, Observation, Pod, Read, ReadFailure, RemedyKind, Unreadable,
    judge,
};
use crate::engine::gates::{By, HeldBack, Quiet, by_people, by_settings, owners_namespace};
use crate::engine::observe::observe;
use crate::engine::{EngineOptions, Mode, Namespaces};
use crate::kube::{NamespaceFacts, NoLease, Protection};
use crate::ledger::Bound;
use crate::metrics::HELD_BACK;

fn missing() -> Protection {
    Protection::Missing(vec!["the fence is not there".to_owned()])
}

fn unknown() -> Protection {
    Protection::Unknown(vec!["timed out".to_owned()])
}

#[rstest]
#[case::all_is_well(options(judge), Protection::Working, 0, None)]
#[case::observing(EngineOptions { mode: Mode::Observe, ..options(judge) }, Protection::Working, 0, Some(By::Mode))]
#[case::remedy_off(EngineOptions { remedies: vec![RemedyKind::DisconnectEndpoint], ..options(judge) }, Protection::Working, 0, Some(By::Remedy))]
#[case::denied(EngineOptions { namespaces: Namespaces { deny: vec!["shop".to_owned()], ..Namespaces::default() }, ..options(judge) }, Protection::Working, 0, Some(By::Namespace))]
#[case::quiet(options(judge), Protection::Working, 5, Some(By::Quiet))]
#[case::no_fence(options(judge), missing(), 0, Some(By::Fence))]
#[case::nobody_knows_of_a_fence(options(judge), unknown(), 0, Some(By::Fence))]
#[case::no_fence_and_none_required(EngineOptions { require_fence: false, ..options(judge) }, missing(), 0, None)]
#[tokio::test]
async fn by_the_settings(
    #[case] options: EngineOptions,
    #[case] protection: Protection,
    #[case] quiet_for: u64,
    #[case] by: Option<By>,
) {
    let now = Instant::now();
    let quiet = Quiet { until: now + Duration::from_secs(quiet_for), why: "quiet" };
    let said = by_settings(&options, &protection, RemedyKind::DeletePod, "shop", quiet, now);
    assert_eq!(said.as_ref().err().map(|held| held.by), by);
    let until = (by == Some(By::Quiet)).then_some(quiet.until);
    assert_eq!(said.err().and_then(|held| held.until), until);
}

fn facts() -> NamespaceFacts {
    NamespaceFacts { opt_out: false, paused: None, created: None }
}

fn opted_out() -> NamespaceFacts {
    NamespaceFacts { opt_out: true, ..facts() }
}

fn paused(why: &str) -> NamespaceFacts {
    NamespaceFacts { paused: Some(why.to_owned()), ..facts() }
}

const OWN: &str = "cilium-leak-healer";

/// What one namespace says where `shop` waits for an address of `bank`: the word and the sentence.
#[rstest]
#[case::paused(OWN, Ok(Some(paused(""))), By::Paused, "paused on the namespace cilium-leak-healer")]
#[case::paused_with_a_reason(
    OWN,
    Ok(Some(paused("drill"))),
    By::Paused,
    "paused on the namespace cilium-leak-healer: drill"
)]
#[case::without_a_namespace_of_its_own(
    OWN,
    Ok(None),
    By::Unreadable,
    "GET namespaces/cilium-leak-healer: 404, so nobody could pause it; --own-namespace names the watchdog's own namespace"
)]
#[case::its_own_unread(OWN, no_answer("GET it"), By::Unreadable, "GET it: timed out")]
#[case::the_pods_opted_out(
    "shop",
    Ok(Some(opted_out())),
    By::OptOut,
    "the namespace shop has the label cilium-leak-healer/opt-out"
)]
#[case::the_pods_unread("shop", no_answer("GET it"), By::Unreadable, "GET it: timed out")]
#[case::the_owners_opted_out(
    "bank",
    Ok(Some(opted_out())),
    By::OptOut,
    "the namespace bank has the label cilium-leak-healer/opt-out"
)]
#[case::the_owners_unread("bank", no_answer("GET it"), By::Unreadable, "GET it: timed out")]
#[tokio::test(start_paused = true)]
async fn by_a_namespace(
    #[case] name: &str,
    #[case] says: Read<Option<NamespaceFacts>>,
    #[case] by: By,
    #[case] why: &str,
) {
    let world = World::new(61);
    world.set_answers(Answers { namespaces: [(name.to_owned(), says)].into(), ..Answers::default() });
    let (options, remedy) = (options(judge), RemedyKind::DisconnectEndpoint);
    let held = by_people(&world, &options, remedy, &waiting_pod(), Some("bank")).await.unwrap_err();
    assert_eq!((held.by, held.why.as_str(), held.until), (by, why, None));
}

#[tokio::test(start_paused = true)]
async fn each_namespace_is_asked_for_once() {
    let world = World::new(62);
    let (options, remedy) = (options(judge), RemedyKind::DisconnectEndpoint);
    let asked = || world.record(|record| record.namespaces.len());
    for (owners, namespaces) in [(None, 2), (Some("shop"), 2), (Some("bank"), 3)] {
        let before = asked();
        assert_eq!(by_people(&world, &options, remedy, &waiting_pod(), owners).await, Ok(()));
        assert_eq!(asked() - before, namespaces, "{owners:?}");
    }
    let pod = Pod { opt_out: true, ..waiting_pod() };
    let held = by_people(&world, &options, remedy, &pod, None).await.unwrap_err();
    assert_eq!(
        (held.by, held.why.as_str()),
        (By::OptOut, "the pod shop/waits has the label cilium-leak-healer/opt-out")
    );
}

fn version(text: &str) -> CiliumVersion {
    text.parse().unwrap()
}

/// A version and an IPAM mode: whether an endpoint may be disconnected, and whether a pod may be deleted.
#[rstest]
#[case::known(Ok(version("1.20.2")), Ok("kubernetes"), true, true)]
#[case::unknown(Ok(version("1.99.0")), Ok("kubernetes"), false, false)]
#[case::unread(no_answer("GET healthz"), Ok("kubernetes"), false, false)]
#[case::of_routes_by_address(Ok(version("1.20.2")), Ok("eni"), false, true)]
#[case::of_a_mode_unread(Ok(version("1.20.2")), Err(()), false, false)]
#[tokio::test(start_paused = true)]
async fn by_an_agent(
    #[case] version: Read<CiliumVersion>,
    #[case] mode: Result<&str, ()>,
    #[case] disconnect: bool,
    #[case] delete: bool,
) {
    let world = World::new(63);
    let mode = mode.map_or_else(|()| no_answer("GET config"), |mode| Ok(IpamMode(mode.to_owned())));
    let word = if mode.is_err() { By::Unreadable } else { By::Version };
    world.set_answers(Answers { version: Some(version), ipam_mode: Some(mode), ..Answers::default() });
    for (remedy, may) in [(RemedyKind::DisconnectEndpoint, disconnect), (RemedyKind::DeletePod, delete)] {
        let held = by_people(&world, &options(judge), remedy, &waiting_pod(), None).await;
        assert_eq!(held.err().map(|held| held.by), (!may).then_some(word), "{remedy}");
        let any = EngineOptions { unknown_versions: true, ..options(judge) };
        assert_eq!(by_people(&world, &any, remedy, &waiting_pod(), None).await, Ok(()), "{remedy}");
    }
}

/// The time for which it was to heal, from when its own namespace was made.
#[rstest]
#[case::it_lasts(Some(-59), None)]
#[case::it_is_over(Some(-60), Some(By::HealFor))]
#[case::a_clock_that_is_behind(Some(60), None)]
#[case::nobody_knows(None, Some(By::Unreadable))]
#[tokio::test(start_paused = true)]
async fn by_its_age(#[case] made: Option<i64>, #[case] by: Option<By>) {
    let world = World::new(64);
    let created = made.map(|seconds| world.clock() + SignedDuration::from_secs(seconds));
    let own = Ok(Some(NamespaceFacts { created, ..facts() }));
    world.set_answers(Answers { namespaces: [(OWN.to_owned(), own)].into(), ..Answers::default() });
    let options = EngineOptions { heal_for: Some(Duration::from_mins(1)), ..options(judge) };
    let held = by_people(&world, &options, RemedyKind::DeletePod, &waiting_pod(), None).await;
    assert_eq!(held.err().map(|held| held.by), by);
}

/// The namespace at whose cost an act would be.
#[tokio::test(start_paused = true)]
async fn the_owners_namespace_is_that_of_its_pod_else_of_the_holders_label() {
    let world = World::new(65);
    wedge(&world, true).await;
    let obs = observe(&world, &options(judge).node, world.waits(), world.clock(), |_, _| None).await;
    let Judgement::Wedged(mut finding) = judge(&obs, &options(judge).limits) else {
        panic!("no wedge");
    };
    finding.owner = Some("bank/owner".parse().unwrap());
    assert_eq!(owners_namespace(&obs, Some(&finding)).as_deref(), Some("bank"));
    finding.owner = None;
    assert_eq!(owners_namespace(&obs, Some(&finding)).as_deref(), Some("shop"));
    assert_eq!(owners_namespace(&obs, None).as_deref(), Some("shop"));
    let free = Observation { lookup: Lookup::NotHeld, ..obs };
    assert_eq!(owners_namespace(&free, None), None);
}

/// When it is worth another look.
#[tokio::test(start_paused = true)]
async fn waits_no_longer_than_needed() {
    let (now, clock): (_, Timestamp) = (Instant::now(), "2026-06-18T10:00:00Z".parse().unwrap());
    let after = |held: HeldBack| (held.by, (held.until.unwrap() - now).as_secs());
    let budget = |seconds| {
        let next = Some(clock + SignedDuration::from_secs(seconds));
        HeldBack::by_bound(&Bound::Budget { remedy: RemedyKind::DeletePod, next }, clock)
    };
    let word = By::Bound(Bound::WORDS[0]);
    assert_eq!(after(budget(100)), (word, 100));
    assert_eq!(after(budget(1)), (word, 5));
    assert_eq!(after(budget(-60)), (word, 5));
    assert_eq!(after(HeldBack::under_way()), (By::Quiet, 5));
    let all = NoLease::AllHeld { by: vec!["n2".to_owned()] };
    assert_eq!(after(HeldBack::by_lease(&all, now)), (By::Lease, 10));
    let unread = NoLease::Unreadable(Unreadable { what: "GET it".to_owned(), why: ReadFailure::Timeout });
    for why in [NoLease::Missing("one".to_owned()), unread] {
        assert_eq!(after(HeldBack::by_lease(&why, now)), (By::Unreadable, 10), "{why}");
    }
}

#[test]
fn each_word_is_one_of_the_metric() {
    let own = [
        By::Mode,
        By::Remedy,
        By::Namespace,
        By::Quiet,
        By::Fence,
        By::OptOut,
        By::Paused,
        By::HealFor,
        By::Version,
        By::Lease,
        By::Unreadable,
    ];
    assert_eq!(own.map(By::as_str).to_vec(), HELD_BACK.to_vec());
    for word in Bound::WORDS {
        assert!(!HELD_BACK.contains(&word), "{word} would be counted for two things");
    }
}
