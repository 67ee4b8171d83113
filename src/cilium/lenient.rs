//! Ways to decode what other versions of Cilium write: nulls, missing parts and, in objects, malformed ones.
//!
//! Two degrees: `nullable` and `list` take a null for nothing but keep a wrong type an error (an agent's answer that
//! is not understood must not be acted on); `part` and `parts` drop what is malformed (one object must not hide a list).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A null is the default; a wrong type is an error.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

/// A null is an empty list, null elements are left out; a wrong type is an error.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    let items = Option::<Vec<Option<T>>>::deserialize(d)?.unwrap_or_default();
    Ok(items.into_iter().flatten().collect())
}

/// Anything that is no `T` is the default.
pub(super) fn part<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(d: D) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(d)?).unwrap_or_default())
}

/// Anything that is no list is empty; elements that are no `T` are left out.
pub(super) fn parts<'de, D: Deserializer<'de>, T: DeserializeOwned>(d: D) -> Result<Vec<T>, D::Error> {
    let Value::Array(items) = Value::deserialize(d)? else {
        return Ok(Vec::new());
    };
    Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())
}
