//! What the simulated API server answers over HTTP.
//!
//! Must not know: agents, kubelets, faults.

use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Response};
use serde_json::{Value, json};

use super::apiserver::{Attributes, Shared};
use super::http::{Body, Call, answer, json_line, stream_body};
use super::lifecycle::{Author, DeleteOptions, Deletion};
use super::paging::{self, Page};
use super::resource::{CILIUM_ENDPOINTS, Resource, Target, key, parse_path, query_pairs, text};
use super::selector::Selector;
use super::status::{Status, deleted};
use super::watch::{WatchRequest, shown, stored};
use super::{discovery, patch, watch};

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A failing answer.
pub(crate) fn refuse(status: &Status) -> Response<Body> {
    let mut response = json_line(status.code, &status.to_value());
    if status.code == 429 {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// What the router says where nothing is served: plain text, not a `Status`.
fn not_served() -> Response<Body> {
    let mut response = answer(404, "text/plain; charset=utf-8", "404 page not found\n");
    response.headers_mut().insert(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
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
    let attributes = attributes(&user, call, target.as_ref(), &query);
    if let Err(status) = authorize(shared, &attributes, target.as_ref()) {
        return refuse(&status);
    }
    let Some(target) = target else {
        return other(shared, call, &user);
    };
    let result = match (call.method.as_str(), target.name.is_empty()) {
        ("GET", _) if query.flag("watch") => return watch_answer(shared, &target, &query),
        ("GET", true) => list(shared, &target, &query),
        ("GET", false) => get(shared, &target),
        ("POST", true) => create(shared, &target, call, &query),
        ("PUT", false) => update(shared, &target, call, &query),
        ("PATCH", false) => change(shared, &target, call, &query),
        ("DELETE", _) => delete(shared, &target, call, &query),
        _ => return refuse(&Status::method_not_allowed()),
    };
    match result {
        Ok(Some((code, object))) => json_line(code, &object),
        Ok(None) => not_served(),
        Err(status) => refuse(&status),
    }
}

/// `None` where the path has a subresource that is not served.
type Result<T = Option<(u16, Value)>> = std::result::Result<T, Status>;

struct Query(Vec<(String, String)>);

impl Query {
    fn get(&self, name: &str) -> &str {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .unwrap_or_default()
    }

    fn flag(&self, name: &str) -> bool {
        // As strconv.ParseBool of the server's parameter codec, where "" after the name counts as true.
        self.0.iter().any(|(key, value)| {
            key == name && !matches!(value.as_str(), "false" | "0" | "f" | "F" | "FALSE" | "False")
        })
    }
}

fn authenticate(shared: &Shared, call: &Call) -> Result<String> {
    let options = &shared.options;
    match call.header("authorization").strip_prefix("Bearer ") {
        Some(token) => options
            .tokens
            .get(token)
            .cloned()
            .ok_or_else(Status::unauthorized),
        None if options.anonymous => Ok("system:anonymous".to_owned()),
        None => Err(Status::unauthorized()),
    }
}

fn attributes(user: &str, call: &Call, target: Option<&Target>, query: &Query) -> Attributes {
    let Some(target) = target else {
        let (user, verb, path) = (
            user.to_owned(),
            call.method.as_str().to_lowercase(),
            call.path.clone(),
        );
        return Attributes {
            user,
            verb,
            path,
            ..Attributes::default()
        };
    };
    let verb = match (call.method.as_str(), target.name.is_empty()) {
        ("GET", _) if query.flag("watch") => "watch",
        ("GET", true) => "list",
        ("GET", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ => "unknown",
    };
    Attributes {
        user: user.to_owned(),
        verb: verb.to_owned(),
        group: target.resource.group.to_owned(),
        resource: target.resource.plural.to_owned(),
        subresource: target.subresource.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        path: String::new(),
    }
}

fn authorize(shared: &Shared, wish: &Attributes, target: Option<&Target>) -> Result<()> {
    // Discovery, health and reviews of one's own access are open to everybody who is authenticated.
    if wish.resource.is_empty()
        || shared
            .options
            .authorizer
            .as_ref()
            .is_none_or(|allows| allows(wish))
    {
        return Ok(());
    }
    let Attributes {
        user,
        verb,
        group,
        resource,
        subresource,
        namespace,
        name,
        ..
    } = wish;
    let resource = if subresource.is_empty() {
        resource.clone()
    } else {
        format!("{resource}/{subresource}")
    };
    let scope = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{namespace}\"")
    };
    let why =
        format!("User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}");
    Err(Status::forbidden(
        target.map(|target| target.resource),
        name,
        &why,
    ))
}

fn other(shared: &Shared, call: &Call, user: &str) -> Response<Body> {
    if call.path == ACCESS_REVIEWS && call.method == Method::POST {
        return match call.json() {
            Ok(review) => json_line(201, &access_review(shared, user, review)),
            Err(error) => refuse(&Status::bad_request(error.to_string())),
        };
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
    found.map_or_else(not_served, |value| json_line(200, &value))
}

fn access_review(shared: &Shared, user: &str, mut review: Value) -> Value {
    let wish = review
        .pointer("/spec/resourceAttributes")
        .cloned()
        .unwrap_or_default();
    let field = |name: &str| {
        wish.get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let attributes = Attributes {
        user: user.to_owned(),
        verb: field("verb"),
        group: field("group"),
        resource: field("resource"),
        subresource: field("subresource"),
        namespace: field("namespace"),
        name: field("name"),
        path: String::new(),
    };
    if !review.is_object() {
        review = json!({});
    }
    review["status"] =
        json!({"allowed": shared.options.authorizer.as_ref().is_none_or(|allows| allows(&attributes))});
    review
}

fn selector(target: &Target, query: &Query) -> Result<Selector> {
    let mut fields = query.get("fieldSelector").to_owned();
    if !target.name.is_empty() {
        // A watch of one object.
        fields = format!("metadata.name={}", target.name);
    }
    Selector::parse(
        target.resource,
        &target.namespace,
        &fields,
        query.get("labelSelector"),
    )
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
    let mut list = paging::list(
        &shared.lifecycle.store,
        target.resource,
        &selector(target, query)?,
        &page,
    )?;
    if let Some(items) = list["items"].as_array_mut() {
        for item in items {
            let typed = item.get("kind").is_some();
            *item = shown(target.resource, item);
            if let (false, Some(fields)) = (typed, item.as_object_mut()) {
                fields.remove("apiVersion");
            }
        }
    }
    Ok(Some((200, list)))
}

fn get(shared: &Shared, target: &Target) -> Result {
    if !subresource_served(target) {
        return Ok(None);
    }
    let found = shared
        .lifecycle
        .store
        .get(target.resource.storage, &key(&target.namespace, &target.name));
    let object = found.ok_or_else(|| Status::not_found(target.resource, &target.name))?;
    Ok(Some((200, shown(target.resource, &object))))
}

fn subresource_served(target: &Target) -> bool {
    target.subresource.is_empty() || (target.subresource == "status" && target.resource.status)
}

fn body(call: &Call) -> Result<Value> {
    call.json().map_err(|error| {
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type): {error}"
        ))
    })
}

fn dry_run(query: &Query) -> bool {
    query.get("dryRun") == "All"
}

fn create(shared: &Shared, target: &Target, call: &Call, query: &Query) -> Result {
    let object = stored(target.resource, body(call)?);
    if target.resource.namespaced && target.namespace.is_empty() {
        return Err(Status::method_not_allowed());
    }
    let made = shared.lifecycle.create(
        target.resource,
        &target.namespace,
        object,
        Author::Client,
        dry_run(query),
    )?;
    Ok(Some((201, shown(target.resource, &made))))
}

fn update(shared: &Shared, target: &Target, call: &Call, query: &Query) -> Result {
    if !subresource_served(target) {
        return Ok(None);
    }
    let object = stored(target.resource, body(call)?);
    let named = text(&object, "/metadata/name");
    if named != target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({})",
            target.name
        )));
    }
    if target.resource.group == CILIUM_ENDPOINTS.group
        && text(&object, "/metadata/resourceVersion").is_empty()
    {
        let why = "Invalid value: 0: must be specified for an update";
        return Err(Status::invalid(
            target.resource,
            &target.name,
            "metadata.resourceVersion",
            "FieldValueInvalid",
            why,
        ));
    }
    let status = target.subresource == "status";
    let updated = shared.lifecycle.change(
        target.resource,
        &target.namespace,
        &target.name,
        status,
        dry_run(query),
        |old| {
            *old = object;
            Ok(())
        },
    )?;
    Ok(Some((200, shown(target.resource, &updated))))
}

