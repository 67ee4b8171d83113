//! One line of a stream, as far as it must be understood to put it in its place.

use jiff::Timestamp;
use serde_json::Value;

use super::trouble::Trouble;
use crate::stream::{CloudEvent, EventKind, Position};

/// An event as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Line {
    pub(in crate::cli) time: Timestamp,
    /// `None`: a type that this program does not know.
    pub(in crate::cli) kind: Option<EventKind>,
    /// After what a reader resumes that has got this one.
    pub(in crate::cli) place: Option<Position>,
    /// The CloudEvent.
    pub(in crate::cli) json: String,
}

impl Line {
    pub(in crate::cli) fn parse(bytes: Vec<u8>) -> Result<Self, Trouble> {
        let wrong = |why: String| Trouble::passing(&format!("a line is no event: {why}"));
        let json = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
        let event: CloudEvent<Value> =
            serde_json::from_str(&json).map_err(|error| wrong(error.to_string()))?;
        let kind = EventKind::of_word(&event.type_);
        let place = match kind {
            Some(EventKind::Heartbeat) => event.data["last"].as_str().unwrap_or_default().parse().ok(),
            // What is told to one reader alone has the position of the event before it: `19abf3c2d41.17-gap-…`.
            _ => event.id.split('-').next().unwrap_or_default().parse().ok(),
        };
        Ok(Self { time: event.time, kind, place, json })
    }

    /// Whether the caller asked for it. What was lost is always said.
    pub(in crate::cli) fn is_wanted(&self, types: &[EventKind]) -> bool {
        match self.kind {
            Some(EventKind::Gap) => true,
            Some(EventKind::Heartbeat) => types.contains(&EventKind::Heartbeat),
            Some(kind) => types.is_empty() || types.contains(&kind),
            None => types.is_empty(),
        }
    }
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use super::*;

    /// An event of a type.
    pub(in crate::cli) fn event(word: &str, id: &str, time: &str, data: &Value) -> String {
        format!(
            r#"{{"specversion":"1.0","id":"{id}","source":"/cilium-leak-healer/nodes/n","type":"cilium-leak-healer.{word}.v1","time":"{time}","datacontenttype":"application/json","data":{data}}}"#
        )
    }

    fn parse(json: String) -> Line {
        Line::parse(json.into_bytes()).unwrap()
    }

    #[rstest::rstest]
    #[case::event("stopping", "1f.7", r#"{"node":"n"}"#, "1f.7")]
    #[case::heartbeat("heartbeat", "1f.7-heartbeat-99", r#"{"node":"n","last":"1f.9"}"#, "1f.9")]
    #[case::gap("gap", "1f.4-gap-99", r#"{"node":"n","reason":"slow","lost":3}"#, "1f.4")]
    #[case::unknown("news", "1f.8", "{}", "1f.8")]
    fn where_a_reader_resumes(#[case] word: &str, #[case] id: &str, #[case] data: &str, #[case] place: &str) {
        let data: Value = serde_json::from_str(data).unwrap();
        let line = parse(event(word, id, "2026-06-18T10:00:00Z", &data));
        assert_eq!(line.place, Some(place.parse().unwrap()));
    }

    #[rstest::rstest]
    #[case("stopping", &[], true)]
    #[case("stopping", &[EventKind::Acted], false)]
    #[case("gap", &[EventKind::Acted], true)]
    #[case("heartbeat", &[], false)]
    #[case("heartbeat", &[EventKind::Heartbeat], true)]
    #[case("news", &[], true)]
    #[case("news", &[EventKind::Acted], false)]
    fn what_is_shown(#[case] word: &str, #[case] types: &[EventKind], #[case] wanted: bool) {
        let line = parse(event(word, "1f.1", "2026-06-18T10:00:00Z", &Value::Null));
        assert_eq!(line.is_wanted(types), wanted);
    }

    #[rstest::rstest]
    #[case(b"<html>")]
    #[case(b"{}")]
    #[case(b"\xff")]
    fn what_is_no_event(#[case] bytes: &[u8]) {
        let trouble = Line::parse(bytes.to_vec()).unwrap_err();
        assert!(trouble.why.starts_with("a line is no event: "), "{trouble:?}");
    }
}
