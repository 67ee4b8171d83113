//! The objects that an agent writes into the API server: its CiliumNode, and the CiliumEndpoints of its endpoints.
//!
//! Must not know: HTTP, the kubelet.

use std::sync::Weak;
use std::time::Duration;

use serde_json::{Value, json};

use super::agent_state::AgentShared;
use super::endpoint::Endpoint;
use super::lifecycle::DeleteOptions;
use super::model::{addressing, external_identifiers};
use super::resource::{CILIUM_ENDPOINTS, CILIUM_NODES, NODES, PODS, text};

/// Writes the node's CiliumNode, or brings it up to date.
pub(crate) fn write_cilium_node(agent: &AgentShared) {
    let (health, cidr) = {
        let state = agent.state();
        (state.health_ip, state.ipam.cidr)
    };
    let pair = |address: Option<std::net::Ipv4Addr>| {
        address.map_or_else(|| json!({}), |address| json!({"ipv4": address.to_string()}))
    };
    let spec = json!({
        "addresses": [
            {"ip": agent.node_ip.to_string(), "type": "InternalIP"},
            {"ip": agent.options.router_ip.to_string(), "type": "CiliumInternalIP"},
        ],
        "alibaba-cloud": {}, "azure": {}, "encryption": {}, "eni": {},
        "health": pair(health),
        "ingress": pair(agent.options.ingress_ip),
        "ipam": {"podCIDRs": [cidr.to_string()], "pools": {}},
    });
    let owner = agent.api.get(&NODES, "", &agent.node).ok().map(|node| {
        json!([{"apiVersion": "v1", "kind": "Node", "name": agent.node, "uid": text(&node, "/metadata/uid")}])
    });
    let mut object = json!({"metadata": {"name": agent.node}, "spec": spec});
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = owner;
    }
    if agent.api.create(&CILIUM_NODES, object).is_err() {
        // A merge would keep a health address that is no more.
        if let Ok(mut present) = agent.api.get(&CILIUM_NODES, "", &agent.node) {
            present["spec"] = spec;
            let _ = agent.api.update(&CILIUM_NODES, &present);
        }
    }
}

fn status(agent: &AgentShared, endpoint: &Endpoint) -> Value {
    json!({
        "encryption": {},
        "external-identifiers": external_identifiers(agent.options.version, endpoint),
        "id": endpoint.id,
        "identity": {"id": endpoint.identity, "labels": endpoint.labels},
        "networking": {"addressing": addressing(endpoint), "node": agent.node_ip.to_string()},
        "service-account": "default",
        "state": endpoint.state,
    })
}

fn writes_endpoints(agent: &AgentShared) -> bool {
    agent.options.sync_cilium_endpoints && agent.api.0.serves(&CILIUM_ENDPOINTS)
}

/// Writes the CiliumEndpoint of an endpoint whose pod was found; one of that name is adopted, old owner and all.
pub(crate) fn write_cilium_endpoint(agent: &AgentShared, id: u16, pod: &Value) {
    let Some(endpoint) = agent.state().registry.by_id.get(&id).cloned() else {
        return;
    };
    if !writes_endpoints(agent) {
        return;
    }
    let (namespace, name) = (&endpoint.spec.namespace, &endpoint.spec.pod);
    let object = json!({
        "metadata": {
            "name": name, "namespace": namespace, "generation": 1,
            "labels": pod.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({})),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": endpoint.spec.uid}],
        },
        "status": status(agent, &endpoint),
    });
    let written = agent.api.create(&CILIUM_ENDPOINTS, object).or_else(|_| {
        let mut present = agent.api.get(&CILIUM_ENDPOINTS, namespace, name)?;
        present["status"] = status(agent, &endpoint);
        agent.api.update(&CILIUM_ENDPOINTS, &present)
    });
    if let (Ok(written), Some(endpoint)) = (written, agent.state().registry.by_id.get_mut(&id)) {
        endpoint.cep_uid = Some(text(&written, "/metadata/uid").to_owned());
    }
}

/// Deletes the CiliumEndpoint of an endpoint that was removed, if it is still that one.
pub(crate) fn delete_cilium_endpoint(agent: &AgentShared, endpoint: &Endpoint) {
    if endpoint.cep_uid.is_some() {
        let options = DeleteOptions { uid: endpoint.cep_uid.clone(), ..DeleteOptions::default() };
        // Gone with its pod already, or another's by now.
        let _ = agent.api.delete(&CILIUM_ENDPOINTS, &endpoint.spec.namespace, &endpoint.spec.pod, &options);
    }
}

/// Writes CiliumEndpoints that went missing again, for ever: with the UID of a pod that may be long dead.
pub(crate) async fn resync(agent: Weak<AgentShared>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(agent) = agent.upgrade() else { return };
        if !writes_endpoints(&agent) {
            continue;
        }
        let written: Vec<Endpoint> = agent
            .state()
            .registry
            .by_id
            .values()
            .filter(|endpoint| endpoint.cep_uid.is_some())
            .cloned()
            .collect();
        for endpoint in written {
            let spec = &endpoint.spec;
            if agent.api.get(&CILIUM_ENDPOINTS, &spec.namespace, &spec.pod).is_ok() {
                continue;
            }
            // Labels are the pod's last ones; they matter to nobody here.
            let pod = agent.api.get(&PODS, &spec.namespace, &spec.pod).unwrap_or_default();
            if let Some(endpoint) = agent.state().registry.by_id.get_mut(&endpoint.id) {
                endpoint.cep_failures += 1;
            }
            write_cilium_endpoint(&agent, endpoint.id, &pod);
        }
    }
}

/// Who has an address in the ipcache: what the CiliumEndpoints say.
pub(crate) fn ipcache(agent: &AgentShared, matches: impl Fn(std::net::IpAddr) -> bool) -> Vec<Value> {
    let mut entries = Vec::new();
    for object in agent.api.list(&CILIUM_ENDPOINTS, "", "", "").unwrap_or_default() {
        let pairs =
            object.pointer("/status/networking/addressing").and_then(Value::as_array).into_iter().flatten();
        for address in pairs
            .flat_map(|pair| [text(pair, "/ipv4"), text(pair, "/ipv6")])
            .filter_map(|ip| ip.parse::<std::net::IpAddr>().ok())
        {
            if matches(address) {
                entries.push(json!({
                    "cidr": format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 }),
                    "hostIP": text(&object, "/status/networking/node"),
                    "identity": object.pointer("/status/identity/id").cloned().unwrap_or_default(),
                    "metadata": {"name": text(&object, "/metadata/name"), "namespace": text(&object, "/metadata/namespace"), "source": "custom-resource"},
                }));
            }
        }
    }
    entries
}
