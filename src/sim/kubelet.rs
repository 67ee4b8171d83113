//! Plays a node's kubelet with the Cilium CNI plugin: sandboxes for its pods, Events when that fails, and the end of pods.
//!
//! It calls the agent over its socket, as the plugin does. Must not know: why the agent refuses.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::agent::Agent;
use super::apiserver::ApiServer;
use super::clock::lock;
use super::cni::{self, Sandbox};
use super::lifecycle::DeleteOptions;
use super::pod_status;
use super::recorder::Recorder;
use super::resource::{PODS, key, text};

/// How a kubelet behaves.
#[derive(Debug, Clone)]
pub struct KubeletOptions {
    /// Whether it runs at all.
    pub enabled: bool,
    /// Pause between two tries to make a sandbox.
    pub retry: Duration,
    /// Up to so much more, at random.
    pub retry_jitter: Duration,
    /// Up to so long, at random, before the first try: the volumes are mounted.
    pub mount_jitter: Duration,
    /// How long a pod takes from its sandbox to its running container (pulling an image).
    pub start_delay: Duration,
    /// Whether it reports a sandbox, with its addresses, before a container runs. A busy one gets round to it late.
    pub report_sandbox: bool,
    /// How long a pod takes to stop.
    pub stop_delay: Duration,
    /// How long the CNI plugin waits for the agent.
    pub cni_timeout: Duration,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            retry: Duration::from_secs(12),
            retry_jitter: Duration::from_secs(2),
            mount_jitter: Duration::ZERO,
            start_delay: Duration::ZERO,
            report_sandbox: true,
            stop_delay: Duration::ZERO,
            cni_timeout: Duration::from_secs(90),
        }
    }
}

/// A simulated kubelet. Clones are the same kubelet.
#[derive(Debug, Clone)]
pub struct Kubelet(Arc<KubeletShared>);

