//! A report for people: one line a finding, the heaviest first, within 100 columns; then what was looked at, and what
//! was not.
//!
//! Must not know: where a report came from.

use crate::cli::wrap::{WIDTH, clean, wrap};
use crate::snapshot::{ReportFinding, ScanReport};

/// Between two columns.
const GAP: &str = "  ";
/// A node's name is cut to no less than this, a subject to no less than twice as much.
const LEAST: usize = 14;
/// Lines about what could not be read.
const MOST_UNREAD: usize = 20;

/// How it is printed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Style {
    /// Whole names, and the reason.
    pub(super) wide: bool,
    /// The line with the columns' names.
    pub(super) headers: bool,
    /// With colours.
    pub(super) colour: bool,
}

/// What the report itself does not tell.
#[derive(Debug, Clone, Default)]
pub(super) struct Context {
    /// Pods that wait for a sandbox, whatever the cause.
    pub(super) waiting: usize,
    /// What could not be read.
    pub(super) unread: Vec<String>,
    /// What was not looked at, and how it would be.
    pub(super) left_out: Vec<String>,
}

struct Row {
    verdict: String,
    remedy: String,
    node: String,
    subject: String,
    ip: String,
    reason: String,
}

impl Row {
    fn of(finding: &ReportFinding) -> Self {
        let text = |value: &Option<String>| value.as_deref().map_or_else(|| "-".to_owned(), clean);
        let subject = finding.subject.to_string();
        Self {
            verdict: clean(&finding.verdict),
            remedy: clean(&finding.remedy),
            node: text(&finding.node),
            // Most are pods: their kind would only cost columns.
            subject: clean(subject.strip_prefix("Pod ").unwrap_or(&subject)),
            ip: text(&finding.ip),
            reason: clean(&finding.reason),
        }
    }
}

/// The findings, one line each; empty where there is none.
pub(super) fn rows(report: &ScanReport, style: Style) -> String {
    if report.findings.is_empty() {
        return String::new();
    }
    let mut rows: Vec<Row> = report.findings.iter().map(Row::of).collect();
    let colours: Vec<&str> = report.findings.iter().map(colour).collect();
    if style.headers {
        let name = str::to_owned;
        rows.insert(
            0,
            Row {
                verdict: name("VERDICT"),
                remedy: name("REMEDY"),
                node: name("NODE"),
                subject: name("SUBJECT"),
                ip: name("IP"),
                reason: name("REASON"),
            },
        );
    }
    if !style.wide {
        fit(&mut rows);
    }
    let width = |column: fn(&Row) -> &str| {
        rows.iter().map(|row| column(row).chars().count()).max().unwrap_or_default()
    };
    let (verdict, remedy, node) =
        (width(|row| &row.verdict), width(|row| &row.remedy), width(|row| &row.node));
    let (subject, ip) = (width(|row| &row.subject), width(|row| &row.ip));
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let mut line = format!(
            "{:verdict$}{GAP}{:remedy$}{GAP}{:node$}{GAP}{:subject$}{GAP}",
            row.verdict, row.remedy, row.node, row.subject
        );
        let rest = if style.wide { format!("{:ip$}{GAP}{}", row.ip, row.reason) } else { row.ip.clone() };
        line.push_str(&rest);
        let of = at.checked_sub(usize::from(style.headers)).and_then(|at| colours.get(at));
        let line = match of.filter(|_| style.colour) {
            Some(colour) => {
                let rest = line.split_off(row.verdict.len());
                format!("\x1b[{colour}m{line}\x1b[0m{}", rest.trim_end())
            }
            None => line.trim_end().to_owned(),
        };
        text.extend([line.as_str(), "\n"]);
    }
    text
}

/// Red where something can be healed, yellow where a person has to look, plain otherwise.
fn colour(finding: &ReportFinding) -> &'static str {
    match (finding.remedy.as_str(), finding.verdict.as_str()) {
        (
            "none",
            "settling" | "not-held" | "shared-by-design" | "cep-missing" | "cep-mismatch" | "orphan-cep",
        ) => "0",
        ("none", _) => "33",
        _ => "31",
    }
}

/// Cuts names so that a line fits: the node's first, for the subject is what a person copies.
fn fit(rows: &mut [Row]) {
    let width = |rows: &[Row], column: fn(&Row) -> &str| {
        rows.iter().map(|row| column(row).chars().count()).max().unwrap_or_default()
    };
    let fixed = width(rows, |row| &row.verdict) + width(rows, |row| &row.remedy) + width(rows, |row| &row.ip);
    let room = WIDTH.saturating_sub(fixed + 4 * GAP.len());
    let (node, subject) = (width(rows, |row| &row.node), width(rows, |row| &row.subject));
    if node + subject <= room {
        return;
    }
    let node = node.min(room.saturating_sub(subject).max(LEAST));
    let subject = subject.min(room.saturating_sub(node).max(LEAST));
    for row in rows {
        row.node = cut(&row.node, node);
        row.subject = cut(&row.subject, subject);
    }
}