fn change(shared: &Shared, target: &Target, call: &Call, query: &Query) -> Result {
    if !subresource_served(target) {
        return Ok(None);
    }
    let content_type = call.header("content-type");
    let Some(style) = patch::style(content_type) else {
        let why = format!(
            "the body of the request was in an unknown format - accepted media types include: application/merge-patch+json, application/strategic-merge-patch+json ({content_type})"
        );
        return Err(Status::unsupported_media_type(why));
    };
    if style == patch::Style::Strategic
        && target.resource.group == "cilium.io"
        && !content_type.contains("apply-patch")
    {
        return Err(Status::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, application/apply-patch+cbor",
        ));
    }
    let patch = stored(target.resource, body(call)?);
    let status = target.subresource == "status";
    let exists = shared
        .lifecycle
        .store
        .get(target.resource.storage, &key(&target.namespace, &target.name))
        .is_some();
    if content_type.contains("apply-patch") && !exists && !status {
        let made = shared.lifecycle.create(
            target.resource,
            &target.namespace,
            patch,
            Author::Client,
            dry_run(query),
        )?;
        return Ok(Some((201, shown(target.resource, &made))));
    }
    let patched = shared.lifecycle.change(
        target.resource,
        &target.namespace,
        &target.name,
        status,
        dry_run(query),
        |old| {
            patch::apply(old, &patch, style);
            Ok(())
        },
    )?;
    Ok(Some((200, shown(target.resource, &patched))))
}

