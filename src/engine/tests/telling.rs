//! What is told of what happens: the event stream and the Kubernetes Events, over whole stories.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use rstest::rstest;

use super::days::{directory, go_on, process_with};
use super::fixtures::reserved;
use super::options;
use super::world::{Faults, World};
use crate::domain::{PodName, judge};
use crate::engine::{Channels, EngineOptions, Mode, NOTES, NoteReason, notes_document};
use crate::kube::Note;
use crate::stored::{Made, is_stored};
use crate::stream::{CloudEvent, Event, Hub, Start, Started};

/// What a process told.
pub(super) struct Heard {
    hub: Hub,
    notes: Arc<Mutex<Vec<Note>>>,
}

impl Heard {
    pub(super) fn new(world: &World) -> Self {
        let started = Started {
            node: "n1".to_owned(),
            version: "0".to_owned(),
            mode: "heal".to_owned(),
            remedies: Vec::new(),
        };
        let hub = Hub::new("n1".parse().unwrap(), started, Arc::default(), world.clock());
        Self { hub, notes: Arc::default() }
    }

    pub(super) fn channels(&self) -> Channels {
        let notes = Arc::clone(&self.notes);
        Channels { hub: self.hub.clone(), notes: Arc::new(move |note| notes.lock().unwrap().push(note)) }
    }

    fn events(&self) -> Vec<Event> {
        let mut reader = self.hub.read(Start::Oldest, false);
        let mut events = Vec::new();
        while let Some(Some(item)) = reader.next(|_| true, jiff::Timestamp::now).now_or_never() {
            events.push(CloudEvent::parse(item.json.as_bytes()).unwrap().data);
        }
        events
    }

    /// All that the stream told so far, in short.
    pub(super) fn briefs(&self) -> Vec<String> {
        self.events().iter().map(brief).collect()
    }

    /// Each Event as `REASON KIND/NAME (related KIND/NAME)`.
    fn notes(&self) -> Vec<String> {
        let short = |it: &k8s_openapi::api::core::v1::ObjectReference| {
            format!("{}/{}", it.kind.as_deref().unwrap(), it.name.as_deref().unwrap())
        };
        let notes = self.notes.lock().unwrap();
        let line = |it: &Note| {
            format!("{} {} ({})", it.reason, short(&it.regarding), short(it.related.as_ref().unwrap()))
        };
        notes.iter().map(line).collect()
    }

    fn texts(&self, reason: &str) -> Vec<String> {
        let notes = self.notes.lock().unwrap();
        notes.iter().filter(|note| note.reason == reason).map(|note| note.note.clone()).collect()
    }
}

fn name(text: &str) -> PodName {
    text.parse().unwrap()
}

/// The address that [`wedge`] is about.
pub(super) fn ip() -> IpAddr {
    "10.0.2.7".parse().unwrap()
}

/// A pod of a controller that waits for the address of one that was there before.
pub(super) async fn wedge(world: &World, owner_is_gone: bool) {
    let owner = name("shop/owner");
    world.pod(&owner, None, ip());
    go_on(world, Duration::from_secs(5), |_| {}).await;
    if owner_is_gone {
        world.remove(&owner, true);
    }
    world.pod(&name("shop/waits"), Some("web"), ip());
    go_on(world, Duration::from_mins(3), |_| {}).await;
}

async fn told(world: &World, dir: &Path, options: EngineOptions, minutes: u64) -> Heard {
    let heard = Heard::new(world);
    let life = go_on(world, Duration::from_mins(minutes), |_| {});
    process_with(world, dir, options, &heard, life).await;
    heard
}

