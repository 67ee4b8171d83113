//! The file format: a cluster at one instant, as `scan --save` writes it and bug reports carry it.
//!
//! The levels that are the format's own are strict. Kubernetes and Cilium objects are as the API serves them: what no
//! rule reads is skipped, what a rule reads must be of its type.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expect::Expect;
use super::field::{
    CallName, Checked, Fault, HttpStatus, Resource, SchemaVersion, agents, checked, checked_some, of_failure,
    to_failure,
};
use crate::cilium::{
    CiliumEndpointObject, CiliumEndpointSliceObject, CiliumNodeObject, ConfigModel, EndpointModel,
};
use crate::domain::{NodeName, PodName, ReadFailure};
use crate::kube::{EventObject, PodObject};

/// A cluster at one instant.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a snapshot: a mapping with takenAt and cluster"
)]
pub struct Snapshot {
    /// The version of the format; absent: 1.
    #[serde(default = "current")]
    pub schema_version: SchemaVersion,
    /// One line: what happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where the facts are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The instant that every rule about time calls now.
    pub taken_at: Timestamp,
    /// What the API server said.
    pub cluster: Cluster,
    /// What the agents said, by node name. A node that is not here has an agent that could not be reached.
    #[serde(default, deserialize_with = "agents")]
    pub agents: BTreeMap<String, Agent>,
    /// Ignored by the program; tests read it.
    #[serde(skip_serializing)]
    pub expect: Option<Expect>,
}

fn current() -> SchemaVersion {
    SchemaVersion
}

/// What the API server said.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "the lists of a cluster")]
pub struct Cluster {
    /// core/v1 Pod.
    #[serde(default, deserialize_with = "checked")]
    pub pods: Vec<PodObject>,
    /// core/v1 Event.
    #[serde(default)]
    pub events: Vec<EventObject>,
    /// core/v1 Node.
    #[serde(default, deserialize_with = "checked")]
    pub nodes: Vec<NodeObject>,
    /// cilium.io/v2 CiliumNode.
    #[serde(default, deserialize_with = "checked")]
    pub cilium_nodes: Vec<CiliumNodeObject>,
    /// cilium.io/v2 CiliumEndpoint; absent: the cluster does not serve them.
    #[serde(default, deserialize_with = "checked_some", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<CiliumEndpointObject>")]
    pub cilium_endpoints: Option<Vec<CiliumEndpointObject>>,
    /// cilium.io/v2alpha1 CiliumEndpointSlice; absent: the cluster does not serve them.
    #[serde(default, deserialize_with = "checked_some", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<CiliumEndpointSliceObject>")]
    pub cilium_endpoint_slices: Option<Vec<CiliumEndpointSliceObject>>,
    /// Reads that failed: unknown, never "not there".
    #[serde(default, deserialize_with = "checked", skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unread>,
}

/// A core/v1 Node, of which no rule reads more than the name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Node")]
pub struct NodeObject {
    metadata: NodeMetadata,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct NodeMetadata {
    name: String,
}

impl NodeObject {
    /// One of this name.
    pub fn new(name: &NodeName) -> Self {
        Self { metadata: NodeMetadata { name: name.to_string() } }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

/// A read of the API server that failed. Without a name it is the list; with a namespace only, that namespace's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["status"]}, {"required": ["error"]}]))]
pub struct Unread {
    /// What was read.
    pub resource: Resource,
    /// The namespace that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<HttpStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Fault>,
}

impl Unread {
    /// A failed read.
    pub fn new(resource: Resource, namespace: Option<&str>, name: Option<&str>, why: &ReadFailure) -> Self {
        let (status, error) = of_failure(why);
        Self {
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            status,
            error,
        }
    }

    /// Why it failed.
    pub fn why(&self) -> ReadFailure {
        to_failure(self.status, self.error)
    }
}

/// What one node's agent said.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an agent")]
pub struct Agent {
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When it started; absent counts as just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// `GET /v1/config`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigModel>,
    /// `GET /v1/endpoint`, each with its whole log in `status.log`.
    #[serde(default)]
    pub endpoints: Vec<EndpointModel>,
    /// Calls that did not answer properly; the first that matches wins.
    #[serde(default, deserialize_with = "checked", skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<AgentFailure>,
}

/// A call of an agent that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["status"]}, {"required": ["error"]}]))]
pub struct AgentFailure {
    /// The call.
    pub call: CallName,
    /// The id that was asked for; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<HttpStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Fault>,
}

impl AgentFailure {
    /// A failed call.
    pub fn new(call: CallName, id: Option<&str>, why: &ReadFailure) -> Self {
        let (status, error) = of_failure(why);
        Self { call, id: id.map(str::to_owned), status, error }
    }

    /// Why it failed.
    pub fn why(&self) -> ReadFailure {
        to_failure(self.status, self.error)
    }
}

fn one_of(status: Option<HttpStatus>, error: Option<Fault>) -> Result<(), String> {
    match (status, error) {
        (Some(_), Some(_)) => Err("has both `status` and `error`: only one of them can be".to_owned()),
        (None, None) => Err("has neither `status` nor `error`: one of them must be".to_owned()),
        _ => Ok(()),
    }
}

impl Checked for Unread {
    fn check(&mut self) -> Result<(), String> {
        let empty = |text: &Option<String>| text.as_deref() == Some("");
        if empty(&self.namespace) || empty(&self.name) {
            return Err("has an empty `namespace` or `name`: leave it out where the list is meant".to_owned());
        }
        one_of(self.status, self.error)
    }
}

impl Checked for AgentFailure {
    fn check(&mut self) -> Result<(), String> {
        one_of(self.status, self.error)
    }
}

impl Checked for PodObject {
    fn check(&mut self) -> Result<(), String> {
        for (key, value) in [
            ("name", &self.metadata.name),
            ("namespace", &self.metadata.namespace),
            ("uid", &self.metadata.uid),
        ] {
            if value.as_deref().unwrap_or_default().is_empty() {
                return Err(format!("a pod without `metadata.{key}`"));
            }
        }
        self.prune();
        self.to_domain().map(drop).map_err(|error| error.to_string())
    }
}

impl Checked for NodeObject {
    fn check(&mut self) -> Result<(), String> {
        self.name().parse::<NodeName>().map(drop).map_err(|error| format!("`metadata.name`: {error}"))
    }
}

impl Checked for CiliumNodeObject {
    fn check(&mut self) -> Result<(), String> {
        crate::metadata::prune(&mut self.metadata);
        let name = self.metadata.name.as_deref().unwrap_or_default();
        name.parse::<NodeName>().map(drop).map_err(|error| format!("`metadata.name`: {error}"))
    }
}

impl Checked for CiliumEndpointObject {
    fn check(&mut self) -> Result<(), String> {
        crate::metadata::prune(&mut self.metadata);
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        PodName::new(&text(&self.metadata.namespace), &text(&self.metadata.name)).map(drop).map_err(|_| {
            "a CiliumEndpoint without a proper `metadata.namespace` and `metadata.name`".to_owned()
        })
    }
}

impl Checked for CiliumEndpointSliceObject {
    fn check(&mut self) -> Result<(), String> {
        crate::metadata::prune(&mut self.metadata);
        Ok(())
    }
}
