//! Events for people: one line each, in columns that grow as they need to.
//!
//! Must not know: where they come from.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::cli::watchdogs::Line;
use crate::stream::{CheckState, CloudEvent, Event, GapReason};
use crate::text::{one_line, plain};

/// A column grows to this width; what is longer moves the rest of its line.
const WIDEST: usize = 48;
/// Characters of a sentence.
const SENTENCE: usize = 1000;
/// The longest word for a type.
const WORD: usize = 9;

/// The columns of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cells {
    time: Timestamp,
    node: String,
    word: String,
    subject: String,
    ip: String,
    what: String,
}

/// How wide the columns are.
#[derive(Debug, Default)]
pub(super) struct Columns {
    day: Option<Date>,
    node: usize,
    subject: usize,
    ip: usize,
}

impl Columns {
    /// For nodes of these names.
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a str>) -> Self {
        let mut columns = Self::default();
        nodes.for_each(|node| widen(&mut columns.node, node));
        columns
    }

    /// Some lines, after a line with the date where that is another one.
    pub(super) fn lines(&mut self, all: &[Cells]) -> String {
        for cells in all {
            widen(&mut self.node, &cells.node);
            widen(&mut self.subject, &cells.subject);
            widen(&mut self.ip, &cells.ip);
        }
        let mut out = String::new();
        for cells in all {
            let at = TimeZone::UTC.to_datetime(cells.time);
            if self.day.replace(at.date()) != Some(at.date()) {
                // A String takes all that is written to it.
                let _ = writeln!(out, "{} UTC", at.date());
            }
            let Cells { node, word, subject, ip, what, .. } = cells;
            let (a, b, c) = (self.node, self.subject, self.ip);
            let line = format!(
                "{}  {node:a$}  {word:WORD$}  {subject:b$}  {ip:c$}  {what}",
                at.strftime("%H:%M:%S")
            );
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

fn widen(width: &mut usize, text: &str) {
    *width = (*width).max(text.chars().count().min(WIDEST));
}

impl Cells {
    /// An event of a node. The name is the cluster's, whatever the event says.
    pub(super) fn of(node: &str, line: &Line) -> Self {
        match CloudEvent::parse(line.json.as_bytes()) {
            Ok(event) => {
                let (subject, ip, what) = told(&event.data);
                Self::new(line.time, node, event.data.kind().as_str(), &subject, &ip, &what)
            }
            Err(why) => {
                let what = format!("this program is older than the event, or cannot read it: {why}");
                Self::new(line.time, node, "?", "-", "-", &what)
            }
        }
    }

    /// What is said of the stream of a node.
    pub(super) fn note(node: &str, time: Timestamp, what: &str) -> Self {
        Self::new(time, node, "stream", "-", "-", what)
    }

    fn new(time: Timestamp, node: &str, word: &str, subject: &str, ip: &str, what: &str) -> Self {
        Self {
            time,
            node: one_line(node),
            word: word.to_owned(),
            subject: one_line(subject),
            ip: ip.to_owned(),
            what: plain(what, SENTENCE),
        }
    }
}

/// Whom it is about, which address, and what is said.
fn told(event: &Event) -> (String, String, String) {
    let about = event.about();
    let mut subject = about.map_or_else(|| "-".to_owned(), |about| about.pod.clone());
    let ip = about.and_then(|about| about.ip).map_or_else(|| "-".to_owned(), |ip| ip.to_string());
    let what = match event {
        Event::Started(started) => {
            let mode = format!("version {}, mode {}", started.version, started.mode);
            if started.remedies.is_empty() {
                mode
            } else {
                format!("{mode}: {}", started.remedies.join(", "))
            }
        }
        Event::Stopping(_) => "the watchdog ends".to_owned(),
        Event::Judged(judged) => {
            let verdict = judged.about.verdict.as_deref().unwrap_or("no wedge");
            format!("{verdict}, {}: {}", judged.remedy, judged.reason)
        }
        Event::HeldBack(held) => format!("{} held back by {}: {}", held.remedy, held.by, held.reason),
        Event::Acting(acting) => format!("{}: {}", acting.remedy, acting.reason),
        Event::Acted(acted) => format!("{} {}: {}", acted.remedy, acted.outcome, acted.reason),
        Event::Over(over) => over.reason.clone(),
        Event::CheckChanged(changed) => {
            subject.clone_from(&changed.check);
            let state = match changed.state {
                CheckState::Ok => "ok",
                CheckState::Degraded => "degraded",
                CheckState::Failed => "failed",
            };
            changed.reason.as_ref().map_or_else(|| state.to_owned(), |why| format!("{state}: {why}"))
        }
        Event::Heartbeat(_) => "nothing happened for a while".to_owned(),
        Event::Gap(gap) => {
            let lost = gap.lost.map_or_else(|| "events may be".to_owned(), counted);
            let why = match gap.reason {
                GapReason::Restarted => "the watchdog has restarted; its ledger has the acts before",
                GapReason::Overwritten => "they are older than what is kept",
                GapReason::UnknownId => "it does not know where this reader was",
                GapReason::Slow => "this reader was too slow",
            };
            format!("{lost} lost: {why}")
        }
    };
    (subject, ip, what)
}

fn counted(lost: u64) -> String {
    if lost == 1 { "1 event is".to_owned() } else { format!("{lost} events are") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::watchdogs::event;

    fn cells(node: &str, word: &str, time: &str, data: &Value) -> Cells {
        Cells::of(node, &Line::parse(event(word, "1f.7", time, data).into_bytes()).unwrap())
    }

    fn acted(pod: &str, reason: &str) -> Value {
        json!({
            "node": "n", "pod": pod, "podUid": "u", "ip": "10.244.1.12", "verdict": "stale-endpoint", "correlationId": "c",
            "remedy": "disconnect-endpoint", "outcome": "healed", "final": true, "reason": reason,
        })
    }

    #[test]
    fn one_line_an_event_in_columns_that_grow() {
        let mut columns = Columns::of(["worker-1", "w"].into_iter());
        let gap = json!({"node": "n", "reason": "restarted"});
        let check = json!({"node": "n", "check": "agent", "state": "failed", "reason": "no socket"});
        let first = columns.lines(&[
            cells("w", "gap", "2026-06-18T23:59:58Z", &gap),
            cells("worker-1", "acted", "2026-06-18T23:59:59.9Z", &acted("a/web", "the pod has its sandbox")),
        ]);
        let second = columns.lines(&[cells("w", "check", "2026-06-19T00:00:00Z", &check)]);
        insta::assert_snapshot!(first + &second, @r"
        2026-06-18 UTC
        23:59:58  w         gap        -      -            events may be lost: the watchdog has restarted; its ledger has the acts before
        23:59:59  worker-1  acted      a/web  10.244.1.12  disconnect-endpoint healed: the pod has its sandbox
        2026-06-19 UTC
        00:00:00  w         check      agent  -            failed: no socket
        ");
    }

    #[rstest::rstest]
    #[case("started", json!({"node": "n", "version": "0.1.0", "mode": "heal", "remedies": ["delete-pod"]}), "version 0.1.0, mode heal: delete-pod")]
    #[case("gap", json!({"node": "n", "reason": "overwritten", "lost": 1}), "1 event is lost: they are older than what is kept")]
    #[case("gap", json!({"node": "n", "reason": "slow", "lost": 7}), "7 events are lost: this reader was too slow")]
    #[case("news", json!({}), "this program is older than the event")]
    #[case("acted", json!({"node": "n"}), "or cannot read it: data of cilium-leak-healer.acted.v1")]
    fn what_is_said(#[case] word: &str, #[case] data: Value, #[case] what: &str) {
        let said = cells("n", word, "2026-06-18T10:00:00Z", &data).what;
        assert!(said.contains(what), "{said}");
    }

    #[test]
    fn hostile_text_stays_on_its_line() {
        let hostile = acted("a/web\u{1b}[2J\u{202e}", &format!("x\r\n10:00:00 {}", "y".repeat(5000)));
        let text = Columns::default().lines(&[cells("n", "acted", "2026-06-18T10:00:00Z", &hostile)]);
        assert_eq!(text.lines().count(), 2, "a date and a line: {text:?}");
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\r']), "{text:?}");
        assert!(text.len() < 1500, "{}", text.len());
    }
}
