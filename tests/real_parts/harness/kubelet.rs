//! Plays the kubelet of a node and its CNI plugin: sandboxes, the Events when there is none, and the pods' status.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    time::Duration,
};

use k8s_openapi::{
    api::{core::v1, core::v1::Pod, events},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::{
    agent::{AgentApi, endpoint},
    wait::eventually,
};

/// Quicker than the kubelet's 10 to 15 s.
const RETRY: Duration = Duration::from_secs(2);

/// Which of its two forms an Event is written in.
#[derive(Clone, Copy)]
pub enum EventForm {
    /// As the kubelet writes it: `core/v1`, dated by `lastTimestamp`.
    Core,
    /// `events.k8s.io/v1`, dated by `eventTime`.
    Series,
}

#[derive(Clone)]
pub struct Kubelet {
    pub client: Client,
    pub node: String,
    pub agent: AgentApi,
    /// How long until the next try.
    pub retry: Duration,
    pub event_form: EventForm,
}

impl Kubelet {
    pub fn new(client: Client, node: String, agent: AgentApi) -> Self {
        Self { client, node, agent, retry: RETRY, event_form: EventForm::Core }
    }

    /// Takes a pod on: it waits for its sandbox.
    pub async fn admit(&self, pod: &Pod) {
        let containers = containers(pod, &json!({"waiting": {"reason": "ContainerCreating"}}));
        let status = json!({
            "phase": "Pending",
            "startTime": Timestamp::now(),
            "conditions": conditions("False"),
            "containerStatuses": containers,
        });
        self.patch_status(pod, status).await;
    }

    /// One try to give the pod its sandbox and address; whether it got them.
    pub async fn try_sandbox(&self, pod: &Pod, ip: IpAddr) -> bool {
        let container = container_id();
        let answer = self.agent.put_endpoint(&endpoint(pod, &container, ip)).await;
        if answer.status == 201 {
            self.agent.labelled(&container).await;
            self.run(pod, ip).await;
            return true;
        }
        self.tell_failure(pod, &container, answer.status, answer.body.trim()).await;
        false
    }

    /// Tells that the agent refused the address once more, whatever the agent says.
    pub async fn refuse(&self, pod: &Pod, ip: IpAddr) {
        let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
        let body = format!("\"IP {family}:{ip} is already in use\"");
        self.tell_failure(pod, &container_id(), 400, &body).await;
    }

    async fn tell_failure(&self, pod: &Pod, container: &str, status: u16, body: &str) {
        let reason = match status {
            400 => "putEndpointIdInvalid",
            429 => "putEndpointIdTooManyRequests",
            _ => "putEndpointIdFailed",
        };
        let message = format!(
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \
             \"{container}\": plugin type=\"cilium-cni\" failed (add): unable to create endpoint: \
             [PUT /endpoint/{{id}}][{status}] {reason} {body}",
        );
        self.tell(pod, &message).await;
    }

    /// Starts a pod that is sure to get its sandbox.
    pub async fn start(&self, pod: &Pod, ip: IpAddr) {
        self.admit(pod).await;
        assert!(self.try_sandbox(pod, ip).await, "{} got no sandbox with {ip}", pod.name_any());
    }

    /// Takes a pod on and tries until it has its sandbox, in the background.
    pub fn keep_trying(&self, pod: &Pod, ip: IpAddr) -> JoinHandle<()> {
        let (kubelet, pod) = (self.clone(), pod.clone());
        tokio::spawn(async move {
            kubelet.admit(&pod).await;
            while !kubelet.try_sandbox(&pod, ip).await {
                sleep(kubelet.retry).await;
            }
        })
    }

    /// Reports the end of a pod, as the kubelet does once its containers are gone, and waits for it.
    pub async fn confirm_deleted(&self, pod: &Pod) {
        let pods = self.pods(pod);
        let (name, now) = (pod.name_any(), DeleteParams::default().grace_period(0));
        pods.delete(&name, &now).await.unwrap_or_else(|error| panic!("delete {name}: {error}"));
        let what = format!("the end of {name}");
        eventually(&what, async || {
            let now = pods.get_opt(&name).await.expect("read a pod");
            (now.and_then(|now| now.uid()) != pod.uid()).then_some(())
        })
        .await;
    }

    /// The sandbox is up and the container runs.
    pub async fn run(&self, pod: &Pod, ip: IpAddr) {
        let containers = containers(pod, &json!({"running": {"startedAt": Timestamp::now()}}));
        let status = json!({
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": conditions("True"),
            "containerStatuses": containers,
        });
        self.patch_status(pod, status).await;
    }

    pub async fn patch_status(&self, pod: &Pod, status: Value) {
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        let patched = self.pods(pod).patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
        // A pod that went meanwhile is none of the kubelet's business any more.
        if let Err(error) = patched
            && !matches!(&error, kube::Error::Api(status) if [404, 409].contains(&status.code))
        {
            panic!("status of {}: {error}", pod.name_any());
        }
    }

    async fn tell(&self, pod: &Pod, message: &str) {
        let namespace = pod.namespace().expect("a pod has a namespace");
        let name = format!("{}.{}", pod.name_any(), &container_id()[..16]);
        let metadata = json!({"name": name, "namespace": namespace});
        let about = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod.name_any(), "uid": pod.uid(),
        });
        match self.event_form {
            EventForm::Core => {
                let event = json!({
                    "metadata": metadata, "involvedObject": about, "type": "Warning",
                    "reason": "FailedCreatePodSandBox", "message": message, "count": 1,
                    "source": {"component": "kubelet", "host": self.node},
                    "firstTimestamp": seconds(), "lastTimestamp": seconds(),
                    "reportingComponent": "kubelet", "reportingInstance": self.node,
                });
                let event: v1::Event = serde_json::from_value(event).expect("an Event");
                let events = Api::namespaced(self.client.clone(), &namespace);
                events.create(&PostParams::default(), &event).await.expect("write an Event");
            }
            EventForm::Series => {
                let event = json!({
                    "metadata": metadata, "regarding": about, "type": "Warning", "action": "Create",
                    "reason": "FailedCreatePodSandBox", "note": message,
                    "eventTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
                    "reportingController": "kubelet", "reportingInstance": self.node,
                });
                let event: events::v1::Event = serde_json::from_value(event).expect("an Event");
                let events = Api::namespaced(self.client.clone(), &namespace);
                events.create(&PostParams::default(), &event).await.expect("write an Event");
            }
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().expect("a pod has a namespace"))
    }
}

fn containers(pod: &Pod, state: &Value) -> Vec<Value> {
    let running = state.get("running").is_some();
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
                "ready": running, "started": running, "state": state,
            })
        })
        .collect()
}

fn conditions(ready: &str) -> Value {
    let since = seconds();
    json!([
        {"type": "PodReadyToStartContainers", "status": ready, "lastTransitionTime": since},
        {"type": "Ready", "status": ready, "lastTransitionTime": since},
    ])
}

/// Kubernetes keeps most times in whole seconds.
fn seconds() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A fresh one, 64 hex digits.
pub fn container_id() -> String {
    let [a, b, c, d] = [(); 4].map(|()| RandomState::new().hash_one(()));
    format!("{a:016x}{b:016x}{c:016x}{d:016x}")
}
