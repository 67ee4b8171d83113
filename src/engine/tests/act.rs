//! One act by itself: what stops it before its call, and what each answer of the agent and each look afterwards makes of it.

use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use rstest::rstest;
use tokio::time::Instant;

use super::answers::{Answers, after};
use super::days::{directory, go_on};
use super::fixtures::{no_answer, reserved, unanswered, waiting_pod};
use super::telling::{ip, wedge};
use super::world::World;
use super::{node, options};
use crate::cilium::{AgentConfig, Allocations, CallError, Disconnected};
use crate::domain::{IpamMode, Judgement, Lookup, Pod, Read, ReadFailure, judge};
use crate::engine::act::{Acted, Acting, Sent};
use crate::engine::memory::Memory;
use crate::engine::observe::observe;
use crate::engine::wedge::Grounds;
use crate::engine::{Book, EngineOptions, Sources};
use crate::kube::{DeleteOutcome, Held};
use crate::ledger::{Bound, BoundOptions};
use crate::metrics::Metrics;

/// A world in which `shop/waits` waits for the address of `shop/owner`, which is gone.
async fn leak() -> World {
    let world = World::new(41);
    wedge(&world, true).await;
    world
}

/// What the watchdog would act on now.
async fn grounds(world: &World) -> Grounds {
    let pod = world.waits();
    let obs = observe(world, &node(), pod, world.clock(), |_, _| None).await;
    let Judgement::Wedged(finding) = judge(&obs, &options(judge).limits) else {
        panic!("no wedge");
    };
    Grounds::of(&obs, &finding).expect("a remedy")
}

fn book(world: &World, bounds: BoundOptions) -> (tempfile::TempDir, Book) {
    let dir = directory();
    let mut book = Book::at(dir.path().to_owned(), node(), bounds, Arc::new(Metrics::new()));
    book.open(world.clock());
    (dir, book)
}

/// Acts, with the answers from here on.
async fn acted(world: &World, answers: Answers) -> Acted {
    let grounds = grounds(world).await;
    world.set_answers(answers);
    acted_on(world, &grounds, &options(judge), BoundOptions::default(), None, pending()).await
}

async fn acted_on(
    world: &World,
    grounds: &Grounds,
    options: &EngineOptions,
    bounds: BoundOptions,
    lease: Option<&Held>,
    stop: impl Future<Output = ()>,
) -> Acted {
    let (_dir, mut book) = book(world, bounds);
    let mut acting = Acting {
        parts: world,
        memory: &Memory::default(),
        options,
        book: &mut book,
        correlation_id: "1",
        announce: &|_| {},
    };
    let acted = acting.act(grounds, lease, stop).await;
    let calls = world.record(|record| record.acts.len());
    // What was begun is on record and was called once; what was not is neither.
    match &acted {
        Acted::Begun(id, _) => {
            assert!(book.open_acts().any(|act| act.id() == *id && act.intent().target == target(grounds)));
            assert_eq!(calls, 1);
        }
        Acted::Aborted(_) | Acted::HeldBack(_) => {
            assert_eq!((book.open_acts().count(), calls), (0, 0), "{acted:?}");
        }
    }
    acted
}

fn target(grounds: &Grounds) -> Option<String> {
    grounds.target().map(ToString::to_string)
}

