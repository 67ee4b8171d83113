//! The Cilium CNI plugin as the container runtime runs it: ADD and DEL, with the errors that end up in Events.
//!
//! Must not know: the API server.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use hyper::Method;
use hyper::header::USER_AGENT;
use serde_json::{Value, json};

use super::agent::Agent;
use super::endpoint::{AgentVersion, EndpointSpec};
use super::http::Reply;
use super::resource::{key, text};

/// The pod's annotation that fixes its addresses, `10.244.1.50` or `10.244.1.50,fd00::50`.
pub const IP_ANNOTATION: &str = "sim/ip";

/// A sandbox that has its network.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub container_id: String,
    pub interface: String,
    pub addresses: Vec<IpAddr>,
}

/// CNI ADD for a new sandbox of a pod. The error is what the runtime tells the kubelet.
pub(crate) async fn add(agent: &Agent, pod: &Value, timeout: Duration) -> Result<Sandbox, String> {
    let container_id = agent.0.api.0.lifecycle.random.hex(64);
    let failed = |why: &str| {
        format!(
            "rpc error: code = Unknown desc = failed to setup network for sandbox \"{container_id}\": plugin type=\"cilium-cni\" failed (add): {why}"
        )
    };
    let owner = key(text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    let addresses = allocate(agent, pod, &owner).map_err(|why| failed(&why))?;
    let outcome = put(agent, pod, &container_id, &addresses, timeout).await;
    match outcome {
        Ok(()) => Ok(Sandbox { container_id, interface: "eth0".to_owned(), addresses }),
        Err(why) => {
            let mut state = agent.0.state();
            for address in addresses {
                state.ipam.release(address, &owner);
            }
            Err(failed(&why))
        }
    }
}

fn allocate(agent: &Agent, pod: &Value, owner: &str) -> Result<Vec<IpAddr>, String> {
    let mut state = agent.0.state();
    let fixed =
        pod.pointer("/metadata/annotations").and_then(|all| all.get(IP_ANNOTATION)).and_then(Value::as_str);
    if let Some(fixed) = fixed {
        let addresses: Vec<IpAddr> =
            fixed.split(',').filter_map(|address| address.trim().parse().ok()).collect();
        for address in &addresses {
            state.ipam.claim(*address, owner);
        }
        return Ok(addresses);
    }
    match state.ipam.allocate(owner) {
        Some(address) => Ok(vec![address.into()]),
        None => Err("unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure \"range is full\"".to_owned()),
    }
}

async fn put(
    agent: &Agent,
    pod: &Value,
    container_id: &str,
    addresses: &[IpAddr],
    timeout: Duration,
) -> Result<(), String> {
    let mut addressing = json!({});
    for address in addresses {
        addressing[if address.is_ipv4() { "ipv4" } else { "ipv6" }] = address.to_string().into();
    }
    let body = json!({
        "id": 0, "container-id": container_id, "container-interface-name": "eth0",
        "interface-name": format!("lxc{}", &container_id[..8]), "interface-index": 0,
        "mac": "0a:00:00:00:00:01", "host-mac": "5e:b8:ca:47:69:b7",
        "k8s-namespace": text(pod, "/metadata/namespace"), "k8s-pod-name": text(pod, "/metadata/name"), "k8s-uid": text(pod, "/metadata/uid"),
        "state": "waiting-for-identity", "sync-build-endpoint": true, "addressing": addressing,
    });
    let reply = ask(agent, Method::PUT, "/v1/endpoint/cilium-local:0", &body, timeout).await?;
    if reply.status == 201 {
        Ok(())
    } else {
        Err(format!("unable to create endpoint: {}", put_error(agent.version(), &reply)))
    }
}

/// CNI DEL. An endpoint that is gone is fine.
pub(crate) async fn del(agent: &Agent, sandbox: &Sandbox, timeout: Duration) -> Result<(), String> {
    let id = if agent.version() == AgentVersion::V1_14 {
        format!("container-id:{}", sandbox.container_id)
    } else {
        format!("cni-attachment-id:{}:{}", sandbox.container_id, sandbox.interface)
    };
    let reply = ask(agent, Method::DELETE, &format!("/v1/endpoint/{id}"), &Value::Null, timeout).await?;
    match reply.status {
        200 | 206 | 404 => Ok(()),
        code => {
            Err(format!("[DELETE /endpoint/{{id}}][{code}] {}", String::from_utf8_lossy(&reply.body).trim()))
        }
    }
}

/// The sandbox of a pod as the agent knows it.
pub(crate) fn find(agent: &Agent, pod: &str, uid: &str) -> Option<Sandbox> {
    let state = agent.0.state();
    let of_pod = |spec: &EndpointSpec| spec.pod_key() == pod && spec.uid == uid;
    let spec = &state
        .registry
        .by_id
        .values()
        .find(|endpoint| endpoint.reserved.is_none() && of_pod(&endpoint.spec))?
        .spec;
    Some(Sandbox {
        container_id: spec.container_id.clone(),
        interface: spec.container_interface.clone(),
        addresses: spec.ipv4.map(IpAddr::V4).into_iter().chain(spec.ipv6.map(IpAddr::V6)).collect(),
    })
}

async fn ask(
    agent: &Agent,
    method: Method,
    uri: &str,
    body: &Value,
    timeout: Duration,
) -> Result<Reply, String> {
    let headers = [(USER_AGENT, "cilium-cni")];
    let body = (!body.is_null()).then_some(body);
    match tokio::time::timeout(timeout, agent.call(method, uri, &headers, body)).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(match error.kind() {
            io::ErrorKind::NotFound => no_agent("no such file or directory"),
            io::ErrorKind::ConnectionRefused => no_agent("connection refused"),
            _ => format!(
                "unable to create endpoint: Put \"http://localhost/v1/endpoint/cilium-local:0\": {error}"
            ),
        }),
        Err(_) => Err("unable to create endpoint: Cilium API client timeout exceeded".to_owned()),
    }
}

