//! One simulated node in memory, and the truth about it: who looks on when an endpoint or a pod goes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cilium_leak_healer::cli::InProcess;
use cilium_leak_healer::clock::WallClock;
use cilium_leak_healer::domain::RemedyKind;
use cilium_leak_healer::ledger::{Act, BoundOptions, BucketOptions, Ledger};
use cilium_leak_healer::sim::{
    ApiOptions, Cluster, ClusterOptions, DeleteOptions, IP_ANNOTATION, NAMESPACES, Node, NodeOptions, PODS,
    RemovedEndpoint, Workload, WorkloadKind,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::in_memory::{directory, watchdog};

pub(crate) const NODE: &str = "worker-1";
/// When each run begins.
pub(crate) const START: &str = "2026-06-18T08:00:00Z";
/// The address of the node's ingress endpoint.
pub(crate) const INGRESS: &str = "10.244.1.7";

/// What happened to the cluster by the watchdog's hand, and what of it must never happen.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// When, and the container id of the endpoint.
    pub(crate) disconnects: Vec<(Timestamp, String)>,
    /// When, and the pod's UID.
    pub(crate) deletes: Vec<(Timestamp, String)>,
    moved: HashSet<(String, String)>,
    /// From when until when people wanted nothing to be done.
    hands_off: Vec<HandsOff>,
    pub(crate) violations: Vec<String>,
}

/// A pause, or an opt-out.
#[derive(Debug, Clone, Copy)]
struct HandsOff {
    why: &'static str,
    from: Timestamp,
    /// `None`: it goes on.
    until: Option<Timestamp>,
}

/// An act that was about to begin may still begin within this.
const GRACE: SignedDuration = SignedDuration::from_millis(500);

/// A pod that waits for the address of a stale endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Unhealed {
    namespace: String,
    name: String,
    ip: IpAddr,
}

impl fmt::Display for Unhealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} on {}", self.namespace, self.name, self.ip)
    }
}

/// What becomes of a pod between its sandbox and its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pull {
    /// How long its image takes.
    pub(crate) takes: Duration,
    /// Whether its address is told meanwhile.
    pub(crate) reported: bool,
}

#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) node: Node,
    truth: Arc<Mutex<Truth>>,
    /// How far the node's wall clock is off, in milliseconds.
    skew: Arc<AtomicI64>,
    /// Nothing but one thing goes wrong: when acts began is told by the cluster's clock, and no answer is old.
    alone: bool,
    /// So many acts were found on record.
    recorded: Arc<AtomicUsize>,
    dir: Arc<TempDir>,
    token: Arc<str>,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn uid(pod: &Value) -> &str {
    text(pod, "/metadata/uid")
}

