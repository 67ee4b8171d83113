//! The garbage collector, as far as it matters here: CiliumEndpoints go with the pods that own them.
//!
//! Must not know: HTTP, agents.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::resource::{CILIUM_ENDPOINTS, PODS, RESOURCES, text};
use super::store::{Store, Tables};

/// Collects CiliumEndpoints whose owners are gone, for ever, each so long after its owner.
pub(crate) async fn collect(store: Arc<Store>, delay: Duration) {
    let mut changed = store.subscribe();
    let mut cursor = 0;
    loop {
        changed.mark_unchanged();
        let suspects = suspects(&store, &mut cursor);
        if !suspects.is_empty() {
            tokio::time::sleep(delay).await;
            store.transact(|tables| {
                for key in suspects {
                    if tables
                        .get(CILIUM_ENDPOINTS.storage, &key)
                        .is_some_and(|endpoint| is_orphan(tables, &endpoint))
                    {
                        tables.remove(&CILIUM_ENDPOINTS, &key);
                    }
                }
            });
            continue;
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// The endpoints that the latest changes may have orphaned: new ones, and those of removed pods.
fn suspects(store: &Store, cursor: &mut u64) -> BTreeSet<String> {
    let pods = store.changes_since(PODS.storage, *cursor);
    let endpoints = store.changes_since(CILIUM_ENDPOINTS.storage, *cursor);
    let (Ok((pods, revision)), Ok((endpoints, _))) = (pods, endpoints) else {
        // The history is gone: every endpoint is looked at.
        let (objects, revision) = store.snapshot(CILIUM_ENDPOINTS.storage);
        *cursor = revision;
        return objects.into_keys().collect();
    };
    *cursor = revision;
    let mut keys: BTreeSet<String> =
        endpoints.into_iter().filter(|change| !change.removed).map(|change| change.key).collect();
    let gone: BTreeSet<String> = pods
        .iter()
        .filter(|change| change.removed)
        .map(|change| text(&change.object, "/metadata/uid").to_owned())
        .collect();
    if !gone.is_empty() {
        let (objects, _) = store.snapshot(CILIUM_ENDPOINTS.storage);
        let owned = |endpoint: &Value| owners(endpoint).any(|owner| gone.contains(text(owner, "/uid")));
        keys.extend(objects.into_iter().filter(|(_, endpoint)| owned(endpoint)).map(|(key, _)| key));
    }
    keys
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

/// Owned, and by none that exists. An owner of a kind that is not served here counts as there.
fn is_orphan(tables: &Tables, endpoint: &Value) -> bool {
    let namespace = text(endpoint, "/metadata/namespace");
    let lives = |owner: &Value| {
        let Some(resource) = RESOURCES.into_iter().find(|resource| resource.kind == text(owner, "/kind"))
        else {
            return true;
        };
        let key =
            super::resource::key(if resource.namespaced { namespace } else { "" }, text(owner, "/name"));
        tables
            .get(resource.storage, &key)
            .is_some_and(|object| text(&object, "/metadata/uid") == text(owner, "/uid"))
    };
    owners(endpoint).next().is_some() && !owners(endpoint).any(lives)
}
