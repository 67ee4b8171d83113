//! The rights that the manifests in `rbac/` give the watchdog, as an authorizer. Everybody else may do everything.
//!
//! A test of the suite on this cluster holds the table to the files. Must not know: the server.

use super::api_options::Attributes;

const WATCHDOG: &str = "system:serviceaccount:cilium-leak-healer:cilium-leak-healer";

/// A right: verb, API group, resource, and the one namespace or name that it is for, empty for any.
pub type Right = (&'static str, &'static str, &'static str, &'static str, &'static str);

const OWN: &str = "cilium-leak-healer";

/// What `rbac/observe.yaml`, `rbac/heal.yaml`, `rbac/restart-agent.yaml` and `rbac/auth.yaml` give together.
pub const WATCHDOG_RIGHTS: [Right; 23] = [
    ("get", "", "pods", "", ""),
    ("list", "", "pods", "", ""),
    ("watch", "", "pods", "", ""),
    ("list", "", "events", "", ""),
    ("get", "cilium.io", "ciliumnodes", "", ""),
    ("get", "cilium.io", "ciliumendpoints", "", ""),
    ("list", "cilium.io", "ciliumendpointslices", "", ""),
    ("delete", "", "pods", "", ""),
    ("get", "", "namespaces", "", ""),
    ("create", "events.k8s.io", "events", "", ""),
    ("patch", "events.k8s.io", "events", "", ""),
    ("get", "coordination.k8s.io", "leases", OWN, "cilium-leak-healer-delete-pod-0"),
    ("update", "coordination.k8s.io", "leases", OWN, "cilium-leak-healer-delete-pod-0"),
    ("get", "coordination.k8s.io", "leases", OWN, "cilium-leak-healer-delete-pod-1"),
    ("update", "coordination.k8s.io", "leases", OWN, "cilium-leak-healer-delete-pod-1"),
    ("get", "coordination.k8s.io", "leases", OWN, "cilium-leak-healer-delete-pod-2"),
    ("update", "coordination.k8s.io", "leases", OWN, "cilium-leak-healer-delete-pod-2"),
    ("get", "coordination.k8s.io", "leases", OWN, "cilium-leak-healer-restart-agent"),
    ("update", "coordination.k8s.io", "leases", OWN, "cilium-leak-healer-restart-agent"),
    ("get", "apps", "daemonsets", "kube-system", ""),
    ("get", "", "nodes", "", ""),
    ("create", "authentication.k8s.io", "tokenreviews", "", ""),
    ("create", "authorization.k8s.io", "subjectaccessreviews", "", ""),
];

/// Whether that user may do it.
pub(crate) fn watchdog_may(wish: &Attributes) -> bool {
    let is = |have: &str, asked: &str| have.is_empty() || have == asked;
    wish.user != WATCHDOG
        || WATCHDOG_RIGHTS.iter().any(|(verb, group, resource, namespace, name)| {
            wish.subresource.is_empty()
                && *verb == wish.verb
                && *group == wish.group
                && *resource == wish.resource
                && is(namespace, &wish.namespace)
                && is(name, &wish.name)
        })
}
