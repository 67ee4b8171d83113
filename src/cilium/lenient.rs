//! Ways to decode what other versions of Cilium write: nulls, missing parts and, in objects, malformed ones.
//!
//! Two degrees: `nullable` and `list` take a null for nothing but keep a wrong type an error (an agent's answer that
//! is not understood must not be acted on); `part` and `parts` drop what is malformed (one object must not hide a list).
//! Within [`strictly`] the latter are as the former: who reads a file wants to know what is wrong with it, and where.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What must be an object: for serde's derived decoders a list of the fields' values would do as well.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Objects<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Objects<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        d.deserialize_map(Objects(PhantomData)).map(Self)
    }
}

/// A null is the default; anything but an object is an error.
pub(super) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(d: D) -> Result<T, D::Error> {
    Ok(Option::<Object<T>>::deserialize(d)?.map(|it| it.0).unwrap_or_default())
}

/// A null is an empty list, null elements are left out; an element that is no object is an error.
pub(super) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    Ok(some_objects(d)?.into_iter().flatten().flatten().collect())
}

/// The same with the nulls kept.
pub(super) fn some_objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    d: D,
) -> Result<Option<Vec<Option<T>>>, D::Error> {
    let items = Option::<Vec<Option<Object<T>>>>::deserialize(d)?;
    Ok(items.map(|items| items.into_iter().map(|item| item.map(|it| it.0)).collect()))
}

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

thread_local! {
    /// serde's derived decoders have no way to be told: what they call has to look it up.
    static STRICT: Cell<bool> = const { Cell::new(false) };
}

/// Decodes on this thread with wrong types as errors.
pub(crate) fn strictly<T>(decode: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            STRICT.set(self.0);
        }
    }
    let _restore = Restore(STRICT.replace(true));
    decode()
}

/// Anything that is no `T` is the default.
pub(super) fn part<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(d: D) -> Result<T, D::Error> {
    if STRICT.get() {
        return nullable(d);
    }
    Ok(serde_json::from_value(Value::deserialize(d)?).unwrap_or_default())
}

/// Anything that is no list is empty; elements that are no `T` are left out.
pub(super) fn parts<'de, D: Deserializer<'de>, T: DeserializeOwned>(d: D) -> Result<Vec<T>, D::Error> {
    if STRICT.get() {
        return list(d);
    }
    let Value::Array(items) = Value::deserialize(d)? else {
        return Ok(Vec::new());
    };
    Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())
}
