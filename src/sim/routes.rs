//! What the simulated API server answers over HTTP.
//!
//! Must not know: agents, kubelets, faults.

use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Response};
use serde_json::Value;

use super::access::{
    User, access_review, attributes, authenticate, authorize, review_of_others, self_review, token_review,
};
use super::apiserver::Shared;
use super::exec::answer_exec;
use super::http::{Body, Call, answer, json_line, stream_body};
use super::paging::{self, Page};
use super::port_forward::answer_forward;
use super::resource::{PODS, RESOURCES, TOKEN_REVIEWS, Target, key, parse_path, query_pairs};
use super::route_writes::{change, create, delete, update};
use super::selector::Selector;
use super::status::Status;
use super::watch::{WatchRequest, shown};
use super::{discovery, watch};

const OWN_ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A failing answer.
pub(crate) fn refuse(status: &Status) -> Response<Body> {
    let mut response = json_line(status.code, &status.to_value());
    if status.code == 429 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// What the router says where nothing is served: plain text, not a `Status`.
fn not_served() -> Response<Body> {
    let mut response = answer(404, "text/plain; charset=utf-8", "404 page not found\n");
    response
        .headers_mut()
        .insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

/// Answers one request.
pub(crate) fn route(shared: &Shared, call: &Call) -> Response<Body> {
    let query = Query(query_pairs(&call.query));
    let target = parse_path(&call.path).filter(|target| shared.serves(target.resource));
    let user = match authenticate(shared, call) {
        Ok(user) => user,
        Err(status) => return refuse(&status),
    };
    let attributes = attributes(&user.name, call, target.as_ref(), &query);
    let what = target.as_ref().map(|target| target.resource).or_else(|| review_of_others(call));
    if let Err(status) = authorize(shared, &attributes, what) {
        return refuse(&status);
    }
    let Some(target) = target else {
        return other(shared, call, &user);
    };
    if target.resource == &PODS && target.subresource == "exec" {
        return answer_exec(shared, &target, call, &query).unwrap_or_else(|status| refuse(&status));
    }
    if target.resource == &PODS && target.subresource == "portforward" {
        return answer_forward(shared, &user, &target, call, &query).unwrap_or_else(|status| refuse(&status));
    }
    if !subresource_served(&target) {
        return refuse(&unserved_subresource(&target));
    }
    let result = match (call.method.as_str(), target.name.is_empty()) {
        ("GET", _) if query.flag("watch") => return watch_answer(shared, &target, &query),
        ("GET", true) => list(shared, &target, &query),
        ("GET", false) => get(shared, &target),
        ("POST", true) => create(shared, &target, call, &query),
        ("PUT", false) => update(shared, &target, call, &query),
        ("PATCH", false) => change(shared, &target, call, &query),
        ("DELETE", _) => delete(shared, &user, &target, call, &query),
        _ => return refuse(&Status::method_not_allowed()),
    };
    match result {
        Ok((code, object)) => json_line(code, &object),
        Err(status) => refuse(&status),
    }
}

/// A status code and an object, or what is refused.
pub(crate) type Result<T = (u16, Value)> = std::result::Result<T, Status>;

/// The parameters of a request.
pub(crate) struct Query(pub(crate) Vec<(String, String)>);

impl Query {
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// All values of a parameter, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        // As strconv.ParseBool of the server's parameter codec, where "" after the name counts as true.
        self.0.iter().any(|(key, value)| {
            key == name && !matches!(value.as_str(), "false" | "0" | "f" | "F" | "FALSE" | "False")
        })
    }
}

fn other(shared: &Shared, call: &Call, user: &User) -> Response<Body> {
    if call.path == SELF_REVIEWS && call.method == Method::POST {
        return json_line(201, &self_review(shared, user));
    }
    let of_others = review_of_others(call);
    if of_others.is_some() || (call.path == OWN_ACCESS_REVIEWS && call.method == Method::POST) {
        let review = match call.json() {
            Ok(review) => review,
            Err(error) => return refuse(&Status::bad_request(error.to_string())),
        };
        if call.path == OWN_ACCESS_REVIEWS {
            return json_line(201, &access_review(shared, "SelfSubjectAccessReview", &user.name, review));
        }
        if of_others == Some(&TOKEN_REVIEWS) {
            return token_review(shared, &review)
                .map_or_else(|status| refuse(&status), |it| json_line(201, &it));
        }
        let named = review.pointer("/spec/user").and_then(Value::as_str).unwrap_or_default().to_owned();
        return json_line(201, &access_review(shared, "SubjectAccessReview", &named, review));
    }
    if matches!(call.path.as_str(), "/healthz" | "/livez" | "/readyz") {
        return answer(200, "text/plain; charset=utf-8", "ok");
    }
    let found = discovery::answer(
        &call.path,
        &shared.options.kubernetes_version,
        &shared.address.to_string(),
        |resource| shared.serves(resource),
    );
    // A custom resource that is not served is no path at all; the server's own groups answer in their name.
    let of_group = |prefix: String| call.path.starts_with(&prefix);
    let own = RESOURCES.iter().any(|resource| {
        !resource.is_custom()
            && (of_group(format!("/apis/{}/", resource.group))
                || (resource.group.is_empty() && of_group("/api/v1/".to_owned())))
    });
    match found {
        Some(value) => json_line(200, &value),
        None if own => refuse(&Status::no_resource()),
        None => not_served(),
    }
}

pub(crate) fn selector(target: &Target, query: &Query) -> Result<Selector> {
    let mut fields = query.get("fieldSelector").to_owned();
    if !target.name.is_empty() {
        // A watch of one object.
        fields = format!("metadata.name={}", target.name);
    }
    Selector::parse(target.resource, &target.namespace, &fields, query.get("labelSelector"))
}

fn list(shared: &Shared, target: &Target, query: &Query) -> Result {
    let limit = match query.get("limit") {
        "" => 0,
        text => text.parse().map_err(|_| {
            Status::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))
        })?,
    };
    let page = Page {
        limit,
        token: query.get("continue").to_owned(),
        version: query.get("resourceVersion").to_owned(),
        version_match: query.get("resourceVersionMatch").to_owned(),
    };
    let mut list = paging::list(&shared.lifecycle.store, target.resource, &selector(target, query)?, &page)?;
    if let Some(items) = list["items"].as_array_mut() {
        for item in items {
            let typed = item.get("kind").is_some();
            *item = shown(target.resource, item);
            if let (false, Some(fields)) = (typed, item.as_object_mut()) {
                fields.remove("apiVersion");
            }
        }
    }
    Ok((200, list))
}