#[derive(Debug)]
struct KubeletShared {
    node: String,
    node_ip: IpAddr,
    api: ApiServer,
    agent: Agent,
    options: KubeletOptions,
    recorder: Recorder,
    sandboxes: Mutex<HashMap<String, Sandbox>>,
    losses: Mutex<HashSet<String>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Kubelet {
    pub(crate) fn launch(
        node: &str,
        node_ip: IpAddr,
        api: ApiServer,
        agent: Agent,
        options: KubeletOptions,
    ) -> Self {
        let recorder = Recorder::new(api.clone(), node);
        let shared = Arc::new(KubeletShared {
            node: node.to_owned(),
            node_ip,
            api,
            agent,
            recorder,
            sandboxes: Mutex::default(),
            losses: Mutex::default(),
            tasks: Mutex::default(),
            options,
        });
        if shared.options.enabled {
            lock(&shared.tasks).spawn(run(shared.clone()));
        }
        Self(shared)
    }

    /// The next CNI DEL for this pod gets lost: its address is free in the IPAM, its endpoint stays with the agent.
    pub fn lose_next_del(&self, namespace: &str, pod: &str) {
        lock(&self.0.losses).insert(key(namespace, pod));
    }

    /// The container id of the sandbox that a pod has.
    #[must_use]
    pub fn sandbox_of(&self, pod_uid: &str) -> Option<String> {
        lock(&self.0.sandboxes).get(pod_uid).map(|sandbox| sandbox.container_id.clone())
    }

    /// Stops for good, as a node does that lost power.
    pub fn stop(&self) {
        lock(&self.0.tasks).abort_all();
    }
}

impl KubeletShared {
    fn exists(&self, pod: &Value) -> bool {
        let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        self.api
            .get(&PODS, namespace, name)
            .is_ok_and(|present| text(&present, "/metadata/uid") == text(pod, "/metadata/uid"))
    }
}

/// Starts a worker for every pod of the node, and wakes it when its pod changes.
async fn run(shared: Arc<KubeletShared>) {
    let store = shared.api.0.lifecycle.store.clone();
    let mut changed = store.subscribe();
    let mut workers: JoinSet<String> = JoinSet::new();
    let mut known: BTreeMap<String, Arc<Notify>> = BTreeMap::new();
    let mut cursor = 0;
    loop {
        changed.mark_unchanged();
        let pods: Vec<Arc<Value>> = if let Some((news, revision)) =
            store.changes_since(PODS.storage, cursor).ok().filter(|_| cursor > 0)
        {
            cursor = revision;
            news.into_iter().map(|change| change.object).collect()
        } else {
            let (objects, revision) = store.snapshot(PODS.storage);
            cursor = revision;
            // A pod that went unseen is found missing by its worker.
            for wake in known.values() {
                wake.notify_one();
            }
            objects.into_values().collect()
        };
        for pod in pods.iter().filter(|pod| text(pod, "/spec/nodeName") == shared.node) {
            let uid = text(pod, "/metadata/uid").to_owned();
            if let Some(wake) = known.get(&uid) {
                wake.notify_one();
            } else if shared.exists(pod) {
                // An old change of a pod that is gone must not start a worker: it would tear down once more.
                let wake = Arc::new(Notify::new());
                let worker = Worker {
                    kubelet: shared.clone(),
                    namespace: text(pod, "/metadata/namespace").to_owned(),
                    name: text(pod, "/metadata/name").to_owned(),
                    uid: uid.clone(),
                    wake: wake.clone(),
                };
                known.insert(uid.clone(), wake);
                workers.spawn(async move {
                    worker.run().await;
                    uid
                });
            }
        }
        tokio::select! {
            biased;
            result = changed.changed() => if result.is_err() { return },
            Some(done) = workers.join_next() => if let Ok(uid) = done { known.remove(&uid); },
        }
    }
}

struct Worker {
    kubelet: Arc<KubeletShared>,
    namespace: String,
    name: String,
    uid: String,
    wake: Arc<Notify>,
}

impl Worker {
    /// Looks after one pod until it is gone.
    async fn run(&self) {
        let mut next_try = Instant::now() + self.mounting();
        loop {
            let Some(pod) = self.pod() else {
                // Deleted with grace 0 past the kubelet: the sandbox is torn down all the same.
                self.tear_down().await;
                return;
            };
            if pod.pointer("/metadata/deletionTimestamp").is_some() {
                self.end().await;
                return;
            }
            let finished = matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed");
            let host_network = pod.pointer("/spec/hostNetwork").and_then(Value::as_bool) == Some(true);
            let has_sandbox = lock(&self.kubelet.sandboxes).contains_key(&self.uid)
                || !text(&pod, "/status/podIP").is_empty();
            if finished || has_sandbox {
                self.wake.notified().await;
            } else if host_network {
                self.write(&pod_status::running(
                    &pod,
                    self.kubelet.node_ip,
                    &[self.kubelet.node_ip],
                    self.kubelet.api.clock().now(),
                ));
            } else if Instant::now() < next_try {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(next_try) => {}
                    () = self.wake.notified() => {}
                }
            } else {
                next_try = Instant::now() + self.pause();
                self.try_sandbox(&pod).await;
            }
        }
    }

    fn pod(&self) -> Option<Value> {
        let pod = self.kubelet.api.get(&PODS, &self.namespace, &self.name).ok()?;
        (text(&pod, "/metadata/uid") == self.uid).then_some(pod)
    }

    fn pause(&self) -> Duration {
        self.kubelet.options.retry + self.at_most(self.kubelet.options.retry_jitter)
    }

    fn mounting(&self) -> Duration {
        let jitter = self.kubelet.options.mount_jitter;
        // Without it nothing is drawn: what a seed gives stays as it was.
        if jitter.is_zero() { jitter } else { self.at_most(jitter) }
    }

