//! Creating, updating and deleting objects with the API server's rules: preconditions, versions, finalizers.
//!
//! Must not know: HTTP, agents, kubelets.

use std::sync::Arc;

use serde_json::{Value, json};

use super::clock::{Clock, Random, seconds};
use super::pods;
use super::resource::{PODS, Resource, key, text};
use super::status::Status;
use super::store::Store;

/// The parts of `metav1.DeleteOptions` that the server heeds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// `gracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// `preconditions.uid`.
    pub uid: Option<String>,
    /// `preconditions.resourceVersion`.
    pub resource_version: Option<String>,
    /// `dryRun=All`.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Grace 0: the object goes at once.
    #[must_use]
    pub fn now() -> Self {
        Self { grace_period_seconds: Some(0), ..Self::default() }
    }

    /// Reads the body of a DELETE.
    pub(crate) fn read(body: &Value) -> Self {
        let owned = |pointer| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            grace_period_seconds: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: owned("/preconditions/uid"),
            resource_version: owned("/preconditions/resourceVersion"),
            dry_run: body.get("dryRun").and_then(Value::as_array).is_some_and(|list| !list.is_empty()),
        }
    }
}

/// How a delete ended.
#[derive(Debug, Clone)]
pub enum Deletion {
    /// The object is gone; this was its last state.
    Gone(Value),
    /// The object stays until its node or a finalizer lets it go.
    Pending(Value),
}

/// Who writes: a client over HTTP cannot set a status on creation, the set-up of a test can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    Client,
    Setup,
}

/// The store with the rules.
#[derive(Debug, Clone)]
pub(crate) struct Lifecycle {
    pub store: Arc<Store>,
    pub clock: Clock,
    pub random: Arc<Random>,
}

