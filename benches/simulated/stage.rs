//! The simulated cluster in memory with its nodes, pods and leaks, and who heals there.
//!
//! Must not know what is measured.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cilium_leak_healer::cli::InProcess;
use cilium_leak_healer::clock::WallClock;
use cilium_leak_healer::sim::{
    AgentOptions, ApiOptions, Cluster, ClusterOptions, DeleteOptions, IP_ANNOTATION, Node, NodeOptions, PODS,
    RequestRecord,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::baseline::Baseline;
use crate::in_memory::{directory, watchdog};

/// The CNI plugin's name at the agent.
pub(crate) const CNI: &str = "cilium-cni";
/// The watchdog has none at the agent.
pub(crate) const WATCHDOG: &str = "";
/// The namespace of all pods.
pub(crate) const NAMESPACE: &str = "shop";

/// Who heals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Nobody,
    /// The watchdog of each node, in the mode `heal`, with the settings that it has by default.
    Watchdog,
    /// The loop over the cluster's Events.
    Baseline,
}

/// Heals until it is dropped.
pub(crate) struct Healers {
    _watchdogs: Vec<InProcess>,
    baseline: Option<JoinHandle<()>>,
}

impl Drop for Healers {
    fn drop(&mut self) {
        if let Some(task) = &self.baseline {
            task.abort();
        }
    }
}

pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    dir: TempDir,
}

/// The addresses of a node's pods: a /24 for each number.
pub(crate) fn address(node: u16, host: u8) -> Ipv4Addr {
    let [high, low] = node.to_be_bytes();
    Ipv4Addr::new(10, 16 + high, low, host)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl Stage {
    /// A cluster as where the manifests are applied.
    pub(crate) async fn new(seed: u64, change: impl FnOnce(&mut ApiOptions)) -> Self {
        let mut api = ApiOptions::with_manifests();
        change(&mut api);
        let now = "2026-06-18T08:00:00Z".parse().ok();
        let cluster =
            Cluster::start(ClusterOptions { api, now, seed: Some(seed) }).await.expect("an API server");
        Self { cluster, dir: directory() }
    }

    /// A node whose agent has been up for thirty hours, with Cilium's own rate limits, and with the watchdog's pod.
    pub(crate) fn node(&self, number: u16, change: impl FnOnce(&mut NodeOptions)) -> Node {
        let name = format!("worker-{number}");
        let mut options = NodeOptions::new(&name, 1, self.dir.path().join(&name));
        options.node_ip = IpAddr::V4(Ipv4Addr::from(0xAC10_0000 + 10 + u32::from(number)));
        options.pod_cidr = format!("{}/24", address(number, 0)).parse().expect("a range");
        options.agent = AgentOptions::new(options.pod_cidr);
        options.agent.in_memory = true;
        options.agent_started = Some(self.cluster.now() - SignedDuration::from_hours(30));
        change(&mut options);
        let node = self.cluster.add_node(options).expect("a node");
        drop(self.cluster.watchdog_kubeconfig(&node).expect("the watchdog's pod"));
        node
    }

    /// The watchdog of a node.
    pub(crate) fn watchdog(&self, node: &Node, seed: u64) -> InProcess {
        let api = self.cluster.api();
        let name = format!("cilium-leak-healer-{}", node.name());
        let token = api.token_of_pod("cilium-leak-healer", &name).expect("its token");
        let clock = api.clock();
        let clock = WallClock::made(move || clock.now());
        watchdog(api, node, &token, &self.state_dir(node), clock, seed)
    }

    /// Where the watchdog of a node keeps its ledger.
    pub(crate) fn state_dir(&self, node: &Node) -> std::path::PathBuf {
        self.dir.path().join(format!("{}-state", node.name()))
    }

    /// Starts who heals, on all nodes.
    pub(crate) fn heal(&self, who: Who) -> Healers {
        let nodes = self.cluster.nodes();
        let watchdogs = (0..).zip(nodes.iter().filter(|_| who == Who::Watchdog));
        Healers {
            _watchdogs: watchdogs.map(|(seed, node)| self.watchdog(node, seed)).collect(),
            baseline: (who == Who::Baseline)
                .then(|| tokio::spawn(Baseline::new(self.cluster.api(), &nodes).run())),
        }
    }

    /// Makes a pod whose IPAM gives it this address.
    pub(crate) fn pod(&self, node: &Node, name: &str, ip: Ipv4Addr) {
        let pod = json!({
            "metadata": {"namespace": NAMESPACE, "name": name, "annotations": {IP_ANNOTATION: ip.to_string()}},
            "spec": {"nodeName": node.name(), "containers": [{"name": "app", "image": "app"}]},
        });
        self.cluster.api().create(&PODS, pod).expect("a pod");
    }

    /// Deletes a pod; its endpoint stays behind where the CNI plugin's DEL gets lost.
    pub(crate) fn remove(&self, node: &Node, name: &str, leak: bool) {
        if leak {
            node.kubelet().lose_next_del(NAMESPACE, name);
        }
        let options = DeleteOptions { grace_period_seconds: Some(1), ..DeleteOptions::default() };
        self.cluster.api().delete(&PODS, NAMESPACE, name, &options).expect("a pod to delete");
    }

    pub(crate) fn runs(&self, name: &str) -> bool {
        self.cluster
            .api()
            .get(&PODS, NAMESPACE, name)
            .is_ok_and(|pod| text(&pod, "/status/phase") == "Running")
    }

    /// Waits until a pod runs.
    pub(crate) async fn until_runs(&self, name: &str, limit: Duration) {
        let waited = self.cluster.wait_for_within(limit, name, |_| self.runs(name)).await;
        waited.expect("the pod runs");
    }

    /// Waits until a pod is gone.
    pub(crate) async fn until_gone(&self, name: &str) {
        let gone = |cluster: &Cluster| cluster.api().get(&PODS, NAMESPACE, name).is_err();
        self.cluster.wait_for(name, gone).await.expect("the pod is gone");
    }

    /// A pod runs on the address, goes, and leaves its endpoint.
    pub(crate) async fn leak(&self, node: &Node, name: &str, ip: Ipv4Addr) {
        self.pod(node, name, ip);
        self.until_runs(name, Duration::from_mins(3)).await;
        self.remove(node, name, true);
        self.until_gone(name).await;
        assert!(node.agent().holder(ip.into()).is_some(), "the endpoint of {name} stays");
    }

    pub(crate) fn end(self) {
        self.cluster.shutdown();
    }
}

/// When a request was answered.
pub(crate) fn answered(record: &RequestRecord) -> Timestamp {
    record.at + SignedDuration::try_from(record.took.unwrap_or_default()).unwrap_or_default()
}

/// From one instant to a later one.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).expect("in this order")
}

/// Whether the CNI plugin asks for an endpoint on this address.
pub(crate) fn asks_for(record: &RequestRecord, ip: Ipv4Addr) -> bool {
    record.method == "PUT" && record.user_agent == CNI && record.body.contains(&format!("\"ipv4\":\"{ip}\""))
}
