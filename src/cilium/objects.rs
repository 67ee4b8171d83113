//! Cilium's Kubernetes objects as slim types: the parts that the rules look at, and nothing else in memory.
//!
//! They fit `kube::Api`, but this module must not know how they are fetched. A malformed part counts as absent.

use std::borrow::Cow;
use std::net::IpAddr;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use kube::api::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lenient::{list, nullable, part, parts};
use super::model::NoModel;
use crate::domain::{CiliumEndpoint, CiliumNode, EndpointId, PodName, ReservedUse, SliceEntry, parse_ip};
use crate::metadata::{self, Metadata};

const GROUP: &str = "cilium.io";

/// Implements `Resource` for a type with a field `metadata`.
macro_rules! resource {
    ($type:ty, $scope:ty, $version:literal, $kind:literal, $plural:literal) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(CiliumNodeObject, ClusterResourceScope, "v2", "CiliumNode", "ciliumnodes");
resource!(CiliumEndpointObject, NamespaceResourceScope, "v2", "CiliumEndpoint", "ciliumendpoints");
resource!(
    CiliumEndpointSliceObject,
    ClusterResourceScope,
    "v2alpha1",
    "CiliumEndpointSlice",
    "ciliumendpointslices"
);

/// `CiliumNode`, cilium.io/v2, cluster-scoped; its name is the node's.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "CiliumNode")]
pub struct CiliumNodeObject {
    /// Standard metadata.
    #[serde(serialize_with = "metadata::serialize")]
    #[schemars(with = "Metadata<'_>")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    spec: NodeSpec,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct NodeSpec {
    #[serde(deserialize_with = "list")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<NodeAddress>,
    #[serde(deserialize_with = "nullable")]
    health: Addresses,
    #[serde(deserialize_with = "nullable")]
    ingress: Addresses,
    #[serde(deserialize_with = "nullable")]
    ipam: NodeIpam,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct NodeAddress {
    #[serde(rename = "type", deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "String::is_empty")]
    ip: String,
}

/// A pair of addresses, as Cilium writes it in many places.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Addresses {
    #[serde(deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "String::is_empty")]
    ipv4: String,
    #[serde(deserialize_with = "nullable")]
    #[serde(skip_serializing_if = "String::is_empty")]
    ipv6: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct NodeIpam {
    #[serde(rename = "podCIDRs", deserialize_with = "parts")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pod_cidrs: Vec<String>,
    #[serde(deserialize_with = "part")]
    pools: NodePools,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct NodePools {
    #[serde(deserialize_with = "parts")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allocated: Vec<NodePool>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct NodePool {
    #[serde(deserialize_with = "parts")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cidrs: Vec<String>,
}

impl Addresses {
    fn parsed(&self) -> impl Iterator<Item = IpAddr> {
        [&self.ipv4, &self.ipv6].into_iter().filter_map(|text| parse_ip(text))
    }
}

fn address(text: &str) -> Result<IpAddr, NoModel> {
    parse_ip(text).ok_or_else(|| NoModel(format!("{text:?} is no address")))
}

impl CiliumNodeObject {
    /// What the rules look at. A text that is no address is an error: it could be the disputed one.
    pub fn to_domain(&self) -> Result<CiliumNode, NoModel> {
        let spec = &self.spec;
        let mut node = CiliumNode::default();
        for (used, pair) in [(ReservedUse::Ingress, &spec.ingress), (ReservedUse::Health, &spec.health)] {
            for text in [&pair.ipv4, &pair.ipv6].into_iter().filter(|text| !text.is_empty()) {
                node.reserved.push((used, address(text)?));
            }
        }
        for entry in &spec.addresses {
            // Names of the host are addresses of other types.
            let is_router = entry.kind == "CiliumInternalIP";
            let ip = if is_router { Some(address(&entry.ip)?) } else { parse_ip(&entry.ip) };
            node.addresses.extend(ip);
            node.reserved.extend(ip.filter(|_| is_router).map(|ip| (ReservedUse::Router, ip)));
        }
        Ok(node)
    }

    /// Texts of `spec.ipam.podCIDRs[]` and `spec.ipam.pools.allocated[].cidrs[]`.
    pub fn pod_cidrs(&self) -> impl Iterator<Item = &str> {
        let ipam = &self.spec.ipam;
        ipam.pod_cidrs
            .iter()
            .chain(ipam.pools.allocated.iter().flat_map(|pool| &pool.cidrs))
            .map(String::as_str)
    }
}

/// `CiliumEndpoint`, cilium.io/v2, namespaced.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "CiliumEndpoint")]
pub struct CiliumEndpointObject {
    /// Standard metadata.
    #[serde(serialize_with = "metadata::serialize")]
    #[schemars(with = "Metadata<'_>")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "part")]
    status: EndpointStatus,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case")]
struct EndpointStatus {
    #[serde(deserialize_with = "part")]
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    #[serde(deserialize_with = "part")]
    external_identifiers: EndpointIdentifiers,
    #[serde(deserialize_with = "part")]
    networking: EndpointNetworking,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case")]
struct EndpointIdentifiers {
    #[serde(deserialize_with = "part")]
    #[serde(skip_serializing_if = "String::is_empty")]
    cni_attachment_id: String,
    #[serde(deserialize_with = "part")]
    #[serde(skip_serializing_if = "String::is_empty")]
    container_id: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct EndpointNetworking {
    #[serde(deserialize_with = "parts")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addressing: Vec<Addresses>,
    #[serde(deserialize_with = "part")]
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
}

impl EndpointNetworking {
    fn ips(&self) -> Vec<IpAddr> {
        self.addressing.iter().flat_map(Addresses::parsed).collect()
    }
}

impl CiliumEndpointObject {
    /// What the rules look at; `None` for an object without namespace or name.
    pub fn to_domain(&self) -> Option<CiliumEndpoint> {
        let name = PodName::new(self.metadata.namespace.as_deref()?, self.metadata.name.as_deref()?).ok()?;
        let owners = self.metadata.owner_references.iter().flatten().filter(|owner| owner.kind == "Pod");
        let identifiers = &self.status.external_identifiers;
        Some(CiliumEndpoint {
            name,
            id: self.status.id.map(EndpointId),
            attachment: identifiers.cni_attachment_id.parse().ok(),
            container: identifiers.container_id.parse().ok(),
            owners: owners.filter_map(|owner| Some((owner.name.clone(), owner.uid.parse().ok()?))).collect(),
        })
    }

    /// `status.networking.addressing[]`; may be empty.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.status.networking.ips()
    }

    /// `status.networking.node`: the address of the node.
    pub fn node(&self) -> Option<IpAddr> {
        parse_ip(&self.status.networking.node)
    }
}

/// `CiliumEndpointSlice`, cilium.io/v2alpha1, cluster-scoped; its fields are at the top level.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "CiliumEndpointSlice")]
pub struct CiliumEndpointSliceObject {
    /// Standard metadata.
    #[serde(serialize_with = "metadata::serialize")]
    #[schemars(with = "Metadata<'_>")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "part")]
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(deserialize_with = "parts")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    endpoints: Vec<SliceEndpoint>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case")]
struct SliceEndpoint {
    #[serde(deserialize_with = "part")]
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(deserialize_with = "part")]
    networking: EndpointNetworking,
    #[serde(deserialize_with = "part")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pod_uid: String,
}

impl CiliumEndpointSliceObject {
    /// Whether it has no entries at all.
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// The entries that have a name.
    pub fn to_domain(&self) -> Vec<SliceEntry> {
        let entry = |endpoint: &SliceEndpoint| {
            Some(SliceEntry {
                name: PodName::new(&self.namespace, &endpoint.name).ok()?,
                ips: endpoint.networking.ips(),
                node: parse_ip(&endpoint.networking.node),
                uid: endpoint.pod_uid.parse().ok(),
            })
        };
        self.endpoints.iter().filter_map(entry).collect()
    }
}
