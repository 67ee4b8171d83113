//! The memory of what was tried and is not tried again. Must not know what an act does.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::act::ActId;
use super::bound::Bound;
use super::form::{CauseForm, later, since, word};
use super::text::kept;
use crate::domain::{Cause, RemedyKind};

/// At most this many causes are kept; with so many, no further act begins.
pub(super) const MOST: usize = 1024;

/// A cause that is used up for one remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Futile {
    #[serde(with = "word")]
    #[schemars(with = "String")]
    remedy: RemedyKind,
    #[serde(with = "CauseForm")]
    #[schemars(with = "CauseForm")]
    cause: Cause,
    /// When it was used up.
    since: Timestamp,
    /// The act that used it up.
    act: ActId,
    /// How, in a few words.
    how: String,
}

impl Futile {
    /// The remedy that is not tried again.
    pub fn remedy(&self) -> RemedyKind {
        self.remedy
    }

    /// Against what.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// When it was used up.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// How, in a few words.
    pub fn how(&self) -> &str {
        &self.how
    }

    fn is_of(&self, remedy: RemedyKind, cause: &Cause) -> bool {
        self.remedy == remedy && self.cause == *cause
    }
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Memory(Vec<Futile>);

impl Memory {
    pub(super) fn all(&self) -> &[Futile] {
        &self.0
    }

    /// Whether this remedy may be tried against this cause. What an open act used up is never forgotten.
    pub(super) fn check(
        &self,
        remedy: RemedyKind,
        cause: &Cause,
        open: impl Fn(ActId) -> bool,
        now: Timestamp,
        keep: Duration,
    ) -> Result<(), Bound> {
        let Some(entry) = self.0.iter().find(|entry| entry.is_of(remedy, cause)) else {
            return Ok(());
        };
        let open = open(entry.act);
        if !open && since(entry.since, now) >= keep {
            return Ok(());
        }
        let until = (!open).then(|| later(entry.since, keep));
        Err(Bound::Futile { since: entry.since, until, how: entry.how.clone() })
    }

    /// Whether one more cause can be kept, where `reserved` acts may each still need one.
    pub(super) fn has_room(&self, reserved: usize) -> bool {
        self.0.len() + reserved < MOST
    }

    /// The cause is used up from now on.
    pub(super) fn arm(&mut self, remedy: RemedyKind, cause: &Cause, act: ActId, how: &str, now: Timestamp) {
        self.0.retain(|entry| !entry.is_of(remedy, cause));
        self.0.push(Futile { remedy, cause: cause.clone(), since: now, act, how: how.to_owned() });
    }

    /// That act surely did nothing.
    pub(super) fn disarm(&mut self, act: ActId) {
        self.0.retain(|entry| entry.act != act);
    }

    /// Forgets what is older than that, and dates nothing ahead of the clock.
    pub(super) fn catch_up(&mut self, open: impl Fn(ActId) -> bool, now: Timestamp, keep: Duration) {
        self.0.retain(|entry| open(entry.act) || since(entry.since, now) < keep);
        for entry in &mut self.0 {
            entry.since = entry.since.min(now);
        }
    }

    /// See [`super::State::harmless`].
    pub(super) fn harmless(&mut self) {
        self.0.iter_mut().for_each(|entry| entry.how = kept(&entry.how));
    }
}
