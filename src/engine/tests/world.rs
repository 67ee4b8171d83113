//! One node in memory: pods, a kubelet, an agent, and everything that can go wrong with them, from a seed.
//!
//! It knows the truth, which the engine does not: each act is held against it at the instant when it takes effect.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::answers::Answers;
use crate::cilium::{AgentConfig, Allocations, CallError, Disconnected};
use crate::domain::{
    CiliumEndpoint, CiliumNode, CiliumVersion, ContainerId, Containers, Controller, DisconnectTarget,
    EndpointId, EndpointState, Event, Events, Holder, IpamMode, LogEntry, Lookup, OvnAddress, Phase, Pod,
    PodName, PodUid, Read, ReadFailure, RemedyKind, ReservedUse, SliceEntry, Unreadable,
};
use crate::engine::{Parts, Sources};
use crate::kube::{AgentPod, DeleteOutcome, Held, NamespaceFacts, NoLease, NodeFacts, PodStore, Rollout};

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
#[derive(Debug, Default)]
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

pub(super) fn reserved() -> IpAddr {
    "10.0.0.1".parse().unwrap()
}

fn start_of_time() -> Timestamp {
    "2026-06-18T00:00:00Z".parse().unwrap()
}

/// This node's agent, as its first life was made.
pub(super) fn agent_pod() -> AgentPod {
    AgentPod {
        name: "kube-system/cilium-x".parse().unwrap(),
        uid: "agent-1".parse().unwrap(),
        resource_version: "1".to_owned(),
        phase: Phase::Running,
        daemon_set: Some(("cilium".to_owned(), "set".to_owned())),
        controller: None,
        deleting: false,
        started: Some(start_of_time() - SignedDuration::from_hours(30)),
        opt_out: false,
    }
}

/// The DaemonSet of [`agent_pod`], rolled out.
pub(super) fn rollout() -> Rollout {
    Rollout {
        uid: "set".to_owned(),
        deleting: false,
        generation: Some(3),
        observed_generation: Some(3),
        desired: Some(2),
        updated: Some(2),
        unavailable: 0,
    }
}

