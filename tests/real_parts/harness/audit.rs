//! What a daemon asked of the API server, by the server's own audit log.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    pub verb: String,
    pub group: String,
    /// With the subresource, as RBAC names it; the path where there is no resource.
    pub resource: String,
    /// Empty: of all, or of none.
    pub namespace: String,
    /// Empty for a list.
    pub name: String,
    pub dry_run: bool,
    pub status: u64,
}

impl Request {
    pub fn is_write(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb.as_str())
    }
}

/// The different requests of the token that is bound to this pod.
pub fn requests_of(audit_log: &Path, pod: &str) -> BTreeSet<Request> {
    timeline_of(audit_log, pod).into_iter().map(|(_, request)| request).collect()
}

/// All requests of that token, with the time at which the server answered each, in that order. The times can be compared. A watch is
/// there twice.
pub fn timeline_of(audit_log: &Path, pod: &str) -> Vec<(String, Request)> {
    let log = fs::read_to_string(audit_log).expect("read the audit log");
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut requests: Vec<_> = entries
        .filter(|entry| entry["user"]["extra"]["authentication.kubernetes.io/pod-name"][0] == pod)
        .map(|entry| (entry["stageTimestamp"].as_str().unwrap_or_default().to_owned(), request(&entry)))
        .collect();
    requests.sort();
    requests
}

fn request(entry: &Value) -> Request {
    let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = match (text("/objectRef/resource"), text("/objectRef/subresource")) {
        (resource, _) if resource.is_empty() => text("/requestURI"),
        (resource, subresource) if subresource.is_empty() => resource,
        (resource, subresource) => format!("{resource}/{subresource}"),
    };
    Request {
        verb: text("/verb"),
        group: text("/objectRef/apiGroup"),
        resource,
        namespace: text("/objectRef/namespace"),
        name: text("/objectRef/name"),
        dry_run: text("/requestURI").contains("dryRun="),
        status: entry["responseStatus"]["code"].as_u64().unwrap_or_default(),
    }
}