/// In a word: the outcome or the step, and the note.
fn brief(acted: Acted) -> (&'static str, String) {
    match acted {
        Acted::Aborted(why) => ("aborted", why),
        Acted::HeldBack(why) => (why.by.as_str(), why.why),
        Acted::Begun(_, Sent::Done(note)) => ("done", note),
        Acted::Begun(_, Sent::Unanswered(why)) => ("unanswered", why),
        Acted::Begun(_, Sent::StillHeld(why)) => ("still-held", why),
        Acted::Begun(_, Sent::Ended(ending)) => (ending.outcome().as_str(), ending.note().to_owned()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_endpoint_is_disconnected() {
    let world = leak().await;
    assert_eq!(brief(acted(&world, Answers::default()).await), ("done", "removed".to_owned()));
    assert_eq!(world.record(|record| record.freed), 1);
}

/// Read right before the act: the pod that waits, then the owner.
#[rstest]
#[case::gone(Ok(None), "the wedged pod is gone")]
#[case::unread(no_answer("GET pods"), "the wedged pod could not be read again")]
#[case::another_of_its_name(Ok(Some(Pod { uid: "other".parse().unwrap(), ..waiting_pod() })), "was replaced by another")]
#[tokio::test(start_paused = true)]
async fn a_wedged_pod_that_changed_stops_it(#[case] pod: Read<Option<Pod>>, #[case] why: &str) {
    let world = leak().await;
    let (came, note) = brief(acted(&world, Answers { pods: after(0, [pod]), ..Answers::default() }).await);
    assert_eq!(came, "aborted");
    assert!(note.contains(why), "{note}");
}

#[tokio::test(start_paused = true)]
async fn another_version_of_the_wedged_pod_stops_it() {
    let world = leak().await;
    let pod = world.waits();
    let newer = Ok(Some(Pod { resource_version: "newer".to_owned(), ..pod }));
    let (came, note) = brief(acted(&world, Answers { pods: after(0, [newer]), ..Answers::default() }).await);
    assert_eq!(came, "aborted");
    assert!(note.contains("something has changed since the judgement"), "{note}");
}

#[tokio::test(start_paused = true)]
async fn a_wedged_pod_that_got_its_sandbox_stops_it() {
    let world = leak().await;
    let pod = world.waits();
    let ready = Ok(Some(Pod { sandbox_ready: Some(true), ..pod }));
    let (came, note) = brief(acted(&world, Answers { pods: after(0, [ready]), ..Answers::default() }).await);
    assert_eq!((came, note.as_str()), ("aborted", "the pod is no wedge any more"));
}

#[rstest]
#[case::back(Ok(Some(living())), "the verdict is live-duplicate now")]
#[case::unread(no_answer("GET pods"), "the verdict is insufficient-evidence now")]
#[tokio::test(start_paused = true)]
async fn an_owner_that_changed_stops_it(#[case] owner: Read<Option<Pod>>, #[case] why: &str) {
    let world = leak().await;
    let (came, note) = brief(acted(&world, Answers { pods: after(1, [owner]), ..Answers::default() }).await);
    assert_eq!(came, "aborted");
    assert!(note.contains(why), "{note}");
}

/// A pod of the owner's name, on this node since an hour.
fn living() -> Pod {
    let created = waiting_pod().created.map(|at| at - SignedDuration::from_hours(1));
    Pod { name: "shop/owner".parse().unwrap(), uid: "lives".parse().unwrap(), created, ..waiting_pod() }
}

#[rstest]
#[case::free(Lookup::NotHeld, "the verdict is not-held now")]
#[case::unknown(unanswered(), "the verdict is agent-unknown now")]
#[tokio::test(start_paused = true)]
async fn a_holder_that_changed_stops_it(#[case] found: Lookup, #[case] why: &str) {
    let world = leak().await;
    let (came, note) =
        brief(acted(&world, Answers { lookups: after(0, [found]), ..Answers::default() }).await);
    assert_eq!(came, "aborted");
    assert!(note.contains(why), "{note}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_restarts_within_the_last_look_stops_it() {
    let world = leak().await;
    let now = world.clock();
    let (came, note) = brief(acted(&world, Answers { starts: after(1, [now]), ..Answers::default() }).await);
    assert_eq!((came, note.as_str()), ("aborted", "the agent was restarted since the look-up"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_a_slow_look_and_a_short_lease_stop_it() {
    let world = leak().await;
    let (grounds, usual, bounds) = (grounds(&world).await, options(judge), BoundOptions::default);
    let why = |acted| brief(acted).1;
    let stopped = acted_on(&world, &grounds, &usual, bounds(), None, ready(())).await;
    assert_eq!(why(stopped), "the watchdog is being stopped");
    let hasty = EngineOptions { judge_timeout: Duration::from_millis(1), ..options(judge) };
    let slow = acted_on(&world, &grounds, &hasty, bounds(), None, pending()).await;
    assert_eq!(why(slow), "what the act rests on could not be read again in time");
    let short = Held::made(Instant::now() + Duration::from_secs(19));
    let short = acted_on(&world, &grounds, &usual, bounds(), Some(&short), pending()).await;
    assert_eq!(why(short), "the Lease would run out within the act");
    let long = Held::made(Instant::now() + Duration::from_mins(1));
    assert_eq!(why(acted_on(&world, &grounds, &usual, bounds(), Some(&long), pending()).await), "removed");
}

#[tokio::test(start_paused = true)]
async fn people_and_bounds_hold_it_back() {
    let world = leak().await;
    let grounds = grounds(&world).await;
    let mut none = BoundOptions::default();
    none.disconnect.burst = 0;
    let spent = acted_on(&world, &grounds, &options(judge), none, None, pending()).await;
    assert_eq!(brief(spent).0, Bound::WORDS[0]);
    world.set_paused(true);
    assert_eq!(brief(acted(&world, Answers::default()).await).0, "paused");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_left_the_store_stops_it() {
    let world = leak().await;
    let grounds = grounds(&world).await;
    world.remove(&waiting_pod().name, false);
    let acted = acted_on(&world, &grounds, &options(judge), BoundOptions::default(), None, pending()).await;
    assert_eq!(brief(acted).1, "the wedged pod is gone");
}

fn allocations(owner: Option<&str>, chaining: &str) -> Allocations {
    let mut all = serde_json::json!({ "10.0.0.2": "router" });
    if let Some(owner) = owner {
        all["10.0.2.7"] = owner.into();
    }
    let health = serde_json::json!({ "ipam": { "allocations": all }, "cni-chaining": { "mode": chaining } });
    Allocations::from_slice(health.to_string().as_bytes()).unwrap()
}

fn config(ipam_mode: &str, chaining: Option<&str>, uplink_routes: bool) -> AgentConfig {
    let (ipam_mode, chaining_mode) = (Some(IpamMode(ipam_mode.to_owned())), chaining.map(str::to_owned));
    AgentConfig { ipam_mode, chaining_mode, uplink_routes }
}

/// Where Cilium itself allocates, the address must be nobody else's in its IPAM at this instant.
#[rstest]
#[case::nobodys(Ok(config("kubernetes", None, false)), Ok(allocations(None, "none")), None)]
#[case::the_holders(Ok(config("kubernetes", None, false)), Ok(allocations(Some("shop/owner"), "none")), None)]
#[case::the_holders_from_before_a_restart(
    Ok(config("kubernetes", None, false)),
    Ok(allocations(Some("shop/owner [restored]"), "none")),
    None
)]
#[case::the_waiting_pods(
    Ok(config("kubernetes", None, false)),
    Ok(allocations(Some("shop/waits"), "none")),
    Some("allocated to \"shop/waits\"")
)]
#[case::of_another(
    Ok(config("kubernetes", None, false)),
    Ok(allocations(Some("shop/third"), "none")),
    Some("allocated to \"shop/third\"")
)]
#[case::the_routers(
    Ok(config("kubernetes", None, false)),
    Ok(allocations(Some("router"), "none")),
    Some("allocated to \"router\"")
)]
#[case::of_another_where_a_plugin_allocates(
    Ok(config("kubernetes", None, false)),
    Ok(allocations(Some("shop/third"), "portmap")),
    None
)]
#[case::of_another_where_the_configuration_says_so(Ok(config("kubernetes", Some("aws-cni"), false)), Ok(Allocations::from_slice(b"{\"ipam\": {\"allocations\": {\"10.0.2.7\": \"shop/third\"}}}").unwrap()), None)]
#[case::nothing_is_allocated(
    Ok(config("kubernetes", None, false)),
    Ok(Allocations::default()),
    Some("is empty")
)]
#[case::unread(
    Ok(config("kubernetes", None, false)),
    no_answer("GET healthz"),
    Some("allocations could not be read")
)]
#[case::no_configuration(
    no_answer("GET config"),
    Ok(allocations(None, "none")),
    Some("configuration could not be read")
)]
#[case::delegated(Ok(config("delegated-plugin", None, false)), no_answer("GET healthz"), None)]
#[case::delegated_with_routes(
    Ok(config("delegated-plugin", None, true)),
    no_answer("GET healthz"),
    Some("routing rules by address")
)]
#[tokio::test(start_paused = true)]
async fn what_the_ipam_says(
    #[case] config: Read<AgentConfig>,
    #[case] allocations: Read<Allocations>,
    #[case] stops: Option<&str>,
) {
    let world = leak().await;
    let answers = Answers { config: Some(config), allocations: Some(allocations), ..Answers::default() };
    let (came, note) = brief(acted(&world, answers).await);
    assert_eq!(came, if stops.is_some() { "aborted" } else { "done" }, "{note}");
    assert!(stops.is_none_or(|stops| note.contains(stops)), "{note}");
}