fn get(shared: &Shared, target: &Target) -> Result {
    let found = shared.lifecycle.store.get(target.resource.storage, &key(&target.namespace, &target.name));
    let object = found.ok_or_else(|| Status::not_found(target.resource, &target.name))?;
    Ok((200, shown(target.resource, &object)))
}

fn subresource_served(target: &Target) -> bool {
    target.subresource.is_empty() || (target.subresource == "status" && target.resource.status)
}

fn unserved_subresource(target: &Target) -> Status {
    if target.resource.is_custom() {
        Status::not_found(target.resource, &target.name)
    } else {
        Status::no_resource()
    }
}

fn watch_answer(shared: &Shared, target: &Target, query: &Query) -> Response<Body> {
    let selector = match selector(target, query) {
        Ok(selector) => selector,
        Err(status) => return refuse(&status),
    };
    let initial_events = query.flag("sendInitialEvents");
    if initial_events && query.get("resourceVersionMatch") != "NotOlderThan" {
        let why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return refuse(&Status::invalid_list_options("resourceVersionMatch", why));
    }
    let request = WatchRequest {
        resource: target.resource,
        selector,
        version: query.get("resourceVersion").to_owned(),
        bookmarks: query.flag("allowWatchBookmarks"),
        initial_events,
        timeout: Duration::from_secs(
            query.get("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0).unwrap_or(1800),
        ),
    };
    match watch::start(
        shared.lifecycle.store.clone(),
        request,
        shared.options.bookmark_interval,
        shared.cut.subscribe(),
    ) {
        Ok(stream) => {
            let mut response = Response::new(stream_body(stream));
            response
                .headers_mut()
                .insert(hyper::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(status) => refuse(&status),
    }
}
