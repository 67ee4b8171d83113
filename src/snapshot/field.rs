//! The words and numbers of the format, each a type that no other value fits, and the lists that check their members.
//!
//! A check is made while decoding, so that its error carries the key and the line.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::format::Agent;
use crate::domain::{NodeName, ReadFailure};

/// The version of the format that this program writes, and the only one that it reads.
const VERSION: u32 = 1;

/// `schemaVersion`. Only version 1 can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion;

impl Serialize for SchemaVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(VERSION)
    }
}

impl<'de> Deserialize<'de> for SchemaVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            VERSION => Ok(Self),
            other => Err(D::Error::custom(format!(
                "schema version {other} is not known: this program reads version {VERSION}"
            ))),
        }
    }
}

impl JsonSchema for SchemaVersion {
    fn schema_name() -> Cow<'static, str> {
        "SchemaVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "const": VERSION})
    }
}

/// An HTTP status, 100 to 599.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HttpStatus(u16);

impl HttpStatus {
    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }

    /// From a number, where it is a status.
    pub fn new(status: u16) -> Option<Self> {
        (100..=599).contains(&status).then_some(Self(status))
    }
}

impl<'de> Deserialize<'de> for HttpStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let status = i64::deserialize(deserializer)?;
        u16::try_from(status)
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| D::Error::custom(format!("{status} is no HTTP status (100 to 599)")))
    }
}

impl JsonSchema for HttpStatus {
    fn schema_name() -> Cow<'static, str> {
        "HttpStatus".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": 100, "maximum": 599})
    }
}

/// A failure without a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// No answer in time.
    Timeout,
    /// No connection.
    Refused,
    /// A 200 with a body that is none.
    Unreadable,
}

/// A resource of the Kubernetes API, by its plural.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// core/v1 Pod.
    Pods,
    /// core/v1 Event.
    Events,
    /// core/v1 Node.
    Nodes,
    /// cilium.io/v2 CiliumNode.
    CiliumNodes,
    /// cilium.io/v2 CiliumEndpoint.
    CiliumEndpoints,
    /// cilium.io/v2alpha1 CiliumEndpointSlice.
    CiliumEndpointSlices,
}

impl Resource {
    /// The plural.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Events => "events",
            Self::Nodes => "nodes",
            Self::CiliumNodes => "ciliumnodes",
            Self::CiliumEndpoints => "ciliumendpoints",
            Self::CiliumEndpointSlices => "ciliumendpointslices",
        }
    }
}

/// A call of the agent's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CallName {
    /// `GET /endpoint/{id}`.
    GetEndpoint,
    /// `GET /endpoint`.
    ListEndpoints,
    /// `GET /config`.
    GetConfig,
    /// `GET /healthz`.
    GetHealthz,
    /// `DELETE /endpoint/{id}`.
    DeleteEndpoint,
}

/// A read failure in the two ways that the format has for it.
pub(super) fn of_failure(why: &ReadFailure) -> (Option<HttpStatus>, Option<Fault>) {
    match why {
        ReadFailure::Status { status, .. } => match HttpStatus::new(*status) {
            Some(status) => (Some(status), None),
            None => (None, Some(Fault::Unreadable)),
        },
        ReadFailure::Timeout => (None, Some(Fault::Timeout)),
        ReadFailure::Connection(_) | ReadFailure::NotAsked => (None, Some(Fault::Refused)),
        ReadFailure::Undecodable(_) => (None, Some(Fault::Unreadable)),
    }
}

/// The other way round.
pub(super) fn to_failure(status: Option<HttpStatus>, fault: Option<Fault>) -> ReadFailure {
    match (status, fault) {
        (Some(status), _) => {
            ReadFailure::Status { status: status.get(), message: "when the snapshot was taken".to_owned() }
        }
        (None, Some(Fault::Timeout)) => ReadFailure::Timeout,
        (None, Some(Fault::Unreadable)) => ReadFailure::Undecodable("when the snapshot was taken".to_owned()),
        (None, Some(Fault::Refused) | None) => {
            ReadFailure::Connection("when the snapshot was taken".to_owned())
        }
    }
}

/// A member of a list that can be impossible although each of its fields is possible.
pub(super) trait Checked {
    /// What is wrong with it; may drop what is not kept.
    fn check(&mut self) -> Result<(), String>;
}

struct Member<T>(T);

impl<'de, T: Deserialize<'de> + Checked> Deserialize<'de> for Member<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut member = T::deserialize(deserializer)?;
        member.check().map_err(D::Error::custom)?;
        Ok(Self(member))
    }
}

/// A list of checked members.
pub(super) fn checked<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Checked,
{
    // Collecting in place: a second copy of a large list would double the memory.
    Ok(Vec::<Member<T>>::deserialize(deserializer)?.into_iter().map(|member| member.0).collect())
}

/// A list of checked members that is there: a null is an error.
pub(super) fn checked_some<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Checked,
{
    checked(deserializer).map(Some)
}

/// The agents by node name; a name that is there twice, or is none, is an error.
pub(super) fn agents<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Agent>, D::Error> {
    struct Agents;

    impl<'de> Visitor<'de> for Agents {
        type Value = BTreeMap<String, Agent>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("agents by the names of their nodes")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut agents = BTreeMap::new();
            while let Some(node) = map.next_key::<String>()? {
                node.parse::<NodeName>().map_err(A::Error::custom)?;
                if agents.contains_key(&node) {
                    return Err(A::Error::custom(format!("the node {node} is there twice")));
                }
                agents.insert(node, map.next_value()?);
            }
            Ok(agents)
        }
    }

    deserializer.deserialize_map(Agents)
}
