//! One node in memory: pods, a kubelet, an agent, and everything that can go wrong with them, from a seed.
//!
//! It knows the truth, which the engine does not: each act is held against it at the instant when it takes effect.

mod parts;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::answers::Answers;
use super::fixtures::{agent_pod, reserved, start_of_time, waiting_pod};
use super::until;
use crate::domain::{
    AgentPod, ContainerId, Containers, Controller, Event, Phase, Pod, PodName, PodUid, RemedyKind,
};
use crate::kube::PodStore;

/// How often a kubelet tries again.
const RETRY: SignedDuration = SignedDuration::from_secs(12);
/// An act that was under way when somebody threw the pause switch may still take effect within this.
const PAUSE_GRACE: SignedDuration = SignedDuration::from_secs(5);

/// How bad it is, in percent of the calls.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    /// Calls of the agent that read.
    pub(super) lookups: u64,
    /// Requests to the API server that read.
    pub(super) reads: u64,
    /// Calls that change something.
    pub(super) writes: u64,
    /// Disconnects do not help: the agent refuses the address all the same.
    pub(super) useless: bool,
    /// The agent admits no new endpoint: a pod whose address is free again is refused with 429.
    pub(super) busy: bool,
    /// How the agent is at odds with itself.
    pub(super) at_odds: AtOdds,
}

/// How the agent is at odds with itself, until it is restarted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum AtOdds {
    /// It is not.
    #[default]
    No,
    /// It says that it deleted an endpoint, and keeps it.
    Phantom,
    /// It says that nobody holds an address that it refuses.
    Hidden,
}

/// What happened, by the world's own word.
#[derive(Debug, Default, Clone)]
pub(super) struct Record {
    /// Each call that was meant to change something.
    pub(super) acts: Vec<(Timestamp, RemedyKind)>,
    /// What must never happen.
    pub(super) violations: Vec<String>,
    /// Stale endpoints that went.
    pub(super) freed: u32,
    /// Live endpoints that were cut.
    pub(super) cut: u32,
    /// When pods were last deleted, by controller and address.
    pub(super) moved: HashMap<(String, IpAddr), Timestamp>,
    /// Places in the cluster that were given back.
    pub(super) released: Vec<RemedyKind>,
    /// How often the agent's socket was tried.
    pub(super) tried: u32,
    /// Namespaces that were asked for.
    pub(super) namespaces: Vec<String>,
    /// How often a place in the cluster was asked for.
    pub(super) acquired: u32,
    /// How often the agent was asked who has an address.
    pub(super) looked_up: u32,
}

struct Endpoint {
    id: i64,
    container: ContainerId,
    ip: IpAddr,
    pod: PodName,
    uid: PodUid,
    made: Timestamp,
}

/// What a pod's kubelet is up to.
struct Trying {
    ip: IpAddr,
    next: Timestamp,
}

struct State {
    random: u64,
    counter: u64,
    pods: HashMap<PodName, Pod>,
    trying: HashMap<PodUid, Trying>,
    endpoints: Vec<Endpoint>,
    failures: HashMap<PodUid, Event>,
    agent_started: Timestamp,
    agent: AgentPod,
    paused_since: Option<Timestamp>,
    faults: Faults,
    answers: Answers,
    record: Record,
}

/// The world; clones share it.
#[derive(Clone)]
pub(super) struct World {
    state: Arc<Mutex<State>>,
    store: PodStore,
    begin: Instant,
}

