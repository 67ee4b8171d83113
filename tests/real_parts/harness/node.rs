//! A node for one test: its name, its agent, its kubelet, and a namespace for its pods.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU8, Ordering},
};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{
    agent::{Agent, AgentSpec},
    api_server::ApiServer,
    daemon::{Daemon, DaemonSpec, Mode, QUICK},
    kubelet::Kubelet,
    manifests::{NAMESPACE, Rights, agent_owner, kubeconfig_of},
    wait::eventually,
    workload::Workload,
};

/// The last numbers of the addresses that tests use.
const DISPUTED: [u8; 9] = [50, 51, 52, 53, 54, 55, 60, 90, 200];

pub struct Node {
    pub name: String,
    pub client: Client,
    pub namespace: String,
    pub pods: Api<Pod>,
    pub agent: Agent,
    pub kubelet: Kubelet,
    /// Its pod network is 10.244.`number`.0/24, so that no two tests share an address.
    number: u8,
    kubeconfigs: TempDir,
    admin_kubeconfig: PathBuf,
    audit_log: PathBuf,
    controllers: bool,
}

/// See [`Node::seat`].
pub struct Seat {
    pub pod: String,
    kubeconfig: PathBuf,
    pub state_directory: PathBuf,
}

impl Node {
    /// A node of the shared cluster whose agent has run for long.
    pub async fn new() -> Self {
        Self::of(ApiServer::shared(), false).await
    }

    /// The same with an ingress address.
    pub async fn with_ingress() -> Self {
        Self::of(ApiServer::shared(), true).await
    }

