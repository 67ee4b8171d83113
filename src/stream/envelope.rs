//! The envelope of each event: CloudEvents 1.0 in its JSON format.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::{Event, EventKind};
use crate::domain::NodeName;

/// A CloudEvent; `D` is the form of its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CloudEvent<D> {
    /// Always `1.0`.
    pub specversion: String,
    /// Unique among the events of its source.
    pub id: String,
    /// The watchdog of a node: `/cilium-leak-healer/nodes/NODE`.
    pub source: String,
    /// The kind, with the version of its form.
    #[serde(rename = "type")]
    pub type_: String,
    /// When it was told.
    pub time: Timestamp,
    /// What it is about: `pod/NAMESPACE/NAME`, or `check/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Always `application/json`.
    pub datacontenttype: String,
    /// What is told.
    pub data: D,
}

impl CloudEvent<Event> {
    /// The envelope of an event.
    pub(super) fn of(id: String, node: &NodeName, time: Timestamp, event: Event) -> Self {
        Self {
            specversion: "1.0".to_owned(),
            id,
            source: format!("/cilium-leak-healer/nodes/{node}"),
            type_: event.kind().type_name().to_owned(),
            time,
            subject: event.subject(),
            datacontenttype: "application/json".to_owned(),
            data: event,
        }
    }

    /// Reads one, with the data of a known type; the error is for people.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let raw: CloudEvent<serde_json::Value> =
            serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let kind =
            EventKind::of_word(&raw.type_).ok_or_else(|| format!("the type {:?} is not known", raw.type_))?;
        let data = Event::read(kind, raw.data).map_err(|error| format!("data of {}: {error}", raw.type_))?;
        Ok(Self {
            data,
            specversion: raw.specversion,
            id: raw.id,
            source: raw.source,
            type_: raw.type_,
            time: raw.time,
            subject: raw.subject,
            datacontenttype: raw.datacontenttype,
        })
    }
}
