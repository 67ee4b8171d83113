//! Why an act may not begin now. A value, not an error. Must not know how the bounds are reckoned.

use std::fmt;

use jiff::Timestamp;

use super::act::ActId;
use crate::domain::RemedyKind;

/// The bound that holds an act back. `Display` is a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// The remedy's budget is spent.
    Budget {
        /// The remedy.
        remedy: RemedyKind,
        /// When the next token is there; `None`: never, the budget is 0.
        next: Option<Timestamp>,
    },
    /// The breaker is open: too many acts did not help.
    Breaker {
        /// When one act may try again.
        until: Timestamp,
        /// Why it opened.
        why: String,
    },
    /// The breaker lets one act try, and an act has no outcome yet.
    HalfOpen {
        /// So many acts have no outcome.
        pending: u32,
    },
    /// As many acts as may be are not yet known to have helped.
    Unproven {
        /// So many acts have no outcome.
        pending: u32,
    },
    /// An earlier act on the same pod has no outcome yet.
    UnderWay {
        /// That act.
        act: ActId,
        /// When it began.
        since: Timestamp,
    },
    /// The cause is used up.
    Futile {
        /// Since when.
        since: Timestamp,
        /// When that is forgotten; `None`: not before the act that used it up has an outcome.
        until: Option<Timestamp>,
        /// By what.
        how: String,
    },
    /// The memory of what was futile has no room left.
    MemoryFull,
    /// What is meant, or what came of an earlier act, could not be written down.
    Unrecorded(String),
}

impl Bound {
    /// All words of [`Bound::as_str`].
    pub const WORDS: [&str; 8] =
        ["budget", "breaker", "half-open", "unproven", "under-way", "futile", "memory-full", "unrecorded"];

    /// The word for it in all outputs: a closed set.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Budget { .. } => "budget",
            Self::Breaker { .. } => "breaker",
            Self::HalfOpen { .. } => "half-open",
            Self::Unproven { .. } => "unproven",
            Self::UnderWay { .. } => "under-way",
            Self::Futile { .. } => "futile",
            Self::MemoryFull => "memory-full",
            Self::Unrecorded(_) => "unrecorded",
        }
    }

    /// When to ask again, where time alone may change the answer.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Budget { next, .. } => *next,
            Self::Breaker { until, .. } => Some(*until),
            Self::Futile { until, .. } => *until,
            Self::HalfOpen { .. }
            | Self::Unproven { .. }
            | Self::UnderWay { .. }
            | Self::MemoryFull
            | Self::Unrecorded(_) => None,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget { remedy, next: Some(next) } => {
                write!(f, "the budget of {remedy} is spent; the next one at {}", seconds(*next))
            }
            Self::Budget { remedy, next: None } => write!(f, "the budget of {remedy} is 0"),
            Self::Breaker { until, why } => {
                write!(f, "the breaker is open until {}: {why}", seconds(*until))
            }
            Self::HalfOpen { pending } => {
                write!(f, "after the breaker was open one act may try, and {}", unknown(*pending))
            }
            Self::Unproven { pending } => {
                write!(f, "{}: no further one before it is known whether they help", unknown(*pending))
            }
            Self::UnderWay { act, since } => {
                write!(f, "act {act} on this pod, begun at {}, has no outcome yet", seconds(*since))
            }
            Self::Futile { since, how, .. } => write!(
                f,
                "this was tried against the same cause at {} ({how}): again would only loop",
                seconds(*since)
            ),
            Self::MemoryFull => {
                f.write_str("the memory of what was tried is full, so a loop could not be seen")
            }
            Self::Unrecorded(why) => write!(f, "it cannot be written down ({why}), so it is not done"),
        }
    }
}

fn unknown(pending: u32) -> String {
    match pending {
        1 => "1 act has no outcome yet".to_owned(),
        pending => format!("{pending} acts have no outcome yet"),
    }
}

/// A time for people, in whole seconds.
pub(super) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
