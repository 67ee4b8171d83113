//! The agent's REST API, version 1.20.

use cilium_leak_healer::sim::{AgentVersion, Cluster, ClusterOptions, Node as SimulatedNode, NodeOptions};
use hyper::Method;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use super::{Seen, assert_alike};
use crate::harness::{AgentApi, Answer, Node, client_of, endpoint};

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
        let ip = self.node.ip(50);
        let by_ip = format!("/v1/endpoint/ipv4:{ip}");
        let a = self.create_pod("pod-a").await;
        let b = self.create_pod("pod-b").await;
        let (body_a, body_b) = (endpoint(&a, A, ip), endpoint(&b, B, ip));

        self.text(Method::GET, &by_ip, None).await;
        self.text(Method::GET, &format!("{by_ip}/log"), None).await;
        self.text(Method::GET, &format!("/v1/ip?cidr={ip}/32"), None).await;
        let made = self.call(Method::PUT, PUT, Some(&body_a)).await;
        self.seen.push(Seen::shape(
            "PUT of pod-a",
            &made,
            &["/status/external-identifiers", "/status/networking"],
        ));
        self.held(&by_ip, "alive").await;
        let log = self.call(Method::GET, &format!("{by_ip}/log"), None).await;
        let messages: Value = log
            .json()
            .as_array()
            .expect("a log")
            .iter()
            .map(|entry| json!([entry["state"], entry["message"]]))
            .collect();
        self.seen.push(Seen::text("the log", &Answer { body: messages.to_string(), ..log }));
        self.shape(Method::GET, &format!("/v1/ip?cidr={ip}/32"), &["/0/cidr", "/0/metadata", "/0/hostIP"])
            .await;
        self.shape(Method::GET, &format!("/v1/endpoint/cep-name:{}%2Fpod-a", self.node.namespace), &[]).await;
        self.shape(Method::GET, &format!("/v1/endpoint/cni-attachment-id:{A}:eth0"), &[]).await;

        // Refusals.
        self.text(Method::PUT, PUT, Some(&body_b)).await;
        self.text(Method::PUT, PUT, Some(&endpoint(&a, A, self.node.ip(51)))).await;
        self.text(Method::PUT, PUT, Some(&json!({"addressing": {"ipv4": ip}}))).await;
        self.text(Method::PUT, PUT, Some(&Value::Null)).await;
        let mut unparsable = body_b.clone();
        unparsable["addressing"]["ipv4"] = "10.0.0.x".into();
        self.text(Method::PUT, PUT, Some(&unparsable)).await;

        // Ids that are none.
        let namespace = &self.node.namespace.clone();
        for id in [
            "ipv4:10.0.0.1",
            "ipv4:garbage",
            "ipv4:010.244.1.50",
            "ipv6:FD00:10:244:1::50",
            "ipv6:::ffff:10.244.1.50",
            &format!("container-id:{A}"),
            "pod-name:a%2Fb",
            "nonsense:1",
            "nonsense",
            "0",
            "65000",
            "99999999",
            "-1",
            &format!("cni-attachment-id:{A}"),
            &format!("cep-name:{namespace}/pod-a"),
            "cep-name:a%2Fb",
        ] {
            self.text(Method::GET, &format!("/v1/endpoint/{id}"), None).await;
        }
        for path in ["/v1/endpoint/", "/v1/nothing", "/nothing", "/v1/endpoint/1/nothing"] {
            let answer = self.call(Method::GET, path, None).await;
            self.seen.push(if answer.status == 200 {
                Seen::text(path, &Answer { body: String::new(), ..answer })
            } else {
                Seen::text(path, &answer)
            });
        }
        self.text(Method::POST, &by_ip, None).await;
        self.text(Method::GET, "/v1/ip?cidr=garbage", None).await;

        // What the watchdog asks of the agent itself.
        self.values(Method::GET, "/v1/config", &["/status/ipam-mode", "/status/datapathMode"]).await;
        self.values(Method::GET, "/v1/healthz", &["/cni-chaining/mode", "/cilium/state"]).await;

        // The pod goes, the endpoint stays.
        self.delete_pod("pod-a").await;
        self.held(&by_ip, "leaked").await;
        self.text(Method::DELETE, &format!("/v1/endpoint/cni-attachment-id:{A}"), None).await;
        self.text(Method::DELETE, &format!("/v1/endpoint/container-id:{A}"), None).await;
        self.text(Method::DELETE, &format!("/v1/endpoint/cni-attachment-id:{A}:eth0"), None).await;
        self.text(Method::DELETE, &format!("/v1/endpoint/cni-attachment-id:{A}:eth0"), None).await;
        self.text(Method::DELETE, &by_ip, None).await;
        self.text(Method::GET, &by_ip, None).await;
        let made = self.call(Method::PUT, PUT, Some(&body_b)).await;
        self.seen.push(Seen::shape("PUT of pod-b", &made, &["/status/external-identifiers"]));

        let ingress = self.node.ingress_address().await;
        self.shape(
            Method::GET,
            &format!("/v1/endpoint/ipv4:{ingress}"),
            &["/status/identity", "/status/external-identifiers"],
        )
        .await;
        self.text(Method::PUT, PUT, Some(&endpoint(&b, A, ingress))).await;
        self.text(Method::DELETE, &format!("/v1/endpoint/ipv4:{ingress}"), None).await;
        self.seen
    }

    /// The holder, with all that names its owner.
    async fn held(&mut self, path: &str, when: &str) {
        let answer = self.call(Method::GET, path, None).await;
        let parts = [
            "/status/external-identifiers",
            "/status/networking",
            "/status/state",
            "/status/labels",
            "/status/identity/labels",
        ];
        let mut seen = Seen::shape(format!("GET {path} ({when})"), &answer, &parts);
        for controller in answer.json()["status"]["controllers"].as_array().expect("controllers") {
            seen.body.insert(super::masked(&format!("controller {}", controller["name"])));
        }
        self.seen.push(seen);
    }

    async fn text(&mut self, method: Method, path: &str, body: Option<&Value>) {
        let answer = self.call(method.clone(), path, body).await;
        self.seen.push(Seen::text(super::masked(&format!("{method} {path} {}", body.unwrap_or(&Value::Null))), &answer));
    }

    async fn shape(&mut self, method: Method, path: &str, values: &[&str]) {
        let answer = self.call(method.clone(), path, None).await;
        self.seen.push(Seen::shape(format!("{method} {path}"), &answer, values));
    }

    /// These values alone: of the rest the watchdog reads nothing.
    async fn values(&mut self, method: Method, path: &str, values: &[&str]) {
        let answer = self.call(method.clone(), path, None).await;
        let body: Value =
            values.iter().map(|pointer| json!([pointer, answer.json().pointer(pointer)])).collect();
        self.seen.push(Seen::text(format!("{method} {path}"), &Answer { body: body.to_string(), ..answer }));
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