/// The wedged pod's own name held the address before: what the agent read back at its start is the former pod's.
#[rstest]
#[case::restored("shop/waits [restored]", "done")]
#[case::on_its_way("shop/waits", "aborted")]
#[tokio::test(start_paused = true)]
async fn a_former_pod_of_the_same_name(#[case] owner: &str, #[case] word: &str) {
    let world = World::new(42);
    world.pod(&waiting_pod().name, None, ip());
    go_on(&world, Duration::from_secs(5), |_| {}).await;
    world.remove(&waiting_pod().name, true);
    world.pod(&waiting_pod().name, None, ip());
    go_on(&world, Duration::from_mins(3), |_| {}).await;
    let config = Some(Ok(config("kubernetes", None, false)));
    let answers =
        Answers { config, allocations: Some(Ok(allocations(Some(owner), "none"))), ..Answers::default() };
    assert_eq!(brief(acted(&world, answers).await).0, word);
}

const TIMEOUT: CallError = CallError::Timeout(Duration::from_secs(5));

fn refused() -> CallError {
    CallError::ServerError { status: 503, message: "api not ready".to_owned() }
}

/// What the look-ups after the call say.
enum Then {
    Free,
    /// The same endpoint, each time.
    Same,
    /// Another endpoint.
    Another,
    /// No answer, each time.
    Silence,
    /// No answer so often, and then it is free.
    FreeAfter(usize),
}