    fn at_most(&self, jitter: Duration) -> Duration {
        let jitter = u64::try_from(jitter.as_millis()).unwrap_or_default();
        Duration::from_millis(self.kubelet.api.0.lifecycle.random.below(jitter + 1))
    }

    fn write(&self, status: &Value) {
        // The pod may be gone by now.
        let _ = self.kubelet.api.patch_status_merge(&PODS, &self.namespace, &self.name, status);
    }

    fn event(&self, pod: &Value, field: &str, kind: &str, reason: &str, message: &str) {
        self.kubelet.recorder.record(pod, field, kind, reason, message);
    }

    async fn try_sandbox(&self, pod: &Value) {
        let kubelet = &self.kubelet;
        let now = || kubelet.api.clock().now();
        if text(pod, "/status/startTime").is_empty() {
            self.write(&pod_status::creating(pod, kubelet.node_ip, now()));
        }
        match cni::add(&kubelet.agent, pod, kubelet.options.cni_timeout).await {
            Err(message) => {
                let message = format!("Failed to create pod sandbox: {message}");
                self.event(pod, "", "Warning", "FailedCreatePodSandBox", &message);
            }
            Ok(sandbox) => {
                let addresses = sandbox.addresses.clone();
                lock(&kubelet.sandboxes).insert(self.uid.clone(), sandbox);
                if !kubelet.options.start_delay.is_zero() {
                    if kubelet.options.report_sandbox {
                        self.write(&pod_status::sandboxed(pod, kubelet.node_ip, &addresses, now()));
                    }
                    for (field, image, _) in pod_status::containers(pod) {
                        self.event(pod, &field, "Normal", "Pulling", &format!("Pulling image \"{image}\""));
                    }
                    tokio::time::sleep(kubelet.options.start_delay).await;
                }
                // A pod that was deleted meanwhile starts no container.
                let Some(pod) = self.pod().filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none())
                else {
                    return;
                };
                self.write(&pod_status::running(&pod, kubelet.node_ip, &addresses, now()));
                for (field, image, name) in pod_status::containers(&pod) {
                    self.event(
                        &pod,
                        &field,
                        "Normal",
                        "Pulled",
                        &format!("Container image \"{image}\" already present on machine"),
                    );
                    self.event(&pod, &field, "Normal", "Created", &format!("Created container: {name}"));
                    self.event(&pod, &field, "Normal", "Started", &format!("Started container {name}"));
                }
            }
        }
    }

    /// Stops a pod that is being deleted, and lets its object go.
    async fn end(&self) {
        tokio::time::sleep(self.kubelet.options.stop_delay).await;
        self.tear_down().await;
        let options = DeleteOptions { uid: Some(self.uid.clone()), ..DeleteOptions::now() };
        let _ = self.kubelet.api.delete(&PODS, &self.namespace, &self.name, &options);
    }

    async fn tear_down(&self) {
        let kubelet = &self.kubelet;
        let remembered = lock(&kubelet.sandboxes).remove(&self.uid);
        // A pod that was there before this kubelet: its sandbox is what the agent knows of it.
        let Some(sandbox) =
            remembered.or_else(|| cni::find(&kubelet.agent, &key(&self.namespace, &self.name), &self.uid))
        else {
            return;
        };
        if lock(&kubelet.losses).remove(&key(&self.namespace, &self.name)) {
            for address in sandbox.addresses {
                kubelet.agent.free_address(address);
            }
            return;
        }
        while let Err(message) = cni::del(&kubelet.agent, &sandbox, kubelet.options.cni_timeout).await {
            if let Some(pod) = self.pod() {
                let message = format!(
                    "error killing pod: failed to \"KillPodSandbox\" for \"{}\" with KillPodSandboxError: \"{message}\"",
                    self.uid
                );
                self.event(&pod, "", "Warning", "FailedKillPod", &message);
            }
            tokio::time::sleep(self.pause()).await;
        }
    }
}
