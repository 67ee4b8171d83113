//! A slim core/v1 Event, also in the form that events.k8s.io/v1 leaves behind (`eventTime`, `series`, no count).

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::Event;
use crate::metadata::{self, Metadata};

/// Bytes that are kept of a message.
const MESSAGE_LIMIT: usize = 16 * 1024;

/// A core/v1 Event, as far as it is decoded. Serialised, it holds what the rules read and nothing else.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "Event")]
pub struct EventObject {
    /// Standard metadata.
    #[serde(serialize_with = "metadata::serialize")]
    #[schemars(with = "Metadata<'_>")]
    pub metadata: ObjectMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    involved_object: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Series>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reporting_component: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reporting_instance: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InvolvedObject")]
struct Reference {
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Series {
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_observed_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Source {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
}

impl Resource for EventObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        core::Event::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        core::Event::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        core::Event::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        core::Event::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The first part of a message, cut at a character's boundary: the kubelet's own are cut at 1 kB.
fn head(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_LIMIT)]
}

impl EventObject {
    /// The Event as the rules see it; `None` where it names no object.
    pub fn to_domain(&self) -> Option<Event> {
        let series = self.series.as_ref();
        let created = self.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let observed =
            [self.last_timestamp, series.and_then(|series| series.last_observed_time), self.event_time];
        let count = self.count.max(series.and_then(|series| series.count)).unwrap_or(1);
        Some(Event {
            object_uid: self.involved_object.as_ref()?.uid.clone().filter(|uid| !uid.is_empty())?,
            node: self.node().and_then(|node| node.parse().ok()),
            reason: self.reason.clone().unwrap_or_default(),
            message: head(self.message.as_deref().unwrap_or_default()).to_owned(),
            at: observed.into_iter().flatten().max().or(created),
            count: u32::try_from(count.max(1)).unwrap_or(u32::MAX),
        })
    }

    /// The kubelet's node: `source.host`, or its name as reporting instance.
    fn node(&self) -> Option<&str> {
        let host =
            self.source.as_ref().and_then(|source| source.host.as_deref()).filter(|host| !host.is_empty());
        let instance = self.reporting_instance.as_deref().filter(|instance| !instance.is_empty());
        // Without a component nobody else than the kubelet is known to have written it.
        let is_kubelets = matches!(self.reporting_component.as_deref(), None | Some("" | "kubelet"));
        host.or_else(|| instance.filter(|_| is_kubelets))
    }
}
