//! The agent's REST API, version 1.20.

use cilium_leak_healer::sim::{AgentVersion, Cluster, ClusterOptions, Node as SimulatedNode, NodeOptions};
use hyper::Method;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use super::{Seen, assert_alike, masked};
use crate::harness::{AgentApi, Answer, Node, client_of, endpoint, eventually};

const A: &str = "aaaa1111bbbb2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888";
const B: &str = "bbbb9999cccc2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888";
const PUT: &str = "/v1/endpoint/cilium-local:0";

#[tokio::test]
async fn the_agents_answers() {
    let node = Node::with_ingress().await;
    let ingress = node.ingress_address().await;
    let real = Script { client: node.client.clone(), agent: node.agent.api(), node: &node, seen: Vec::new() };
    let real = real.run().await;

    let cluster = Cluster::start(ClusterOptions::default()).await.expect("a simulated cluster");
    let directory = tempfile::tempdir().expect("make a directory");
    let mut options = NodeOptions::new(node.name.clone(), node.number(), directory.path());
    options.node_ip = node.address();
    options.kubelet.enabled = false;
    options.agent.version = AgentVersion::V1_20;
    options.agent.health_ip = None;
    options.agent.ingress_ip = Some(ingress.to_string().parse().expect("an IPv4 address"));
    let simulated: SimulatedNode = cluster.add_node(options).expect("a simulated node");
    let client = client_of(&cluster.kubeconfig()).await;
    let namespace =
        serde_json::from_value(json!({"metadata": {"name": node.namespace}})).expect("a namespace");
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .expect("create it");
    let agent = AgentApi::at(simulated.agent().socket());
    let simulated = Script { client, agent, node: &node, seen: Vec::new() };
    assert_alike(&real, &simulated.run().await);
}

struct Script<'a> {
    client: Client,
    agent: AgentApi,
    node: &'a Node,
    seen: Vec<Seen>,
}

