//! Which process told an event, and as its how many-th.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

/// Names one process: the millisecond of its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Boot(u64);

impl Boot {
    /// The process that started at this instant.
    pub fn at(start: Timestamp) -> Self {
        Self(u64::try_from(start.as_millisecond()).unwrap_or_default())
    }
}

impl fmt::Display for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// The place of an event in the stream of one process; its text is the event's `id`: `19abf3c2d41.17`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The process.
    pub boot: Boot,
    /// The first event of a process has 1; 0 is before all of them.
    pub number: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.boot, self.number)
    }
}

/// A text that is no position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no id of an event, such as 19abf3c2d41.17")]
pub struct NoPosition;

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        let (boot, number) = text.split_once('.').ok_or(NoPosition)?;
        // A sign is read by `from_str_radix` and never written.
        let plain =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if !plain(boot) || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NoPosition);
        }
        let boot = u64::from_str_radix(boot, 16).map_err(|_| NoPosition)?;
        let number = number.parse().map_err(|_| NoPosition)?;
        Ok(Self { boot: Boot(boot), number })
    }
}