/// A pod of this node that waits for its sandbox.
pub(in crate::engine) fn waiting_pod() -> Pod {
    Pod {
        name: "shop/waits".parse().unwrap(),
        uid: "waits".parse().unwrap(),
        resource_version: "1".to_owned(),
        node: Some("n1".parse().unwrap()),
        phase: Phase::Pending,
        host_network: false,
        deleting: false,
        created: Some(start_of_time()),
        started: Some(start_of_time()),
        ips: Vec::new(),
        unparsed_ips: false,
        sandbox_ready: Some(false),
        containers: Containers::default(),
        running_since: None,
        controller: None,
        mirror: None,
        vm_labels: Vec::new(),
        opt_out: false,
        ovn: OvnAddress::default(),
    }
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

pub(super) fn no_answer<T>(what: &str) -> Read<T> {
    Err(Unreadable { what: what.to_owned(), why: ReadFailure::Timeout })
}

/// A look-up that the agent did not answer.
pub(super) fn unanswered() -> Lookup {
    Lookup::Unknown(Unreadable { what: "GET endpoint".to_owned(), why: ReadFailure::Timeout })
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
        while self.record(|record| record.namespaces.len() < namespaces) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
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

    /// Time passes between a call and its effect, or its answer: a process may end in between.
    async fn latency(&self) {
        let millis = self.lock().random(30);
        tokio::time::sleep(Duration::from_millis(millis + 1)).await;
    }

    fn fails(&self, percent: impl FnOnce(&Faults) -> u64) -> bool {
        let mut state = self.lock();
        let percent = percent(&state.faults);
        state.chance(percent)
    }

    async fn read<T>(&self, what: &str, look: impl FnOnce(&State) -> T) -> Read<T> {
        self.latency().await;
        if self.fails(|faults| faults.reads) { no_answer(what) } else { Ok(look(&self.lock())) }
    }

    /// An act takes effect: was it right?
    fn begin_act(&self, remedy: RemedyKind) {
        let now = self.clock();
        let mut state = self.lock();
        state.record.acts.push((now, remedy));
        if state.paused_since.is_some_and(|since| now.duration_since(since) > PAUSE_GRACE) {
            state.record.violations.push(format!("{now}: {remedy} while paused"));
        }
    }

    fn disconnect_now(&self, container: &ContainerId) -> bool {
        let mut state = self.lock();
        let Some(at) = state.endpoints.iter().position(|it| it.container == *container) else {
            return false;
        };
        if state.faults.at_odds == AtOdds::Phantom {
            return true;
        }
        let endpoint = state.endpoints.remove(at);
        if state.is_live(&endpoint) {
            state.record.cut += 1;
            let what = format!("{}: the live endpoint of {} was cut", self.clock(), endpoint.pod);
            state.record.violations.push(what);
        } else {
            state.record.freed += 1;
        }
        true
    }
}

impl Sources for World {
    async fn events(&self, pod: &Pod) -> Events {
        let uid = pod.uid.clone();
        match self.read("LIST events", |state| state.failures.get(&uid).cloned()).await {
            Ok(event) => Events { known: event.into_iter().collect(), unreadable: None },
            Err(why) => Events { known: Vec::new(), unreadable: Some(why) },
        }
    }

    async fn lookup(&self, ip: IpAddr) -> Lookup {
        self.lock().record.looked_up += 1;
        self.latency().await;
        if let Some(answer) = self.answer(|it| it.lookups.pop_front().flatten()) {
            return answer;
        }
        if self.fails(|faults| faults.lookups) {
            return unanswered();
        }
        let state = self.lock();
        let shown = state.endpoints.iter().find(|it| it.ip == ip && state.faults.at_odds != AtOdds::Hidden);
        let Some(endpoint) = shown else {
            return Lookup::NotHeld;
        };
        let log = [EndpointState::Ready, EndpointState::WaitingForIdentity];
        Lookup::Held(Box::new(Holder {
            id: EndpointId(endpoint.id),
            attachment: Some(format!("{}:eth0", endpoint.container).parse().unwrap()),
            container_field: None,
            named: None,
            controllers: vec![format!("resolve-labels-{}", endpoint.pod)],
            labels: vec![format!("k8s:io.kubernetes.pod.namespace={}", endpoint.pod.namespace())],
            addresses: vec![endpoint.ip],
            state: EndpointState::Ready,
            log: Some(log.map(|state| LogEntry { at: endpoint.made, state }).to_vec()),
        }))
    }

    async fn agent_started(&self) -> Option<Timestamp> {
        let answer = self.answer(|it| it.starts.pop_front().flatten());
        Some(answer.unwrap_or_else(|| self.lock().agent_started))
    }

    async fn ipam_mode(&self) -> Read<IpamMode> {
        if let Some(answer) = self.answer(|it| it.ipam_mode.clone()) {
            return answer;
        }
        Ok(IpamMode("delegated-plugin".to_owned()))
    }

    async fn cilium_node(&self) -> Read<Option<CiliumNode>> {
        let reserved = vec![(ReservedUse::Ingress, reserved())];
        self.read("GET ciliumnodes", |_| Some(CiliumNode { reserved, addresses: Vec::new() })).await
    }

    async fn pod(&self, name: &PodName) -> Read<Option<Pod>> {
        if let Some(answer) = self.answer(|it| it.pods.pop_front().flatten()) {
            return answer;
        }
        self.read("GET pods", |state| state.pods.get(name).cloned()).await
    }

    async fn pods_with_address(&self, ip: IpAddr) -> Read<Vec<Pod>> {
        if let Some(answer) = self.answer(|it| it.users.pop_front().flatten()) {
            return answer;
        }
        let listing = |state: &State| state.pods.values().filter(|pod| pod.lists(ip)).cloned().collect();
        self.read("LIST pods", listing).await
    }

    async fn pods_of_node(&self, _namespace: &str) -> Read<Vec<Pod>> {
        self.read("LIST pods", |state| state.pods.values().cloned().collect()).await
    }

    async fn endpoints(&self, _: &Holder, _: &[PodName]) -> Read<Option<Vec<CiliumEndpoint>>> {
        Ok(Some(Vec::new()))
    }

    async fn slices(&self, _: &PodName) -> Read<Option<Vec<SliceEntry>>> {
        Ok(None)
    }
}

impl Parts for World {
    fn now(&self) -> Timestamp {
        self.clock()
    }

    fn store(&self) -> &PodStore {
        &self.store
    }

    async fn reachable(&self) -> Result<(), String> {
        self.lock().record.tried += 1;
        self.answer(|it| it.reachable.clone()).unwrap_or(Ok(()))
    }

    async fn config(&self) -> Read<AgentConfig> {
        if let Some(answer) = self.answer(|it| it.config.clone()) {
            return answer;
        }
        let ipam_mode = Some(IpamMode("delegated-plugin".to_owned()));
        Ok(AgentConfig { ipam_mode, ..AgentConfig::default() })
    }

    async fn version(&self) -> Read<CiliumVersion> {
        if let Some(answer) = self.answer(|it| it.version.clone()) {
            return answer;
        }
        Ok("1.20.2 (v1.20.2-world)".parse().unwrap())
    }

    async fn allocations(&self) -> Read<Allocations> {
        self.answer(|it| it.allocations.clone()).unwrap_or_else(|| no_answer("GET healthz"))
    }

    async fn disconnect(&self, target: &DisconnectTarget) -> Result<Disconnected, CallError> {
        self.begin_act(RemedyKind::DisconnectEndpoint);
        self.latency().await;
        if let Some(answer) = self.answer(|it| it.disconnect.take()) {
            return answer;
        }
        let fails = self.fails(|faults| faults.writes);
        let fate = if fails { self.lock().random(3) } else { 3 };
        match fate {
            0 => return Err(CallError::ServerError { status: 503, message: "api not ready".to_owned() }),
            1 => return Err(CallError::Timeout(Duration::from_secs(5))),
            _ => {}
        }
        let there = self.disconnect_now(target.container());
        self.latency().await;
        match fate {
            2 => Err(CallError::Timeout(Duration::from_secs(5))),
            _ if there => Ok(Disconnected::Removed),
            _ => Ok(Disconnected::NotFound),
        }
    }

    async fn delete_pod(&self, name: &PodName, uid: &PodUid, resource_version: &str) -> DeleteOutcome {
        let is_agent = self.lock().agent.name == *name;
        self.begin_act(if is_agent { RemedyKind::RestartAgent } else { RemedyKind::DeletePod });
        self.latency().await;
        if let Some(answer) = self.answer(|it| it.deletion.take()) {
            return answer;
        }
        if self.fails(|faults| faults.writes) && self.random(2) == 0 {
            return DeleteOutcome::Failed(ReadFailure::Timeout);
        }
        if is_agent {
            self.lock().agent.deleting = true;
            self.show_agent();
            return DeleteOutcome::Accepted;
        }
        let now = self.clock();
        let deleted = {
            let mut state = self.lock();
            let ip = state.trying.get(uid).map(|trying| trying.ip);
            let Some(pod) = state.pods.get_mut(name).filter(|pod| pod.uid == *uid) else {
                return DeleteOutcome::Gone;
            };
            if pod.resource_version != resource_version {
                return DeleteOutcome::Changed("another version".to_owned());
            }
            pod.deleting = true;
            let pod = pod.clone();
            let controller = pod.controller.as_ref().map(|it| it.uid.clone());
            match (ip, controller) {
                (Some(ip), Some(controller)) if ip == reserved() => {
                    let before = state.record.moved.insert((controller, ip), now);
                    // A cause is remembered for a day.
                    if before.is_some_and(|at| now.duration_since(at) < SignedDuration::from_hours(24)) {
                        state.record.violations.push(format!("{now}: moved twice for one cause: {name}"));
                    }
                }
                _ => state.record.violations.push(format!("{now}: {name} was deleted and was no such wedge")),
            }
            pod
        };
        self.store.apply(deleted, None, now);
        self.latency().await;
        if self.fails(|faults| faults.writes) {
            return DeleteOutcome::Failed(ReadFailure::Timeout);
        }
        DeleteOutcome::Accepted
    }

    async fn namespace(&self, name: &str) -> Read<Option<NamespaceFacts>> {
        self.lock().record.namespaces.push(name.to_owned());
        if let Some(answer) = self.answer(|it| it.namespaces.get(name).cloned()) {
            return answer;
        }
        let paused = |state: &State| state.paused_since.map(|_| "by hand".to_owned());
        self.read("GET namespaces", |state| {
            Some(NamespaceFacts { opt_out: false, paused: paused(state), created: Some(start_of_time()) })
        })
        .await
    }

    async fn acquire(&self, _: RemedyKind) -> Result<Held, NoLease> {
        self.lock().record.acquired += 1;
        self.latency().await;
        if let Some(answer) = self.answer(|it| it.leases.pop_front()) {
            return answer;
        }
        Ok(Held::made(Instant::now() + Duration::from_mins(4)))
    }

    async fn release(&self, remedy: RemedyKind, _: Held) -> Read<()> {
        self.lock().record.released.push(remedy);
        Ok(())
    }

    async fn agent_pods(&self) -> Read<Vec<AgentPod>> {
        if let Some(answer) = self.answer(|it| it.agent_pods.clone()) {
            return answer;
        }
        self.read("LIST pods", |state| vec![state.agent.clone()]).await
    }

    async fn rollout(&self, namespace: &str, daemon_set: &str) -> Read<Option<Rollout>> {
        assert_eq!((namespace, daemon_set), ("kube-system", "cilium"));
        if let Some(answer) = self.answer(|it| it.rollout.clone()) {
            return answer;
        }
        self.read("GET daemonsets", |_| Some(rollout())).await
    }

    async fn node(&self) -> Read<Option<NodeFacts>> {
        if let Some(answer) = self.answer(|it| it.node.clone()) {
            return answer;
        }
        self.read("GET nodes", |_| Some(NodeFacts { unschedulable: false, ready: true })).await
    }
}