fn no_agent(why: &str) -> String {
    format!(
        "unable to connect to Cilium agent: failed to create cilium agent client after 30.000000 seconds timeout: Get \"http://localhost/v1/config\": dial unix /var/run/cilium/cilium.sock: connect: {why}\nIs the agent running?"
    )
}

/// An error of `PUT /endpoint/{id}` as the plugin's generated client words it; older ones decode and print the text.
fn put_error(version: AgentVersion, reply: &Reply) -> String {
    let body = String::from_utf8_lossy(&reply.body);
    let json = body.trim();
    let payload = match (version, serde_json::from_str::<String>(json)) {
        (AgentVersion::V1_14, Ok(text)) => format!(" {text}"),
        _ => json.to_owned(),
    };
    let code = reply.status;
    match code {
        400 => format!("[PUT /endpoint/{{id}}][400] putEndpointIdInvalid {payload}"),
        403 => "[PUT /endpoint/{id}][403] putEndpointIdForbidden".to_owned(),
        409 => "[PUT /endpoint/{id}][409] putEndpointIdExists".to_owned(),
        429 => "[PUT /endpoint/{id}][429] putEndpointIdTooManyRequests".to_owned(),
        500 => format!("[PUT /endpoint/{{id}}][500] putEndpointIdFailed {payload}"),
        503 => "[PUT /endpoint/{id}][503] putEndpointIdServiceUnavailable".to_owned(),
        _ => format!(
            "response status code does not match any response statuses defined for this endpoint in the swagger spec (status {code}): {{}}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use hyper::HeaderMap;

    use super::*;

    #[test]
    fn the_refusal_is_worded_by_the_plugins_version() {
        let reply = Reply {
            status: 400,
            headers: HeaderMap::new(),
            body: "\"IP ipv4:10.244.1.12 is already in use\"\n".into(),
        };
        assert_eq!(
            put_error(AgentVersion::V1_20, &reply),
            "[PUT /endpoint/{id}][400] putEndpointIdInvalid \"IP ipv4:10.244.1.12 is already in use\""
        );
        assert_eq!(
            put_error(AgentVersion::V1_14, &reply),
            "[PUT /endpoint/{id}][400] putEndpointIdInvalid  IP ipv4:10.244.1.12 is already in use"
        );
    }
}
