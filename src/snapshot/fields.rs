//! Where in a snapshot there are names, ids and addresses, and which of them a text is.
//!
//! No field is saved that is not in one of the tables here, except for words of the APIs, times, numbers and versions.

use serde_json::Value;

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// The name of a namespaced object other than a CiliumEndpoint.
    Name,
    /// The name of a CiliumEndpoint: a pod's, or a pod's and an interface's.
    EndpointName,
    Namespace,
    Node,
    Uid,
    Container,
    Attachment,
    Address,
    /// Addresses, separated by commas.
    Addresses,
    Network,
    Message,
    /// The name of an agent's controller.
    Controller,
    /// A label of an identity.
    Label,
    /// The id of an agent's call.
    CallId,
    /// The value of `k8s-app`: the agent's is told by it.
    App,
    /// Who wrote an Event.
    Component,
    /// Of no interest.
    Dull,
}

/// Fields by their paths.
pub(super) type Table = &'static [(&'static [&'static str], Kind)];

pub(super) const METADATA: Table = &[
    (&["metadata", "namespace"], Kind::Namespace),
    (&["metadata", "uid"], Kind::Uid),
    (&["metadata", "ownerReferences", "name"], Kind::Name),
    (&["metadata", "ownerReferences", "uid"], Kind::Uid),
    (&["metadata", "labels", "k8s-app"], Kind::App),
    (&["metadata", "labels", "kubevirt.io/vm"], Kind::Name),
    (&["metadata", "labels", "vm.kubevirt.io/name"], Kind::Name),
    (&["metadata", "annotations", "kubernetes.io/config.mirror"], Kind::Uid),
    (&["metadata", "annotations", "ovn.kubernetes.io/allocated"], Kind::Dull),
    (&["metadata", "annotations", "ovn.kubernetes.io/ip_address"], Kind::Addresses),
    (&["metadata", "annotations", "ovn.kubernetes.io/logical_switch"], Kind::Name),
    (&["metadata", "annotations", "ovn.kubernetes.io/vpc"], Kind::Name),
];
pub(super) const POD: Table = &[
    (&["metadata", "name"], Kind::Name),
    (&["spec", "nodeName"], Kind::Node),
    (&["status", "podIP"], Kind::Address),
    (&["status", "podIPs", "ip"], Kind::Address),
    (&["status", "containerStatuses", "name"], Kind::Dull),
    (&["status", "initContainerStatuses", "name"], Kind::Dull),
    (&["status", "ephemeralContainerStatuses", "name"], Kind::Dull),
];
pub(super) const EVENT: Table = &[
    (&["metadata", "name"], Kind::Dull),
    (&["involvedObject", "uid"], Kind::Uid),
    (&["message"], Kind::Message),
    (&["source", "host"], Kind::Node),
    (&["reportingComponent"], Kind::Component),
    (&["reportingInstance"], Kind::Node),
];
pub(super) const NODE: Table = &[
    (&["metadata", "name"], Kind::Node),
    (&["spec", "addresses", "ip"], Kind::Address),
    (&["spec", "health", "ipv4"], Kind::Address),
    (&["spec", "health", "ipv6"], Kind::Address),
    (&["spec", "ingress", "ipv4"], Kind::Address),
    (&["spec", "ingress", "ipv6"], Kind::Address),
    (&["spec", "ipam", "podCIDRs"], Kind::Network),
    (&["spec", "ipam", "pools", "allocated", "cidrs"], Kind::Network),
];
pub(super) const ENDPOINT: Table = &[
    (&["metadata", "name"], Kind::EndpointName),
    (&["status", "external-identifiers", "cni-attachment-id"], Kind::Attachment),
    (&["status", "external-identifiers", "container-id"], Kind::Container),
    (&["status", "networking", "addressing", "ipv4"], Kind::Address),
    (&["status", "networking", "addressing", "ipv6"], Kind::Address),
    (&["status", "networking", "node"], Kind::Address),
];
pub(super) const SLICE: Table = &[
    (&["metadata", "name"], Kind::Dull),
    (&["namespace"], Kind::Namespace),
    (&["endpoints", "name"], Kind::EndpointName),
    (&["endpoints", "networking", "addressing", "ipv4"], Kind::Address),
    (&["endpoints", "networking", "addressing", "ipv6"], Kind::Address),
    (&["endpoints", "networking", "node"], Kind::Address),
    (&["endpoints", "pod-uid"], Kind::Uid),
];
pub(super) const MODEL: Table = &[
    (&["status", "external-identifiers", "cni-attachment-id"], Kind::Attachment),
    (&["status", "external-identifiers", "container-id"], Kind::Container),
    (&["status", "external-identifiers", "k8s-namespace"], Kind::Namespace),
    (&["status", "external-identifiers", "k8s-pod-name"], Kind::Name),
    (&["status", "controllers", "name"], Kind::Controller),
    (&["status", "identity", "labels"], Kind::Label),
    (&["status", "labels", "security-relevant"], Kind::Label),
    (&["status", "networking", "addressing", "ipv4"], Kind::Address),
    (&["status", "networking", "addressing", "ipv6"], Kind::Address),
];
pub(super) const UNREAD_NODE: Table = &[(&["name"], Kind::Node)];
pub(super) const UNREAD_OTHER: Table = &[(&["namespace"], Kind::Namespace), (&["name"], Kind::EndpointName)];
pub(super) const FAILURE: Table = &[(&["id"], Kind::CallId)];

/// Shows the text at a path; of a list on the way, that of each element. An empty text says nothing.
pub(super) fn walk(value: &mut Value, path: &[&str], f: &mut dyn FnMut(&mut String)) {
    match (value, path) {
        (Value::Array(items), _) => items.iter_mut().for_each(|item| walk(item, path, f)),
        (Value::Object(map), [key, rest @ ..]) => {
            if let Some(value) = map.get_mut(*key) {
                walk(value, rest, f);
            }
        }
        (Value::String(text), []) if !text.is_empty() => f(text),
        _ => {}
    }
}
