//! The requests that change objects: create, update, patch, delete.
//!
//! Must not know: reads and watches.

use serde_json::{Value, json};

use super::access::{User, namespace_of};
use super::apiserver::Shared;
use super::fence::Wish;
use super::http::Call;
use super::lifecycle::{Author, DeleteOptions, Deletion};
use super::paging::without_type;
use super::patch::{self, Style};
use super::pods::grace_period;
use super::resource::{LEASES, PODS, Resource, Target, key, text};
use super::routes::{Query, Result, selector};
use super::status::{Status, deleted};
use super::watch::{shown, stored};

fn body(call: &Call) -> Result<Value> {
    call.json().map_err(|error| {
        Status::bad_request(format!("the object provided is unrecognized (must be of type): {error}"))
    })
}

fn dry_run(query: &Query) -> bool {
    query.get("dryRun") == "All"
}

/// Makes an object.
pub(crate) fn create(shared: &Shared, target: &Target, call: &Call, query: &Query) -> Result {
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
    Ok((201, shown(target.resource, &made)))
}

/// Replaces an object.
pub(crate) fn update(shared: &Shared, target: &Target, call: &Call, query: &Query) -> Result {
    let object = stored(target.resource, body(call)?);
    let named = text(&object, "/metadata/name");
    if named != target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let conditional = target.resource.is_custom() || target.resource == &LEASES;
    if conditional && text(&object, "/metadata/resourceVersion").is_empty() {
        return Err(Status::version_required(target.resource, &target.name));
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
    Ok((200, shown(target.resource, &updated)))
}

/// Patches an object.
pub(crate) fn change(shared: &Shared, target: &Target, call: &Call, query: &Query) -> Result {
    let content_type = call.header("content-type");
    let custom = target.resource.is_custom();
    let style = patch::style(content_type)
        .filter(|style| !custom || *style == Style::Merge || content_type.contains("apply-patch"));
    let Some(style) = style else {
        return Err(if custom { Status::unknown_format() } else { Status::unsupported_media_type() });
    };
    let patch = stored(target.resource, body(call)?);
    let status = target.subresource == "status";
    let exists =
        shared.lifecycle.store.get(target.resource.storage, &key(&target.namespace, &target.name)).is_some();
    if content_type.contains("apply-patch") && !exists && !status {
        let made = shared.lifecycle.create(
            target.resource,
            &target.namespace,
            patch,
            Author::Client,
            dry_run(query),
        )?;
        return Ok((201, shown(target.resource, &made)));
    }
    let patched = shared.lifecycle.change(
        target.resource,
        &target.namespace,
        &target.name,
        status,
        dry_run(query),
        |old| {
            let uid = text(old, "/metadata/uid").to_owned();
            patch::apply(old, &patch, style);
            match text(old, "/metadata/uid") {
                same if same == uid => Ok(()),
                other => Err(Status::immutable(target.resource, &target.name, "metadata.uid", other)),
            }
        },
    )?;
    Ok((200, shown(target.resource, &patched)))
}

/// Deletes an object or a collection.
pub(crate) fn delete(shared: &Shared, user: &User, target: &Target, call: &Call, query: &Query) -> Result {
    let asked = body(call)?;
    if !asked.is_object() && !asked.is_null() {
        let why = "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        return Err(Status::bad_request(why));
    }
    let mut options = DeleteOptions::read(&asked);
    // Where there is a body the server takes no option from the query, not even `dryRun`.
    if asked.is_null() {
        options.dry_run = dry_run(query);
        options.grace_period_seconds = query.get("gracePeriodSeconds").parse().ok();
    }
    if target.name.is_empty() {
        return delete_collection(shared, user, target, query, &options);
    }
    let deletion = delete_one(shared, user, target, (&target.namespace, &target.name), &options)?;
    Ok((200, deletion_answer(target.resource, deletion)))
}

/// Deletes an object if the fence lets it pass.
fn delete_one(
    shared: &Shared,
    user: &User,
    target: &Target,
    (namespace, name): (&str, &str),
    options: &DeleteOptions,
) -> Result<Deletion> {
    let fence = shared.options.fence.as_ref().filter(|_| target.resource == &PODS);
    let of_namespace = fence.map(|_| namespace_of(shared, namespace)).unwrap_or_default();
    let admit = |pod: &Value| {
        let wish = Wish {
            user,
            name: &target.name,
            uid: options.uid.as_deref().unwrap_or_default(),
            grace: grace_period(pod, options),
            pod,
            namespace: &of_namespace,
        };
        fence.map_or(Ok(()), |fence| fence.admit(&wish))?;
        if target.resource == &PODS && !options.dry_run {
            shared.witness.show(pod);
        }
        Ok(())
    };
    shared.lifecycle.delete_admitted(target.resource, namespace, name, options, admit)
}

fn delete_collection(
    shared: &Shared,
    user: &User,
    target: &Target,
    query: &Query,
    options: &DeleteOptions,
) -> Result {
    let selector = selector(target, query)?;
    let (objects, _) = shared.lifecycle.store.snapshot(target.resource.storage);
    let mut items = Vec::new();
    for object in objects.values().filter(|object| selector.matches(object)) {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        // The answer has the objects as they were.
        match delete_one(shared, user, target, (namespace, name), options) {
            Ok(_) => items.push(without_type(&shown(target.resource, object))),
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    let resource = target.resource;
    let mut metadata = json!({"resourceVersion": shared.lifecycle.store.revision().to_string()});
    if resource.is_custom() {
        metadata["continue"] = "".into();
    }
    let kind = format!("{}List", resource.kind);
    Ok((
        200,
        json!({"kind": kind, "apiVersion": resource.api_version(), "metadata": metadata, "items": items}),
    ))
}

fn deletion_answer(resource: &Resource, deletion: Deletion) -> Value {
    match deletion {
        Deletion::Gone(object) if !resource.returns_deleted => {
            deleted(resource, text(&object, "/metadata/name"), text(&object, "/metadata/uid"))
        }
        Deletion::Gone(object) | Deletion::Pending(object) => shown(resource, &object),
    }
}