/// Leaves out the middle: both ends of a name tell more than its middle.
fn cut(text: &str, width: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= width || width < 3 {
        return text.to_owned();
    }
    let tail = (width - 1) / 2;
    let head = width - 1 - tail;
    let head: String = all.iter().take(head).collect();
    let tail: String = all.iter().skip(all.len() - tail).collect();
    format!("{head}…{tail}")
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// `150,000`.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What was found in a sentence, what was looked at, and what was not.
pub(super) fn summary(report: &ScanReport, context: &Context) -> String {
    let summary = &report.summary;
    let looked =
        format!("{} on {}", counted(summary.pods, "pod", "pods"), counted(summary.nodes, "node", "nodes"));
    let waiting = match context.waiting {
        0 => "no pod waits for a sandbox".to_owned(),
        count => {
            let waits = if count == 1 { "waits" } else { "wait" };
            let over = match summary.wedged {
                0 => "none over this refusal".to_owned(),
                wedged => format!("{} judged", grouped(wedged)),
            };
            format!("{} {waits} for a sandbox, {over}", counted(count, "pod", "pods"))
        }
    };
    let mut lines = Vec::new();
    if summary.findings == 0 {
        lines.extend(wrap("", &format!("Nothing found. Looked at {looked}; {waiting}.")));
    } else {
        let mut kinds: Vec<(&String, &usize)> = summary.by_verdict.iter().collect();
        kinds.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let kinds: Vec<String> =
            kinds.into_iter().map(|(verdict, count)| format!("{} {verdict}", grouped(*count))).collect();
        let found = counted(summary.findings, "finding", "findings");
        lines.extend(wrap("", &format!("{found}: {}. Looked at {looked}; {waiting}.", kinds.join(", "))));
    }
    for line in &context.left_out {
        lines.extend(wrap("Not looked at: ", line));
    }
    if !context.unread.is_empty() {
        lines.push("Could not be read, and counts as unknown:".to_owned());
        lines.extend(context.unread.iter().take(MOST_UNREAD).flat_map(|line| wrap("  - ", line)));
        if let Some(more) = context.unread.len().checked_sub(MOST_UNREAD).filter(|more| *more > 0) {
            lines.push(format!("  - and {} more", grouped(more)));
        }
    }
    lines.iter().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::snapshot::{Mode, ReportSubject};

    fn report(count: usize) -> ScanReport {
        let finding = |number: usize| ReportFinding {
            subject: ReportSubject {
                kind: "Pod".to_owned(),
                namespace: Some("tenant-observability".to_owned()),
                name: format!("prometheus-kube-prometheus-stack-prometheus-{number}"),
                uid: None,
            },
            node: Some("ip-10-0-12-34.eu-west-1.compute.internal".to_owned()),
            ip: Some("2001:db8:1234:5678:9abc:def0:1234:5678".to_owned()),
            verdict: "insufficient-evidence".to_owned(),
            remedy: "disconnect-endpoint".to_owned(),
            target: None,
            reason: "because\u{1b}[31m of\nthis".to_owned(),
            evidence: Vec::new(),
        };
        let findings = (0..count).map(finding).collect();
        ScanReport::new(Timestamp::UNIX_EPOCH, Mode::Live, 150_000, 5_000, findings)
    }

    #[test]
    fn the_longest_names_fit_into_100_columns() {
        let text = rows(&report(2), Style { headers: true, ..Style::default() });
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH + 28), "{text}");
        let ipv4 = text.replace("2001:db8:1234:5678:9abc:def0:1234:5678", "10.244.100.100");
        assert!(ipv4.lines().all(|line| line.chars().count() <= WIDTH), "{ipv4}");
        assert!(text.contains('…'), "{text}");
    }

    #[test]
    fn wide_cuts_nothing_and_obeys_no_escape() {
        let text = rows(&report(1), Style { wide: true, ..Style::default() });
        assert_eq!(text.lines().count(), 1);
        assert!(
            text.contains("tenant-observability/prometheus-kube-prometheus-stack-prometheus-0"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}') && text.contains(" of this"), "{text:?}");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let plain = rows(&report(2), Style { headers: true, ..Style::default() });
        let colour = rows(&report(2), Style { headers: true, colour: true, ..Style::default() });
        assert_eq!(colour.replace("\u{1b}[31m", "").replace("\u{1b}[0m", ""), plain);
        assert_ne!(colour, plain);
    }

    #[test]
    fn what_could_not_be_read_does_not_bury_the_rest() {
        let unread = (0..50).map(|number| format!("read {number} failed")).collect();
        let text = summary(&report(0), &Context { waiting: 0, unread, left_out: Vec::new() });
        assert!(text.starts_with(
            "Nothing found. Looked at 150,000 pods on 5,000 nodes; no pod waits for a sandbox.\n"
        ));
        assert_eq!(text.lines().count(), 23, "{text}");
        assert!(text.ends_with("  - and 30 more\n"), "{text}");
    }
}
