//! The agent's REST API, version 1.20.

use hyper::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use cilium_leak_healer::sim::{Cluster, ClusterOptions, KubeletOptions, NodeOptions};

use super::{Seen, assert_alike};
use crate::harness::{AgentApi, Answer, Node, endpoint, eventually};

const A: &str = "aaaa1111bbbb2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888";
const B: &str = "bbbb9999cccc2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888";

#[tokio::test]
async fn the_agent() {
    let node = Node::with_ingress().await;
    let real = script(&node, &node.client, &node.agent.api()).await;

    let cluster = Cluster::start(ClusterOptions::default()).await.expect("a simulated cluster");
    let directory = tempfile::tempdir().expect("make a directory");
    let mut options = NodeOptions::new(node.name.clone(), node.number, directory.path());
    options.kubelet = KubeletOptions { enabled: false, ..KubeletOptions::default() };
    options.agent.health_ip = None;
    options.agent.ingress_ip = ingress_of(&node).await;
    let simulated_node = cluster.add_node(options).expect("a simulated node");
    let client = crate::harness::client_of(&cluster.kubeconfig()).await;
    let agent = AgentApi::at(simulated_node.agent().socket());
    let simulated = script(&node, &client, &agent).await;
    assert_alike(&real, &simulated);
}
