//! What the handle of an agent and its routes share: options, registry, IPAM, limiters.
//!
//! Must not know: sockets, HTTP.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::apiserver::ApiServer;
use super::cilium_objects as objects;
use super::clock::lock;
use super::endpoint::{AgentVersion, Endpoint, EndpointSpec};
use super::faults::FaultPlan;
use super::http::{Door, Server};
use super::ipam::{Cidr, Ipam};
use super::limiter::{Limiter, RateLimits};
use super::model::{self, Moment};
use super::registry::Registry;
use super::request_log::{Pulse, RequestLog};
use super::resource::{PODS, text};
use super::witness::Witness;

/// How an agent is set up.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The version whose API it speaks.
    pub version: AgentVersion,
    /// Its own address in the pod range; no endpoint has it.
    pub router_ip: Ipv4Addr,
    /// The address of the health endpoint.
    pub health_ip: Option<Ipv4Addr>,
    /// The address of the ingress endpoint; only with Ingress or the Gateway API.
    pub ingress_ip: Option<Ipv4Addr>,
    /// `status.ipam-mode`.
    pub ipam_mode: String,
    /// `status.datapathMode`.
    pub datapath_mode: String,
    /// `cni-chaining.mode`.
    pub chaining_mode: String,
    /// Listens in memory and not on its socket, which is only a file then.
    pub in_memory: bool,
    /// Limits of its API.
    pub rate_limits: RateLimits,
    /// Whether it writes CiliumEndpoints; the slim mode does not.
    pub sync_cilium_endpoints: bool,
    /// How often it writes the CiliumEndpoint of a leaked endpoint again, which the garbage collector removes soon after.
    pub resync_interval: Option<Duration>,
}

impl AgentOptions {
    /// A 1.20 agent without ingress, as the agent's defaults have it, for a pod range.
    #[must_use]
    pub fn new(pod_cidr: Cidr) -> Self {
        Self {
            version: AgentVersion::V1_20,
            router_ip: pod_cidr.at(250).unwrap_or(Ipv4Addr::UNSPECIFIED),
            health_ip: pod_cidr.at(251),
            ingress_ip: None,
            ipam_mode: "kubernetes".to_owned(),
            datapath_mode: "veth".to_owned(),
            chaining_mode: "none".to_owned(),
            in_memory: false,
            rate_limits: RateLimits::cilium(),
            sync_cilium_endpoints: true,
            resync_interval: Some(Duration::from_secs(11)),
        }
    }
}

/// An endpoint that a request removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedEndpoint {
    /// Whose request: its `User-Agent`.
    pub by: String,
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// UID of its pod, where the agent knows it.
    pub uid: String,
    /// The container id of its sandbox.
    pub container: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub registry: Registry,
    pub ipam: Ipam,
    pub health_ip: Option<Ipv4Addr>,
    pub started: Timestamp,
    /// Whether PUT and DELETE are served, or answered 503.
    pub ready: bool,
    /// Whether DELETE is administratively disabled: 403.
    pub delete_denied: bool,
}

#[derive(Debug)]
pub(crate) struct Limiters {
    pub get: Limiter,
    pub list: Limiter,
    pub create: Limiter,
    pub delete: Limiter,
}

impl Limiters {
    pub(crate) fn new(limits: &RateLimits) -> Self {
        Self {
            get: Limiter::new(limits.get),
            list: Limiter::new(limits.list),
            create: Limiter::new(limits.create),
            delete: Limiter::new(limits.delete),
        }
    }
}

/// What an agent is.
#[derive(Debug)]
pub(crate) struct AgentShared {
    pub node: String,
    pub node_ip: IpAddr,
    pub options: AgentOptions,
    pub api: ApiServer,
    pub socket: PathBuf,
    pub state: Mutex<State>,
    pub limiters: Mutex<Arc<Limiters>>,
    pub faults: FaultPlan,
    pub log: RequestLog,
    /// Where it listens in memory, if it does.
    pub door: Option<Door>,
    pub server: Mutex<Option<Server>>,
    pub witness: Witness<RemovedEndpoint>,
    pub pulse: Pulse,
    pub tasks: Mutex<tokio::task::JoinSet<()>>,
}

impl AgentShared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn limiters(&self) -> Arc<Limiters> {
        lock(&self.limiters).clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.api.clock().now()
    }

    /// Checks and makes an endpoint, as `PUT /endpoint` does.
    pub(crate) fn create(&self, mut spec: EndpointSpec) -> Result<u16, String> {
        let pod = self.api.get(&PODS, &spec.namespace, &spec.pod).ok().filter(|_| !spec.pod.is_empty());
        if let (true, Some(pod)) = (spec.uid.is_empty(), &pod) {
            text(pod, "/metadata/uid").clone_into(&mut spec.uid);
        }
        let now = self.now();
        let id = {
            let mut state = self.state();
            state.registry.check(&spec)?;
            state.registry.add(spec, None, pod.as_ref(), now, &self.api.0.lifecycle.random)
        };
        if let Some(pod) = pod {
            objects::write_cilium_endpoint(self, id, &pod);
        }
        self.pulse.beat();
        Ok(id)
    }

    /// Removes an endpoint, frees its addresses where Cilium itself allocates, and deletes its CiliumEndpoint.
    pub(crate) fn remove(&self, id: u16) -> Option<Endpoint> {
        let endpoint = {
            let mut state = self.state();
            let endpoint = state.registry.remove(id)?;
            if self.options.ipam_mode != "delegated-plugin" && self.options.chaining_mode == "none" {
                for address in [endpoint.spec.ipv4.map(IpAddr::V4), endpoint.spec.ipv6.map(IpAddr::V6)]
                    .into_iter()
                    .flatten()
                {
                    // Whoever has it by now: that is the danger of a disconnect at the wrong instant.
                    state.ipam.allocations.remove(&address);
                }
            }
            endpoint
        };
        objects::delete_cilium_endpoint(self, &endpoint);
        self.pulse.beat();
        Some(endpoint)
    }

    pub(crate) fn models(&self) -> Vec<Value> {
        let now = self.now();
        let mut state = self.state();
        let version = state.registry.version;
        state
            .registry
            .by_id
            .values_mut()
            .map(|endpoint| {
                endpoint.catch_up(now);
                model::endpoint(version, endpoint, Moment::Later)
            })
            .collect()
    }
}
