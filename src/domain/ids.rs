//! Identity by type: each thing that must not be mixed up has its own type, made only by parsing.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A text that is no identifier of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {kind}")]
pub struct IdError {
    /// What was wanted.
    pub kind: &'static str,
    /// What was given, at most 64 characters of it.
    pub text: String,
}

impl IdError {
    pub(super) fn new(kind: &'static str, text: &str) -> Self {
        Self { kind, text: text.chars().take(64).collect() }
    }
}

/// Defines an identifier: a text within a length and of certain characters.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:literal, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The text of it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let allowed: fn(u8) -> bool = $allowed;
                if text.is_empty() || text.len() > $max || !text.bytes().all(allowed) {
                    return Err(IdError::new($kind, text));
                }
                Ok(Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

fn dns_like(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')
}

id!(
    /// `metadata.uid` of a pod, or the value of a mirror pod's `kubernetes.io/config.mirror` annotation.
    PodUid,
    "pod UID",
    128,
    dns_like
);
id!(
    /// `metadata.name` of a Node: a DNS subdomain.
    NodeName,
    "node name",
    253,
    dns_like
);

impl NodeName {
    /// A number below `many` (0 for none) that is the same each time and differs from node to node: what all nodes do
    /// would else be done by all at one instant.
    pub fn spread(&self, many: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish() % many.max(1)
    }
}
id!(
    /// The id of a sandbox at the container runtime: 64 hexadecimal digits in practice, not required here.
    ContainerId,
    "container id",
    128,
    dns_like
);

/// `cni-attachment-id` of an endpoint (Cilium 1.15 and newer): `<container>:<interface>`, or the container alone.
///
/// It is used as the agent shows it: built from its parts it may be another id, whose DELETE gets a 404 that looks healed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttachmentId {
    text: String,
    container: ContainerId,
}

impl AttachmentId {
    /// The text as the agent shows it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The part before the first colon.
    pub fn container(&self) -> &ContainerId {
        &self.container
    }

    /// The part behind the first colon, if there is one.
    pub fn interface(&self) -> Option<&str> {
        self.text.split_once(':').map(|(_, interface)| interface)
    }
}

impl FromStr for AttachmentId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let error = || IdError::new("CNI attachment id", text);
        let (container, interface) = text.split_once(':').unwrap_or((text, ""));
        let container = container.parse().map_err(|_| error())?;
        if interface.len() > 64 || !interface.bytes().all(|b| b.is_ascii_graphic() && b != b'/') {
            return Err(error());
        }
        Ok(Self { text: text.to_owned(), container })
    }
}

impl fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The number of an endpoint on its node. Numbers are used again: no act names one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub i64);

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Namespace and name of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodName {
    namespace: String,
    name: String,
}

impl PodName {
    /// Both parts, each a Kubernetes name.
    pub fn new(namespace: &str, name: &str) -> Result<Self, IdError> {
        for part in [namespace, name] {
            if part.is_empty()
                || part.len() > 253
                || !part.bytes().all(dns_like)
                || part.bytes().all(|b| b == b'.')
            {
                return Err(IdError::new("pod name", &format!("{namespace}/{name}")));
            }
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for PodName {
    type Err = IdError;

    /// Parses `namespace/name`.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let (namespace, name) = text.split_once('/').ok_or_else(|| IdError::new("pod name", text))?;
        Self::new(namespace, name)
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Parses an address strictly: no zone, no brackets, no leading zeros, no prefix length.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok()
}

/// The text the agent's registry uses: IPv6 as in RFC 5952, which is what Go prints as well.
pub fn canonical_ip(ip: IpAddr) -> String {
    ip.to_string()
}

/// Whether the address is link-local (`169.254.0.0/16`, `fe80::/10`): it says nothing about whose it is.
pub fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => Ipv4Addr::is_link_local(&v4),
        IpAddr::V6(v6) => Ipv6Addr::is_unicast_link_local(&v6),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::NodeName;

    #[test]
    fn nodes_are_spread_over_the_whole_range_and_stay_where_they_are() {
        let node = |number: u32| format!("worker-{number}").parse::<NodeName>().unwrap();
        let all: BTreeSet<u64> = (0..1000).map(|number| node(number).spread(60)).collect();
        assert_eq!((all.len(), all.last()), (60, Some(&59)));
        assert_eq!(node(1).spread(1_000_000), node(1).spread(1_000_000));
        assert_eq!(node(1).spread(0), 0);
    }
}
