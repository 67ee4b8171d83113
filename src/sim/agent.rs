//! The simulated Cilium agent of a node: start, stop, restart, its endpoints, and the faults of its API.
//!
//! What it answers is in `agent_routes`. Must not know: the kubelet.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use filetime::FileTime;
use hyper::Method;
use hyper::header::HeaderName;
use jiff::Timestamp;
use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::net::UnixListener;

use super::agent_routes;
use super::agent_state::{AgentOptions, AgentShared, Limiters, RemovedEndpoint, State};
use super::apiserver::ApiServer;
use super::cilium_objects as objects;
use super::clock::lock;
use super::endpoint::{AgentVersion, Endpoint, EndpointSpec, Reserved};
use super::faults::{Fault, FaultPlan, Injected};
use super::http::{Answer, Call, Door, Listener, Peer, Reply, Reset, Server, Service, call, send, whole};
use super::ipam::{Cidr, Ipam};
use super::model::{self, Moment};
use super::registry::Registry;
use super::request_log::{RequestLog, RequestRecord};
use super::resource::PODS;
use super::witness::Witness;

/// A simulated Cilium agent. Clones are the same agent.
#[derive(Debug, Clone)]
pub struct Agent(pub(crate) Arc<AgentShared>);

impl Agent {
    /// Sets an agent up and starts it.
    pub(crate) fn launch(
        node: &str,
        node_ip: IpAddr,
        pod_cidr: Cidr,
        options: AgentOptions,
        api: ApiServer,
        socket_dir: &Path,
        at: Timestamp,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(socket_dir)?;
        let state = State {
            registry: Registry::new(options.version),
            ipam: Ipam::new(pod_cidr),
            health_ip: options.health_ip,
            started: at,
            ready: true,
            delete_denied: false,
        };
        let shared = AgentShared {
            node: node.to_owned(),
            node_ip,
            socket: socket_dir.join("cilium.sock"),
            state: Mutex::new(state),
            limiters: Mutex::new(Arc::new(Limiters::new(&options.rate_limits))),
            faults: FaultPlan::default(),
            log: RequestLog::default(),
            door: options.in_memory.then(Door::default),
            server: Mutex::default(),
            witness: Witness::default(),
            pulse: api.0.pulse.clone(),
            tasks: Mutex::default(),
            options,
            api,
        };
        let agent = Self(Arc::new(shared));
        agent.add_reserved(at);
        agent.listen(at)?;
        objects::write_cilium_node(&agent.0);
        if let Some(interval) = agent.0.options.resync_interval {
            lock(&agent.0.tasks).spawn(objects::resync(Arc::downgrade(&agent.0), interval));
        }
        Ok(agent)
    }

    fn add_reserved(&self, at: Timestamp) {
        let options = &self.0.options;
        let mut state = self.0.state();
        let health = state.health_ip;
        let nobody = |interface: &str, ipv4: Option<Ipv4Addr>| EndpointSpec {
            container_interface: String::new(),
            interface: interface.to_owned(),
            ipv4,
            created: Some(at),
            ..EndpointSpec::new("", "", "", Ipv4Addr::UNSPECIFIED)
        };
        state.ipam.claim(options.router_ip.into(), "router");
        let mut add = |spec: EndpointSpec, reserved, owner: &str| {
            if let Some(address) = spec.ipv4 {
                state.ipam.claim(address.into(), owner);
            }
            state.registry.add(spec, Some(reserved), None, at, &self.0.api.0.lifecycle.random);
        };
        add(nobody("cilium_host", None), Reserved::Host, "host");
        if health.is_some() {
            add(nobody("lxc_health", health), Reserved::Health, "health");
        }
        if options.ingress_ip.is_some() {
            add(nobody("", options.ingress_ip), Reserved::Ingress, "ingress");
        }
    }