/// An answer to the DELETE, what the look-ups say, what it comes to, words of the note, and the pauses between look-ups in
/// seconds.
#[rstest]
#[case::removed(Ok(Disconnected::Removed), Then::Free, "done", "removed", 0)]
#[case::with_errors(
    Ok(Disconnected::RemovedWithErrors(2)),
    Then::Free,
    "done",
    "removed, with 2 clean-up errors",
    0
)]
#[case::gone_already(Ok(Disconnected::NotFound), Then::Free, "done", "it was gone already", 0)]
#[case::another_one_came(
    Ok(Disconnected::Removed),
    Then::Another,
    "done",
    "removed; endpoint 4711 has the address now",
    0
)]
#[case::still_there(
    Ok(Disconnected::Removed),
    Then::Same,
    "still-held",
    "the same endpoint still holds it",
    6
)]
#[case::said_to_be_gone_and_there(
    Ok(Disconnected::NotFound),
    Then::Same,
    "still-held",
    "it was gone already, but",
    6
)]
#[case::removed_and_silent(
    Ok(Disconnected::Removed),
    Then::Silence,
    "failed",
    "does not say that it is gone",
    6
)]
#[case::seen_late(Ok(Disconnected::Removed), Then::FreeAfter(3), "done", "removed", 6)]
#[case::refused(Err(refused()), Then::Same, "failed", "503", 0)]
#[case::no_answer_and_free(Err(TIMEOUT), Then::Free, "done", "no answer to the DELETE within 5 s", 0)]
#[case::no_answer_and_there(Err(TIMEOUT), Then::Same, "unanswered", "the same endpoint still holds it", 6)]
#[case::no_answer_at_all(Err(TIMEOUT), Then::Silence, "unanswered", "does not say that it is gone", 6)]
#[tokio::test(start_paused = true)]
async fn what_an_answer_comes_to(
    #[case] answer: Result<Disconnected, CallError>,
    #[case] then: Then,
    #[case] word: &str,
    #[case] words: &str,
    #[case] pauses: u64,
) {
    let world = leak().await;
    let Lookup::Held(holder) = world.lookup(ip()).await else {
        panic!("not held");
    };
    let mut other = (*holder).clone();
    other.id = crate::domain::EndpointId(4711);
    other.attachment = Some("another:eth0".parse().unwrap());
    let lookups = match then {
        Then::Free => after(1, [Lookup::NotHeld]),
        Then::Same => after(1, []),
        Then::Another => after(1, [Lookup::Held(Box::new(other))]),
        Then::Silence => after(1, std::iter::repeat_with(unanswered).take(9)),
        Then::FreeAfter(times) => {
            after(1, std::iter::repeat_with(unanswered).take(times).chain([Lookup::NotHeld]))
        }
    };
    let began = Instant::now();
    let answers = Answers { disconnect: Some(answer), lookups, ..Answers::default() };
    let (came, note) = brief(acted(&world, answers).await);
    assert_eq!(came, word, "{note}");
    assert!(note.contains(words), "{note}");
    assert_eq!(began.elapsed().as_secs(), pauses);
}