impl Lifecycle {
    pub(crate) fn create(
        &self,
        resource: &'static Resource,
        namespace: &str,
        mut object: Value,
        author: Author,
        dry_run: bool,
    ) -> Result<Value, Status> {
        if !object.is_object() {
            return Err(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {})",
                resource.kind
            )));
        }
        if !object.get("metadata").is_some_and(Value::is_object) {
            object["metadata"] = json!({});
        }
        let asked = text(&object, "/metadata/namespace").to_owned();
        if resource.namespaced {
            let namespace = if namespace.is_empty() { asked.as_str() } else { namespace };
            if !asked.is_empty() && asked != namespace {
                return Err(Status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            object["metadata"]["namespace"] = namespace.into();
        }
        let mut name = text(&object, "/metadata/name").to_owned();
        let prefix = text(&object, "/metadata/generateName").to_owned();
        if name.is_empty() {
            if prefix.is_empty() {
                return Err(Status::invalid(
                    resource,
                    "",
                    "metadata.name",
                    "FieldValueRequired",
                    "Required value: name or generateName is required",
                ));
            }
            name = format!("{prefix}{}", self.random.suffix(5));
            object["metadata"]["name"] = name.as_str().into();
        }
        object["apiVersion"] = resource.stored_version().into();
        object["kind"] = resource.kind.into();
        let metadata = &mut object["metadata"];
        if author == Author::Client || metadata.get("uid").is_none() {
            metadata["uid"] = self.random.uuid().into();
        }
        if author == Author::Client || metadata.get("creationTimestamp").is_none() {
            metadata["creationTimestamp"] = seconds(self.clock.now()).into();
        }
        match resource.kind {
            "Pod" => pods::default(&mut object, author)?,
            "Event" => default_event(&mut object),
            _ if resource.has_generation() && object["metadata"].get("generation").is_none() => {
                object["metadata"]["generation"] = 1.into();
            }
            _ => {}
        }
        let key = key(text(&object, "/metadata/namespace"), &name);
        self.store.transact(|tables| {
            if tables.get(resource.storage, &key).is_some() {
                return Err(Status::already_exists(resource, &name));
            }
            if dry_run {
                return Ok(object);
            }
            Ok(Value::clone(&tables.put(resource, &key, object)))
        })
    }

    /// Puts an object as it is, however malformed.
    pub(crate) fn create_raw(&self, resource: &'static Resource, key: &str, object: Value) {
        self.store.transact(|tables| tables.put(resource, key, object));
    }

    /// Changes an object by a function; `status` tells which half of it may change.
    pub(crate) fn change(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        status: bool,
        dry_run: bool,
        change: impl FnOnce(&mut Value) -> Result<(), Status>,
    ) -> Result<Value, Status> {
        let key = key(namespace, name);
        self.store.transact(|tables| {
            let old = tables.get(resource.storage, &key).ok_or_else(|| Status::not_found(resource, name))?;
            let mut new = Value::clone(&old);
            change(&mut new)?;
            let wanted_version = text(&new, "/metadata/resourceVersion");
            if !wanted_version.is_empty() && wanted_version != text(&old, "/metadata/resourceVersion") {
                return Err(Status::modified(resource, name));
            }
            let wanted_uid = text(&new, "/metadata/uid");
            if !wanted_uid.is_empty() && wanted_uid != text(&old, "/metadata/uid") {
                let present = text(&old, "/metadata/uid");
                return Err(Status::other_uid(resource, &key, name, wanted_uid, present));
            }
            keep_the_other_half(resource, &old, &mut new, status);
            count_generation(resource, &old, &mut new, status);
            // A write that changes nothing makes no new version, as in etcd.
            if dry_run || new == *old {
                return Ok(new);
            }
            if finished(&new) {
                let last = tables.remove(resource, &key).unwrap_or(old);
                return Ok(Value::clone(&last));
            }
            Ok(Value::clone(&tables.put(resource, &key, new)))
        })
    }

    pub(crate) fn delete(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deletion, Status> {
        self.delete_admitted(resource, namespace, name, options, |_| Ok(()))
    }

    /// Deletes if admission has nothing against it, which is asked where the API server asks it: after the preconditions,
    /// and not for a pod that would stay as it is.
    pub(crate) fn delete_admitted(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        admit: impl FnOnce(&Value) -> Result<(), Status>,
    ) -> Result<Deletion, Status> {
        let key = key(namespace, name);
        let now = self.clock.now();
        self.store.transact(|tables| {
            let old = tables.get(resource.storage, &key).ok_or_else(|| Status::not_found(resource, name))?;
            check_preconditions(resource, name, &old, options)?;
            let terminating = (resource == &PODS).then(|| pods::terminating(&old, options, now)).flatten();
            if terminating.as_ref() != Some(&*old) {
                admit(&old)?;
            }
            if let Some(terminating) = terminating {
                if options.dry_run || terminating == *old {
                    return Ok(Deletion::Pending(terminating));
                }
                let written = tables.put(resource, &key, terminating);
                return Ok(Deletion::Pending(Value::clone(&written)));
            }
            let gone =
                |last: &Value| if resource == &PODS { pods::farewell(last, now) } else { last.clone() };
            if options.dry_run {
                return Ok(Deletion::Gone(gone(&old)));
            }
            if has_finalizers(&old) {
                let mut waiting = Value::clone(&old);
                if waiting["metadata"].get("deletionTimestamp").is_none() {
                    waiting["metadata"]["deletionTimestamp"] = seconds(now).into();
                }
                waiting["metadata"]["deletionGracePeriodSeconds"] = 0.into();
                return Ok(Deletion::Pending(Value::clone(&tables.put(resource, &key, waiting))));
            }
            let last = tables.remove(resource, &key).unwrap_or(old);
            Ok(Deletion::Gone(gone(&last)))
        })
    }
}

/// The fields of an event that are always shown.
fn default_event(event: &mut Value) {
    for (field, value) in [
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("eventTime", Value::Null),
        ("source", json!({})),
        ("reportingComponent", "".into()),
        ("reportingInstance", "".into()),
    ] {
        if event.get(field).is_none() {
            event[field] = value;
        }
    }
}

/// A custom resource's generation counts its changes outside metadata and the status subresource.
fn count_generation(resource: &Resource, old: &Value, new: &mut Value, status: bool) {
    if !resource.has_generation() || status {
        return;
    }
    let essence = |object: &Value| {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("metadata");
        }
        object
    };
    if essence(old) != essence(new) {
        let generation = old["metadata"].get("generation").and_then(Value::as_i64).unwrap_or_default();
        new["metadata"]["generation"] = (generation + 1).into();
    }
}

/// Name, UID, creation and deletion are the server's; with a status subresource each path writes its own half.
fn keep_the_other_half(resource: &Resource, old: &Value, new: &mut Value, status: bool) {
    if !new.get("metadata").is_some_and(Value::is_object) {
        new["metadata"] = json!({});
    }
    if status {
        let wanted = new.get("status").cloned();
        *new = old.clone();
        if let Some(wanted) = wanted {
            new["status"] = wanted;
        }
    } else if resource.status
        && let Some(object) = new.as_object_mut()
    {
        match old.get("status") {
            Some(kept) => object.insert("status".to_owned(), kept.clone()),
            None => object.remove("status"),
        };
    }
    new["apiVersion"] = old["apiVersion"].clone();
    new["kind"] = old["kind"].clone();
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
    ] {
        if let Some(metadata) = new["metadata"].as_object_mut() {
            match old["metadata"].get(field) {
                Some(kept) => metadata.insert(field.to_owned(), kept.clone()),
                None => metadata.remove(field),
            };
        }
    }
}

