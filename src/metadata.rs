//! Object metadata as a snapshot keeps it: a whitelist, so that nothing which no rule reads can leave the cluster.
//!
//! Managed fields, other annotations and other labels often hold secrets; they are left out whoever serialises.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Labels that a rule, or the search for the agent's pods, reads.
const LABELS: [&str; 4] = ["cilium-leak-healer/opt-out", "k8s-app", "kubevirt.io/vm", "vm.kubevirt.io/name"];
/// Annotations that a rule reads.
const ANNOTATIONS: [&str; 5] = [
    "kubernetes.io/config.mirror",
    "ovn.kubernetes.io/allocated",
    "ovn.kubernetes.io/ip_address",
    "ovn.kubernetes.io/logical_switch",
    "ovn.kubernetes.io/vpc",
];

/// What is kept of an object's metadata. Other fields are tolerated and dropped.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(default)]
pub(crate) struct Metadata<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    owner_references: Vec<Owner<'a>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Owner<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<bool>,
}

impl<'a> From<&'a ObjectMeta> for Metadata<'a> {
    fn from(meta: &'a ObjectMeta) -> Self {
        let owner = |owner: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| Owner {
            api_version: &owner.api_version,
            kind: &owner.kind,
            name: &owner.name,
            uid: &owner.uid,
            controller: owner.controller,
        };
        Self {
            name: meta.name.as_deref(),
            namespace: meta.namespace.as_deref(),
            uid: meta.uid.as_deref(),
            resource_version: meta.resource_version.as_deref(),
            creation_timestamp: meta.creation_timestamp.as_ref().map(|time| time.0),
            deletion_timestamp: meta.deletion_timestamp.as_ref().map(|time| time.0),
            labels: kept(meta.labels.as_ref(), &LABELS),
            annotations: kept(meta.annotations.as_ref(), &ANNOTATIONS),
            owner_references: meta.owner_references.iter().flatten().map(owner).collect(),
        }
    }
}

fn kept<'a>(all: Option<&'a BTreeMap<String, String>>, keys: &[&str]) -> BTreeMap<&'a str, &'a str> {
    let entries = all.into_iter().flatten();
    entries
        .filter(|(key, _)| keys.contains(&key.as_str()))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

/// For `serialize_with`: the whitelist.
pub(crate) fn serialize<S: Serializer>(meta: &ObjectMeta, serializer: S) -> Result<S::Ok, S::Error> {
    Metadata::from(meta).serialize(serializer)
}

/// Drops what is not kept, so that a large list stays small in memory.
pub(crate) fn prune(meta: &mut ObjectMeta) {
    let retain = |map: &mut Option<BTreeMap<String, String>>, keys: &[&str]| {
        if let Some(all) = map {
            all.retain(|key, _| keys.contains(&key.as_str()));
        }
        if map.as_ref().is_some_and(BTreeMap::is_empty) {
            *map = None;
        }
    };
    retain(&mut meta.labels, &LABELS);
    retain(&mut meta.annotations, &ANNOTATIONS);
    meta.managed_fields = None;
    meta.finalizers = None;
    meta.generate_name = None;
    meta.self_link = None;
}
