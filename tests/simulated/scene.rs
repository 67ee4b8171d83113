//! A simulated node with the real daemon on it, and what tests do and look at there.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cilium_leak_healer::sim::{
    AgentVersion, ApiOptions, Cluster, ClusterOptions, DeleteOptions, EVENTS, EndpointSpec, IP_ANNOTATION,
    Node, NodeOptions, PODS, RateLimits, RequestRecord, Workload, WorkloadKind,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::{Daemon, PATIENCE};

pub(crate) const NODE: &str = "worker-1";
/// The disputed address of most scenarios.
pub(crate) const IP: &str = "10.244.1.50";
pub(crate) const INGRESS: &str = "10.244.1.7";
/// The pod that a leaked endpoint is of.
pub(crate) const GONE: (&str, &str) = ("backup", "agent-old");

/// Times that let a test be quick, each unless the test gives its own.
const QUICK: [(&str, &str); 6] = [
    ("--startup-quiet", "0s"),
    ("--confirm-gap", "300ms"),
    ("--event-delay", "200ms"),
    ("--lone-failure-age", "1s"),
    ("--agent-timeout", "1s"),
    ("--api-timeout", "2s"),
];

pub(crate) struct Scene {
    pub cluster: Cluster,
    pub node: Node,
    dir: TempDir,
}