    fn listen(&self, at: Timestamp) -> io::Result<()> {
        let socket = &self.0.socket;
        match std::fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = match &self.0.door {
            None => Listener::Unix(UnixListener::bind(socket)?),
            Some(door) => {
                // The file stays, and tells when the agent started.
                drop(std::os::unix::net::UnixListener::bind(socket)?);
                Listener::Door(door.open())
            }
        };
        std::fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o660))?;
        let at = FileTime::from_unix_time(
            at.as_second(),
            u32::try_from(at.subsec_nanosecond()).unwrap_or_default(),
        );
        // As of a link: otherwise the file is opened, which a socket cannot be.
        filetime::set_symlink_file_times(socket, at, at)?;
        let shared = Arc::downgrade(&self.0);
        let service: Service = Arc::new(move |call| Box::pin(serve(shared.clone(), call)));
        *lock(&self.0.server) = Some(Server::start(listener, service));
        Ok(())
    }

    /// The path of its socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.0.socket
    }

    /// Connects to it in memory, as one connects to its socket.
    ///
    /// # Errors
    /// As a socket: nothing is there, or nobody listens. Also if it listens on its socket.
    pub fn dial(&self) -> io::Result<DuplexStream> {
        if !self.0.socket.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.0.door.as_ref().ok_or(io::ErrorKind::ConnectionRefused)?.dial()
    }

    /// One request of the simulation's own.
    pub(crate) async fn call(
        &self,
        method: Method,
        uri: &str,
        headers: &[(HeaderName, &str)],
        body: Option<&Value>,
    ) -> io::Result<Reply> {
        match &self.0.door {
            None => call(Peer::Unix(&self.0.socket), method, uri, headers, body).await,
            Some(_) => whole(send(self.dial()?, method, uri, headers, body).await?).await,
        }
    }

    /// Has somebody look on, at that very instant, when a request removes an endpoint.
    pub fn witness(&self, look: impl Fn(&RemovedEndpoint) + Send + Sync + 'static) {
        self.0.witness.set(look);
    }

    /// The version that it plays.
    #[must_use]
    pub fn version(&self) -> AgentVersion {
        self.0.options.version
    }

    /// When it started last.
    #[must_use]
    pub fn started(&self) -> Timestamp {
        self.0.state().started
    }

    /// Stops it cleanly: connections break, the socket is unlinked.
    pub async fn stop(&self) {
        self.crash().await;
        // Somebody may have removed the directory already.
        let _ = std::fs::remove_file(&self.0.socket);
    }

    /// Stops it as a crash does: the socket stays and refuses connections.
    pub async fn crash(&self) {
        let server = lock(&self.0.server).take();
        if let Some(server) = server {
            server.stop().await;
        }
        self.0.pulse.beat();
    }

    /// Starts it again, as of a time: the socket is made anew, endpoints whose pod is gone are dropped, the others
    /// restored, also when only the *name* of their pod exists; the health endpoint gets another address.
    ///
    /// # Errors
    /// Fails if the socket cannot be made.
    pub fn start(&self, at: Timestamp) -> io::Result<()> {
        let endpoints: Vec<Endpoint> = self
            .0
            .state()
            .registry
            .by_id
            .values()
            .filter(|endpoint| endpoint.reserved.is_none())
            .cloned()
            .collect();
        let exists =
            |endpoint: &Endpoint| self.0.api.get(&PODS, &endpoint.spec.namespace, &endpoint.spec.pod).is_ok();
        let restored: Vec<Endpoint> = endpoints.into_iter().filter(exists).collect();
        {
            let mut state = self.0.state();
            state.registry = Registry::new(self.0.options.version);
            let cidr = state.ipam.cidr;
            let former_health = state.health_ip.take();
            state.ipam = Ipam::new(cidr);
            state.started = at;
            state.ready = true;
            for mut endpoint in restored {
                endpoint.restored = true;
                endpoint.created = at;
                endpoint.log.clear();
                endpoint.next_regeneration =
                    at.checked_add(jiff::SignedDuration::from_secs(120)).unwrap_or(at);
                endpoint.write_log(at, "restoring", "Endpoint restoring");
                endpoint.write_log(
                    at,
                    "waiting-to-regenerate",
                    "Triggering synchronous endpoint regeneration while syncing state to host",
                );
                endpoint.write_log(at, "regenerating", "Regenerating endpoint: syncing state to host");
                endpoint.write_log(
                    at,
                    "ready",
                    "Successfully regenerated endpoint program (Reason: syncing state to host)",
                );
                let owner = endpoint.spec.pod_key();
                for address in [endpoint.spec.ipv4.map(IpAddr::V4), endpoint.spec.ipv6.map(IpAddr::V6)]
                    .into_iter()
                    .flatten()
                {
                    state.ipam.claim(address, &format!("{owner} [restored]"));
                }
                state.registry.insert(endpoint);
            }
            // The former address is not asked for again: the next free one from the top is taken.
            if let Some(former) = former_health {
                let taken = |address: &Ipv4Addr| {
                    *address == former
                        || *address == self.0.options.router_ip
                        || Some(*address) == self.0.options.ingress_ip
                        || state.ipam.allocations.contains_key(&IpAddr::V4(*address))
                };
                state.health_ip = (2..=254)
                    .rev()
                    .filter_map(|offset| cidr.at(offset))
                    .find(|address| !taken(address))
                    .or(Some(former));
            }
        }
        *lock(&self.0.limiters) = Arc::new(Limiters::new(&self.0.options.rate_limits));
        self.add_reserved(at);
        objects::write_cilium_node(&self.0);
        self.listen(at)?;
        self.0.pulse.beat();
        Ok(())
    }

    /// Stops and starts it.
    ///
    /// # Errors
    /// Fails if the socket cannot be made.
    pub async fn restart(&self, at: Timestamp) -> io::Result<()> {
        self.stop().await;
        self.start(at)
    }

    /// Injects a fault into its API.
    pub fn inject(&self, fault: Fault) -> Injected {
        self.0.faults.inject(fault)
    }

    /// Takes all faults out.
    pub fn clear_faults(&self) {
        self.0.faults.clear();
    }

    /// The requests so far, the kubelet's too (their `User-Agent` is `cilium-cni`).
    #[must_use]
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.0.log.records()
    }

    /// The requests since the last call.
    #[must_use]
    pub fn take_requests(&self) -> Vec<RequestRecord> {
        self.0.log.take()
    }

    /// Answers PUT and DELETE with 503 `api not ready`, or not any more.
    pub fn set_ready(&self, ready: bool) {
        self.0.state().ready = ready;
    }

    /// Answers DELETE with 403, or not any more.
    pub fn deny_delete(&self, denied: bool) {
        self.0.state().delete_denied = denied;
    }

    /// Makes an endpoint, past the rate limits, with its addresses in the IPAM, and its CiliumEndpoint if the pod exists.
    ///
    /// # Errors
    /// The text with which the agent refuses.
    pub fn put_endpoint(&self, spec: EndpointSpec) -> Result<u16, String> {
        let owner = spec.pod_key();
        let addresses = spec.addresses();
        let id = self.0.create(spec)?;
        for address in addresses {
            self.claim_address(address, &owner);
        }
        Ok(id)
    }

    /// Makes an endpoint as it is left behind by a pod that is gone: it has the identity of a pod with the labels of
    /// the specification, the agent knew the pod, and no CiliumEndpoint is there.
    ///
    /// # Errors
    /// The text with which the agent refuses.
    pub fn leak(&self, spec: EndpointSpec) -> Result<u16, String> {
        let labels: serde_json::Map<String, Value> = spec
            .labels
            .iter()
            .filter_map(|label| label.strip_prefix("k8s:")?.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect();
        let pod = serde_json::json!({"metadata": {"labels": labels}, "spec": {}});
        let mut state = self.0.state();
        state.registry.check(&spec)?;
        let now = self.0.now();
        let id = state.registry.add(spec, None, Some(&pod), now, &self.0.api.0.lifecycle.random);
        drop(state);
        self.0.pulse.beat();
        Ok(id)
    }

    /// All endpoints as the API shows them.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Value> {
        self.0.models()
    }

    /// The endpoint that holds an address, as the API shows it.
    #[must_use]
    pub fn holder(&self, address: IpAddr) -> Option<Value> {
        let state = self.0.state();
        state
            .registry
            .by_address(address)
            .map(|endpoint| model::endpoint(state.registry.version, endpoint, Moment::Later))
    }

    /// Puts the endpoint of an address into a state, with a log entry at a time.
    pub fn set_state(&self, address: IpAddr, state: &str, message: &str, at: Timestamp) {
        let mut locked = self.0.state();
        let id = locked.registry.by_address(address).map(|endpoint| endpoint.id);
        if let Some(endpoint) = id.and_then(|id| locked.registry.by_id.get_mut(&id)) {
            endpoint.write_log(at, state, message);
        }
    }

    /// Removes the endpoint of an address without a request.
    pub fn remove_endpoint(&self, address: IpAddr) -> bool {
        let id = self.0.state().registry.by_address(address).map(|endpoint| endpoint.id);
        id.and_then(|id| self.0.remove(id)).is_some()
    }

    /// Who has which address in its IPAM.
    #[must_use]
    pub fn ipam_allocations(&self) -> BTreeMap<IpAddr, String> {
        self.0.state().ipam.allocations.clone()
    }

    /// Frees an address in the IPAM only, whoever has it: what makes a leaked endpoint meet the next pod.
    pub fn free_address(&self, address: IpAddr) {
        self.0.state().ipam.allocations.remove(&address);
    }

    /// Gives an address to an owner in the IPAM, unless somebody has it.
    pub fn claim_address(&self, address: IpAddr, owner: &str) {
        self.0.state().ipam.claim(address, owner);
    }

    pub(crate) fn shutdown(&self) {
        lock(&self.0.server).take();
        lock(&self.0.tasks).abort_all();
        let _ = std::fs::remove_file(&self.0.socket);
    }
}

async fn serve(shared: Weak<AgentShared>, call: Call) -> Answer {
    let shared = shared.upgrade().ok_or(Reset)?;
    let (log, pulse, at) = (shared.log.clone(), shared.pulse.clone(), shared.now());
    pulse.beat();
    let answer = log
        .logged(at, call, async move |call| {
            let faults = shared.faults.clone();
            faults
                .serve(
                    call,
                    |call| Box::pin(async move { Ok(agent_routes::route(&shared, &call).await) }),
                    |code| Ok(agent_routes::usual(code)),
                )
                .await
        })
        .await;
    pulse.beat();
    answer
}