fn delete(shared: &Shared, target: &Target, call: &Call, query: &Query) -> Result {
    if !target.subresource.is_empty() {
        return Ok(None);
    }
    let mut options = DeleteOptions::read(&body(call)?);
    options.dry_run |= dry_run(query);
    if let Ok(seconds) = query.get("gracePeriodSeconds").parse() {
        options.grace_period_seconds = Some(seconds);
    }
    if target.name.is_empty() {
        return delete_collection(shared, target, query, &options);
    }
    let deletion = shared
        .lifecycle
        .delete(target.resource, &target.namespace, &target.name, &options)?;
    Ok(Some((200, deletion_answer(target.resource, deletion))))
}

fn delete_collection(shared: &Shared, target: &Target, query: &Query, options: &DeleteOptions) -> Result {
    let selector = selector(target, query)?;
    let (objects, _) = shared.lifecycle.store.snapshot(target.resource.storage);
    let mut items = Vec::new();
    for object in objects.values().filter(|object| selector.matches(object)) {
        let (namespace, name) = (
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        );
        if let Ok(Deletion::Gone(last) | Deletion::Pending(last)) =
            shared.lifecycle.delete(target.resource, namespace, name, options)
        {
            items.push(shown(target.resource, &last));
        }
    }
    let resource = target.resource;
    Ok(Some((
        200,
        json!({"kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(), "metadata": {}, "items": items}),
    )))
}

fn deletion_answer(resource: &Resource, deletion: Deletion) -> Value {
    match deletion {
        Deletion::Gone(object) if !resource.returns_deleted => deleted(
            resource,
            text(&object, "/metadata/name"),
            text(&object, "/metadata/uid"),
        ),
        Deletion::Gone(object) | Deletion::Pending(object) => shown(resource, &object),
    }
}

fn watch_answer(shared: &Shared, target: &Target, query: &Query) -> Response<Body> {
    let selector = match selector(target, query) {
        Ok(selector) => selector,
        Err(status) => return refuse(&status),
    };
    let initial_events = query.flag("sendInitialEvents");
    if initial_events && query.get("resourceVersionMatch") != "NotOlderThan" {
        let why = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return refuse(&Status::new(422, "Invalid", why));
    }
    let request = WatchRequest {
        resource: target.resource,
        selector,
        version: query.get("resourceVersion").to_owned(),
        bookmarks: query.flag("allowWatchBookmarks"),
        initial_events,
        timeout: Duration::from_secs(
            query
                .get("timeoutSeconds")
                .parse()
                .ok()
                .filter(|seconds| *seconds > 0)
                .unwrap_or(1800),
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
            response.headers_mut().insert(
                hyper::header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
            response
        }
        Err(status) => refuse(&status),
    }
}
