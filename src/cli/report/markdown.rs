//! The report as Markdown, for a job's summary. All that a cluster says is shown and never obeyed.
//!
//! Must not know: where the facts come from.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::form::{ActDone, Ending, HealFinding, HealReport, NodeRead, NoteSaid, Reading};
use crate::text::plain;

/// Characters of a sentence, and of a value that was seen.
const SENTENCE: usize = 1000;

/// The whole text.
pub(super) fn text(report: &HealReport) -> String {
    let mut out = String::new();
    head(&mut out, report);
    nodes(&mut out, report);
    for finding in &report.findings {
        self::finding(&mut out, finding);
    }
    out
}

/// Text of others on one line: nothing in it is markup, a link, a mention or a cell's end.
fn shown(text: &str) -> String {
    let mut out = String::new();
    let text = plain(text, SENTENCE);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // A mention, an address, a link that needs no brackets: no backslash stops these.
            '@' => out.push_str("&#64;"),
            ':' if chars.peek() == Some(&'/') => out.push_str("&#58;"),
            'w' if out.ends_with("ww") => out.push_str("&#119;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' | '!' | '$' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

fn instant(time: Timestamp) -> String {
    format!("{}", time.strftime("%Y-%m-%d %H:%M:%S UTC"))
}

fn clock(time: Timestamp) -> String {
    format!("{}", time.strftime("%H:%M:%S"))
}

/// A String takes all that is written to it.
macro_rules! line {
    ($out:expr) => { $out.push('\n') };
    ($out:expr, $($arg:tt)*) => { let _ = writeln!($out, $($arg)*); };
}

fn head(out: &mut String, report: &HealReport) {
    let whole = if report.complete { "" } else { " (incomplete)" };
    line!(out, "# Cilium leak healer: {}{whole}", report.counts());
    line!(out);
    let since = report.since.map(|since| format!(", on what happened since {}", instant(since)));
    line!(out, "Made at {}{}.", instant(report.time), since.unwrap_or_default());
    if !report.complete {
        line!(out);
        line!(
            out,
            "> **Incomplete: more may have happened than is said here.** What is missing is named below."
        );
    }
    if !report.remarks.is_empty() {
        line!(out);
        for remark in &report.remarks {
            line!(out, "* {}", shown(remark));
        }
    }
    if report.summary.healed > 0 {
        line!(out);
        line!(
            out,
            "A heal is no success of the cluster: an endpoint was left over, or an address was given twice. Look for its cause."
        );
    }
    line!(out);
    if report.findings.is_empty() {
        let nothing = if report.complete { "No wedge was found." } else { "No wedge is known." };
        line!(out, "{nothing}");
        return;
    }
    line!(out, "| ending | pod | node | address | verdict | why |");
    line!(out, "|---|---|---|---|---|---|");
    for it in &report.findings {
        let cells = [&it.pod, &it.node, or_dash(it.ip.as_ref()), or_dash(it.verdict.as_ref()), &it.reason];
        let cells = cells.map(shown).join(" | ");
        line!(out, "| {} | {cells} |", ending(it));
    }
}

/// Where there is nothing to show.
fn or_dash(text: Option<&String>) -> &str {
    text.map_or("-", String::as_str)
}

fn ending(finding: &HealFinding) -> String {
    let word = finding.ending.as_str();
    if finding.fails.is_empty() { word.to_owned() } else { format!("**{word}** (fails)") }
}

fn nodes(out: &mut String, report: &HealReport) {
    if report.nodes.is_empty() {
        return;
    }
    line!(out);
    line!(out, "| node | read | mode | watchdog since | Kubernetes Events | missing |");
    line!(out, "|---|---|---|---|---|---|");
    for NodeRead { node, reading, why, mode, started, kubernetes_events, .. } in &report.nodes {
        let reading = match reading {
            Reading::Whole => "whole",
            Reading::Partial => "in part",
            Reading::NotRead => "**not read**",
        };
        let (node, mode, why) = (shown(node), shown(or_dash(mode.as_ref())), shown(or_dash(why.as_ref())));
        let started = started.map_or_else(|| "-".to_owned(), instant);
        line!(out, "| {node} | {reading} | {mode} | {started} | {kubernetes_events} | {why} |");
    }
}

fn finding(out: &mut String, it: &HealFinding) {
    line!(out);
    let address = it.ip.as_ref().map(|ip| format!(", {}", shown(ip)));
    line!(out, "## {}: {}{}", it.ending.as_str(), shown(&it.pod), address.unwrap_or_default());
    line!(out);
    line!(out, "{}", shown(&it.reason));
    line!(out);
    for fact in facts(it) {
        line!(out, "* {fact}");
    }
    if !it.acts.is_empty() {
        line!(out);
        line!(out, "Done:");
        line!(out);
        it.acts.iter().for_each(|act| self::act(out, act));
    }
    if !it.held_back.is_empty() {
        line!(out);
        line!(out, "Held back:");
        line!(out);
        for held in &it.held_back {
            let remedy = held.remedy.as_ref().map(|remedy| format!("{} ", shown(remedy))).unwrap_or_default();
            line!(out, "* {} {remedy}by {}: {}", clock(held.time), shown(&held.by), shown(&held.reason));
        }
    }
    if !it.evidence.is_empty() {
        line!(out);
        line!(out, "<details><summary>Evidence: {} checks</summary>", it.evidence.len());
        line!(out);
        line!(out, "| check | outcome | seen |");
        line!(out, "|---|---|---|");
        for check in &it.evidence {
            line!(
                out,
                "| {} | {} | {} |",
                shown(&check.check),
                shown(&check.outcome),
                shown(&check.observed)
            );
        }
        line!(out);
        line!(out, "</details>");
    }
    if !it.notes.is_empty() {
        line!(out);
        line!(out, "From Kubernetes Events:");
        line!(out);
        it.notes.iter().for_each(|note| self::note(out, note));
    }
}

fn facts(it: &HealFinding) -> Vec<String> {
    let mut facts = vec![format!(
        "node {}, told of from {} to {}",
        shown(&it.node),
        instant(it.first_seen),
        instant(it.last_seen)
    )];
    if let Some(controller) = &it.controller {
        facts.push(format!("controller: {}", shown(controller)));
    }
    if let Some(verdict) = &it.verdict {
        facts.push(format!("verdict: {}", shown(verdict)));
    }
    if let Some(owner) = &it.owner {
        facts.push(format!("the address is held by the endpoint of: {}", shown(owner)));
    }
    if let (Some(over), true) = (&it.over, it.ending != Ending::Passed) {
        facts.push(format!("the pod waits no more: {}", shown(over)));
    }
    let sources: Vec<_> = it.sources.iter().map(|source| source.as_str()).collect();
    let ids: Vec<_> = it.correlation_ids.iter().map(|id| shown(id)).collect();
    facts.push(format!(
        "pod UID {}, correlation id {}, known from {}",
        shown(&it.pod_uid),
        ids.join(", "),
        sources.join(", ")
    ));
    facts
}

fn act(out: &mut String, act: &ActDone) {
    let target = act.target.as_ref().map(|target| format!(", aimed at {}", shown(target)));
    line!(out, "* {} {}{}", clock(act.began), shown(&act.remedy), target.unwrap_or_default());
    for step in &act.steps {
        line!(out, "  * {} {}: {}", clock(step.time), shown(&step.outcome), shown(&step.reason));
    }
    if !act.ended && !act.worked {
        line!(out, "  * nobody knows yet what came of it");
    }
}

fn note(out: &mut String, note: &NoteSaid) {
    let NoteSaid { reason, first, last, count, .. } = note;
    let times = if first == last { clock(*first) } else { format!("{} to {}", clock(*first), clock(*last)) };
    let often = if *count > 1 { format!(", {count} times") } else { String::new() };
    line!(out, "* {times}{often}, {}: {}", shown(reason), shown(&note.note));
}
