//! A simulated cluster whose agents have pods, as a scan needs them.

use std::net::Ipv4Addr;
use std::time::Duration;

use cilium_leak_healer::sim::{
    AgentVersion, Attributes, Cluster, ClusterOptions, EndpointSpec, IP_ANNOTATION, Node, NodeOptions, PODS,
    RateLimits,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::PATIENCE;
use crate::run::{Run, scan};

pub(crate) const NODE: &str = "worker-1";
pub(crate) const IP: &str = "10.244.1.50";

pub(crate) struct Lab {
    pub cluster: Cluster,
    pub node: Node,
    pub dir: TempDir,
}

impl Lab {
    pub(crate) async fn new() -> Self {
        Self::of(AgentVersion::V1_20, |_| true).await
    }

    /// With agents of a version, and an API server that allows what the function says.
    pub(crate) async fn of(
        version: AgentVersion,
        allows: impl Fn(&Attributes) -> bool + Send + Sync + 'static,
    ) -> Self {
        let dir = tempfile::Builder::new().prefix("clh").tempdir().expect("a directory");
        let mut options = ClusterOptions::default();
        options.api.authorizer = Some(std::sync::Arc::new(allows));
        let cluster = Cluster::start(options).await.expect("an API server");
        let mut options = NodeOptions::new(NODE, 1, dir.path().join("run"));
        options.agent_started = Some(long_ago());
        options.agent.version = version;
        options.agent.rate_limits = RateLimits::off();
        options.agent.ingress_ip = "10.244.1.7".parse().ok();
        options.kubelet.retry = Duration::from_secs(1);
        options.kubelet.retry_jitter = Duration::ZERO;
        options.with_agent_pod = true;
        let node = cluster.add_node(options).expect("a node");
        std::fs::write(dir.path().join("kubeconfig"), cluster.kubeconfig()).expect("a kubeconfig");
        let lab = Self { cluster, node, dir };
        lab.wait("the agent's pod to run", |lab| {
            lab.agent_pod().is_some_and(|pod| pod["status"]["phase"] == "Running")
        })
        .await;
        let name = lab.agent_pod_name();
        let mut status = lab.agent_pod().expect("a pod")["status"].clone();
        status["containerStatuses"][0]["state"]["running"]["startedAt"] = seconds(long_ago()).into();
        lab.cluster.api().patch_status_merge(&PODS, "kube-system", &name, &status).expect("a status");
        lab
    }

    pub(crate) fn agent_pod(&self) -> Option<Value> {
        let pods = self.cluster.api().list(&PODS, "kube-system", "", "k8s-app=cilium").ok()?;
        pods.into_iter().next()
    }

    pub(crate) fn agent_pod_name(&self) -> String {
        let pod = self.agent_pod().expect("the agent's pod");
        pod["metadata"]["name"].as_str().expect("a name").to_owned()
    }

    /// The flag for the kubeconfig, with its value.
    pub(crate) fn kubeconfig(&self) -> String {
        self.dir.path().join("kubeconfig").display().to_string()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    pub(crate) async fn scan(&self, args: &[&str]) -> Run {
        let kubeconfig = self.kubeconfig();
        let all: Vec<&str> = ["--kubeconfig", &kubeconfig].into_iter().chain(args.iter().copied()).collect();
        scan(&all).await
    }

    pub(crate) async fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let holds = self.cluster.wait_for_within(PATIENCE, what, |_| condition(self)).await;
        holds.expect("it came to be");
    }

    /// Makes a pod whose IPAM gives it this address.
    pub(crate) fn pod(&self, namespace: &str, name: &str, ip: &str) {
        let pod = json!({
            "metadata": {
                "namespace": namespace, "name": name, "labels": {"app": name}, "annotations": {IP_ANNOTATION: ip, "secret": "hunter2"},
                "managedFields": [{"manager": "kubectl", "operation": "Update"}],
            },
            "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app", "env": [{"name": "PASSWORD", "value": "hunter2"}]}]},
        });
        self.cluster.api().create(&PODS, pod).expect("a pod");
    }

    /// The endpoint of a pod that is gone holds the address that shop/cart is given; it was refused twice.
    pub(crate) async fn wedge(&self) {
        self.leak("backup", "agent-old", IP);
        self.pod("shop", "cart", IP);
        self.refused("shop/cart").await;
    }

    pub(crate) fn leak(&self, namespace: &str, pod: &str, ip: &str) {
        let ip: Ipv4Addr = ip.parse().expect("an address");
        let container = format!("{:064x}", u64::from(u32::from(ip)) * 0x9e37_79b9);
        let created = Some(Timestamp::now() - SignedDuration::from_hours(1));
        let spec = EndpointSpec { created, ..EndpointSpec::new(namespace, pod, container, ip) };
        self.node.agent().leak(spec).expect("an endpoint");
    }

    /// Waits until a pod was refused twice: its failure is no lone one then.
    pub(crate) async fn refused(&self, pod: &str) {
        let (namespace, name) = pod.split_once('/').expect("a name");
        let twice = |lab: &Self| {
            let events = lab.cluster.api().list(&cilium_leak_healer::sim::EVENTS, namespace, "", "");
            // Each try has a sandbox of its own, and so an Event of its own, until the kubelet combines them.
            let own = events.expect("Events").into_iter().filter(|event| {
                event["involvedObject"]["name"] == name && event["reason"] == "FailedCreatePodSandBox"
            });
            own.map(|event| event["count"].as_i64().unwrap_or(1)).sum::<i64>() >= 2
        };
        self.wait(&format!("{pod} to be refused twice"), twice).await;
    }
}

fn long_ago() -> Timestamp {
    Timestamp::now() - SignedDuration::from_hours(30)
}

fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
