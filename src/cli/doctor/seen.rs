//! What `doctor` looked at: values, each with the reason where it could not be read.
//!
//! Must not know: how it was read, what is well and what is not.

use std::collections::BTreeSet;

/// A value, or in words why nobody knows it.
pub(super) type Seen<T> = Result<T, String>;

/// What a right is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// The watchdog in the mode observe.
    Observe,
    /// The watchdog in the mode heal, besides.
    Heal,
    /// A person's `scan` and `explain`, besides.
    Scan,
}

/// A right: a verb on a resource, in all namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) purpose: Purpose,
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) subresource: &'static str,
}

const fn right(purpose: Purpose, verb: &'static str, group: &'static str, resource: &'static str) -> Right {
    Right { purpose, verb, group, resource, subresource: "" }
}

/// All rights that the verbs need; those of observe and heal are what `rbac/` grants, and a test holds them to it.
pub(super) const RIGHTS: [Right; 12] = [
    right(Purpose::Observe, "get", "", "pods"),
    right(Purpose::Observe, "list", "", "pods"),
    right(Purpose::Observe, "watch", "", "pods"),
    right(Purpose::Observe, "list", "", "events"),
    right(Purpose::Observe, "get", "cilium.io", "ciliumnodes"),
    right(Purpose::Observe, "get", "cilium.io", "ciliumendpoints"),
    right(Purpose::Observe, "list", "cilium.io", "ciliumendpointslices"),
    right(Purpose::Heal, "delete", "", "pods"),
    right(Purpose::Scan, "list", "cilium.io", "ciliumnodes"),
    right(Purpose::Scan, "list", "cilium.io", "ciliumendpoints"),
    // An exec is a GET by WebSocket; since Kubernetes 1.35 it needs `create` as well.
    Right { subresource: "exec", ..right(Purpose::Scan, "get", "", "pods") },
    Right { subresource: "exec", ..right(Purpose::Scan, "create", "", "pods") },
];

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// Which of Cilium's resources the API server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) nodes: bool,
    pub(super) endpoints: bool,
    pub(super) slices: bool,
    /// At least one slice is there; `None` where nobody knows.
    pub(super) slices_in_use: Option<bool>,
}

/// A pod of the Cilium agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentPod {
    pub(super) namespace: String,
    pub(super) node: String,
    pub(super) ready: bool,
    /// The image of its agent container.
    pub(super) image: String,
}

/// What the `ConfigMap` of the agents says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct CiliumConfig {
    pub(super) ipam: Option<String>,
    pub(super) chaining: Option<String>,
}

/// The watchdog's DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watchdog {
    pub(super) desired: i32,
    pub(super) ready: i32,
    pub(super) mode: Option<String>,
}

/// Everything that was looked at.
#[derive(Debug)]
pub(super) struct Cluster {
    /// `gitVersion`.
    pub(super) version: String,
    /// The service account that was asked about; `None`: the caller.
    pub(super) account: Option<String>,
    pub(super) rights: Vec<(Right, Seen<bool>)>,
    pub(super) served: Seen<Served>,
    pub(super) nodes: Seen<BTreeSet<String>>,
    pub(super) selector: String,
    pub(super) agents: Seen<Vec<AgentPod>>,
    /// The IPAM mode as the agent of one node says it; `None`: no agent could be asked, or the caller is not meant.
    pub(super) told: Option<(String, Seen<String>)>,
    /// `None`: it is not there.
    pub(super) config: Seen<Option<CiliumConfig>>,
    /// Where the watchdog is looked for.
    pub(super) watchdog_namespace: String,
    /// `None`: it is not installed.
    pub(super) watchdog: Seen<Option<Watchdog>>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// `verb resource.group` of each rule in the manifests.
    fn granted(manifests: &str) -> BTreeSet<String> {
        let documents =
            manifests.split("\n---\n").filter_map(|text| serde_saphyr::from_str::<Value>(text).ok());
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
        };
        let mut granted = BTreeSet::new();
        for rule in documents.flat_map(|document| document["rules"].as_array().cloned().unwrap_or_default()) {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                        granted.insert(format!("{verb} {resource}{group}"));
                    }
                }
            }
        }
        granted
    }

    #[test]
    fn the_rights_are_those_that_the_manifests_grant() {
        for (purpose, manifests) in [
            (Purpose::Observe, include_str!("../../../rbac/observe.yaml")),
            (Purpose::Heal, include_str!("../../../rbac/heal.yaml")),
        ] {
            let needed = RIGHTS.iter().filter(|right| right.purpose == purpose).map(Right::to_string);
            assert_eq!(granted(manifests), needed.collect(), "{purpose:?}");
        }
    }
}
