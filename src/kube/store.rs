//! This node's pods as the watch last told them: who waits for a sandbox, and since when.
//!
//! It is a hint about where to look, never evidence: everything that a verdict rests on is read again, live.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::domain::{Pod, PodUid};

/// Since when the agent's container runs, by its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentStart {
    /// It does not run.
    Stopped,
    /// It runs since then.
    Since(Timestamp),
}

/// A pod with what its watch adds.
#[derive(Debug, Clone)]
pub struct Tracked {
    /// The pod.
    pub pod: Pod,
    /// Since when it waits for a sandbox, as this process saw it; `None`: it does not wait.
    pub waiting_since: Option<Timestamp>,
    /// Set where the pod is the agent's.
    pub agent: Option<AgentStart>,
}

/// The store. One task writes, any number read; no lock is held across an await.
#[derive(Debug, Clone)]
pub struct PodStore {
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<PodUid, Tracked>,
    /// Pods seen in the list that is being read; they replace `pods` when it is complete.
    listing: Option<BTreeMap<PodUid, Tracked>>,
    synced: bool,
    /// How often a pod of this node has gone or ended.
    ended: u64,
}

impl Default for PodStore {
    fn default() -> Self {
        Self { state: Arc::default(), changes: watch::Sender::new(0) }
    }
}

impl PodStore {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock only means that a writer panicked; each write leaves a whole state behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Wakes with each change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// A list begins: what follows until [`Self::end_list`] is all there is.
    pub fn begin_list(&self) {
        self.lock().listing = Some(BTreeMap::new());
    }

    /// The list is complete.
    pub fn end_list(&self) {
        let mut state = self.lock();
        if let Some(listing) = state.listing.take() {
            state.pods = listing;
            state.ended += 1;
        }
        state.synced = true;
        drop(state);
        self.changed();
    }

    /// A pod was added or changed.
    pub fn apply(&self, pod: Pod, agent: Option<AgentStart>, now: Timestamp) {
        let mut state = self.lock();
        let known = state.pods.get(&pod.uid);
        let ended = !pod.is_live() && known.is_some_and(|tracked| tracked.pod.is_live());
        let before = known.and_then(|tracked| tracked.waiting_since);
        let waiting_since = pod.not_waiting().is_none().then(|| before.unwrap_or(now));
        let uid = pod.uid.clone();
        let tracked = Tracked { pod, waiting_since, agent };
        match &mut state.listing {
            Some(listing) => listing.insert(uid, tracked),
            None => state.pods.insert(uid, tracked),
        };
        state.ended += u64::from(ended);
        let announce = state.listing.is_none();
        drop(state);
        if announce {
            self.changed();
        }
    }

    /// A pod is gone.
    pub fn remove(&self, uid: &PodUid) {
        let mut state = self.lock();
        state.pods.remove(uid);
        state.ended += 1;
        drop(state);
        self.changed();
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        self.lock().synced
    }

    /// A number that grows when a pod of this node goes or ends: an owner may have.
    pub fn ended(&self) -> u64 {
        self.lock().ended
    }

    /// How many pods there are.
    pub fn len(&self) -> usize {
        self.lock().pods.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pods that wait for a sandbox.
    pub fn waiting(&self) -> Vec<Tracked> {
        self.lock().pods.values().filter(|tracked| tracked.waiting_since.is_some()).cloned().collect()
    }

    /// One pod.
    pub fn get(&self, uid: &PodUid) -> Option<Pod> {
        self.lock().pods.get(uid).map(|tracked| tracked.pod.clone())
    }

    /// Since when the agent on this node runs, by its pods: of several the latest, and stopped if one of them is.
    /// `None`: no pod of the agent is known here.
    pub fn agent_start(&self) -> Option<AgentStart> {
        let state = self.lock();
        let starts = state.pods.values().filter_map(|tracked| tracked.agent);
        starts.reduce(|one, other| match (one, other) {
            (AgentStart::Since(one), AgentStart::Since(other)) => AgentStart::Since(one.max(other)),
            _ => AgentStart::Stopped,
        })
    }

    /// Whether each pod of this node that lists addresses lists one of this family first. The API server's look-up
    /// by `status.podIP` sees the first address only.
    pub fn is_first_family(&self, ip: IpAddr) -> bool {
        let state = self.lock();
        let mut firsts = state.pods.values().filter_map(|tracked| tracked.pod.ips.first()).peekable();
        firsts.peek().is_some() && firsts.all(|first| first.is_ipv4() == ip.is_ipv4())
    }
}
