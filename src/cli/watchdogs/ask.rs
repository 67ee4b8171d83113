//! What a watchdog is asked for, and where to start.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;

use crate::cli::duration;
use crate::stream::{EventKind, Position};

/// The path of the state.
pub(in crate::cli) const STATE: &str = "/v1/state";

/// A request for events.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct Ask<'a> {
    pub(in crate::cli) since: Option<&'a Place>,
    pub(in crate::cli) follow: bool,
    /// Empty: all.
    pub(in crate::cli) types: &'a [EventKind],
}

/// After what to start. Nothing of a watchdog's goes into a URL but a position that was read as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Place {
    Event(Position),
    Instant(Timestamp),
}

impl Ask<'_> {
    pub(in crate::cli) fn path(&self) -> String {
        let mut path = format!("/v1/events?format=ndjson&follow={}", self.follow);
        // A String takes all that is written to it.
        let _ = match self.since {
            Some(Place::Event(position)) => write!(path, "&since={position}"),
            Some(Place::Instant(time)) => write!(path, "&since={time}"),
            None => Ok(()),
        };
        if !self.types.is_empty() {
            let words: Vec<&str> = self.types.iter().map(|kind| kind.as_str()).collect();
            path.extend(["&types=", &words.join(",")]);
        }
        path
    }
}

/// `--since`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Since {
    Ago(Duration),
    At(Timestamp),
}

impl Since {
    pub(in crate::cli) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(time) = text.parse() {
            return Ok(Self::At(time));
        }
        let wrong =
            format!("{text:?}: give a duration such as 10m, or an instant such as 2026-06-18T10:00:00Z");
        duration::parse(text).map(Self::Ago).map_err(|_| wrong)
    }

    pub(in crate::cli) fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => now.checked_sub(ago).unwrap_or(Timestamp::MIN),
        }
    }
}

/// A type by its word or its full name.
pub(in crate::cli) fn kind(text: &str) -> Result<EventKind, String> {
    EventKind::of_word(text.trim())
        .ok_or_else(|| format!("{text:?} is no type of events; they are {}", EventKind::words()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_says_what_is_asked_for() {
        let plain = Ask { since: None, follow: false, types: &[] };
        assert_eq!(plain.path(), "/v1/events?format=ndjson&follow=false");
        let place = Place::Event("19abf3c2d41.17".parse().unwrap());
        let types = [EventKind::Judged, EventKind::HeldBack];
        let resumed = Ask { since: Some(&place), follow: true, types: &types };
        let path = "/v1/events?format=ndjson&follow=true&since=19abf3c2d41.17&types=judged,held-back";
        assert_eq!(resumed.path(), path);
    }

    #[rstest::rstest]
    #[case("10m", "2026-06-18T09:50:00Z")]
    #[case("2026-06-18T12:00:00+02:00", "2026-06-18T10:00:00Z")]
    fn since_when(#[case] text: &str, #[case] instant: Timestamp) {
        let now = "2026-06-18T10:00:00Z".parse().unwrap();
        assert_eq!(Since::parse(text).unwrap().instant(now), instant);
    }

    #[rstest::rstest]
    #[case("yesterday")]
    #[case("10")]
    #[case("2026-06-18")]
    #[case("-5m")]
    fn what_is_no_time(#[case] text: &str) {
        assert!(Since::parse(text).unwrap_err().contains("give a duration"));
    }
}
