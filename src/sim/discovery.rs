//! Discovery: what the API server says that it serves.
//!
//! Must not know: the store.

use serde_json::{Value, json};

use super::resource::{RESOURCES, Resource};

/// Answers a discovery path, or `None` if it is none.
pub(crate) fn answer(
    path: &str,
    version: &str,
    address: &str,
    served: impl Fn(&Resource) -> bool,
) -> Option<Value> {
    let resources: Vec<&Resource> = RESOURCES.into_iter().filter(|resource| served(resource)).collect();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["version"] => Some(version_info(version)),
        ["api"] => Some(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        })),
        ["apis"] => {
            let mut groups: Vec<&str> =
                resources.iter().map(|r| r.group).filter(|group| !group.is_empty()).collect();
            groups.dedup();
            groups.sort_unstable();
            groups.dedup();
            let groups: Vec<Value> = groups.into_iter().map(|name| group(&resources, name)).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] if resources.iter().any(|r| r.group == *name) => {
            let mut group = group(&resources, name);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            Some(group)
        }
        ["api", version] => list(&resources, "", version),
        ["apis", group, version] => list(&resources, group, version),
        _ => None,
    }
}

fn version_info(version: &str) -> Value {
    let mut numbers = version.trim_start_matches('v').split('.');
    json!({
        "major": numbers.next().unwrap_or_default(), "minor": numbers.next().unwrap_or_default(), "gitVersion": version,
        "gitCommit": "0000000000000000000000000000000000000000", "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "go1.26.0", "compiler": "gc", "platform": "linux/amd64",
    })
}

fn group(resources: &[&Resource], name: &str) -> Value {
    let mut versions: Vec<&str> = resources.iter().filter(|r| r.group == name).map(|r| r.version).collect();
    versions.sort_by_key(|version| version.contains("alpha"));
    versions.dedup();
    let versions: Vec<Value> = versions
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

fn list(resources: &[&Resource], group: &str, version: &str) -> Option<Value> {
    let mut entries = Vec::new();
    for resource in resources.iter().filter(|r| r.group == group && r.version == version) {
        let verbs =
            json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced, "kind": resource.kind, "verbs": verbs,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        entries.push(entry);
        if resource.status {
            entries.push(json!({
                "name": format!("{}/status", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    if entries.is_empty() {
        return None;
    }
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": entries}),
    )
}
