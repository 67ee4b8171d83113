//! A token bucket. Must not know what a token buys.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::form::{later, since};
use super::options::BucketOptions;

/// Shorter would be no budget at all.
const LEAST_REFILL: Duration = Duration::from_millis(1);

/// So many tokens there were at that time; what came back since is reckoned when asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Bucket {
    /// Tokens at that time.
    tokens: u32,
    /// That time.
    at: Timestamp,
}

impl Bucket {
    /// One that nothing was ever taken from.
    pub(super) fn full(options: BucketOptions) -> Self {
        Self { tokens: options.burst, at: Timestamp::UNIX_EPOCH }
    }

    /// One that refills from now on.
    pub(super) fn empty(now: Timestamp) -> Self {
        Self { tokens: 0, at: now }
    }

    /// The same bucket as of now. Where the clock went back, nothing comes back until it has caught up, but for no
    /// longer than an empty bucket takes to fill.
    pub(super) fn as_of(self, now: Timestamp, options: BucketOptions) -> Self {
        let refill = options.refill.max(LEAST_REFILL);
        let tokens = self.tokens.min(options.burst);
        if self.at > now {
            let most = later(now, refill.saturating_mul(options.burst));
            return Self { tokens, at: self.at.min(most) };
        }
        let gained = since(self.at, now).as_nanos() / refill.as_nanos();
        let room = options.burst - tokens;
        match u32::try_from(gained) {
            Ok(gained) if gained < room => {
                Self { tokens: tokens + gained, at: later(self.at, refill.saturating_mul(gained)) }
            }
            _ => Self { tokens: options.burst, at: now },
        }
    }

    /// Tokens now.
    pub(super) fn tokens(self, now: Timestamp, options: BucketOptions) -> u32 {
        self.as_of(now, options).tokens
    }

    /// When there is a token, if not now; `None`: never.
    pub(super) fn next(self, now: Timestamp, options: BucketOptions) -> Option<Timestamp> {
        let at = self.as_of(now, options).at;
        (options.burst > 0).then(|| later(at, options.refill.max(LEAST_REFILL)))
    }

    /// The bucket with one token less; `None`: it has none.
    pub(super) fn take(self, now: Timestamp, options: BucketOptions) -> Option<Self> {
        let bucket = self.as_of(now, options);
        bucket.tokens.checked_sub(1).map(|tokens| Self { tokens, ..bucket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: BucketOptions = BucketOptions { burst: 3, refill: Duration::from_secs(10) };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn drained() -> Bucket {
        (0..3).fold(Bucket::full(OPTIONS), |bucket, _| bucket.take(at(0), OPTIONS).unwrap())
    }

    #[test]
    fn one_token_comes_back_at_a_time() {
        let bucket = drained();
        assert_eq!(bucket.take(at(9), OPTIONS), None);
        assert_eq!(bucket.next(at(0), OPTIONS), Some(at(10)));
        let bucket = bucket.take(at(15), OPTIONS).unwrap();
        // The 5 s that were over are not lost, and not counted twice.
        assert_eq!(bucket.next(at(15), OPTIONS), Some(at(20)));
        assert_eq!(bucket.tokens(at(20), OPTIONS), 1);
        assert_eq!(bucket.tokens(at(10_000), OPTIONS), 3);
    }

    #[rstest::rstest]
    #[case(-1, 10)]
    #[case(-29, 10)]
    // It went back by more than the bucket takes to fill: that long, and not longer.
    #[case(-1_000_000, -1_000_000 + 40)]
    fn a_clock_that_goes_back_refills_nothing(#[case] back: i64, #[case] next: i64) {
        let bucket = drained();
        assert_eq!(bucket.tokens(at(back), OPTIONS), 0);
        assert_eq!(bucket.next(at(back), OPTIONS), Some(at(next)));
        assert_eq!(bucket.as_of(at(back), OPTIONS).tokens(at(next - 1), OPTIONS), 0);
    }

    #[test]
    fn a_budget_of_nothing_is_never_there() {
        let none = BucketOptions { burst: 0, ..OPTIONS };
        assert_eq!(Bucket::full(none).take(at(1_000), none), None);
        assert_eq!(Bucket::full(none).next(at(0), none), None);
        // Nor does a burst that was lowered since leave more tokens than it allows.
        assert_eq!(Bucket::full(OPTIONS).tokens(at(0), none), 0);
    }
}
