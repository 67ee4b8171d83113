//! The time limits of the rules, each with the value of the design.

use std::time::Duration;

use jiff::SignedDuration;

/// Each time limit that a rule looks at. All are durations; the defaults are those of the design (§3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// An agent that started less than this before now may still replay queued deletions (2 min).
    pub agent_settle: Duration,
    /// A holder whose newest log entry is younger than this may still be on its way up or down (10 min).
    pub holder_settle: Duration,
    /// A pod's only failure, counted once and younger than this, may be gone with the next try (5 s).
    pub lone_failure_age: Duration,
    /// A newest failure older than this is no evidence of the present (10 min).
    pub failure_max_age: Duration,
    /// A newest failure that lies further than this in the future comes from a clock that is wrong (1 min).
    pub failure_max_skew: Duration,
    /// A holder is older than a failure if its oldest log entry lies at least this before it (2 s).
    pub older_margin: Duration,
    /// A pod that started more than this after the holder's oldest log entry cannot own it (1 min).
    pub start_margin: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            agent_settle: Duration::from_mins(2),
            holder_settle: Duration::from_mins(10),
            lone_failure_age: Duration::from_secs(5),
            failure_max_age: Duration::from_mins(10),
            failure_max_skew: Duration::from_mins(1),
            older_margin: Duration::from_secs(2),
            start_margin: Duration::from_mins(1),
        }
    }
}

/// A limit as the difference of two times is measured.
pub(super) fn signed(limit: Duration) -> SignedDuration {
    SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX)
}
