//! The requests that change objects: create, update, patch, delete.
//!
//! Must not know: reads and watches.

use serde_json::{Value, json};

use super::apiserver::Shared;
use super::http::Call;
use super::lifecycle::{Author, DeleteOptions, Deletion};
use super::paging::without_type;
use super::patch::{self, Style};
use super::resource::{Resource, Target, key, text};
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
    if target.resource.is_custom() && text(&object, "/metadata/resourceVersion").is_empty() {
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
pub(crate) fn delete(shared: &Shared, target: &Target, call: &Call, query: &Query) -> Result {
    let asked = body(call)?;
    if !asked.is_object() && !asked.is_null() {
        let why = "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        return Err(Status::bad_request(why));
    }
    let mut options = DeleteOptions::read(&asked);
    options.dry_run |= dry_run(query);
    if let Ok(seconds) = query.get("gracePeriodSeconds").parse() {
        options.grace_period_seconds = Some(seconds);
    }
    if target.name.is_empty() {
        return delete_collection(shared, target, query, &options);
    }
    let deletion = shared.lifecycle.delete(target.resource, &target.namespace, &target.name, &options)?;
    Ok((200, deletion_answer(target.resource, deletion)))
}

fn delete_collection(shared: &Shared, target: &Target, query: &Query, options: &DeleteOptions) -> Result {
    let selector = selector(target, query)?;
    let (objects, _) = shared.lifecycle.store.snapshot(target.resource.storage);
    let mut items = Vec::new();
    for object in objects.values().filter(|object| selector.matches(object)) {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        // The answer has the objects as they were.
        if shared.lifecycle.delete(target.resource, namespace, name, options).is_ok() {
            items.push(without_type(&shown(target.resource, object)));
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