/// After the disconnect the owner and the users of the address are read once more. `None`: as before, none is there.
#[rstest]
#[case::nobody(None, None, "done")]
#[case::the_owner_lives(Some(living()), None, "not-healed")]
#[case::elsewhere(Some(Pod { node: Some("n2".parse().unwrap()), ..living() }), None, "done")]
#[case::on_other_addresses(Some(Pod { ips: vec!["10.0.2.9".parse().unwrap()], ..living() }), None, "done")]
#[case::since_the_act(Some(Pod { created: Some(jiff::Timestamp::MAX), ..living() }), None, "done")]
#[case::a_user_lives(None, Some(Pod { ips: vec![ip()], ..living() }), "not-healed")]
#[case::a_user_elsewhere_lives(None, Some(Pod { node: Some("n2".parse().unwrap()), ips: vec![ip()], ..living() }), "not-healed")]
#[case::a_user_that_came_since(None, Some(Pod { created: Some(jiff::Timestamp::MAX), ips: vec![ip()], ..living() }), "done")]
#[case::no_user_of_this_address(None, Some(living()), "done")]
#[tokio::test(start_paused = true)]
async fn a_second_opinion(#[case] owner: Option<Pod>, #[case] user: Option<Pod>, #[case] word: &str) {
    let world = leak().await;
    let answers = Answers {
        pods: after(2, [Ok(owner)]),
        users: after(1, [Ok(user.into_iter().collect())]),
        ..Answers::default()
    };
    let (came, note) = brief(acted(&world, answers).await);
    assert_eq!(came, word, "{note}");
    assert!(note.starts_with("removed"), "{note}");
}

/// A pod on Cilium's own address, and what the API server says to its deletion.
#[rstest]
#[case::accepted(DeleteOutcome::Accepted, "done")]
#[case::gone(DeleteOutcome::Gone, "aborted")]
#[case::changed(DeleteOutcome::Changed("another version".to_owned()), "aborted")]
#[case::denied(DeleteOutcome::Failed(ReadFailure::Status { status: 403, message: "no".to_owned() }), "failed")]
#[case::unanswered(DeleteOutcome::Failed(ReadFailure::Timeout), "unanswered")]
#[case::broken(DeleteOutcome::Failed(ReadFailure::Status { status: 500, message: "no".to_owned() }), "unanswered")]
#[tokio::test(start_paused = true)]
async fn what_a_deletion_comes_to(#[case] outcome: DeleteOutcome, #[case] word: &str) {
    let world = World::new(43);
    world.pod(&waiting_pod().name, Some("web"), reserved());
    go_on(&world, Duration::from_mins(3), |_| {}).await;
    let acted = acted(&world, Answers { deletion: Some(outcome), ..Answers::default() }).await;
    assert_eq!(brief(acted).0, word);
}
