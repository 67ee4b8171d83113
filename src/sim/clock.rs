//! The cluster's clock and its source of names and ids.
//!
//! The clock runs on `tokio::time`, so that a test on paused time moves the objects' timestamps too.
//! Must not know: objects, HTTP.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Locks, also after a holder panicked: the simulation's data are whole after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wall time that advances with `tokio::time`.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    epoch: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock that shows `epoch` now.
    #[must_use]
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, start: Instant::now() }
    }

    /// The simulated time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed = jiff::SignedDuration::try_from(self.start.elapsed()).unwrap_or_default();
        self.epoch.checked_add(elapsed).unwrap_or(self.epoch)
    }
}

/// RFC 3339 with whole seconds, as `metav1.Time`.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// RFC 3339 with milliseconds, as go-openapi's `strfmt.DateTime`.
pub(crate) fn millis(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// A duration as Go prints it (`998.093011ms`, `1m0s`).
pub(crate) fn go_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let trimmed = |value: u128, unit: u128, suffix: &str| {
        let digits = unit.to_string().len() - 1;
        let fraction = format!("{:0digits$}", value % unit);
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() {
            format!("{}{suffix}", value / unit)
        } else {
            format!("{}.{fraction}{suffix}", value / unit)
        }
    };
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => trimmed(nanos, 1_000, "µs"),
        1_000_000..1_000_000_000 => trimmed(nanos, 1_000_000, "ms"),
        _ => {
            let seconds = trimmed(nanos % 60_000_000_000, 1_000_000_000, "s");
            match nanos / 60_000_000_000 {
                0 => seconds,
                minutes @ 1..60 => format!("{minutes}m{seconds}"),
                minutes => format!("{}h{}m{seconds}", minutes / 60, minutes % 60),
            }
        }
    }
}

/// Names and ids; the same seed gives the same ones.
#[derive(Debug)]
pub(crate) struct Random(AtomicU64);

impl Random {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self(AtomicU64::new(seed.unwrap_or_else(|| RandomState::new().build_hasher().finish())))
    }

    /// `SplitMix64`: good enough for names, and needs no dependency.
    pub(crate) fn next(&self) -> u64 {
        let mut z =
            self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound` (which must not be 0).
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// `digits` hexadecimal digits.
    pub(crate) fn hex(&self, digits: usize) -> String {
        let mut text = String::with_capacity(digits + 16);
        while text.len() < digits {
            let _ = write!(text, "{:016x}", self.next());
        }
        text.truncate(digits);
        text
    }

    /// A version 4 UUID.
    pub(crate) fn uuid(&self) -> String {
        let h = self.hex(32);
        let variant = ['8', '9', 'a', 'b'][usize::try_from(self.below(4)).unwrap_or_default()];
        format!("{}-{}-4{}-{variant}{}-{}", &h[..8], &h[8..12], &h[13..16], &h[17..20], &h[20..])
    }

    /// A suffix as the API server appends it to `generateName`: no vowels, no look-alikes.
    pub(crate) fn suffix(&self, length: usize) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..length)
            .map(|_| {
                let index = usize::try_from(self.below(ALPHABET.len() as u64)).unwrap_or_default();
                char::from(ALPHABET[index])
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_go_does() {
        for (nanos, text) in [
            (0, "0s"),
            (998_093_011, "998.093011ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (250_000, "250µs"),
            (3_723_000_000_000, "1h2m3s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn uuids_have_the_form_of_version_4_and_follow_the_seed() {
        let uuid = Random::new(Some(7)).uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert_eq!(uuid, Random::new(Some(7)).uuid());
    }
}