impl Scene {
    /// A node whose agent has been up for long, whose kubelet tries every second, and where one pod runs.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn of_version(version: AgentVersion) -> Self {
        Self::with(|options| options.agent.version = version).await
    }

    /// Without a kubelet: pods stay as they are made, and the test writes the Events.
    pub(crate) async fn without_kubelet() -> Self {
        Self::with(|options| options.kubelet.enabled = false).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut NodeOptions)) -> Self {
        Self::behind(ApiOptions::with_manifests(), change).await
    }

    /// Behind an API server of its own.
    pub(crate) async fn behind(api: ApiOptions, change: impl FnOnce(&mut NodeOptions)) -> Self {
        let dir = tempfile::Builder::new().prefix("clh").tempdir().expect("a directory");
        let options = ClusterOptions { api, ..ClusterOptions::default() };
        let cluster = Cluster::start(options).await.expect("an API server");
        let mut options = NodeOptions::new(NODE, 1, dir.path().join("run"));
        options.agent_started = Some(Timestamp::now() - SignedDuration::from_hours(30));
        options.agent.ingress_ip = INGRESS.parse().ok();
        options.agent.rate_limits = RateLimits::off();
        options.kubelet.retry = Duration::from_secs(1);
        options.kubelet.retry_jitter = Duration::from_millis(200);
        change(&mut options);
        let kubelet = options.kubelet.enabled;
        let node = cluster.add_node(options).expect("a node");
        let kubeconfig = cluster.watchdog_kubeconfig(&node).expect("the watchdog's pod");
        std::fs::write(dir.path().join("kubeconfig"), kubeconfig).expect("a kubeconfig");
        let scene = Self { cluster, node, dir };
        if kubelet {
            scene.pod("shop", "web", "10.244.1.20");
            scene.runs("shop", "web").await;
        }
        scene
    }

    /// The daemon, in mode heal, quick.
    pub(crate) async fn heal(&self) -> Daemon {
        let daemon = self.daemon("heal", &[]).await;
        let tested =
            |line: &Value| line["message"].as_str().is_some_and(|said| said.starts_with("self-test"));
        daemon.line("the self-test", tested).await;
        daemon
    }

    pub(crate) async fn observe(&self) -> Daemon {
        self.daemon("observe", &[]).await
    }

    /// The daemon, quick, with further flags; it watches already.
    pub(crate) async fn daemon(&self, mode: &str, args: &[&str]) -> Daemon {
        let mut all = vec!["--mode", mode];
        all.extend(args);
        for (flag, value) in QUICK.iter().filter(|(flag, _)| !args.contains(flag)) {
            all.extend([flag, value]);
        }
        let daemon = self.start(&all).await;
        daemon.line("it watches", |line| line["message"] == "watching the pods of this node").await;
        daemon
    }

    /// The daemon with these flags beside those that say where everything is.
    pub(crate) async fn start(&self, args: &[&str]) -> Daemon {
        let kubeconfig = self.kubeconfig();
        let sockets = self.node.socket_dir().display().to_string();
        let mut all = vec!["run", "--node-name", NODE, "--kubeconfig", &kubeconfig];
        all.extend(["--agent-socket-dir", &sockets, "--log-format", "json"]);
        if !args.contains(&"--listen") {
            all.extend(["--listen", "127.0.0.1:0"]);
        }
        let state = self.state_dir();
        all.extend(["--state-dir", &state]);
        all.extend(args);
        Daemon::spawn(all, &[]).serving().await
    }

    /// Where the daemon has its ledger.
    pub(crate) fn state_dir(&self) -> String {
        self.dir.path().join("state").display().to_string()
    }

    pub(crate) fn kubeconfig(&self) -> String {
        self.dir.path().join("kubeconfig").display().to_string()
    }

    /// Makes a pod whose IPAM gives it this address; its UID.
    pub(crate) fn pod(&self, namespace: &str, name: &str, ip: &str) -> String {
        let pod = json!({
            "metadata": {"namespace": namespace, "name": name, "annotations": {IP_ANNOTATION: ip}},
            "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app"}]},
        });
        let made = self.cluster.api().create(&PODS, pod).expect("a pod");
        made["metadata"]["uid"].as_str().expect("its UID").to_owned()
    }

    /// A set of one pod with this address.
    pub(crate) fn workload(&self, kind: WorkloadKind, namespace: &str, name: &str, ip: &str) {
        let template = json!({
            "metadata": {"labels": {"app": name}, "annotations": {IP_ANNOTATION: ip}},
            "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app"}]},
        });
        let workload =
            Workload { kind, namespace: namespace.to_owned(), name: name.to_owned(), replicas: 1, template };
        self.cluster.run_workload(workload).expect("a controller");
    }

    /// An endpoint without CiliumEndpoint or entry in the IPAM, made an hour ago.
    pub(crate) fn leak(&self, namespace: &str, pod: &str, ip: &str) {
        self.node.agent().leak(old_endpoint(namespace, pod, ip)).expect("an endpoint");
    }

    /// The plain story: the endpoint of a pod that is gone holds the address that shop/cart is given.
    pub(crate) fn wedge(&self) -> &'static str {
        self.leak(GONE.0, GONE.1, IP);
        self.pod("shop", "cart", IP);
        "shop/cart"
    }

    /// Deletes a pod with its grace period, or at once.
    pub(crate) fn delete(&self, namespace: &str, name: &str, options: &DeleteOptions) {
        self.cluster.api().delete(&PODS, namespace, name, options).expect("the pod");
    }

    pub(crate) async fn runs(&self, namespace: &str, name: &str) -> String {
        let address = |cluster: &Cluster| {
            let pod = cluster.api().get(&PODS, namespace, name).ok()?;
            let ip = pod.pointer("/status/podIP")?.as_str()?.to_owned();
            (!ip.is_empty()).then_some(ip)
        };
        let what = format!("{namespace}/{name} to run");
        let runs = self.cluster.wait_for_within(PATIENCE, &what, |cluster| address(cluster).is_some());
        runs.await.expect("a running pod");
        address(&self.cluster).expect("an address")
    }

    pub(crate) fn uid_of(&self, namespace: &str, name: &str) -> Option<String> {
        let pod = self.cluster.api().get(&PODS, namespace, name).ok()?;
        Some(pod["metadata"]["uid"].as_str()?.to_owned())
    }

    pub(crate) async fn wait(&self, what: &str, condition: impl FnMut(&Cluster) -> bool) {
        let held = self.cluster.wait_for_within(PATIENCE, what, condition).await;
        held.expect("it came to be");
    }

    /// Writes a sandbox failure of a pod, as its kubelet would.
    pub(crate) fn failure(&self, namespace: &str, pod: &str, message: &str) {
        let uid = self.uid_of(namespace, pod).expect("the pod");
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let event = json!({
            "metadata": {"namespace": namespace, "generateName": format!("{pod}.")},
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": pod, "uid": uid},
            "reason": "FailedCreatePodSandBox", "message": message, "type": "Warning", "count": 3,
            "source": {"component": "kubelet", "host": NODE}, "firstTimestamp": now, "lastTimestamp": now,
        });
        self.cluster.api().create(&EVENTS, event).expect("an Event");
    }

    /// Whether an endpoint holds the address.
    pub(crate) fn is_held(&self, ip: &str) -> bool {
        self.node.agent().holder(ip.parse::<IpAddr>().expect("an address")).is_some()
    }

    /// The daemon's requests to the agent; the kubelet's are left out.
    pub(crate) fn agent_requests(&self) -> Vec<RequestRecord> {
        let requests = self.node.agent().requests().into_iter();
        requests.filter(|request| request.user_agent != "cilium-cni").collect()
    }

    pub(crate) fn disconnects(&self) -> Vec<RequestRecord> {
        let requests = self.agent_requests().into_iter();
        requests.filter(|request| request.method == "DELETE").collect()
    }

    /// All that the daemon asked for and that was more than reading, at the agent and at the API server.
    pub(crate) fn writes(&self) -> Vec<RequestRecord> {
        let all = self.agent_requests().into_iter().chain(self.cluster.api().requests());
        // Reviews of its own rights store nothing, and neither does a dry run.
        let stores =
            |request: &RequestRecord| !request.path.contains("reviews") && !request.body.contains("dryRun");
        // An Event tells of what is left alone, too.
        let tells = |request: &RequestRecord| request.path.starts_with("/apis/events.k8s.io/");
        all.filter(|request| request.method != "GET" && stores(request) && !tells(request)).collect()
    }

    /// Nothing was written, begun or counted.
    pub(crate) fn nothing_done(&self, daemon: &Daemon) {
        let writes = self.writes();
        assert!(writes.is_empty(), "{writes:?}\n{}", daemon.printed());
        let acts = daemon.matching(|line| line["message"] == "acting" || line["message"] == "acted");
        assert!(acts.is_empty(), "{acts:?}");
    }
}

