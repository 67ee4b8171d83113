//! What the simulated agent answers on its socket: Cilium's REST API under `/v1`, byte for byte where transcripts tell.
//!
//! Must not know: faults, the kubelet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hyper::Response;
use serde_json::{Value, json};

use super::agent_state::{AgentShared, RemovedEndpoint, State};
use super::cilium_objects::ipcache;
use super::endpoint::{EndpointSpec, log_model};
use super::http::{Body, Call, answer, json_line};
use super::ipam::Cidr;
use super::model::{self, About, Moment};
use super::resource::{decode, query_pairs, text};

/// A failure of a handler: the text as a bare JSON string.
fn refuse(code: u16, message: impl Into<String>) -> Response<Body> {
    json_line(code, &Value::String(message.into()))
}

/// A failure before any handler: an object, without the line feed.
fn router(code: u16, number: u16, message: impl Into<String>) -> Response<Body> {
    answer(code, "application/json", json!({"code": number, "message": message.into()}).to_string())
}

fn empty(code: u16) -> Response<Body> {
    answer(code, "", "")
}

fn denied() -> Response<Body> {
    answer(
        403,
        "text/plain; charset=utf-8",
        "This API is administratively disabled. Contact your administrator for more details.",
    )
}

/// The agent's usual answer for a failing status.
pub(crate) fn usual(code: u16) -> Response<Body> {
    match code {
        403 => denied(),
        404 => empty(404),
        429 => refuse(
            429,
            "request would have to wait 998.093011ms to be served (maximum wait duration: 879.278844ms)",
        ),
        503 => refuse(503, "api not ready"),
        206 => json_line(206, &json!(1)),
        _ => refuse(code, "simulated failure"),
    }
}

/// Answers one request.
pub(crate) async fn route(agent: &AgentShared, call: &Call) -> Response<Body> {
    let Some(rest) = call.path.strip_prefix("/v1/") else {
        return not_found(call);
    };
    // A slash at the end does not count.
    let parts: Vec<&str> = rest.strip_suffix('/').unwrap_or(rest).split('/').collect();
    match (call.method.as_str(), parts.as_slice()) {
        ("GET", ["healthz"]) => healthz(agent, call),
        ("GET", ["config"]) => json_line(200, &about(agent, &agent.state(), model::config)),
        ("GET", ["ip"]) => ip(agent, call),
        ("GET", ["endpoint"]) => list(agent).await,
        ("DELETE", ["endpoint"]) => delete_container(agent, call).await,
        (method, ["endpoint", id, tail @ ..]) => {
            let Some(id) = decode(id) else {
                return not_found(call);
            };
            match (method, tail) {
                ("GET", []) => get(agent, &id, What::Model).await,
                ("GET", ["log"]) => get(agent, &id, What::Log).await,
                ("PUT", []) => put(agent, call).await,
                ("DELETE", []) => delete(agent, call, &id).await,
                (_, []) => router(
                    405,
                    405,
                    format!("method {method} is not allowed, but [DELETE,GET,PATCH,PUT] are"),
                ),
                _ => not_found(call),
            }
        }
        (method, ["endpoint"]) => {
            router(405, 405, format!("method {method} is not allowed, but [GET,DELETE] are"))
        }
        (method, ["healthz" | "ip" | "config"]) => {
            router(405, 405, format!("method {method} is not allowed, but [GET] are"))
        }
        _ => not_found(call),
    }
}

fn not_found(call: &Call) -> Response<Body> {
    router(404, 404, format!("path {} was not found", call.path))
}

enum What {
    Model,
    Log,
}

async fn get(agent: &AgentShared, id: &str, what: What) -> Response<Body> {
    let limiters = agent.limiters();
    let _turn = match limiters.get.wait().await {
        Ok(turn) => turn,
        Err(message) => return refuse(429, message),
    };
    let now = agent.now();
    let mut state = agent.state();
    let version = state.registry.version;
    let found = match state.registry.lookup(id) {
        Ok(found) => found,
        Err(error) => return refuse(400, error.to_string()),
    };
    let Some(endpoint) = found.and_then(|id| state.registry.by_id.get_mut(&id)) else {
        return empty(404);
    };
    endpoint.catch_up(now);
    match what {
        What::Model => json_line(200, &model::endpoint(version, endpoint, Moment::Later)),
        What::Log => json_line(200, &log_model(&endpoint.log).into()),
    }
}