impl State {
    /// xorshift64*: the same seed gives the same world.
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) % below.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random(100) < percent
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn is_live(&self, endpoint: &Endpoint) -> bool {
        self.pods.get(&endpoint.pod).is_some_and(|pod| pod.uid == endpoint.uid && pod.is_live())
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let store = PodStore::default();
        store.begin_list();
        store.end_list();
        let state = State {
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            counter: 0,
            pods: HashMap::new(),
            trying: HashMap::new(),
            endpoints: Vec::new(),
            failures: HashMap::new(),
            agent_started: start_of_time() - SignedDuration::from_hours(30),
            agent: agent_pod(),
            paused_since: None,
            faults: Faults::default(),
            answers: Answers::default(),
            record: Record::default(),
        };
        let world = Self { state: Arc::new(Mutex::new(state)), store, begin: Instant::now() };
        world.show_agent();
        world
    }

    /// The watch tells of the agent's first pod: whether it is on its way out; `None`: it is gone.
    pub(super) fn shows_agent(&self, deleting: Option<bool>) {
        match deleting {
            Some(deleting) => {
                self.lock().agent.deleting = deleting;
                self.show_agent();
            }
            None => self.store.remove(&agent_pod().uid),
        }
    }

    /// The watch tells of a pod as it is now.
    pub(super) fn shows(&self, pod: Pod) {
        self.store.apply(pod, None, self.clock());
    }

    /// The watch tells the agent's pod.
    fn show_agent(&self) {
        let agent = self.lock().agent.clone();
        let pod = Pod {
            name: agent.name,
            uid: agent.uid,
            phase: Phase::Running,
            host_network: true,
            sandbox_ready: Some(true),
            deleting: agent.deleting,
            ..waiting_pod()
        };
        self.shows(pod);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn clock(&self) -> Timestamp {
        start_of_time() + SignedDuration::try_from(self.begin.elapsed()).unwrap()
    }

    pub(super) fn record<T>(&self, look: impl FnOnce(&Record) -> T) -> T {
        look(&self.lock().record)
    }

    /// Ends when that many namespaces were asked for.
    pub(super) async fn asked_for(&self, namespaces: usize) {
        until(|| self.record(|record| record.namespaces.len() >= namespaces)).await;
    }

    pub(super) fn random(&self, below: u64) -> u64 {
        self.lock().random(below)
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    pub(super) fn set_answers(&self, answers: Answers) {
        self.lock().answers = answers;
    }

    fn answer<T>(&self, take: impl FnOnce(&mut Answers) -> Option<T>) -> Option<T> {
        take(&mut self.lock().answers)
    }

    pub(super) fn set_paused(&self, paused: bool) {
        let now = self.clock();
        let mut state = self.lock();
        state.paused_since = paused.then(|| state.paused_since.unwrap_or(now));
    }

    pub(super) fn restart_agent(&self) {
        let now = self.clock();
        let mut state = self.lock();
        state.agent_started = now;
        state.faults.at_odds = AtOdds::No;
        // What has no pod of its name any more is not restored.
        let kept: Vec<Endpoint> = std::mem::take(&mut state.endpoints);
        state.endpoints = kept.into_iter().filter(|it| state.pods.contains_key(&it.pod)).collect();
    }

    /// A pod that is bound to this node and is to get this address.
    pub(super) fn pod(&self, name: &PodName, controller: Option<&str>, ip: IpAddr) -> PodUid {
        let now = self.clock();
        let mut state = self.lock();
        let number = state.next();
        let uid: PodUid = format!("uid-{number}").parse().unwrap();
        let controller = controller.map(|uid| Controller {
            kind: "ReplicaSet".to_owned(),
            name: uid.to_owned(),
            uid: uid.to_owned(),
        });
        let pod = Pod {
            name: name.clone(),
            uid: uid.clone(),
            resource_version: number.to_string(),
            created: Some(now),
            started: Some(now),
            controller,
            ..waiting_pod()
        };
        state.pods.insert(name.clone(), pod.clone());
        state.trying.insert(uid.clone(), Trying { ip, next: now + SignedDuration::from_secs(1) });
        drop(state);
        self.store.apply(pod, None, now);
        uid
    }

    /// The pod goes; its endpoint stays behind where it leaks.
    pub(super) fn remove(&self, name: &PodName, leaks: bool) {
        let mut state = self.lock();
        let Some(pod) = state.pods.remove(name) else {
            return;
        };
        state.trying.remove(&pod.uid);
        state.failures.remove(&pod.uid);
        if !leaks {
            state.endpoints.retain(|it| it.uid != pod.uid);
        }
        drop(state);
        self.store.remove(&pod.uid);
    }

    pub(super) fn names(&self) -> Vec<PodName> {
        let mut names: Vec<PodName> = self.lock().pods.keys().cloned().collect();
        names.sort();
        names
    }

    /// The pod of [`waiting_pod`]'s name.
    pub(super) fn waits(&self) -> Pod {
        self.lock().pods[&waiting_pod().name].clone()
    }

    /// The container of the endpoint that has an address.
    pub(super) fn container_at(&self, ip: IpAddr) -> Option<ContainerId> {
        self.lock().endpoints.iter().find(|it| it.ip == ip).map(|it| it.container.clone())
    }

    pub(super) fn is_running(&self, name: &PodName) -> bool {
        self.lock().pods.get(name).is_some_and(|pod| pod.phase == Phase::Running)
    }

    /// All kubelets and controllers have their turn.
    pub(super) fn turn(&self) {
        let now = self.clock();
        let mut state = self.lock();
        let mut due: Vec<PodUid> =
            state.trying.iter().filter(|(_, it)| it.next <= now).map(|(uid, _)| uid.clone()).collect();
        due.sort();
        let mut changed = Vec::new();
        for uid in due {
            let Some(pod) = state.pods.values().find(|pod| pod.uid == uid).cloned() else {
                state.trying.remove(&uid);
                continue;
            };
            changed.extend(Self::try_sandbox(&mut state, pod, now));
        }
        let going: Vec<Pod> = state.pods.values().filter(|pod| pod.deleting).cloned().collect();
        let agent_goes = state.agent.deleting;
        drop(state);
        if agent_goes {
            self.replace_agent();
        }
        for pod in changed {
            self.store.apply(pod, None, now);
        }
        for pod in going {
            self.remove(&pod.name, false);
            self.replace(&pod);
        }
    }

    /// The DaemonSet makes another pod of the agent, which begins a new life.
    fn replace_agent(&self) {
        let now = self.clock();
        let former = {
            let mut state = self.lock();
            let number = state.next();
            let uid = format!("agent-{number}").parse().unwrap();
            let agent = AgentPod { uid, deleting: false, started: Some(now), ..state.agent.clone() };
            std::mem::replace(&mut state.agent, agent)
        };
        self.store.remove(&former.uid);
        self.show_agent();
        self.restart_agent();
    }

    /// A deleted pod's controller makes another, which gets another address, or the same one again.
    fn replace(&self, pod: &Pod) {
        let Some(controller) = &pod.controller else {
            return;
        };
        let (number, again, host) = {
            let mut state = self.lock();
            (state.next(), state.chance(30), state.random(200))
        };
        let ip = if again { reserved() } else { format!("10.0.1.{host}").parse().unwrap() };
        let name = PodName::new(pod.name.namespace(), &format!("again-{number}")).unwrap();
        self.pod(&name, Some(&controller.uid), ip);
    }

    fn try_sandbox(state: &mut State, mut pod: Pod, now: Timestamp) -> Option<Pod> {
        let trying = state.trying.get_mut(&pod.uid)?;
        trying.next = now + RETRY;
        let ip = trying.ip;
        let number = state.next();
        let sandbox = format!("{number:064x}");
        let held = ip == reserved() || state.endpoints.iter().any(|it| it.ip == ip);
        let failed_before = state.failures.contains_key(&pod.uid);
        if held || (failed_before && (state.faults.useless || state.faults.busy)) {
            let count = state.failures.get(&pod.uid).map_or(0, |event| event.count) + 1;
            let why = if held || state.faults.useless {
                format!("[PUT /endpoint/{{id}}][400] putEndpointIdInvalid \"IP ipv4:{ip} is already in use\"")
            } else {
                "[PUT /endpoint/{id}][429] putEndpointIdTooManyRequests".to_owned()
            };
            let message = format!(
                "Failed to create pod sandbox: failed to setup network for sandbox \"{sandbox}\": plugin type=\"cilium-cni\" \
                 failed (add): unable to create endpoint: {why}"
            );
            let event = Event {
                object_uid: pod.uid.to_string(),
                node: Some("n1".parse().unwrap()),
                reason: "FailedCreatePodSandBox".to_owned(),
                message,
                at: Some(now),
                count,
            };
            state.failures.insert(pod.uid.clone(), event);
            return None;
        }
        state.trying.remove(&pod.uid);
        let endpoint = Endpoint {
            id: i64::try_from(number).unwrap(),
            container: sandbox.parse().unwrap(),
            ip,
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            made: now,
        };
        state.endpoints.push(endpoint);
        pod.phase = Phase::Running;
        pod.ips = vec![ip];
        pod.sandbox_ready = Some(true);
        pod.containers = Containers { running: true, ended: false, ever_ran: true };
        pod.resource_version = number.to_string();
        state.pods.insert(pod.name.clone(), pod.clone());
        Some(pod)
    }
}