/// What an event says, in short.
fn brief(event: &Event) -> String {
    let word = event.kind().as_str();
    match event {
        Event::Judged(it) => format!("{word} {} {}", it.about.verdict.as_deref().unwrap_or("-"), it.remedy),
        Event::HeldBack(it) => format!("{word} {} {}", it.remedy, it.by),
        Event::Acting(it) => format!("{word} {}", it.remedy),
        Event::Acted(it) => format!("{word} {} {}", it.remedy, it.outcome),
        _ => word.to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_leak_that_is_healed_is_told_from_the_first_sight_to_the_sandbox() {
    let (world, dir) = (World::new(21), directory());
    wedge(&world, true).await;
    let heard = told(&world, dir.path(), options(judge), 5).await;
    let events = heard.events();
    assert_eq!(
        heard.briefs(),
        [
            "started",
            "judged stale-endpoint disconnect-endpoint",
            "held-back disconnect-endpoint quiet-period",
            "acting disconnect-endpoint",
            "acted disconnect-endpoint freed",
            "acted disconnect-endpoint healed",
            "over",
        ]
    );
    let about: Vec<_> = events.iter().filter_map(Event::about).collect();
    assert!(about.iter().all(|it| it.correlation_id == about[0].correlation_id && it.ip == Some(ip())));
    assert_eq!(
        (about[0].pod.as_str(), about[0].controller.as_deref()),
        ("shop/waits", Some("ReplicaSet/web"))
    );
    let latency = events.iter().find_map(|event| match event {
        Event::Acted(acted) => acted.heal_latency_seconds,
        _ => None,
    });
    assert!(latency.is_some_and(|seconds| (190..300).contains(&seconds)), "{latency:?}");
    let on = |reason: &str| {
        ["Pod/waits (Node/n1)", "ReplicaSet/web (Pod/waits)", "Node/n1 (Pod/waits)"]
            .map(|it| format!("{reason} {it}"))
    };
    let owner = "EndpointLeakDetected Pod/waits (Pod/owner)".to_owned();
    let detected = [owner].into_iter().chain(on("EndpointLeakDetected").into_iter().skip(1));
    let all: Vec<_> = detected.chain(on("StaleEndpointDisconnected")).collect();
    assert_eq!(heard.notes(), all);
    let detected = heard.texts("EndpointLeakDetected");
    let id = &about[0].correlation_id;
    assert!(detected[0].starts_with("10.0.2.7 is held by an endpoint that is left over: "), "{detected:?}");
    assert!(detected[0].ends_with(&format!("(node n1, correlation id {id})")), "{detected:?}");
    assert!(detected[2].starts_with("pod shop/waits: 10.0.2.7 is held"), "{detected:?}");
    let state = heard.hub.state(world.clock());
    assert!(state.wedges.is_empty() && state.acts[0].ended, "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn observe_mode_detects_and_says_that_nothing_is_done() {
    let (world, dir) = (World::new(22), directory());
    wedge(&world, true).await;
    let heard = told(&world, dir.path(), EngineOptions { mode: Mode::Observe, ..options(judge) }, 30).await;
    assert_eq!(heard.notes().len(), 3, "{:?}", heard.notes());
    let texts = heard.texts("EndpointLeakDetected");
    assert!(texts[0].contains("Nothing is done: the watchdog observes only."), "{texts:?}");
    let state = heard.hub.state(world.clock());
    assert_eq!(state.wedges[0].held_back[0].by, "observe-mode");
}

#[tokio::test(start_paused = true)]
async fn a_live_duplicate_is_refused_once_and_names_the_owner() {
    let (world, dir) = (World::new(23), directory());
    wedge(&world, false).await;
    let heard = told(&world, dir.path(), options(judge), 60).await;
    let related = ["Pod/waits (Pod/owner)", "ReplicaSet/web (Pod/waits)", "Node/n1 (Pod/waits)"];
    assert_eq!(heard.notes(), related.map(|it| format!("EndpointLeakRefused {it}")));
    let texts = heard.texts("EndpointLeakRefused");
    assert!(
        texts[0].starts_with("10.0.2.7 is in use, and no endpoint is touched. live-duplicate: "),
        "{texts:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_told() {
    let (world, dir) = (World::new(24), directory());
    wedge(&world, true).await;
    world.set_paused(true);
    let heard = told(&world, dir.path(), options(judge), 5).await;
    assert_eq!(heard.texts("HealPaused").len(), 3, "{:?}", heard.notes());
    assert!(heard.texts("StaleEndpointDisconnected").is_empty());
}

/// The world's namespace is as old as the world.
#[rstest]
#[case::it_is_over(60, 0, 3)]
#[case::it_is_not(86_400, 3, 0)]
#[tokio::test(start_paused = true)]
async fn healing_ends_when_it_was_said_to(#[case] seconds: u64, #[case] done: usize, #[case] refused: usize) {
    let (world, dir) = (World::new(29), directory());
    wedge(&world, true).await;
    let options = EngineOptions { heal_for: Some(Duration::from_secs(seconds)), ..options(judge) };
    let heard = told(&world, dir.path(), options, 5).await;
    assert_eq!(heard.texts("StaleEndpointDisconnected").len(), done, "{:?}", heard.notes());
    let texts = heard.texts("EndpointLeakRefused");
    assert_eq!(texts.len(), refused, "{texts:?}");
    assert!(texts.iter().all(|text| text.contains("--heal-for=60s is over: it only tells")), "{texts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_that_does_not_help_is_told() {
    let (world, dir) = (World::new(25), directory());
    wedge(&world, true).await;
    world.set_faults(Faults { useless: true, ..Faults::default() });
    let heard = told(&world, dir.path(), options(judge), 5).await;
    let failed = heard.texts("StaleEndpointDisconnectFailed");
    assert!(
        failed.len() >= 3 && failed[0].starts_with("disconnect-endpoint for 10.0.2.7: "),
        "{:?}",
        heard.notes()
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_moved_is_told_on_its_controller() {
    let (world, dir) = (World::new(26), directory());
    world.pod(&name("shop/web-1"), Some("web"), reserved());
    go_on(&world, Duration::from_mins(3), |_| {}).await;
    let heard = told(&world, dir.path(), options(judge), 3).await;
    let notes = heard.notes();
    assert!(notes.contains(&"WedgedPodDeleted ReplicaSet/web (Pod/web-1)".to_owned()), "{notes:?}");
    let refused = &heard.texts("EndpointLeakRefused")[0];
    assert!(refused.contains("The watchdog deletes the pod after a second look"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn the_acts_of_an_earlier_process_are_part_of_the_state() {
    let (world, dir) = (World::new(27), directory());
    wedge(&world, true).await;
    told(&world, dir.path(), options(judge), 5).await;
    let later = told(&world, dir.path(), options(judge), 1).await;
    let acts = later.hub.state(world.clock()).acts;
    assert_eq!(acts.len(), 1);
    let outcomes: Vec<_> = acts[0].steps.iter().map(|step| step.outcome.as_str()).collect();
    assert_eq!((acts[0].acting.about.pod.as_str(), outcomes), ("shop/waits", vec!["sent", "healed"]));
}

#[test]
fn the_table_has_each_reason_in_its_place() {
    for (at, row) in NOTES.iter().enumerate() {
        assert_eq!(row.reason as usize, at, "{}", row.word);
        assert_eq!(format!("{:?}", row.reason), row.word);
        assert_eq!(row.reason.row(), row);
    }
    assert_eq!(NoteReason::FenceMissing as usize + 1, NOTES.len());
}

/// `UPDATE_DOCS=1` writes it anew.
#[test]
fn the_page_on_kubernetes_events_is_that_of_the_table() {
    is_stored("kubernetes-events.md", &notes_document(), Made::Page);
}

#[rstest]
#[case::while_it_is_short(20, 0)]
#[case::once_it_lasts(100, 3)]
#[tokio::test(start_paused = true)]
async fn what_mostly_passes_is_told_once_it_lasts(#[case] seconds: u64, #[case] notes: usize) {
    let (world, dir) = (World::new(28), directory());
    wedge(&world, false).await;
    world.set_faults(Faults { lookups: 100, ..Faults::default() });
    let heard = Heard::new(&world);
    let life = go_on(&world, Duration::from_secs(seconds), |_| {});
    process_with(&world, dir.path(), options(judge), &heard, life).await;
    assert_eq!(heard.notes().len(), notes, "{:?}", heard.notes());
}