async fn list(agent: &AgentShared) -> Response<Body> {
    let limiters = agent.limiters();
    match limiters.list.wait().await {
        Ok(_turn) => json_line(200, &agent.models().into()),
        Err(message) => refuse(429, message),
    }
}

/// What `state` may be.
const STATES: [&str; 9] = [
    "waiting-for-identity",
    "not-ready",
    "waiting-to-regenerate",
    "regenerating",
    "restoring",
    "ready",
    "disconnecting",
    "disconnected",
    "invalid",
];

async fn put(agent: &AgentShared, call: &Call) -> Response<Body> {
    let body = match call.json() {
        Ok(Value::Null) => return router(422, 602, "endpoint in body is required"),
        Ok(body) => body,
        Err(error) => {
            return router(400, 400, format!("parsing endpoint body from \"\" failed, because {error}"));
        }
    };
    if !body.is_object() {
        let why = "json: cannot unmarshal into Go value of type models.EndpointChangeRequest";
        return router(400, 400, format!("parsing endpoint body from \"\" failed, because {why}"));
    }
    match text(&body, "/state") {
        "" => return router(422, 602, "state in body is required"),
        state if STATES.contains(&state) => {}
        _ => return router(422, 606, format!("state in body should be one of [{}]", STATES.join(" "))),
    }
    if !agent.state().ready {
        return refuse(503, "api not ready");
    }
    let limiters = agent.limiters();
    let _turn = match limiters.create.wait().await {
        Ok(turn) => turn,
        Err(message) => return refuse(429, message),
    };
    let made = read_spec(&body)
        .map_err(|error| format!("unable to parse endpoint parameters: {error}"))
        .and_then(|spec| agent.create(spec));
    let id = match made {
        Ok(id) => id,
        Err(message) => return refuse(400, message),
    };
    let state = agent.state();
    match state.registry.by_id.get(&id) {
        Some(endpoint) => {
            json_line(201, &model::endpoint(state.registry.version, endpoint, Moment::Creation))
        }
        None => refuse(500, "request cancelled while resolving identity"),
    }
}

/// Reads what the CNI plugin sends.
fn read_spec(body: &Value) -> Result<EndpointSpec, String> {
    let unparsable = |address: &str| {
        let numbers = address.split('.').map(|part| part.parse::<u32>().ok());
        let too_large = numbers.clone().count() == 4 && numbers.flatten().any(|number| number > 255);
        let why = if too_large { "IPv4 field has value >255" } else { "unable to parse IP" };
        format!("ParseAddr(\"{address}\"): {why}")
    };
    let v4 = text(body, "/addressing/ipv4");
    let v6 = text(body, "/addressing/ipv6");
    let ipv4: Option<Ipv4Addr> =
        if v4.is_empty() { None } else { Some(v4.parse().map_err(|_| unparsable(v4))?) };
    let ipv6: Option<Ipv6Addr> =
        if v6.is_empty() { None } else { Some(v6.parse().map_err(|_| unparsable(v6))?) };
    let labels = body.get("labels").and_then(Value::as_array).into_iter().flatten();
    Ok(EndpointSpec {
        id: body.get("id").and_then(Value::as_u64).and_then(|id| u16::try_from(id).ok()).filter(|id| *id > 0),
        uid: text(body, "/k8s-uid").to_owned(),
        container_interface: text(body, "/container-interface-name").to_owned(),
        interface: text(body, "/interface-name").to_owned(),
        ipv4,
        ipv6,
        labels: labels.filter_map(Value::as_str).map(str::to_owned).collect(),
        legacy_identifiers: body.get("disable-legacy-identifiers").and_then(Value::as_bool) != Some(true),
        ..EndpointSpec::new(
            text(body, "/k8s-namespace"),
            text(body, "/k8s-pod-name"),
            text(body, "/container-id"),
            Ipv4Addr::UNSPECIFIED,
        )
    })
}