/// An endpoint that was made an hour ago.
pub(crate) fn old_endpoint(namespace: &str, pod: &str, ip: &str) -> EndpointSpec {
    let ip: Ipv4Addr = ip.parse().expect("an IPv4 address");
    let container_id = format!("{:064x}", u64::from(u32::from(ip)) * 0x9e37_79b9);
    EndpointSpec {
        created: Some(Timestamp::now() - SignedDuration::from_hours(1)),
        ..EndpointSpec::new(namespace, pod, container_id, ip)
    }
}

/// The kubelet's message for a refusal.
pub(crate) fn refusal(address: &str) -> String {
    format!(
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"{}\": plugin type=\"cilium-cni\" failed (add): unable to create endpoint: [PUT /endpoint/{{id}}][400] putEndpointIdInvalid \"IP {address} is already in use\"",
        "ab".repeat(32)
    )
}

/// The first judgement of that pod with that verdict.
pub(crate) async fn judged(daemon: &Daemon, pod: &str, verdict: &str) -> Value {
    let what = format!("{pod} judged {verdict}");
    daemon
        .line(&what, |line| line["message"] == "judged" && line["pod"] == pod && line["verdict"] == verdict)
        .await
}

/// The first end of an act that came so.
pub(crate) async fn acted(daemon: &Daemon, outcome: &str) -> Value {
    let is_it = |line: &Value| line["message"] == "acted" && line["outcome"] == outcome;
    daemon.line(&format!("acted {outcome}"), is_it).await
}

/// How many acts ended so, by the log.
pub(crate) fn count_acted(daemon: &Daemon, outcome: &str) -> usize {
    daemon.matching(|line| line["message"] == "acted" && line["outcome"] == outcome).len()
}

/// The plain story ends well: disconnected once, the pod runs with its address, and the metric says so.
pub(crate) async fn healed(scene: &Scene, daemon: Daemon) {
    acted(&daemon, "healed").await;
    assert_eq!(scene.runs("shop", "cart").await, IP);
    let name = "cilium_leak_healer_acts_total{remedy=\"disconnect-endpoint\",outcome=\"healed\"}";
    assert!((daemon.metric(name).await - 1.0).abs() < f64::EPSILON);
    assert_eq!(count_acted(&daemon, "freed"), 1, "{}", daemon.printed());
    daemon.stop().await;
}
