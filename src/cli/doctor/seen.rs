//! What `doctor` looked at: values, each with the reason where it could not be read.
//!
//! Must not know: how it was read, what is well and what is not.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};

use crate::kube::{
    AccessWish, UNWANTED, WANTED_AUTH, WANTED_EVENTS, WANTED_HEAL, WANTED_RESTART, wanted_leases,
};

/// A value, or in words why nobody knows it.
pub(super) type Seen<T> = Result<T, String>;

/// What a right is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// The watchdog in the mode observe.
    Observe,
    /// The watchdog in the mode heal, besides.
    Heal,
    /// The remedy restart-agent, besides.
    RestartAgent,
    /// `--auth=token`, besides.
    Auth,
    /// A person's `scan` and `explain`, besides.
    Scan,
    /// No watchdog may have it.
    Excess,
}

/// Where things are, and the names of the Leases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'a> {
    /// The watchdog's namespace.
    pub(super) own: &'a str,
    /// That of the agents.
    pub(super) agents: &'a str,
    pub(super) delete_leases: &'a [String],
    pub(super) restart_leases: &'a [String],
}

const OBSERVE: [AccessWish; 7] = [
    AccessWish::new("get", "", "pods"),
    AccessWish::new("list", "", "pods"),
    AccessWish::new("watch", "", "pods"),
    AccessWish::new("list", "", "events"),
    AccessWish::new("get", "cilium.io", "ciliumnodes"),
    AccessWish::new("get", "cilium.io", "ciliumendpoints"),
    AccessWish::new("list", "cilium.io", "ciliumendpointslices"),
];

const SCAN: [AccessWish; 4] = [
    AccessWish::new("list", "cilium.io", "ciliumnodes"),
    AccessWish::new("list", "cilium.io", "ciliumendpoints"),
    // An exec is a GET by WebSocket; since Kubernetes 1.35 it needs `create` as well.
    AccessWish::of("get", "pods", "exec"),
    AccessWish::of("create", "pods", "exec"),
];

/// The rights for a purpose; a test holds those of the watchdog to what `rbac/` grants.
pub(super) fn rights(purpose: Purpose, places: Places<'_>) -> Vec<AccessWish> {
    match purpose {
        Purpose::Observe => OBSERVE.into_iter().chain(WANTED_EVENTS).collect(),
        Purpose::Heal => {
            let mut wishes = WANTED_HEAL.to_vec();
            wishes.extend(wanted_leases(places.own, places.delete_leases));
            wishes
        }
        Purpose::RestartAgent => {
            let within = |wish: AccessWish| {
                if wish.resource == "daemonsets" { wish.within(places.agents) } else { wish }
            };
            let mut wishes: Vec<AccessWish> = WANTED_RESTART.into_iter().map(within).collect();
            wishes.extend(wanted_leases(places.own, places.restart_leases));
            wishes
        }
        Purpose::Auth => WANTED_AUTH.to_vec(),
        Purpose::Scan => SCAN.to_vec(),
        Purpose::Excess => UNWANTED.to_vec(),
    }
}

/// A right, and what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) purpose: Purpose,
    pub(super) wish: AccessWish,
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Watchdog {
    pub(super) desired: i32,
    pub(super) ready: i32,
    pub(super) mode: Option<String>,
    /// As they are set; `None`: the default ones.
    pub(super) remedies: Option<Vec<String>>,
    /// As it is set; `None`: the default.
    pub(super) delete_in_flight: Option<u32>,
    /// Whether it has bearer tokens reviewed.
    pub(super) reviews_tokens: bool,
    /// Its service account.
    pub(super) account: Option<String>,
}

impl Watchdog {
    pub(super) fn heals(&self) -> bool {
        self.mode.as_deref() == Some("heal")
    }

    /// Whether it may use the remedy, once it heals.
    pub(super) fn uses(&self, remedy: &str) -> bool {
        match &self.remedies {
            Some(remedies) => remedies.iter().any(|it| it == remedy),
            None => matches!(remedy, "delete-pod" | "disconnect-endpoint"),
        }
    }