fn has_finalizers(object: &Value) -> bool {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// Deleted, and the last finalizer was just taken away.
fn finished(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata.get("deletionTimestamp").is_some()
        && metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default() == 0
        && !has_finalizers(object)
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let uid = text(object, "/metadata/uid");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(Status::precondition(resource, name, &why));
    }
    let version = text(object, "/metadata/resourceVersion");
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(Status::precondition(resource, name, &why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifecycle() -> Lifecycle {
        Lifecycle {
            store: Arc::new(Store::new(100)),
            clock: Clock::starting_at("2026-12-01T04:43:03Z".parse().unwrap()),
            random: Arc::new(Random::new(Some(1))),
        }
    }

    fn pod(api: &Lifecycle, name: &str, node: &str) -> Value {
        let object =
            json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c"}]}});
        api.create(&PODS, "a", object, Author::Client, false).unwrap()
    }

    #[tokio::test]
    async fn a_bound_pod_waits_for_its_kubelet_and_an_unbound_one_goes_at_once() {
        let api = lifecycle();
        pod(&api, "bound", "n1");
        pod(&api, "unbound", "");
        let Deletion::Pending(object) = api.delete(&PODS, "a", "bound", &DeleteOptions::default()).unwrap()
        else {
            panic!("gone")
        };
        assert_eq!(object["metadata"]["deletionTimestamp"], "2026-12-01T04:43:33Z");
        assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 30);
        // Asking again changes nothing, grace 0 ends it.
        assert!(
            matches!(api.delete(&PODS, "a", "bound", &DeleteOptions::default()).unwrap(), Deletion::Pending(again) if again == object)
        );
        assert!(matches!(api.delete(&PODS, "a", "bound", &DeleteOptions::now()).unwrap(), Deletion::Gone(_)));
        assert!(matches!(
            api.delete(&PODS, "a", "unbound", &DeleteOptions::default()).unwrap(),
            Deletion::Gone(_)
        ));
        assert_eq!(
            api.delete(&PODS, "a", "unbound", &DeleteOptions::default()).unwrap_err().message,
            "pods \"unbound\" not found"
        );
    }

    #[tokio::test]
    async fn preconditions_guard_a_delete_in_the_servers_words() {
        let api = lifecycle();
        let object = pod(&api, "p", "n1");
        let uid = text(&object, "/metadata/uid").to_owned();
        let options = DeleteOptions { uid: Some("other".to_owned()), ..DeleteOptions::default() };
        let status = api.delete(&PODS, "a", "p", &options).unwrap_err();
        assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
        assert_eq!(
            status.message,
            format!(
                "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (other) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            )
        );
        let options = DeleteOptions {
            uid: Some(uid),
            resource_version: Some("1".to_owned()),
            ..DeleteOptions::default()
        };
        assert!(
            api.delete(&PODS, "a", "p", &options)
                .unwrap_err()
                .message
                .contains("The object might have been modified")
        );
    }

    #[tokio::test]
    async fn a_write_against_an_old_version_conflicts() {
        let api = lifecycle();
        let old = pod(&api, "p", "n1");
        let label = |object: &mut Value| {
            object["metadata"]["labels"] = json!({"x": "y"});
            Ok(())
        };
        api.change(&PODS, "a", "p", false, false, label).unwrap();
        let status = api
            .change(&PODS, "a", "p", false, false, |object| {
                *object = old.clone();
                Ok(())
            })
            .unwrap_err();
        assert_eq!(
            status.message,
            "Operation cannot be fulfilled on pods \"p\": the object has been modified; please apply your changes to the latest version and try again"
        );
    }

    #[tokio::test]
    async fn a_finalizer_holds_an_object_until_it_is_taken_away() {
        let api = lifecycle();
        pod(&api, "p", "");
        api.change(&PODS, "a", "p", false, false, |object| {
            object["metadata"]["finalizers"] = json!(["x/y"]);
            Ok(())
        })
        .unwrap();
        assert!(matches!(api.delete(&PODS, "a", "p", &DeleteOptions::now()).unwrap(), Deletion::Pending(_)));
        assert!(api.store.get("pods", "a/p").is_some());
        api.change(&PODS, "a", "p", false, false, |object| {
            object["metadata"]["finalizers"] = json!([]);
            Ok(())
        })
        .unwrap();
        assert!(api.store.get("pods", "a/p").is_none());
    }
}
