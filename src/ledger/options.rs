//! How much may be done. Must not know what was done.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::form::millis;
use crate::domain::RemedyKind;

/// The most acts that a window or a floor can hold: those of the window are kept, and what is kept is bounded.
const MOST: u32 = 100;

/// All bounds of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BoundOptions {
    /// Budget of `disconnect-endpoint`.
    pub disconnect: BucketOptions,
    /// Budget of `delete-pod`.
    pub delete_pod: BucketOptions,
    /// Budget of `restart-agent`.
    pub restart_agent: BucketOptions,
    /// The breaker, one for all remedies.
    pub breaker: BreakerOptions,
    /// How long a cause that was used up stays so, in milliseconds.
    #[serde(rename = "keepFutileMs", with = "millis")]
    #[schemars(with = "u64")]
    pub keep_futile: Duration,
}

impl Default for BoundOptions {
    fn default() -> Self {
        let bucket = |burst, refill| BucketOptions { burst, refill };
        Self {
            disconnect: bucket(30, Duration::from_secs(6)),
            delete_pod: bucket(3, Duration::from_mins(10)),
            restart_agent: bucket(1, Duration::from_hours(24)),
            breaker: BreakerOptions::default(),
            keep_futile: Duration::from_hours(24),
        }
    }
}

impl BoundOptions {
    /// The budget of a remedy.
    pub fn bucket(&self, remedy: RemedyKind) -> BucketOptions {
        match remedy {
            RemedyKind::DisconnectEndpoint => self.disconnect,
            RemedyKind::DeletePod => self.delete_pod,
            RemedyKind::RestartAgent => self.restart_agent,
        }
    }
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketOptions {
    /// How many tokens it holds; 0: the remedy never begins.
    pub burst: u32,
    /// One token comes back in this time, in milliseconds; shorter than 1 ms counts as 1 ms.
    #[serde(rename = "refillMs", with = "millis")]
    #[schemars(with = "u64")]
    pub refill: Duration,
}

/// The breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BreakerOptions {
    /// So many acts may be without help, whatever the share; 1 to 99, since with 0 nothing could ever be learnt.
    pub floor: u32,
    /// The share of acts that may be without help, in percent.
    pub share_percent: u32,
    /// So many acts are looked at, the newest; more than `floor`, since a smaller window could never hold as many, and at
    /// most 100. Acts whose outcome says nothing do not count.
    pub window: u32,
    /// Acts that ended longer ago are not looked at, in milliseconds.
    #[serde(rename = "spanMs", with = "millis")]
    #[schemars(with = "u64")]
    pub span: Duration,
    /// How long it stays open, in milliseconds.
    #[serde(rename = "coolDownMs", with = "millis")]
    #[schemars(with = "u64")]
    pub cool_down: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            floor: 3,
            share_percent: 20,
            window: 50,
            span: Duration::from_hours(1),
            cool_down: Duration::from_mins(30),
        }
    }
}

impl BreakerOptions {
    /// The least number of acts that may be without help.
    fn least(&self) -> u32 {
        self.floor.clamp(1, MOST - 1)
    }

    /// How many acts may be without help where so many have told.
    pub(super) fn allowance(&self, told: u32) -> u32 {
        let share = told.min(MOST) * self.share_percent.min(100) / 100;
        self.least().max(share)
    }

    /// How many acts are looked at.
    pub(super) fn looked_at(&self) -> usize {
        self.window.clamp(self.least() + 1, MOST) as usize
    }
}