    /// Whether it deletes pods, which is what needs the fence.
    pub(super) fn deletes(&self) -> bool {
        self.heals() && (self.uses("delete-pod") || self.uses("restart-agent"))
    }
}

/// A policy of the fence and its binding, by one name.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Policy {
    pub(super) policy: Option<ValidatingAdmissionPolicy>,
    pub(super) binding: Option<ValidatingAdmissionPolicyBinding>,
}

/// The admission fence.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fence {
    /// That of `rbac/fence.yaml`.
    pub(super) all: Policy,
    /// That of `rbac/restart-agent.yaml`.
    pub(super) agents: Policy,
}

/// A Lease by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseSeen {
    pub(super) name: String,
    pub(super) there: bool,
    pub(super) holder: Option<String>,
}

/// The pause annotation of the watchdog's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Paused {
    /// Its value; may be empty.
    pub(super) why: String,
    /// When it was written, if the server remembers.
    pub(super) since: Option<String>,
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
    /// The user that the fence must be about.
    pub(super) fenced_user: String,
    /// `None`: the API server knows no such policies.
    pub(super) fence: Seen<Option<Fence>>,
    pub(super) leases: Seen<Vec<LeaseSeen>>,
    /// `None`: it is not paused.
    pub(super) paused: Seen<Option<Paused>>,
}

impl Cluster {
    /// The watchdog, where one is known to be installed.
    pub(super) fn installed(&self) -> Option<&Watchdog> {
        self.watchdog.as_ref().ok().and_then(Option::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::cli::run::{RESTART_LEASE, delete_leases};

    fn texts(value: &Value) -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
    }

    /// Each rule of the manifests, in the words of a wish.
    fn granted(manifests: &str) -> BTreeSet<String> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap();
        let mut granted = BTreeSet::new();
        for document in documents {
            let within = match document["metadata"]["namespace"].as_str() {
                Some(namespace) => format!(" in namespace {namespace}"),
                None => String::new(),
            };
            for rule in document["rules"].as_array().into_iter().flatten() {
                // The role for people, which nobody is bound to.
                if document["metadata"]["name"] == "cilium-leak-healer-view" {
                    assert!(rule.get("resources").is_none(), "{rule}");
                    continue;
                }
                let fields: BTreeSet<&str> = rule.as_object().unwrap().keys().map(String::as_str).collect();
                let known = ["apiGroups", "resourceNames", "resources", "verbs"];
                assert!(fields.iter().all(|field| known.contains(field)), "{fields:?}");
                let names: Vec<String> = match rule.get("resourceNames") {
                    Some(names) => texts(names).iter().map(|name| format!(" named {name}")).collect(),
                    None => vec![String::new()],
                };
                for group in texts(&rule["apiGroups"]) {
                    let group = if group.is_empty() { group } else { format!(".{group}") };
                    for (resource, verb) in texts(&rule["resources"]).iter().flat_map(|resource| {
                        texts(&rule["verbs"]).into_iter().map(move |verb| (resource, verb))
                    }) {
                        granted.extend(
                            names.iter().map(|name| format!("{verb} {resource}{group}{name}{within}")),
                        );
                    }
                }
            }
        }
        granted
    }

    #[test]
    fn the_rights_are_those_that_the_manifests_grant() {
        let delete_leases = delete_leases(3);
        let restart_leases = [RESTART_LEASE.to_owned()];
        let places = Places {
            own: "cilium-leak-healer",
            agents: "kube-system",
            delete_leases: &delete_leases,
            restart_leases: &restart_leases,
        };
        for (purpose, manifests) in [
            (Purpose::Observe, include_str!("../../../rbac/observe.yaml")),
            (Purpose::Heal, include_str!("../../../rbac/heal.yaml")),
            (Purpose::RestartAgent, include_str!("../../../rbac/restart-agent.yaml")),
            (Purpose::Auth, include_str!("../../../rbac/auth.yaml")),
        ] {
            let needed = rights(purpose, places).iter().map(ToString::to_string).collect();
            assert_eq!(granted(manifests), needed, "{purpose:?}");
        }
    }
}
