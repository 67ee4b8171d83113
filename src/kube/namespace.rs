//! What a namespace says to the watchdog: keep away from my pods, or do nothing for now.
//!
//! It must not know who obeys.

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;

use super::pod::is_opted_out;
use super::reader::Reader;
use crate::domain::Read;
use crate::text::plain;

/// Pauses all acts of the namespace's watchdogs; the value says why. Any value but `false` counts.
pub const PAUSED: &str = "cilium-leak-healer/paused";

/// Characters of a reason that are kept.
const REASON_LIMIT: usize = 200;

/// What the metadata of a namespace say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// The label [`OPT_OUT`](super::OPT_OUT) is there, with any value but `false`.
    pub opt_out: bool,
    /// The annotation [`PAUSED`] is there, with any value but `false`: its value, which may be empty.
    pub paused: Option<String>,
    /// When it was made.
    pub created: Option<Timestamp>,
}

impl Reader {
    /// A namespace, live; `None`: 404. Only its metadata are decoded.
    pub async fn namespace(&self, name: &str) -> Read<Option<NamespaceFacts>> {
        let object = self.get_cluster::<PartialObjectMeta<core::Namespace>>(name).await?;
        Ok(object.map(|object| facts(&object.metadata)))
    }
}

fn facts(meta: &ObjectMeta) -> NamespaceFacts {
    NamespaceFacts {
        opt_out: is_opted_out(meta),
        paused: paused(meta),
        created: meta.creation_timestamp.as_ref().map(|made| made.0),
    }
}

/// The value of the annotation [`PAUSED`], where it counts.
pub(crate) fn paused(meta: &ObjectMeta) -> Option<String> {
    let value = meta.annotations.as_ref()?.get(PAUSED).filter(|value| *value != "false")?;
    Some(plain(value, REASON_LIMIT))
}
