//! Simulated nodes, each with the pod of a watchdog that leads to a real daemon.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cilium_leak_healer::sim::{
    ApiOptions, Attributes, Cluster, ClusterOptions, EndpointSpec, IP_ANNOTATION, Node, NodeOptions, PODS,
    RateLimits,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tempfile::TempDir;

use crate::daemon::{Daemon, PATIENCE};

pub(crate) const OWN: &str = "cilium-leak-healer";
pub(crate) const PORT: u16 = 9969;

/// Times that let a test be quick.
const QUICK: [&str; 10] = [
    "--startup-quiet",
    "0s",
    "--confirm-gap",
    "300ms",
    "--event-delay",
    "200ms",
    "--lone-failure-age",
    "1s",
    "--agent-timeout",
    "1s",
];

pub(crate) struct Stage {
    pub cluster: Cluster,
    nodes: Vec<Node>,
    dir: TempDir,
}

impl Stage {
    /// Nodes `worker-1` and so on, each with the pod of a watchdog.
    pub(crate) async fn new(nodes: u8) -> Self {
        Self::behind(nodes, |_| true).await
    }

    /// Behind an API server that allows no more than the function says.
    pub(crate) async fn behind(
        nodes: u8,
        allows: impl Fn(&Attributes) -> bool + Send + Sync + 'static,
    ) -> Self {
        let dir = tempfile::Builder::new().prefix("clh").tempdir().expect("a directory");
        let mut api = ApiOptions::with_manifests();
        let manifests = api.authorizer.take().expect("the rights of the manifests");
        api.authorizer = Some(Arc::new(move |wish| manifests(wish) && allows(wish)));
        let cluster = Cluster::start(ClusterOptions { api, ..ClusterOptions::default() }).await;
        let cluster = cluster.expect("an API server");
        std::fs::write(dir.path().join("kubeconfig"), cluster.kubeconfig()).expect("a kubeconfig");
        let node = |number| {
            let name = format!("worker-{number}");
            let mut options = NodeOptions::new(&name, number, dir.path().join(&name));
            options.agent_started = Some(Timestamp::now() - SignedDuration::from_hours(30));
            options.agent.rate_limits = RateLimits::off();
            options.kubelet.retry = Duration::from_secs(1);
            options.kubelet.retry_jitter = Duration::ZERO;
            let node = cluster.add_node(options).expect("a node");
            let kubeconfig = cluster.watchdog_kubeconfig(&node).expect("the watchdog's pod");
            std::fs::write(dir.path().join(format!("{name}.yaml")), kubeconfig).expect("a kubeconfig");
            node
        };
        let nodes = (1..=nodes).map(node).collect();
        Self { cluster, nodes, dir }
    }

    /// The kubeconfig of the person who asks.
    pub(crate) fn kubeconfig(&self) -> String {
        self.path("kubeconfig")
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// A daemon on a node, behind the port of the watchdog's pod there.
    pub(crate) async fn daemon(&self, number: usize) -> Daemon {
        let node = &self.nodes[number - 1];
        let name = node.name();
        let (kubeconfig, state) = (self.path(&format!("{name}.yaml")), self.path(&format!("{name}.state")));
        let sockets = node.socket_dir().display().to_string();
        let mut args = vec!["run", "--node-name", name, "--kubeconfig", &kubeconfig, "--mode", "heal"];
        args.extend(["--agent-socket-dir", &sockets, "--listen", "127.0.0.1:0", "--log-format", "json"]);
        args.extend(["--state-dir", &state]);
        args.extend(QUICK);
        let daemon = Daemon::spawn(args, &[]).serving().await;
        let tested = |line: &serde_json::Value| {
            line["message"].as_str().is_some_and(|said| said.starts_with("self-test"))
        };
        daemon.line("the self-test", tested).await;
        self.leads(&pod_of(number), Some(daemon.address()));
        daemon
    }

    /// Where the port of a watchdog's pod leads.
    pub(crate) fn leads(&self, pod: &str, to: Option<SocketAddr>) {
        self.cluster.forward(OWN, pod, PORT, to);
    }

    /// Makes a pod whose IPAM gives it this address.
    pub(crate) fn pod(&self, number: usize, name: &str, ip: &str) {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": name, "annotations": {IP_ANNOTATION: ip}},
            "spec": {"nodeName": format!("worker-{number}"), "containers": [{"name": "app", "image": "app"}]},
        });
        self.cluster.api().create(&PODS, pod).expect("a pod");
    }

    pub(crate) async fn runs(&self, name: &str) {
        let runs = |cluster: &Cluster| {
            let pod = cluster.api().get(&PODS, "shop", name);
            pod.is_ok_and(|pod| pod["status"]["podIP"].as_str().is_some_and(|ip| !ip.is_empty()))
        };
        let held = self.cluster.wait_for_within(PATIENCE, &format!("{name} to run"), runs).await;
        held.expect("a running pod");
    }

    /// An endpoint of that pod of the namespace `shop`, made an hour ago.
    pub(crate) fn leak(&self, number: usize, pod: &str, ip: &str) {
        let ip: Ipv4Addr = ip.parse().expect("an address");
        let container = format!("{:064x}", u64::from(u32::from(ip)) * 0x9e37_79b9);
        let created = Some(Timestamp::now() - SignedDuration::from_hours(1));
        let spec = EndpointSpec { created, ..EndpointSpec::new("shop", pod, container, ip) };
        self.nodes[number - 1].agent().leak(spec).expect("an endpoint");
    }
}

/// The watchdog's pod on a node.
pub(crate) fn pod_of(number: usize) -> String {
    format!("{OWN}-worker-{number}")
}
