//! The simulated cluster of the demo: one node, and what happens on it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::DemoArgs;
use crate::sim::{
    ApiOptions, Cluster, ClusterOptions, DeleteOptions, EVENTS, IP_ANNOTATION, Node, NodeOptions, PODS,
    Workload, WorkloadKind,
};

pub(super) const NODE: &str = "worker-1";
pub(super) const INGRESS: &str = "10.244.1.7";

/// What is awaited at most, for each step of the story.
const PATIENCE: Duration = Duration::from_mins(2);

pub(super) struct Stage {
    cluster: Cluster,
    node: Node,
    dir: Scratch,
}

/// A directory of this process, removed with it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

impl Stage {
    pub(super) async fn build(args: &DemoArgs) -> Result<Self> {
        let dir =
            Scratch(std::env::temp_dir().join(format!("cilium-leak-healer-demo-{}", std::process::id())));
        fs::create_dir_all(&dir.0)
            .with_context(|| format!("no directory for the demo: {}", dir.0.display()))?;
        let options = ClusterOptions { api: ApiOptions::with_manifests(), ..ClusterOptions::default() };
        let cluster = Cluster::start(options).await.context("the simulated API server does not start")?;
        let mut options = NodeOptions::new(NODE, 1, dir.0.clone());
        options.agent.ingress_ip = INGRESS.parse::<Ipv4Addr>().ok();
        options.agent_started = Some(Timestamp::now() - SignedDuration::from_hours(30));
        options.kubelet.retry = args.paced(options.kubelet.retry);
        options.kubelet.retry_jitter = args.paced(options.kubelet.retry_jitter);
        let node = cluster.add_node(options).context("the simulated agent does not start")?;
        let kubeconfig = cluster.watchdog_kubeconfig(&node).map_err(|status| anyhow!("{status:?}"))?;
        fs::write(dir.0.join("kubeconfig"), kubeconfig)?;
        Ok(Self { cluster, node, dir })
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir.0.join("kubeconfig")
    }

    pub(super) fn state_dir(&self) -> PathBuf {
        self.dir.0.join("state")
    }

    pub(super) fn socket_dir(&self) -> &Path {
        self.node.socket_dir()
    }

    /// The pods that run from the start.
    pub(super) async fn ordinary_pods(&self) -> Result<()> {
        for (namespace, name) in [("shop", "web"), ("backup", "agent-old"), ("monitoring", "probe")] {
            self.create(namespace, name, &json!({}))?;
            self.running(namespace, name).await?;
        }
        Ok(())
    }

    /// Deletes a pod whose CNI DEL gets lost; its address, which the agent still holds.
    pub(super) async fn leak(&self, namespace: &str, name: &str) -> Result<String> {
        let ip = self.address(namespace, name).await?;
        self.node.kubelet().lose_next_del(namespace, name);
        self.cluster
            .api()
            .delete(&PODS, namespace, name, &DeleteOptions::default())
            .map_err(|status| anyhow!("{status:?}"))?;
        let gone = |cluster: &Cluster| cluster.api().get(&PODS, namespace, name).is_err();
        self.cluster.wait_for_within(PATIENCE, "the pod to be gone", gone).await?;
        Ok(ip)
    }

    /// A pod whose IPAM gives it this address.
    pub(super) fn pod_on(&self, namespace: &str, name: &str, ip: &str) -> Result<()> {
        self.create(namespace, name, &json!({IP_ANNOTATION: ip}))
    }

    /// A pod of a ReplicaSet on the ingress address; its name.
    pub(super) async fn replica_on_ingress(&self, namespace: &str, name: &str) -> Result<String> {
        let template = json!({
            "metadata": {"labels": {"app": name}, "annotations": {IP_ANNOTATION: INGRESS}},
            "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app"}]},
        });
        let workload = Workload {
            kind: WorkloadKind::ReplicaSet,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            replicas: 1,
            template,
        };
        self.cluster.run_workload(workload).map_err(|status| anyhow!("{status:?}"))?;
        self.await_pod(namespace, "the ReplicaSet's pod", |pod| Some(text(pod, "/metadata/name"))).await
    }

    /// The pod that a ReplicaSet made in place of another, once it runs: its name and address.
    pub(super) async fn replacement(
        &self,
        namespace: &str,
        set: &str,
        first: &str,
    ) -> Result<(String, String)> {
        let runs = |pod: &Value| {
            let name = text(pod, "/metadata/name");
            let ip = text(pod, "/status/podIP");
            (name.starts_with(set) && name != first && !ip.is_empty()).then_some((name, ip))
        };
        self.await_pod(namespace, "the replacement to run", runs).await
    }

    /// Waits until a pod runs.
    pub(super) async fn running(&self, namespace: &str, name: &str) -> Result<()> {
        self.address(namespace, name).await.map(drop)
    }

    /// The address of a pod, once it has one.
    pub(super) async fn address(&self, namespace: &str, name: &str) -> Result<String> {
        let address = |pod: &Value| {
            (text(pod, "/metadata/name") == name)
                .then(|| text(pod, "/status/podIP"))
                .filter(|ip| !ip.is_empty())
        };
        self.await_pod(namespace, &format!("{namespace}/{name} to run"), address).await
    }

    /// Whether the agent still holds the address for this pod.
    pub(super) fn holds(&self, namespace: &str, name: &str, ip: &str) -> bool {
        let holder = ip.parse::<IpAddr>().ok().and_then(|ip| self.node.agent().holder(ip));
        holder
            .is_some_and(|holder| holder.to_string().contains(&format!("resolve-labels-{namespace}/{name}")))
    }

    /// What the kubelet says about a pod that hangs.
    pub(super) async fn failure_message(&self, namespace: &str, pod: &str) -> Result<String> {
        let mut found = None;
        let failed = |cluster: &Cluster| {
            let events = cluster
                .api()
                .list(&EVENTS, namespace, &format!("involvedObject.name={pod}"), "")
                .unwrap_or_default();
            found = events
                .iter()
                .map(|event| text(event, "/message"))
                .find(|message| message.contains("already in use"));
            found.is_some()
        };
        self.cluster.wait_for_within(PATIENCE, "the kubelet's Event", failed).await?;
        found.context("no Event")
    }

    fn create(&self, namespace: &str, name: &str, annotations: &Value) -> Result<()> {
        let pod = json!({
            "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
            "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app"}]},
        });
        self.cluster.api().create(&PODS, pod).map(drop).map_err(|status| anyhow!("{status:?}"))
    }

    async fn await_pod<T>(
        &self,
        namespace: &str,
        what: &str,
        mut take: impl FnMut(&Value) -> Option<T>,
    ) -> Result<T> {
        let mut found = None;
        let looks = |cluster: &Cluster| {
            let pods = cluster.api().list(&PODS, namespace, "", "").unwrap_or_default();
            found = pods.iter().find_map(&mut take);
            found.is_some()
        };
        self.cluster.wait_for_within(PATIENCE, what, looks).await?;
        found.with_context(|| format!("waited for {what}"))
    }
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
