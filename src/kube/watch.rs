//! The one watch: this node's pods, by `spec.nodeName`, in pages, into a [`PodStore`].
//!
//! One malformed object is counted and skipped. A watch that fails is begun again with a growing, jittered delay.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource as _};

use super::client::WatchOpened;
use super::guard::GuardedPod;
use super::labels::LabelMatch;
use super::reader::describe;
use super::store::{AgentStart, PodStore};
use crate::clock::WallClock;
use crate::domain::{NodeName, PodUid};
use crate::metrics::{ApiResource, Metrics};

/// Objects in one page of a list: the memory of a list is bounded by it.
const PAGE: u32 = 50;
/// The API server ends a watch after this long at most; the next one resumes where it ended.
const WATCH_SECONDS: u32 = 290;
/// Up to so much earlier, by the node: else all that began at one instant would begin anew at one instant, for ever.
const WATCH_SPREAD: u32 = 60;

/// What to watch.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// The node.
    pub node: NodeName,
    /// Labels of the agent's own pod.
    pub agent_labels: LabelMatch,
    /// The agent's container in that pod.
    pub agent_container: String,
    /// Bound on one page of the first list.
    pub timeout: Duration,
    /// Tells when a change was heard.
    pub clock: WallClock,
    /// Makes the pauses between failing watches the same each time; `None`: they differ from node to node.
    pub jitter: Option<u64>,
}

/// Watches until dropped. `report` hears whether the watch works.
pub async fn watch_pods(
    client: Client,
    mut opened: WatchOpened,
    options: WatchOptions,
    store: PodStore,
    metrics: Arc<Metrics>,
    report: impl Fn(Result<(), String>),
) {
    let backoff = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(30))
        .without_max_times()
        .with_jitter();
    let backoff = options.jitter.map_or(backoff, |seed| backoff.with_jitter_seed(seed));
    let mut delays = backoff.build();
    let earlier = u32::try_from(options.node.spread(u64::from(WATCH_SPREAD))).unwrap_or_default();
    let watch_seconds = WATCH_SECONDS.saturating_sub(earlier);
    loop {
        let api: Api<GuardedPod> = Api::all(client.clone());
        let config = watcher::Config::default()
            .fields(&format!("spec.nodeName={}", options.node))
            .timeout(watch_seconds)
            .page_size(PAGE);
        let mut stream = pin!(watcher(api, config));
        let mut listing = true;
        let mut resumes = true;
        while resumes {
            // The client's own bound ends with an answer's head: a list whose body hangs must not hang the watch.
            let bound = if listing {
                options.timeout * 2
            } else {
                Duration::from_secs(u64::from(watch_seconds) + 30)
            };
            let next = tokio::select! {
                biased;
                () = opened.next() => {
                    // A watch that resumes says so by nothing else than its answer's head.
                    report(Ok(()));
                    delays = backoff.build();
                    continue;
                }
                next = tokio::time::timeout(bound, stream.next()) => next,
            };
            let why = match next {
                Ok(Some(Ok(event))) => {
                    listing = is_listing(&event, listing);
                    take(event, &options, &store, &metrics);
                    continue;
                }
                Ok(Some(Err(error))) => watch_error(&error),
                Ok(None) => {
                    resumes = false;
                    "the stream ended".to_owned()
                }
                Err(_) => {
                    resumes = false;
                    format!("nothing heard for {} s", bound.as_secs())
                }
            };
            report(Err(why));
            metrics.watch_restarted();
            tokio::time::sleep(delays.next().unwrap_or(Duration::from_secs(30))).await;
        }
    }
}

fn is_listing(event: &Event<GuardedPod>, before: bool) -> bool {
    match event {
        Event::Init => true,
        Event::InitDone => false,
        Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => before,
    }
}

fn watch_error(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => describe(source).to_string(),
        watcher::Error::WatchError(status) => format!("{} {}", status.code, status.message),
        watcher::Error::NoResourceVersion => error.to_string(),
    }
}

fn take(event: Event<GuardedPod>, options: &WatchOptions, store: &PodStore, metrics: &Metrics) {
    match event {
        Event::Init => store.begin_list(),
        Event::InitDone => store.end_list(),
        Event::InitApply(object) | Event::Apply(object) => apply(object, options, store, metrics),
        Event::Delete(object) => {
            let uid = object.meta().uid.as_deref();
            if let Some(uid) = uid.and_then(|uid| uid.parse::<PodUid>().ok()) {
                store.remove(&uid);
            }
        }
    }
    metrics.set_pods_watched(store.len());
}

fn apply(object: GuardedPod, options: &WatchOptions, store: &PodStore, metrics: &Metrics) {
    let decoded = object.into_pod().and_then(|object| {
        let labels = object.metadata.labels.clone().unwrap_or_default();
        let is_agent = options.agent_labels.matches(&labels);
        let started = object.container_started(&options.agent_container);
        let agent = is_agent.then(|| started.map_or(AgentStart::Stopped, AgentStart::Since));
        Ok((object.to_domain().map_err(|error| error.to_string())?, agent))
    });
    match decoded {
        Ok((pod, agent)) => store.apply(pod, agent, options.clock.now()),
        Err(why) => {
            metrics.malformed_object(ApiResource::Pods);
            tracing::warn!(why, "skipped a malformed pod");
        }
    }
}
