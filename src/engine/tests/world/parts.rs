//! The world as the engine reads it and acts on it. Each act is held against the truth when it takes effect.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::super::fixtures::{no_answer, reserved, rollout, start_of_time, unanswered};
use super::{AtOdds, Faults, PAUSE_GRACE, State, World};
use crate::cilium::{AgentConfig, Allocations, CallError, Disconnected};
use crate::domain::{
    AgentPod, CiliumEndpoint, CiliumNode, CiliumVersion, ContainerId, DisconnectTarget, EndpointId,
    EndpointState, Events, Holder, IpamMode, LogEntry, Lookup, NodeState, Pod, PodName, PodUid, Read,
    ReadFailure, RemedyKind, ReservedUse, Rollout, SliceEntry,
};
use crate::engine::{Parts, Sources};
use crate::kube::{DeleteOutcome, Held, NamespaceFacts, NoLease, PodStore};

impl World {
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

    async fn node(&self) -> Read<Option<NodeState>> {
        if let Some(answer) = self.answer(|it| it.node.clone()) {
            return answer;
        }
        self.read("GET nodes", |_| Some(NodeState { schedulable: true, ready: true })).await
    }
}
