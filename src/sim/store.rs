//! The object store: resource versions from one counter, and a bounded history for watches and continued lists.
//!
//! Must not know: HTTP, what a pod is (see `lifecycle`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::beacon::{Beacon, Heard};
use super::clock::lock;
use super::resource::Resource;

/// Objects of one storage, by `namespace/name`.
pub(crate) type Objects = BTreeMap<String, Arc<Value>>;

/// What happened to an object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub revision: u64,
    pub storage: &'static str,
    pub key: String,
    pub previous: Option<Arc<Value>>,
    /// The object afterwards; for a removal its last state with the removal's resource version.
    pub object: Arc<Value>,
    pub removed: bool,
}

/// The history before a revision is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub oldest: u64,
}

#[derive(Debug)]
pub(crate) struct Store {
    tables: Mutex<Tables>,
    changed: Beacon,
}

/// The tables behind the lock; a transaction sees and writes them whole.
#[derive(Debug)]
pub(crate) struct Tables {
    revision: u64,
    /// The oldest revision from which the history is complete.
    compacted: u64,
    objects: HashMap<&'static str, Objects>,
    history: VecDeque<Change>,
    history_limit: usize,
}

impl Store {
    pub(crate) fn new(history_limit: usize) -> Self {
        let tables = Tables {
            // etcd starts at 1, and resource version 0 means "any".
            revision: 1,
            compacted: 0,
            objects: HashMap::new(),
            history: VecDeque::new(),
            history_limit: history_limit.max(1),
        };
        Self { tables: Mutex::new(tables), changed: Beacon::default() }
    }

    /// Runs one transaction and tells the watchers if it wrote.
    pub(crate) fn transact<T>(&self, work: impl FnOnce(&mut Tables) -> T) -> T {
        let mut tables = lock(&self.tables);
        let before = tables.revision;
        let result = work(&mut tables);
        let after = tables.revision;
        drop(tables);
        if after != before {
            self.changed.tell();
        }
        result
    }

    /// Learns of every new revision.
    pub(crate) fn subscribe(&self) -> Heard {
        self.changed.subscribe()
    }

    pub(crate) fn revision(&self) -> u64 {
        lock(&self.tables).revision
    }

    pub(crate) fn get(&self, storage: &str, key: &str) -> Option<Arc<Value>> {
        lock(&self.tables).get(storage, key)
    }

    /// The objects of a storage now, and the revision that they are of.
    pub(crate) fn snapshot(&self, storage: &str) -> (Objects, u64) {
        let tables = lock(&self.tables);
        (tables.objects.get(storage).cloned().unwrap_or_default(), tables.revision)
    }

    /// The objects of a storage as they were at a revision.
    pub(crate) fn snapshot_at(&self, storage: &str, revision: u64) -> Result<Objects, Compacted> {
        let tables = lock(&self.tables);
        if revision < tables.compacted {
            return Err(Compacted { oldest: tables.compacted });
        }
        let mut objects = tables.objects.get(storage).cloned().unwrap_or_default();
        for change in tables.history.iter().rev().take_while(|change| change.revision > revision) {
            if change.storage == storage {
                match &change.previous {
                    Some(previous) => objects.insert(change.key.clone(), previous.clone()),
                    None => objects.remove(&change.key),
                };
            }
        }
        Ok(objects)
    }

    /// The changes of a storage after a revision, oldest first, and the revision reached.
    pub(crate) fn changes_since(
        &self,
        storage: &str,
        revision: u64,
    ) -> Result<(Vec<Change>, u64), Compacted> {
        let tables = lock(&self.tables);
        if revision < tables.compacted {
            return Err(Compacted { oldest: tables.compacted });
        }
        let first = tables.history.partition_point(|change| change.revision <= revision);
        let changes =
            tables.history.range(first..).filter(|change| change.storage == storage).cloned().collect();
        Ok((changes, tables.revision))
    }

    /// Forgets the history, as etcd's compaction does every five minutes.
    pub(crate) fn compact(&self) {
        let mut tables = lock(&self.tables);
        tables.history.clear();
        tables.compacted = tables.revision;
    }
}

impl Tables {
    pub(crate) fn get(&self, storage: &str, key: &str) -> Option<Arc<Value>> {
        self.objects.get(storage)?.get(key).cloned()
    }

    /// Writes an object under a new revision.
    pub(crate) fn put(&mut self, resource: &'static Resource, key: &str, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        stamp(&mut object, self.revision);
        let object = Arc::new(object);
        let previous =
            self.objects.entry(resource.storage).or_default().insert(key.to_owned(), object.clone());
        self.remember(resource, key, previous, object.clone(), false);
        object
    }

    /// Removes an object under a new revision.
    pub(crate) fn remove(&mut self, resource: &'static Resource, key: &str) -> Option<Arc<Value>> {
        let previous = self.objects.get_mut(resource.storage)?.remove(key)?;
        self.revision += 1;
        let mut last = Value::clone(&previous);
        stamp(&mut last, self.revision);
        let last = Arc::new(last);
        self.remember(resource, key, Some(previous), last.clone(), true);
        Some(last)
    }

    fn remember(
        &mut self,
        resource: &Resource,
        key: &str,
        previous: Option<Arc<Value>>,
        object: Arc<Value>,
        removed: bool,
    ) {
        if self.history.len() >= self.history_limit
            && let Some(forgotten) = self.history.pop_front()
        {
            self.compacted = forgotten.revision;
        }
        let (revision, storage, key) = (self.revision, resource.storage, key.to_owned());
        self.history.push_back(Change { revision, storage, key, previous, object, removed });
    }
}

/// Sets the resource version; an object injected without metadata stays as it is.
fn stamp(object: &mut Value, revision: u64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::resource::PODS;
    use super::*;

    fn put(store: &Store, name: &str, n: u64) -> u64 {
        store.transact(|tables| tables.put(&PODS, name, json!({"metadata": {"name": name}, "n": n})));
        store.revision()
    }

    #[test]
    fn an_old_snapshot_shows_what_was() {
        let store = Store::new(100);
        let first = put(&store, "a", 1);
        put(&store, "a", 2);
        put(&store, "b", 1);
        store.transact(|tables| tables.remove(&PODS, "a"));
        let then = store.snapshot_at("pods", first).unwrap();
        assert_eq!(then.len(), 1);
        assert_eq!(then["a"]["n"], 1);
        let (changes, _) = store.changes_since("pods", first).unwrap();
        assert_eq!(
            changes.iter().map(|c| (c.key.as_str(), c.removed)).collect::<Vec<_>>(),
            [("a", false), ("b", false), ("a", true)]
        );
    }

    #[test]
    fn the_history_is_bounded() {
        let store = Store::new(2);
        let first = put(&store, "a", 1);
        for n in 0..3 {
            put(&store, "a", n);
        }
        assert!(store.changes_since("pods", first).is_err());
        assert!(store.snapshot_at("pods", first).is_err());
        assert!(store.changes_since("pods", store.revision()).is_ok());
    }
}
