//! Who asks, and whether that is allowed.
//!
//! Must not know: the store.

use serde_json::{Value, json};

use super::api_options::Attributes;
use super::apiserver::Shared;
use super::http::Call;
use super::resource::Target;
use super::routes::{Query, Result};
use super::status::Status;

/// The user of a request.
pub(crate) fn authenticate(shared: &Shared, call: &Call) -> Result<String> {
    let options = &shared.options;
    match call.header("authorization").strip_prefix("Bearer ") {
        Some(token) => options.tokens.get(token).cloned().ok_or_else(Status::unauthorized),
        None if options.anonymous => Ok("system:anonymous".to_owned()),
        None => Err(Status::unauthorized()),
    }
}

/// What a request wants to do.
pub(crate) fn attributes(user: &str, call: &Call, target: Option<&Target>, query: &Query) -> Attributes {
    let Some(target) = target else {
        let (user, verb, path) = (user.to_owned(), call.method.as_str().to_lowercase(), call.path.clone());
        return Attributes { user, verb, path, ..Attributes::default() };
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

/// Whether it may.
pub(crate) fn authorize(shared: &Shared, wish: &Attributes, target: Option<&Target>) -> Result<()> {
    // Discovery, health and reviews of one's own access are open to everybody who is authenticated.
    if wish.resource.is_empty() || shared.options.authorizer.as_ref().is_none_or(|allows| allows(wish)) {
        return Ok(());
    }
    let Attributes { user, verb, group, resource, subresource, namespace, name, .. } = wish;
    let resource =
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
    let scope = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{namespace}\"")
    };
    let why =
        format!("User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}");
    Err(Status::forbidden(target.map(|target| target.resource), name, &why))
}

/// The answer to a `SelfSubjectAccessReview`, or to a `SubjectAccessReview` where `user` is the one that it names.
pub(crate) fn access_review(shared: &Shared, kind: &str, user: &str, mut review: Value) -> Value {
    let wish = review.pointer("/spec/resourceAttributes").cloned().unwrap_or_default();
    let field = |name: &str| wish.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
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
    review["apiVersion"] = "authorization.k8s.io/v1".into();
    review["kind"] = kind.into();
    if review.get("metadata").is_none() {
        review["metadata"] = json!({});
    }
    review["status"] =
        json!({"allowed": shared.options.authorizer.as_ref().is_none_or(|allows| allows(&attributes))});
    review
}