fn is_live(pod: &Value) -> bool {
    !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

impl Scene {
    /// A node whose agent has been up for long, in an IPAM mode.
    /// `alone`: at most one thing will go wrong.
    pub(crate) async fn new(seed: u64, ipam_mode: &str, pull: Pull, alone: bool) -> Self {
        let dir = directory();
        let options =
            ClusterOptions { api: ApiOptions::with_manifests(), now: START.parse().ok(), seed: Some(seed) };
        let cluster = Cluster::start(options).await.expect("an API server");
        cluster
            .api()
            .create(&NAMESPACES, json!({"metadata": {"name": "shop"}}))
            .expect("the pods' namespace");
        let mut options = NodeOptions::new(NODE, 1, dir.path().join("run"));
        options.agent_started = Some(cluster.now() - SignedDuration::from_hours(30));
        options.agent.ingress_ip = INGRESS.parse().ok();
        ipam_mode.clone_into(&mut options.agent.ipam_mode);
        options.agent.in_memory = true;
        // Where Cilium allocates, an act waits until the waiting pod's own try does not have the address. With this limit
        // eight pods that wait would always be in the middle of a try.
        if ipam_mode != "delegated-plugin" {
            options.agent.rate_limits.create = None;
        }
        options.with_agent_pod = true;
        options.kubelet.start_delay = pull.takes;
        options.kubelet.report_sandbox = pull.reported;
        let node = cluster.add_node(options).expect("a node");
        // Its pod, namespace and Leases; the token goes in memory.
        drop(cluster.watchdog_kubeconfig(&node).expect("the watchdog's pod"));
        let token = cluster
            .api()
            .token_of_pod("cilium-leak-healer", &format!("cilium-leak-healer-{NODE}"))
            .expect("its token");
        let scene = Self {
            cluster,
            node,
            truth: Arc::default(),
            skew: Arc::default(),
            alone,
            recorded: Arc::default(),
            dir: Arc::new(dir),
            token: token.into(),
        };
        scene.look_on();
        scene
    }

    fn look_on(&self) {
        let (api, kubelet) = (self.cluster.api().clone(), self.node.kubelet().clone());
        let (clock, truth) = (api.clock(), Arc::clone(&self.truth));
        let pods = api.clone();
        let is_cut = move |gone: &RemovedEndpoint| {
            let pod = pods.get(&PODS, &gone.namespace, &gone.pod).ok()?;
            let live = uid(&pod) == gone.uid && is_live(&pod);
            (live && kubelet.sandbox_of(&gone.uid).as_deref() == Some(&gone.container)).then_some(pod)
        };
        self.node.agent().witness(move |gone| {
            // The CNI plugin has a name.
            if !gone.by.is_empty() {
                return;
            }
            let now = clock.now();
            let mut truth = truth.lock().unwrap_or_else(PoisonError::into_inner);
            truth.disconnects.push((now, gone.container.clone()));
            if is_cut(gone).is_some() {
                truth
                    .violations
                    .push(format!("{now}: the live endpoint of {}/{} was cut", gone.namespace, gone.pod));
            }
        });
        let (kubelet, truth) = (self.node.kubelet().clone(), Arc::clone(&self.truth));
        api.witness(move |pod| {
            let now = clock.now();
            let (name, mut truth) =
                (text(pod, "/metadata/name"), truth.lock().unwrap_or_else(PoisonError::into_inner));
            truth.deletes.push((now, uid(pod).to_owned()));
            let ip = pod["metadata"]["annotations"][IP_ANNOTATION].as_str().unwrap_or_default();
            if kubelet.sandbox_of(uid(pod)).is_some()
                || text(pod, "/status/phase") != "Pending"
                || ip != INGRESS
            {
                truth.violations.push(format!("{now}: {name} was deleted and was no wedge on {INGRESS}"));
            }
            let controller = text(pod, "/metadata/ownerReferences/0/uid").to_owned();
            if !truth.moved.insert((controller, ip.to_owned())) {
                truth.violations.push(format!("{now}: {name}: moved twice for one cause"));
            }
        });
    }

    /// Ends it. Who looks on has handles of the cluster, which would keep each other for ever.
    pub(crate) fn end(self) {
        self.node.agent().witness(|_| {});
        self.cluster.api().witness(|_| {});
        self.cluster.shutdown();
    }

    /// Looks at what happened so far.
    pub(crate) fn truth<T>(&self, look: impl FnOnce(&Truth) -> T) -> T {
        look(&self.truth.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The watchdog, with the settings that it has by default.
    pub(crate) fn watchdog(&self) -> InProcess {
        let (clock, skew) = (self.cluster.api().clock(), Arc::clone(&self.skew));
        let skewed = move || clock.now() + SignedDuration::from_millis(skew.load(Ordering::SeqCst));
        let clock = WallClock::made(skewed);
        watchdog(self.cluster.api(), &self.node, &self.token, &self.state_dir(), clock, 1)
    }

    /// Steps the node's wall clock, so that it is that far off.
    pub(crate) fn set_skew(&self, millis: i64) {
        self.skew.store(millis, Ordering::SeqCst);
    }

    /// Makes a pod whose IPAM gives it this address, unless there is one of its name.
    pub(crate) fn pod(&self, namespace: &str, name: &str, ip: &str) {
        let pod = json!({
            "metadata": {"namespace": namespace, "name": name, "annotations": {IP_ANNOTATION: ip}},
            "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app"}]},
        });
        drop(self.cluster.api().create(&PODS, pod));
    }

    /// The first stale endpoint that a pod waits for goes, and a new pod gets its address.
    pub(crate) fn reuse(&self, name: &str) {
        if let Some(Unhealed { ip, .. }) = self.unhealed().first() {
            let ip = *ip;
            self.node.agent().remove_endpoint(ip);
            self.pod("shop", name, &ip.to_string());
        }
    }

    /// The first pod that waits for a stale endpoint's address goes.
    pub(crate) fn leave(&self) {
        if let Some(Unhealed { namespace, name, .. }) = self.unhealed().first() {
            self.remove(namespace, name, false);
        }
    }

    /// People pause the watchdog, or let it go on.
    pub(crate) fn pause(&self, on: bool) {
        let annotation = json!({"cilium-leak-healer/paused": on.then_some("by hand")});
        self.hands_off("cilium-leak-healer", &json!({"annotations": annotation}));
        self.note(on, "paused");
    }

    /// The pods' namespace opts out, or does not any more.
    pub(crate) fn opt_out(&self, on: bool) {
        let label = json!({"cilium-leak-healer/opt-out": on.then_some("true")});
        self.hands_off("shop", &json!({"labels": label}));
        self.note(on, "opted out");
    }

    fn hands_off(&self, namespace: &str, metadata: &Value) {
        let patch = json!({"metadata": metadata});
        self.cluster.api().patch_merge(&NAMESPACES, "", namespace, &patch).expect("a namespace");
    }

    fn note(&self, on: bool, why: &'static str) {
        let now = self.cluster.now();
        let mut truth = self.truth.lock().unwrap_or_else(PoisonError::into_inner);
        if on {
            truth.hands_off.push(HandsOff { why, from: now, until: None });
        } else {
            let ends = truth.hands_off.iter_mut().filter(|it| it.why == why && it.until.is_none());
            ends.for_each(|it| it.until = Some(now));
        }
    }

    /// A set of one pod with this address.
    pub(crate) fn workload(&self, kind: WorkloadKind, name: &str, ip: &str) {
        let template = json!({
            "metadata": {"labels": {"app": name}, "annotations": {IP_ANNOTATION: ip}},
            "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app"}]},
        });
        let (namespace, name) = ("shop".to_owned(), name.to_owned());
        let workload = Workload { kind, namespace, name, replicas: 1, template };
        self.cluster.run_workload(workload).expect("a controller");
    }

    /// Deletes a pod; its endpoint stays behind where the CNI plugin's DEL gets lost.
    pub(crate) fn remove(&self, namespace: &str, name: &str, leak: bool) {
        if leak {
            self.node.kubelet().lose_next_del(namespace, name);
        }
        let options = DeleteOptions { grace_period_seconds: Some(1), ..DeleteOptions::default() };
        // It may be gone already.
        drop(self.cluster.api().delete(&PODS, namespace, name, &options));
    }

    pub(crate) fn pods(&self) -> Vec<Value> {
        self.cluster.api().list(&PODS, "", &format!("spec.nodeName={NODE}"), "").expect("pods")
    }

    pub(crate) fn runs(&self, namespace: &str, name: &str) -> bool {
        self.cluster
            .api()
            .get(&PODS, namespace, name)
            .is_ok_and(|pod| text(&pod, "/status/phase") == "Running")
    }

    /// Pods that wait for an address that a stale endpoint holds: what has to be healed.
    pub(crate) fn unhealed(&self) -> Vec<Unhealed> {
        let kubelet = self.node.kubelet();
        let live: HashMap<String, String> = self
            .pods()
            .iter()
            .filter(|pod| is_live(pod))
            .filter_map(|pod| Some((kubelet.sandbox_of(uid(pod))?, uid(pod).to_owned())))
            .collect();
        let waits = |pod: &Value| {
            let ip: IpAddr = pod["metadata"]["annotations"][IP_ANNOTATION].as_str()?.parse().ok()?;
            let waiting = text(pod, "/status/phase") == "Pending" && kubelet.sandbox_of(uid(pod)).is_none();
            let holder = self.node.agent().holder(ip).filter(|_| waiting)?;
            let container = text(&holder, "/status/external-identifiers/container-id").to_owned();
            let attachment = text(&holder, "/status/external-identifiers/cni-attachment-id");
            let of = if container.is_empty() { attachment.split(':').next()?.to_owned() } else { container };
            let stale = !of.is_empty() && !live.contains_key(&of);
            let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
            stale.then(|| Unhealed { namespace: namespace.to_owned(), name: name.to_owned(), ip })
        };
        self.pods().iter().filter_map(waits).collect()
    }

    /// What must hold at each step.
    pub(crate) fn invariants(&self) -> Result<(), String> {
        self.truth(|truth| {
            if let Some(violation) = truth.violations.first() {
                return Err(violation.clone());
            }
            let bounds = BoundOptions::default();
            within(&truth.disconnects, bounds.bucket(RemedyKind::DisconnectEndpoint))?;
            within(&truth.deletes, bounds.bucket(RemedyKind::DeletePod))?;
            // Each act is looked for once, within a second of its effect.
            let acts = truth.disconnects.len() + truth.deletes.len();
            if self.recorded.swap(acts, Ordering::SeqCst) == acts {
                return Ok(());
            }
            let kept = Ledger::read(&self.state_dir()).map_err(|error| format!("the ledger: {error}"))?;
            let intents = || kept.state().acts().iter().map(Act::intent);
            for it in if self.alone { truth.hands_off.as_slice() } else { &[] } {
                let within = |act: &&Act| {
                    act.began() > it.from + GRACE && it.until.is_none_or(|until| act.began() < until)
                };
                if let Some(act) = kept.state().acts().iter().find(within) {
                    return Err(format!(
                        "{}: an act began while it was {} (since {})",
                        act.began(),
                        it.why,
                        it.from
                    ));
                }
            }
            for (at, container) in &truth.disconnects {
                let known =
                    intents().any(|it| it.container.as_ref().is_some_and(|id| id.as_str() == container));
                if !known {
                    return Err(format!("{at}: the disconnect of {container} is not on record"));
                }
            }
            for (at, uid) in &truth.deletes {
                if !intents().any(|it| it.remedy == RemedyKind::DeletePod && it.pod_uid.as_str() == uid) {
                    return Err(format!("{at}: the deletion of {uid} is not on record"));
                }
            }
            Ok(())
        })
    }

    /// Lets the cluster go on for so long, a second at a time.
    pub(crate) async fn go_on(&self, time: Duration) -> Result<(), String> {
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_secs(1).min(end - tokio::time::Instant::now())).await;
            self.invariants()?;
        }
        Ok(())
    }
}

/// At most `burst + t / refill` within any time `t`.
fn within(acts: &[(Timestamp, String)], bucket: BucketOptions) -> Result<(), String> {
    for (first, (from, _)) in acts.iter().enumerate() {
        for (last, (to, _)) in acts.iter().enumerate().skip(first) {
            let seconds = to.duration_since(*from).as_secs_f64();
            let made = f64::from(u32::try_from(last - first + 1).unwrap_or(u32::MAX));
            if made > f64::from(bucket.burst) + seconds / bucket.refill.as_secs_f64() + 1.0 {
                return Err(format!("{made} acts from {from} to {to}: more than the budget"));
            }
        }
    }
    Ok(())
}
