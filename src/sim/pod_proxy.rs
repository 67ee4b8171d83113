//! `pods/proxy` for GET: the request goes on to where the pod's port leads, and the answer's body comes through as it comes.
//!
//! Must not know: what is spoken there.

use std::io;

use http_body_util::BodyExt as _;
use hyper::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use hyper::{Method, Response};

use super::access::{attributes, authenticate, authorize};
use super::apiserver::Shared;
use super::http::{Body, Call, Peer, request};
use super::resource::{PODS, Target, key, query_pairs};
use super::routes::{Query, Result, refuse};
use super::status::Status;

/// Answers a request whose path is one of a pod's proxy; `None` for all others.
pub(crate) async fn answer_proxy(shared: &Shared, call: &Call) -> Option<Response<Body>> {
    let (target, rest) = target_of(&call.path)?;
    Some(proxied(shared, call, &target, &rest).await.unwrap_or_else(|status| refuse(&status)))
}

/// `/api/v1/namespaces/NAMESPACE/pods/NAME[:PORT]/proxy/REST`. The name keeps its port, as in the server's own request info.
fn target_of(path: &str) -> Option<(Target, String)> {
    let (namespace, rest) = path.strip_prefix("/api/v1/namespaces/")?.split_once("/pods/")?;
    let (name, rest) = rest.split_once("/proxy")?;
    if [namespace, name].iter().any(|part| part.contains('/')) || !(rest.is_empty() || rest.starts_with('/'))
    {
        return None;
    }
    let target = Target {
        resource: &PODS,
        namespace: namespace.to_owned(),
        name: super::resource::decode(name)?,
        subresource: "proxy".to_owned(),
    };
    Some((target, if rest.is_empty() { "/".to_owned() } else { rest.to_owned() }))
}

async fn proxied(shared: &Shared, call: &Call, target: &Target, rest: &str) -> Result<Response<Body>> {
    let user = authenticate(shared, call)?;
    let query = Query(query_pairs(&call.query));
    authorize(shared, &attributes(&user.name, call, Some(target), &query), Some(target.resource))?;
    if call.method != Method::GET {
        return Err(Status::method_not_allowed());
    }
    let (pod, port) = target.name.split_once(':').unwrap_or((&target.name, "80"));
    let port = port.parse().map_err(|_| Status::bad_request(format!("invalid pod request {pod:?}")))?;
    if shared.lifecycle.store.get(PODS.storage, &key(&target.namespace, pod)).is_none() {
        return Err(Status::not_found(&PODS, pod));
    }
    let unreachable = || {
        let why = format!("error trying to reach service: dial tcp :{port}: connect: connection refused");
        Status::new(503, "ServiceUnavailable", why)
    };
    let to = shared.forwards.get(&target.namespace, pod, port).ok_or_else(unreachable)?;
    let uri = if call.query.is_empty() { rest.to_owned() } else { format!("{rest}?{}", call.query) };
    // The caller's credential ends at the server; the name by which it called the server goes on, as the real one's does.
    let host = [(HOST, call.header("host"))];
    let response = request(Peer::Tcp(to), Method::GET, &uri, &host, None).await.map_err(|_| unreachable())?;
    let (mut parts, body) = response.into_parts();
    // They are of this hop alone.
    parts.headers.remove(CONNECTION);
    parts.headers.remove(TRANSFER_ENCODING);
    Ok(Response::from_parts(parts, body.map_err(io::Error::other).boxed_unsync()))
}
