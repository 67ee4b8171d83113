//! The cluster as a whole: an API server, nodes with an agent and a kubelet each, and a way to wait for what is to happen.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::agent::Agent;
use super::agent_state::AgentOptions;
use super::api_options::ApiOptions;
use super::apiserver::ApiServer;
use super::clock::{Clock, Random, lock};
use super::dbg;
use super::exec::{ExecReply, Executor};
use super::ipam::Cidr;
use super::kubelet::{Kubelet, KubeletOptions};
use super::lifecycle::Lifecycle;
use super::request_log::Pulse;
use super::resource::{NAMESPACES, NODES};
use super::status::Status;
use super::store::Store;
use super::workload::{self, Workload};

/// How a cluster is set up.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// The API server.
    pub api: ApiOptions,
    /// What the cluster's clock shows at the start; `None` for the present. It runs on `tokio::time`.
    pub now: Option<Timestamp>,
    /// Seed for UIDs, names and container ids; `None` for other ones each time.
    pub seed: Option<u64>,
}

/// How a node is set up.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Name.
    pub name: String,
    /// Its address.
    pub node_ip: IpAddr,
    /// The range of its pods.
    pub pod_cidr: Cidr,
    /// The directory for the agent's socket `cilium.sock`; it is made if missing. At most some 90 bytes long.
    pub socket_dir: PathBuf,
    /// The agent.
    pub agent: AgentOptions,
    /// When the agent started: the time of its socket. `None` for ten minutes ago.
    pub agent_started: Option<Timestamp>,
    /// The kubelet.
    pub kubelet: KubeletOptions,
    /// Whether the agent has a pod in `kube-system`, whose deletion restarts it.
    pub with_agent_pod: bool,
    /// How long such a restart takes.
    pub agent_restart_time: Duration,
}

impl NodeOptions {
    /// A node with the range 10.244.`number`.0/24 and the address 192.168.77.`9 + number`.
    pub fn new(name: impl Into<String>, number: u8, socket_dir: impl Into<PathBuf>) -> Self {
        let pod_cidr = Cidr::slash_24(Ipv4Addr::new(10, 244, number, 0));
        Self {
            name: name.into(),
            node_ip: Ipv4Addr::new(192, 168, 77, number.saturating_add(9)).into(),
            pod_cidr,
            socket_dir: socket_dir.into(),
            agent: AgentOptions::new(pod_cidr),
            agent_started: None,
            kubelet: KubeletOptions::default(),
            with_agent_pod: false,
            agent_restart_time: Duration::from_secs(2),
        }
    }
}

/// A node of the cluster. Clones are the same node.
#[derive(Debug, Clone)]
pub struct Node {
    name: String,
    socket_dir: PathBuf,
    agent: Agent,
    kubelet: Kubelet,
}

impl Node {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its Cilium agent.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Its kubelet.
    #[must_use]
    pub fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    /// The directory of its agent's socket.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }
}

/// What was waited for did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("waited {waited:?} in vain for {what}")]
pub struct WaitTimedOut {
    what: String,
    waited: Duration,
}

