//! A slim core/v1 Event, also in the form that events.k8s.io/v1 leaves behind (`eventTime`, `series`, no count).

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use crate::domain::Event;

/// Bytes that are kept of a message.
const MESSAGE_LIMIT: usize = 16 * 1024;

/// A core/v1 Event, as far as it is decoded.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventObject {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    involved_object: Option<Reference>,
    reason: Option<String>,
    message: Option<String>,
    count: Option<i64>,
    last_timestamp: Option<Timestamp>,
    event_time: Option<Timestamp>,
    series: Option<Series>,
    source: Option<Source>,
    reporting_component: Option<String>,
    reporting_instance: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Reference {
    uid: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    count: Option<i64>,
    last_observed_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
struct Source {
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