    pub async fn of(server: &ApiServer, ingress: bool) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        server.prepare().await;
        let client = server.admin().await;
        let (number, agent) = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let agent = Agent::start(AgentSpec {
                kubeconfig: server.kubeconfig.clone(),
                node: format!("node-{number}"),
                node_ip: format!("192.168.77.{number},fd00:77::{number}"),
                pod_cidr: format!("10.244.{number}.0/24,fd00:10:244:{number}::/64"),
                ingress,
            });
            if !holds_a_disputed_address(&client, number).await {
                break (number, agent);
            }
        };
        let (name, namespace) = (format!("node-{number}"), format!("tenant-{number}"));
        agent.started_long_ago();
        make_namespace(&client, &namespace, server.controllers).await;
        Self {
            kubelet: Kubelet::new(client.clone(), name.clone(), agent.api()),
            pods: Api::namespaced(client.clone(), &namespace),
            kubeconfigs: tempfile::tempdir().expect("make a directory"),
            admin_kubeconfig: server.kubeconfig.clone(),
            audit_log: server.audit_log.clone(),
            controllers: server.controllers,
            name,
            client,
            namespace,
            agent,
            number,
        }
    }

    /// For a person who may do anything.
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// An address of its pod network. The agent takes the low ones for itself.
    pub fn ip(&self, host: u8) -> IpAddr {
        Ipv4Addr::new(10, 244, self.number, host).into()
    }

    /// Its own address.
    pub fn address(&self) -> IpAddr {
        Ipv4Addr::new(192, 168, 77, self.number).into()
    }

    /// Its number among the nodes of this process.
    pub fn number(&self) -> u8 {
        self.number
    }

    fn cilium_nodes(&self) -> Api<DynamicObject> {
        cilium_nodes(&self.client)
    }

    /// The address that the agent has for the ingress.
    pub async fn ingress_address(&self) -> IpAddr {
        let own = self.cilium_nodes().get(&self.name).await.expect("the CiliumNode");
        let address = own.data.pointer("/spec/ingress/ipv4").and_then(Value::as_str);
        address.expect("an ingress address").parse().expect("an address")
    }

    /// Writes the address that the agent would have for its health endpoint, if it had one.
    pub async fn set_health_address(&self, ip: IpAddr) {
        let health = Patch::Merge(json!({"spec": {"health": {"ipv4": ip}}}));
        let patched = self.cilium_nodes().patch(&self.name, &PatchParams::default(), &health).await;
        patched.expect("patch the CiliumNode");
    }

    /// The same of IPv6.
    pub fn ipv6(&self, host: u16) -> IpAddr {
        // Written as in the range: the number's decimal digits.
        format!("fd00:10:244:{}::{host:x}", self.number).parse().expect("an address")
    }

    /// A pod as a template has it, bound to this node.
    pub fn pod_spec(&self) -> Value {
        let containers = json!([{"name": "app", "image": "app"}]);
        json!({"nodeName": self.name, "serviceAccountName": "default", "containers": containers})
    }

    pub async fn create_pod(&self, name: &str) -> Pod {
        let pod = json!({"metadata": {"name": name}, "spec": self.pod_spec()});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods
            .create(&PostParams::default(), &pod)
            .await
            .unwrap_or_else(|error| panic!("create {name}: {error}"))
    }

    /// A pod that runs with that address.
    pub async fn running_pod(&self, name: &str, ip: IpAddr) -> Pod {
        let pod = self.create_pod(name).await;
        self.kubelet.start(&pod, ip).await;
        pod
    }

    /// The leak: a pod ran with that address, and its end never reached the CNI plugin.
    pub async fn leak(&self, name: &str, ip: IpAddr) -> Pod {
        let pod = self.running_pod(name, ip).await;
        self.kubelet.confirm_deleted(&pod).await;
        pod
    }

    /// A new pod that tries to get that address, again and again.
    pub async fn waiting_pod(&self, name: &str, ip: IpAddr) -> (Pod, JoinHandle<()>) {
        let pod = self.create_pod(name).await;
        let tries = self.kubelet.keep_trying(&pod, ip);
        (pod, tries)
    }

    /// A controller whose pod is bound to this node.
    pub async fn workload(&self, kind: &'static str, name: &str) -> Workload {
        let place = (self.namespace.as_str(), self.pod_spec());
        Workload::create(&self.client, (kind, name), place, self.controllers).await
    }

    /// The pod of that name as it is now.
    pub async fn pod(&self, name: &str) -> Option<Pod> {
        self.pods.get_opt(name).await.expect("read a pod")
    }

    /// Waits until it runs with that address, which takes that an endpoint of its own holds it.
    pub async fn runs(&self, pod: &Pod, ip: IpAddr) {
        eventually(&format!("{} to run with {ip}", pod.name_any()), async || {
            let now = self.pod(&pod.name_any()).await?;
            let address = now.status.as_ref()?.pod_ip.clone()?;
            (now.uid() == pod.uid() && address == ip.to_string()).then_some(())
        })
        .await;
    }

    /// Waits for the first Event that tells the pod's refusal.
    pub async fn refused(&self, pod: &Pod) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let of_pod =
            ListParams::default().fields(&format!("involvedObject.uid={}", pod.uid().expect("a UID")));
        eventually(&format!("an Event that refuses {}", pod.name_any()), async || {
            let events = events.list(&of_pod).await.expect("list Events");
            let refuses =
                |event: &Event| event.message.as_ref().is_some_and(|text| text.contains("is already in use"));
            events.items.iter().any(refuses).then_some(())
        })
        .await;
    }

    /// The daemon in the mode `heal` with short times.
    pub async fn healer(&self) -> Daemon {
        self.daemon(Mode::Heal, Rights::Heal, QUICK).await
    }

    pub async fn daemon(&self, mode: Mode, rights: Rights, args: &[&str]) -> Daemon {
        Daemon::start(self.spec(&self.seat(rights).await, mode, args)).await
    }

    /// What of a daemon outlives its processes: its pod with the token, and its directory.
    pub async fn seat(&self, rights: Rights) -> Seat {
        let pod = self.daemon_pod(rights);
        let kubeconfig = self.kubeconfigs.path().join(&pod);
        fs::write(&kubeconfig, self.kubeconfig(rights).await).expect("write the daemon's kubeconfig");
        Seat { kubeconfig, state_directory: self.kubeconfigs.path().join(format!("{pod}-state")), pod }
    }

    /// A process for that seat.
    pub fn spec<'a>(&'a self, seat: &Seat, mode: Mode, args: &'a [&'a str]) -> DaemonSpec<'a> {
        DaemonSpec {
            node: &self.name,
            mode,
            kubeconfig: seat.kubeconfig.clone(),
            agent_directory: self.agent.directory().to_owned(),
            state_directory: seat.state_directory.clone(),
            pod: seat.pod.clone(),
            audit_log: self.audit_log.clone(),
            args,
            env: Vec::new(),
        }
    }

    /// The daemon as an installed DaemonSet runs it: its account, its mode, its environment.
    pub async fn daemon_of(&self, seat: &Seat, installed: &DaemonSet, args: &[&str]) -> Daemon {
        let template = installed.spec.template.spec.as_ref().expect("a pod's spec");
        assert_eq!(template.service_account_name.as_deref(), Some(Rights::Heal.account()));
        let variables = template.containers[0].env.iter().flatten();
        let env: Vec<_> = variables.filter_map(|it| Some((it.name.clone(), it.value.clone()?))).collect();
        let heals = env.iter().any(|(name, value)| name == "CILIUM_LEAK_HEALER_MODE" && value == "heal");
        let mode = if heals { Mode::Heal } else { Mode::Observe };
        Daemon::start(DaemonSpec { env, ..self.spec(seat, mode, args) }).await
    }

    /// A kubeconfig with the token of a pod on this node whose account has these rights.
    pub async fn kubeconfig(&self, rights: Rights) -> String {
        let mut spec = self.pod_spec();
        spec["serviceAccountName"] = rights.account().into();
        spec["hostNetwork"] = true.into();
        let pod = json!({"metadata": {"name": self.daemon_pod(rights)}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pod = pods.create(&PostParams::default(), &pod).await.expect("create the daemon's pod");
        self.kubelet.run(&pod, self.address()).await;
        kubeconfig_of(&self.client, &self.admin_kubeconfig, rights.account(), Some(&pod)).await
    }

    /// A kubeconfig with a token of that account that is bound to no pod, and so names no node.
    pub async fn kubeconfig_without_pod(&self, rights: Rights) -> String {
        kubeconfig_of(&self.client, &self.admin_kubeconfig, rights.account(), None).await
    }

    /// The pod of the daemon with these rights, as it is now.
    pub async fn daemons_pod(&self, rights: Rights) -> Pod {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        pods.get(&self.daemon_pod(rights)).await.expect("the daemon's pod")
    }

    /// The pod of the agent on this node, running, of the first template of its DaemonSet.
    pub async fn agent_pod(&self) -> Pod {
        let name = format!("cilium-{}", self.name);
        let owner = agent_owner(&self.client).await;
        let mut spec = self.pod_spec();
        spec["hostNetwork"] = true.into();
        let labels = json!({"k8s-app": "cilium", "pod-template-generation": "1"});
        let metadata = json!({"name": name, "labels": labels, "ownerReferences": [owner]});
        let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod");
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "kube-system");
        let pod = pods.create(&PostParams::default(), &pod).await.expect("create the agent's pod");
        self.kubelet.run(&pod, self.address()).await;
        pod
    }

    fn daemon_pod(&self, rights: Rights) -> String {
        format!("daemon-{}-{}", self.name, rights.account())
    }
}

fn cilium_nodes(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cilium.io", "v2", "CiliumNode"));
    Api::all_with(client.clone(), &kind)
}

/// Whether the agent has drawn, for itself, an address that tests dispute: its router's is a random one of the range.
async fn holds_a_disputed_address(client: &Client, number: u8) -> bool {
    let own = cilium_nodes(client).get(&format!("node-{number}")).await.expect("the CiliumNode");
    let own = own.data.to_string();
    DISPUTED.iter().any(|host| own.contains(&format!("\"10.244.{number}.{host}\"")))
}

async fn make_namespace(client: &Client, name: &str, controllers: bool) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
    namespaces.create(&PostParams::default(), &namespace).await.expect("create a namespace");
    if controllers {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
        eventually("the service account `default`", async || {
            accounts.get_opt("default").await.expect("read it")
        })
        .await;
    }
}