async fn delete(agent: &AgentShared, call: &Call, id: &str) -> Response<Body> {
    let found = {
        let state = agent.state();
        if let Some(refusal) = closed(&state) {
            return refusal;
        }
        match state.registry.lookup(id) {
            Ok(Some(found)) => found,
            // Not there: answered past the limiter.
            Ok(None) => return empty(404),
            Err(error) => return refuse(400, error.to_string()),
        }
    };
    let limiters = agent.limiters();
    let _turn = match limiters.delete.wait().await {
        Ok(turn) => turn,
        Err(message) => return refuse(429, message),
    };
    remove(agent, call, found)
}

fn remove(agent: &AgentShared, call: &Call, id: u16) -> Response<Body> {
    let removed = match agent.state().registry.by_id.get(&id) {
        None => return refuse(404, "endpoint not found"),
        Some(endpoint) if endpoint.reserved.is_some() => {
            return refuse(400, "endpoint may not be associated reserved labels");
        }
        Some(endpoint) => RemovedEndpoint {
            by: call.header("user-agent").to_owned(),
            namespace: endpoint.spec.namespace.clone(),
            pod: endpoint.spec.pod.clone(),
            uid: endpoint.spec.uid.clone(),
            container: endpoint.spec.container_id.clone(),
            addresses: endpoint.spec.addresses(),
        },
    };
    agent.witness.show(&removed);
    match agent.remove(id).map(|endpoint| endpoint.spec.cleanup_errors) {
        Some(0) => empty(200),
        Some(errors) => json_line(206, &json!(errors)),
        None => refuse(404, "endpoint not found"),
    }
}

async fn delete_container(agent: &AgentShared, call: &Call) -> Response<Body> {
    let container = call.json().map(|body| text(&body, "/container-id").to_owned()).unwrap_or_default();
    let found = {
        let state = agent.state();
        if let Some(refusal) = closed(&state) {
            return refusal;
        }
        state
            .registry
            .by_id
            .values()
            .find(|endpoint| endpoint.spec.container_id == container)
            .map(|endpoint| endpoint.id)
    };
    match found {
        _ if container.is_empty() => refuse(400, "invalid container id"),
        None => refuse(404, "endpoints not found"),
        Some(id) => match agent.limiters().delete.wait().await {
            Ok(_turn) => remove(agent, call, id),
            Err(message) => refuse(429, message),
        },
    }
}

fn closed(state: &State) -> Option<Response<Body>> {
    if state.delete_denied {
        Some(denied())
    } else if state.ready {
        None
    } else {
        Some(refuse(503, "api not ready"))
    }
}

fn about(agent: &AgentShared, state: &State, show: impl FnOnce(&About<'_>) -> Value) -> Value {
    let options = &agent.options;
    let kubernetes = format!("{} [linux/amd64]", agent.api.0.options.kubernetes_version);
    show(&About {
        version: options.version,
        node: &agent.node,
        pod_cidr: &state.ipam.cidr.to_string(),
        router: IpAddr::V4(options.router_ip),
        ipam_mode: &options.ipam_mode,
        datapath_mode: &options.datapath_mode,
        chaining_mode: &options.chaining_mode,
        allocations: &state.ipam.allocations,
        started: state.started,
        kubernetes: &kubernetes,
    })
}

fn healthz(agent: &AgentShared, call: &Call) -> Response<Body> {
    let brief = call.header("brief").eq_ignore_ascii_case("true");
    json_line(200, &about(agent, &agent.state(), if brief { model::healthz_brief } else { model::healthz }))
}

fn ip(agent: &AgentShared, call: &Call) -> Response<Body> {
    let query = query_pairs(&call.query);
    let wanted = query.iter().find(|(name, _)| name == "cidr").map(|(_, value)| value.as_str());
    let entries = match wanted {
        None => ipcache(agent, |_| true),
        Some(text) => {
            let range = text.parse::<Cidr>().ok();
            // IPv6 is asked for one address at a time.
            let single = text.strip_suffix("/128").and_then(|address| address.parse::<Ipv6Addr>().ok());
            if range.is_none() && single.is_none() {
                return refuse(400, format!("invalid CIDR address: {text}"));
            }
            ipcache(agent, |address| match address {
                IpAddr::V4(address) => range.is_some_and(|range| range.contains(address)),
                IpAddr::V6(address) => single == Some(address),
            })
        }
    };
    if entries.is_empty() { empty(404) } else { json_line(200, &entries.into()) }
}