/// A simulated cluster. Clones are the same cluster; the last one that is dropped stops it.
#[derive(Debug, Clone)]
pub struct Cluster(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    api: ApiServer,
    pulse: Pulse,
    nodes: Mutex<BTreeMap<String, Node>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Cluster {
    /// Starts a cluster without nodes, on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// Fails if no port can be had.
    pub async fn start(options: ClusterOptions) -> io::Result<Self> {
        let lifecycle = Lifecycle {
            store: Arc::new(Store::new(options.api.history)),
            clock: Clock::starting_at(options.now.unwrap_or_else(Timestamp::now)),
            random: Arc::new(Random::new(options.seed)),
        };
        let pulse = Pulse::default();
        let api = ApiServer::start(options.api, lifecycle, pulse.clone()).await?;
        for name in ["default", "kube-system"] {
            let object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}, "status": {"phase": "Active"}});
            api.create(&NAMESPACES, object).map_err(io::Error::other)?;
        }
        let cluster = Self(Arc::new(Inner { api, pulse, nodes: Mutex::default(), tasks: Mutex::default() }));
        // Weak: the server lives in the cluster.
        let inner = Arc::downgrade(&cluster.0);
        cluster.api().run_in_containers(Executor::new(move |request| {
            let agent = inner.upgrade().and_then(|inner| {
                let agent = lock(&inner.nodes).get(&request.node).map(|node| node.agent.clone());
                agent.filter(|_| request.container == "cilium-agent")
            });
            Box::pin(async move {
                match agent {
                    Some(agent) => dbg::run(agent, request.argv).await,
                    None => {
                        ExecReply::NotStarted("unable to upgrade connection: container not found".to_owned())
                    }
                }
            })
        }));
        Ok(cluster)
    }

    /// The API server's base URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.0.api.url()
    }

    /// The API server.
    #[must_use]
    pub fn api(&self) -> &ApiServer {
        &self.0.api
    }

    /// A kubeconfig for the first of the API server's tokens.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let token = self.0.api.0.options.tokens.keys().next().cloned().unwrap_or_default();
        self.kubeconfig_for(&token)
    }

    /// A kubeconfig for a token.
    #[must_use]
    pub fn kubeconfig_for(&self, token: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: sim\nclusters:\n- name: sim\n  cluster:\n    server: {}\ncontexts:\n- name: sim\n  context:\n    cluster: sim\n    user: sim\n    namespace: default\nusers:\n- name: sim\n  user:\n    token: {token:?}\n",
            self.url()
        )
    }

    /// A kubeconfig with the token of the watchdog's pod on a node. Pod, namespace and Leases are made if they are not there.
    ///
    /// # Errors
    /// As the API server refuses.
    pub fn watchdog_kubeconfig(&self, node: &Node) -> Result<String, Status> {
        let (namespace, name) = workload::ensure_watchdog(&self.0.api, node.name())?;
        Ok(self.kubeconfig_for(&self.0.api.token_of_pod(&namespace, &name)?))
    }

    /// Says where a port of a pod leads from now on; `None`: nobody listens on it, as at the start.
    pub fn forward(&self, namespace: &str, pod: &str, port: u16, to: Option<SocketAddr>) {
        self.0.api.0.forwards.set(namespace, pod, port, to);
    }

    /// The simulated time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.api.clock().now()
    }

    /// Adds a node with its agent and kubelet, its Node and CiliumNode.
    ///
    /// # Errors
    /// Fails if the name is taken or the socket cannot be made.
    pub fn add_node(&self, options: NodeOptions) -> io::Result<Node> {
        let api = self.0.api.clone();
        let address = options.node_ip.to_string();
        let object = json!({
            "metadata": {"name": options.name, "labels": {"kubernetes.io/hostname": options.name}},
            "spec": {"podCIDR": options.pod_cidr.to_string(), "podCIDRs": [options.pod_cidr.to_string()]},
            "status": {
                "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": options.name}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}],
            },
        });
        api.create(&NODES, object).map_err(|status| io::Error::new(io::ErrorKind::AlreadyExists, status))?;
        let now = self.now();
        let started = options
            .agent_started
            .unwrap_or_else(|| now.checked_sub(jiff::SignedDuration::from_secs(600)).unwrap_or(now));
        let (name, node_ip) = (options.name, options.node_ip);
        let agent = Agent::launch(
            &name,
            node_ip,
            options.pod_cidr,
            options.agent,
            api.clone(),
            &options.socket_dir,
            started,
        )?;
        let kubelet = Kubelet::launch(&name, node_ip, api.clone(), agent.clone(), options.kubelet);
        if options.with_agent_pod {
            lock(&self.0.tasks).spawn(workload::run_agent_pod(
                api,
                agent.clone(),
                name.clone(),
                options.agent_restart_time,
            ));
        }
        let node = Node { name: name.clone(), socket_dir: options.socket_dir, agent, kubelet };
        lock(&self.0.nodes).insert(name, node.clone());
        Ok(node)
    }

    /// A node by its name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<Node> {
        lock(&self.0.nodes).get(name).cloned()
    }

    /// All nodes, by name.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        lock(&self.0.nodes).values().cloned().collect()
    }

    /// Makes a controller's object and keeps its pods from now on.
    ///
    /// # Errors
    /// Fails if the name is taken.
    pub fn run_workload(&self, workload: Workload) -> Result<Value, Status> {
        let controller = workload.create(&self.0.api)?;
        lock(&self.0.tasks).spawn(workload.run(self.0.api.clone(), controller.clone()));
        Ok(controller)
    }

    /// Waits until a condition holds, at most 30 s. It is looked at again after every change in the cluster.
    ///
    /// # Errors
    /// Fails if it does not come to hold.
    pub async fn wait_for(
        &self,
        what: &str,
        condition: impl FnMut(&Self) -> bool,
    ) -> Result<(), WaitTimedOut> {
        self.wait_for_within(Duration::from_secs(30), what, condition).await
    }

    /// As [`Cluster::wait_for`], with another limit.
    ///
    /// # Errors
    /// Fails if it does not come to hold.
    pub async fn wait_for_within(
        &self,
        limit: Duration,
        what: &str,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<(), WaitTimedOut> {
        let mut beats = self.0.pulse.subscribe();
        let holds = async {
            loop {
                beats.mark_unchanged();
                // The sender lives in `self`.
                if condition(self) || beats.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(limit, holds)
            .await
            .map_err(|_| WaitTimedOut { what: what.to_owned(), waited: limit })
    }

    /// Stops everything; sockets are unlinked.
    pub fn shutdown(&self) {
        self.0.shutdown();
    }
}

impl Inner {
    fn shutdown(&self) {
        lock(&self.tasks).abort_all();
        for node in lock(&self.nodes).values() {
            node.kubelet.stop();
            node.agent.shutdown();
        }
        self.api.shutdown();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown();
    }
}
