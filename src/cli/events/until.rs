//! `--until`: the event that ends it.

use crate::cli::watchdogs::{Line, kind};
use crate::stream::{CloudEvent, Event, EventKind};

/// Which event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Until {
    kind: EventKind,
    /// The outcome of `acted`, the verdict of `judged`.
    word: Option<String>,
}

impl Until {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (kind, word) = match text.split_once(':') {
            None => (kind(text)?, None),
            Some((type_, word)) => (kind(type_)?, Some(word.to_owned())),
        };
        if word.is_some() && !matches!(kind, EventKind::Acted | EventKind::Judged) {
            return Err("only acted:OUTCOME and judged:VERDICT take a second word".to_owned());
        }
        if matches!(kind, EventKind::Heartbeat | EventKind::Gap) {
            return Err(format!("{text} comes by itself"));
        }
        Ok(Self { kind, word })
    }

    /// The type that has to be read for it.
    pub(super) fn kind(&self) -> EventKind {
        self.kind
    }

    pub(super) fn is_met(&self, line: &Line) -> bool {
        if line.kind != Some(self.kind) {
            return false;
        }
        let Some(word) = &self.word else {
            return true;
        };
        match CloudEvent::parse(line.json.as_bytes()).map(|event| event.data) {
            Ok(Event::Acted(acted)) => acted.outcome == *word,
            Ok(Event::Judged(judged)) => judged.about.verdict.as_ref() == Some(word),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::watchdogs::event;

    #[rstest::rstest]
    #[case("acted", true)]
    #[case("cilium-leak-healer.acted.v1", true)]
    #[case("acted:healed", true)]
    #[case("acted:freed", false)]
    #[case("over", false)]
    fn which_event_ends_it(#[case] until: &str, #[case] met: bool) {
        let data = json!({
            "node": "n", "pod": "a/b", "podUid": "u", "correlationId": "c", "remedy": "delete-pod", "outcome": "healed",
            "final": true, "reason": "r",
        });
        let line = Line::parse(event("acted", "1f.1", "2026-06-18T10:00:00Z", &data).into_bytes()).unwrap();
        assert_eq!(Until::parse(until).unwrap().is_met(&line), met);
    }

    #[rstest::rstest]
    #[case("healed")]
    #[case("over:healed")]
    #[case("heartbeat")]
    fn what_is_no_end(#[case] text: &str) {
        assert!(Until::parse(text).is_err());
    }
}
