//! A pod of the watch, also one that cannot be decoded.
//!
//! As kube's `DeserializeGuard`, which fails with the whole list or watch where an object's metadata are malformed.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::pod::PodObject;

/// A pod, or why it is none, with what of its metadata the watch needs to go on.
#[derive(Debug, Clone)]
pub(super) enum GuardedPod {
    Decoded(PodObject),
    Malformed(String, ObjectMeta),
}

impl GuardedPod {
    /// The pod, or why there is none.
    pub(super) fn into_pod(self) -> Result<PodObject, String> {
        match self {
            Self::Decoded(pod) => Ok(pod),
            Self::Malformed(why, _) => Err(why),
        }
    }
}

impl<'de> Deserialize<'de> for GuardedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(PodObject::deserialize(&value)
            .map_or_else(|error| Self::Malformed(error.to_string(), identity(&value)), Self::Decoded))
    }
}

fn identity(value: &Value) -> ObjectMeta {
    let text = |field: &str| value.get("metadata")?.get(field)?.as_str().map(str::to_owned);
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    }
}

impl Resource for GuardedPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        PodObject::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        PodObject::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        PodObject::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        PodObject::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Decoded(pod) => pod.meta(),
            Self::Malformed(_, metadata) => metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Decoded(pod) => pod.meta_mut(),
            Self::Malformed(_, metadata) => metadata,
        }
    }
}
