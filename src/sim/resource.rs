//! The resources that the simulated API server serves, and their paths.
//!
//! Must not know: the store, HTTP.

use serde_json::Value;

/// One resource of the API.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group, empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural name, as in paths.
    pub plural: &'static str,
    /// Singular name.
    pub singular: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Short names, as `kubectl` knows them.
    pub short_names: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether `/status` is a resource of its own.
    pub status: bool,
    /// Whether a delete answers the object itself and not a `Status`.
    pub returns_deleted: bool,
    /// The name of the storage: two groups may show the same objects (events).
    pub storage: &'static str,
}

const fn resource(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource {
        group,
        version,
        plural,
        singular,
        kind,
        short_names: &[],
        namespaced: true,
        status: false,
        returns_deleted: false,
        storage: plural,
    }
}

/// core/v1 pods.
pub static PODS: Resource = Resource {
    short_names: &["po"],
    status: true,
    returns_deleted: true,
    ..resource("", "v1", "pods", "pod", "Pod")
};
/// core/v1 events.
pub static EVENTS: Resource =
    Resource { short_names: &["ev"], ..resource("", "v1", "events", "event", "Event") };
/// events.k8s.io/v1 events: the same objects as [`EVENTS`] with other field names.
pub static NEW_EVENTS: Resource =
    Resource { short_names: &["ev"], ..resource("events.k8s.io", "v1", "events", "event", "Event") };
/// core/v1 nodes.
pub static NODES: Resource = Resource {
    short_names: &["no"],
    namespaced: false,
    status: true,
    ..resource("", "v1", "nodes", "node", "Node")
};
/// core/v1 namespaces.
pub static NAMESPACES: Resource = Resource {
    short_names: &["ns"],
    namespaced: false,
    status: true,
    returns_deleted: true,
    ..resource("", "v1", "namespaces", "namespace", "Namespace")
};
/// apps/v1 replicasets.
pub static REPLICA_SETS: Resource = Resource {
    short_names: &["rs"],
    status: true,
    ..resource("apps", "v1", "replicasets", "replicaset", "ReplicaSet")
};
/// apps/v1 statefulsets.
pub static STATEFUL_SETS: Resource = Resource {
    short_names: &["sts"],
    status: true,
    ..resource("apps", "v1", "statefulsets", "statefulset", "StatefulSet")
};
/// apps/v1 daemonsets.
pub static DAEMON_SETS: Resource = Resource {
    short_names: &["ds"],
    status: true,
    ..resource("apps", "v1", "daemonsets", "daemonset", "DaemonSet")
};
/// coordination.k8s.io/v1 leases.
pub static LEASES: Resource = resource("coordination.k8s.io", "v1", "leases", "lease", "Lease");
/// admissionregistration.k8s.io/v1 validatingadmissionpolicies: stored, and obeyed by nobody. The fence that is obeyed is
/// `Fence`.
pub static ADMISSION_POLICIES: Resource = Resource {
    namespaced: false,
    status: true,
    ..resource(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
        "ValidatingAdmissionPolicy",
    )
};
/// admissionregistration.k8s.io/v1 validatingadmissionpolicybindings: the same.
pub static ADMISSION_BINDINGS: Resource = Resource {
    namespaced: false,
    ..resource(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding",
        "ValidatingAdmissionPolicyBinding",
    )
};
/// cilium.io/v2 ciliumnodes.
pub static CILIUM_NODES: Resource = Resource {
    short_names: &["cn", "ciliumn"],
    namespaced: false,
    status: true,
    ..resource("cilium.io", "v2", "ciliumnodes", "ciliumnode", "CiliumNode")
};
/// cilium.io/v2 ciliumendpoints: no status subresource.
pub static CILIUM_ENDPOINTS: Resource = Resource {
    short_names: &["cep", "ciliumep"],
    ..resource("cilium.io", "v2", "ciliumendpoints", "ciliumendpoint", "CiliumEndpoint")
};
/// cilium.io/v2alpha1 ciliumendpointslices.
pub static CILIUM_ENDPOINT_SLICES: Resource = Resource {
    short_names: &["ces"],
    namespaced: false,
    ..resource("cilium.io", "v2alpha1", "ciliumendpointslices", "ciliumendpointslice", "CiliumEndpointSlice")
};

/// authentication.k8s.io/v1 tokenreviews: only asked, never stored.
pub(crate) static TOKEN_REVIEWS: Resource = Resource {
    namespaced: false,
    ..resource("authentication.k8s.io", "v1", "tokenreviews", "tokenreview", "TokenReview")
};
/// authorization.k8s.io/v1 subjectaccessreviews: the same.
pub(crate) static SUBJECT_ACCESS_REVIEWS: Resource = Resource {
    namespaced: false,
    ..resource(
        "authorization.k8s.io",
        "v1",
        "subjectaccessreviews",
        "subjectaccessreview",
        "SubjectAccessReview",
    )
};