impl Script<'_> {
    async fn run(mut self) -> Vec<Seen> {
        let a = self.create_pod("pod-a").await;
        let b = self.create_pod("pod-b").await;
        self.pod_lives(&a).await;
        self.refusals(&a, &b).await;
        self.ids().await;
        self.pod_goes(&b).await;
        self.ingress(&b).await;
        self.seen
    }

    fn by_ip(&self) -> String {
        format!("/v1/endpoint/ipv4:{}", self.node.ip(50))
    }

    async fn pod_lives(&mut self, a: &Pod) {
        let (by_ip, ip) = (self.by_ip(), self.node.ip(50));
        let in_ipcache = format!("/v1/ip?cidr={ip}/32");
        for path in [&by_ip, &format!("{by_ip}/log"), &in_ipcache] {
            self.text(Method::GET, path, None).await;
        }
        let made = self.put_known(&endpoint(a, A, ip)).await;
        self.seen.push(Seen::part("PUT of pod-a", &made, &["/status/external-identifiers"]));
        self.held("alive").await;
        let log = self.call(Method::GET, &format!("{by_ip}/log"), None).await;
        let mut seen = Seen::status("the log", &log);
        for entry in log.json().as_array().expect("a log") {
            // Whether it had policies to write depends on its haste.
            if entry["message"] != "Policy Map changes applied" {
                seen.body.insert(json!([entry["state"], entry["message"]]).to_string());
            }
        }
        self.seen.push(seen);
        eventually("the address in the agent's ipcache", async || {
            (self.call(Method::GET, &in_ipcache, None).await.status == 200).then_some(())
        })
        .await;
        self.shape(&in_ipcache, &["/0/cidr", "/0/metadata", "/0/hostIP"]).await;
        self.shape(&format!("/v1/endpoint/cep-name:{}%2Fpod-a", self.node.namespace), &[]).await;
        self.shape(&format!("/v1/endpoint/cni-attachment-id:{A}:eth0"), &[]).await;
        self.values("/v1/config", &["/status/ipam-mode", "/status/datapathMode"]).await;
        self.values("/v1/healthz", &["/cni-chaining/mode", "/cilium/state"]).await;
    }

    async fn refusals(&mut self, a: &Pod, b: &Pod) {
        let same_address = endpoint(b, B, self.node.ip(50));
        let same_container = endpoint(a, A, self.node.ip(51));
        let without_state = json!({"addressing": {"ipv4": self.node.ip(51)}});
        for body in [Some(&same_address), Some(&same_container), Some(&without_state), None] {
            self.text(Method::PUT, PUT, body).await;
        }
        let mut unparsable = same_address.clone();
        unparsable["addressing"]["ipv4"] = "10.0.0.x".into();
        self.status(Method::PUT, PUT, Some(&unparsable)).await;
    }

    /// Look-ups by what is no id, or that of nothing.
    async fn ids(&mut self) {
        let raw_slash = format!("cep-name:{}/pod-a", self.node.namespace);
        for id in [
            "ipv4:10.0.0.1",
            "ipv4:garbage",
            "ipv4:010.244.1.50",
            "ipv6:FD00:10:244:1::50",
            "ipv6:::ffff:10.244.1.50",
            &format!("container-id:{A}"),
            &format!("cni-attachment-id:{A}"),
            &raw_slash,
            "cep-name:a%2Fb",
            "pod-name:a%2Fb",
            "nonsense:1",
            "nonsense",
            "0",
            "65000",
            "99999999",
            "-1",
        ] {
            self.text(Method::GET, &format!("/v1/endpoint/{id}"), None).await;
        }
        for path in ["/v1/nothing", "/nothing", "/v1/endpoint/1/nothing", "/v1/ip?cidr=garbage"] {
            self.text(Method::GET, path, None).await;
        }
        // The list of all.
        self.status(Method::GET, "/v1/endpoint/", None).await;
        self.status(Method::POST, &self.by_ip(), None).await;
    }

    async fn pod_goes(&mut self, b: &Pod) {
        self.delete_pod("pod-a").await;
        self.held("leaked").await;
        let by_ip = self.by_ip();
        for path in [
            format!("/v1/endpoint/cni-attachment-id:{A}"),
            format!("/v1/endpoint/container-id:{A}"),
            format!("/v1/endpoint/cni-attachment-id:{A}:eth0"),
            format!("/v1/endpoint/cni-attachment-id:{A}:eth0"),
            by_ip.clone(),
        ] {
            self.text(Method::DELETE, &path, None).await;
        }
        self.text(Method::GET, &by_ip, None).await;
        let made = self.call(Method::PUT, PUT, Some(&endpoint(b, B, self.node.ip(50)))).await;
        self.seen.push(Seen::part("PUT of pod-b", &made, &["/status/external-identifiers"]));
    }

    async fn ingress(&mut self, b: &Pod) {
        let ip = self.node.ingress_address().await;
        let by_ip = format!("/v1/endpoint/ipv4:{ip}");
        self.values(&by_ip, &["/status/identity", "/status/external-identifiers"]).await;
        self.text(Method::PUT, PUT, Some(&endpoint(b, A, ip))).await;
        self.text(Method::DELETE, &by_ip, None).await;
    }

    /// Makes an endpoint once the agent has heard of the pod.
    async fn put_known(&self, body: &Value) -> Answer {
        eventually("an endpoint with its pod's labels", async || {
            let made = self.agent.put_endpoint(body).await;
            if made.status == 201 && !made.body.contains("reserved:init") {
                return Some(made);
            }
            self.agent.delete_endpoint(&format!("{A}:eth0")).await;
            None
        })
        .await
    }

    /// The holder, with all that names its owner.
    async fn held(&mut self, when: &str) {
        let answer = self.call(Method::GET, &self.by_ip(), None).await;
        let parts = [
            "/status/external-identifiers",
            "/status/networking/addressing",
            "/status/networking/interface-name",
            "/status/state",
            "/status/labels",
            "/status/identity/labels",
        ];
        let mut seen = Seen::shape(format!("the holder, its pod {when}"), &answer, &parts);
        for controller in answer.json()["status"]["controllers"].as_array().expect("controllers") {
            seen.body.insert(masked(&format!("controller {}", controller["name"])));
        }
        self.seen.push(seen);
    }

    async fn text(&mut self, method: Method, path: &str, body: Option<&Value>) {
        let answer = self.call(method.clone(), path, body).await;
        self.seen.push(Seen::text(self.step(&method, path), &answer));
    }

    async fn status(&mut self, method: Method, path: &str, body: Option<&Value>) {
        let answer = self.call(method.clone(), path, body).await;
        self.seen.push(Seen::status(self.step(&method, path), &answer));
    }

    async fn shape(&mut self, path: &str, values: &[&str]) {
        let answer = self.call(Method::GET, path, None).await;
        self.seen.push(Seen::shape(self.step(&Method::GET, path), &answer, values));
    }

    /// These values alone.
    async fn values(&mut self, path: &str, values: &[&str]) {
        let answer = self.call(Method::GET, path, None).await;
        self.seen.push(Seen::part(path, &answer, values));
    }

    fn step(&self, method: &Method, path: &str) -> String {
        format!("{}: {method} {path}", self.seen.len())
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.agent.call(method, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.node.namespace)
    }

    async fn create_pod(&self, name: &str) -> Pod {
        let pod = json!({"metadata": {"name": name, "labels": {"app": "db"}}, "spec": self.node.pod_spec()});
        let pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("create a pod")
    }

    async fn delete_pod(&self, name: &str) {
        let now = kube::api::DeleteParams::default().grace_period(0);
        self.pods().delete(name, &now).await.expect("delete a pod");
    }
}
