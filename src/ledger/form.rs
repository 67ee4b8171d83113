//! How the domain's words and times look in the file. Must not know what the file is for.

use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::domain::{ActOutcome, Cause, RemedyKind, Verdict};

/// `at` plus `time`; the end of all times where that is later.
pub(super) fn later(at: Timestamp, time: Duration) -> Timestamp {
    SignedDuration::try_from(time).ok().and_then(|time| at.checked_add(time).ok()).unwrap_or(Timestamp::MAX)
}

/// From `at` to `now`; zero where `at` lies ahead.
pub(super) fn since(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(at)).unwrap_or_default()
}

/// What an act is against.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Cause", deny_unknown_fields)]
pub(super) struct CauseForm {
    /// Whose pods wait: `Kind/namespace/name/uid` of the controller, or of the pod where it has none.
    of: String,
    /// The address that they wait for.
    ip: IpAddr,
}

/// A closed set of words.
pub(super) trait Word: Sized + 'static {
    fn word(&self) -> &'static str;
    fn of_word(word: &str) -> Option<Self>;
}

impl Word for RemedyKind {
    fn word(&self) -> &'static str {
        self.as_str()
    }
    fn of_word(word: &str) -> Option<Self> {
        Self::of_word(word)
    }
}

impl Word for ActOutcome {
    fn word(&self) -> &'static str {
        self.as_str()
    }
    fn of_word(word: &str) -> Option<Self> {
        Self::of_word(word)
    }
}

impl Word for Verdict {
    fn word(&self) -> &'static str {
        self.as_str()
    }
    fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.as_str() == word)
    }
}

/// A word.
pub(super) mod word {
    use super::{Deserialize, Deserializer, Serializer, Word, de};

    pub(in super::super) fn serialize<T: Word, S: Serializer>(it: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(it.word())
    }

    pub(in super::super) fn deserialize<'de, T: Word, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        T::of_word(&text).ok_or_else(|| de::Error::custom(format_args!("no such word: {text:?}")))
    }
}

/// A word that may be absent.
#[allow(clippy::ref_option, reason = "serde passes the field as it is")]
pub(super) mod word_option {
    use super::{Deserialize, Deserializer, Serializer, Word, de};

    pub(in super::super) fn serialize<T: Word, S: Serializer>(
        it: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match it {
            Some(it) => to.serialize_some(it.word()),
            None => to.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, T: Word, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        let wrong = |text: &str| de::Error::custom(format_args!("no such word: {text:?}"));
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| T::of_word(&text).ok_or_else(|| wrong(&text))).transpose()
    }
}

/// An identifier.
pub(super) mod parsed {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer, de};

    pub(in super::super) fn serialize<T: Display, S: Serializer>(it: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(it)
    }

    pub(in super::super) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// An identifier that may be absent.
#[allow(clippy::ref_option, reason = "serde passes the field as it is")]
pub(super) mod parsed_option {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer, de};

    pub(in super::super) fn serialize<T: Display, S: Serializer>(
        it: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match it {
            Some(it) => to.collect_str(it),
            None => to.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}

/// A duration in whole milliseconds.
pub(super) mod millis {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(it: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(it.as_millis()).unwrap_or(u64::MAX))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