/// Every resource that is stored.
pub(crate) static RESOURCES: [&Resource; 14] = [
    &PODS,
    &EVENTS,
    &NEW_EVENTS,
    &NODES,
    &NAMESPACES,
    &REPLICA_SETS,
    &STATEFUL_SETS,
    &DAEMON_SETS,
    &LEASES,
    &ADMISSION_POLICIES,
    &ADMISSION_BINDINGS,
    &CILIUM_NODES,
    &CILIUM_ENDPOINTS,
    &CILIUM_ENDPOINT_SLICES,
];

impl Resource {
    /// `pods`, `ciliumnodes.cilium.io`.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Whether it is one of Cilium's custom resources, which the server words and lists otherwise than its own.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.group == "cilium.io"
    }

    /// Whether `metadata.generation` counts its changes here.
    #[must_use]
    pub(crate) fn has_generation(&self) -> bool {
        self.is_custom() || self.group == "apps"
    }

    /// The version that its objects are stored in; of the two faces of events it is the core one.
    pub(crate) fn stored_version(&self) -> String {
        if self.kind == EVENTS.kind { EVENTS.api_version() } else { self.api_version() }
    }

    /// `v1`, `cilium.io/v2`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// The key of an object in its storage; ordered as etcd orders it.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// A text field of an object, or the empty text.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What a path of the API stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub resource: &'static Resource,
    /// Empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// Empty for the collection.
    pub name: String,
    /// Empty, or `status` and the like.
    pub subresource: String,
}

/// Reads a path such as `/api/v1/namespaces/ns/pods/name/status`. `None` if it names no resource.
pub(crate) fn parse_path(path: &str) -> Option<Target> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let find = |plural: &str| {
        RESOURCES.into_iter().find(|r| r.group == group && r.version == version && r.plural == plural)
    };
    let target = |resource, namespace: &str, name: &str, subresource: &str| {
        Some(Target {
            resource,
            namespace: decode(namespace)?,
            name: decode(name)?,
            subresource: subresource.to_owned(),
        })
    };
    match rest {
        ["namespaces", namespace, plural, tail @ ..] if !matches!(*plural, "status" | "finalize") => {
            let resource = find(plural).filter(|r| r.namespaced)?;
            match tail {
                [] => target(resource, namespace, "", ""),
                [name] => target(resource, namespace, name, ""),
                [name, subresource] => target(resource, namespace, name, subresource),
                _ => None,
            }
        }
        [plural] => target(find(plural)?, "", "", ""),
        [plural, name, tail @ ..] => {
            let resource = find(plural).filter(|r| !r.namespaced)?;
            match tail {
                [] => target(resource, "", name, ""),
                [subresource] => target(resource, "", name, subresource),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Undoes percent encoding; `None` if the result is no UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digit = |offset: usize| bytes.get(at + offset).and_then(|b| char::from(*b).to_digit(16));
        match (bytes[at], digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).ok()?);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok()
}

/// The parameters of a query string, decoded.
pub(crate) fn query_pairs(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|part| !part.is_empty())
        .filter_map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Some((decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resources() {
        let pod = parse_path("/api/v1/namespaces/a/pods/b/status").unwrap();
        assert_eq!(
            (pod.resource, pod.namespace.as_str(), pod.name.as_str(), pod.subresource.as_str()),
            (&PODS, "a", "b", "status")
        );
        assert_eq!(parse_path("/apis/cilium.io/v2/ciliumnodes/n1").unwrap().resource, &CILIUM_NODES);
        assert_eq!(parse_path("/api/v1/namespaces/a").unwrap().resource, &NAMESPACES);
        assert_eq!(parse_path("/api/v1/pods").unwrap().namespace, "");
        assert_eq!(parse_path("/api/v1/secrets"), None);
        assert_eq!(parse_path("/healthz"), None);
        assert_eq!(parse_path("/apis/cilium.io/v2/namespaces/a/ciliumnodes/n1"), None);
    }

    #[test]
    fn garbage_does_not_panic() {
        for text in ["", "%", "%2", "%zz", "%ff", "a%2Fb", "//", "/api//", "/apis/%/%/%"] {
            let _ = decode(text);
            let _ = parse_path(text);
            let _ = query_pairs(text);
        }
        assert_eq!(decode("a%2Fb").unwrap(), "a/b");
        assert_eq!(decode("%ff"), None);
    }
}
