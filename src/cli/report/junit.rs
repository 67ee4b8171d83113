//! The report as XML in the form of `JUnit`: a test case a finding, and one that says whether the report is complete.
//!
//! A finding passes with a warning in it, or is a failure where `--fail-on` says so. Must not know: where the facts come from.

use std::io;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::form::{HealFinding, HealReport};
use crate::text::plain;

/// Characters of a line.
const LINE: usize = 1000;
/// The name of the suite, and the start of each class.
const SUITE: &str = "cilium-leak-healer";

/// The whole text.
pub(super) fn text(report: &HealReport) -> io::Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let tests = (report.findings.len() + 1).to_string();
    let failures = report.summary.failed.to_string();
    let errors = u8::from(!report.complete).to_string();
    let counts = [("tests", tests.as_str()), ("failures", &failures), ("errors", &errors), ("skipped", "0")];
    let time = report.time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let suites = writer.create_element("testsuites").with_attribute(("name", SUITE)).with_attributes(counts);
    suites.write_inner_content(|writer| {
        let suite = writer.create_element("testsuite").with_attribute(("name", SUITE));
        let suite = suite.with_attributes(counts).with_attributes([("time", "0"), ("timestamp", &time)]);
        suite.write_inner_content(|writer| {
            properties(
                writer,
                &[
                    ("counts", report.counts()),
                    ("complete", report.complete.to_string()),
                    ("failOn", report.fail_on.iter().map(|on| on.as_str()).collect::<Vec<_>>().join(",")),
                ],
            )?;
            completeness(writer, report)?;
            report.findings.iter().try_for_each(|finding| case(writer, finding))
        })?;
        Ok(())
    })?;
    let mut bytes = writer.into_inner();
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// What XML can hold: the rest of the unprintable is gone with `plain`.
fn shown(text: &str) -> String {
    plain(text, LINE).replace(['\u{fffe}', '\u{ffff}'], " ")
}

fn properties(writer: &mut Writer<Vec<u8>>, all: &[(&str, String)]) -> io::Result<()> {
    writer.create_element("properties").write_inner_content(|writer| {
        for (name, value) in all {
            let property = writer.create_element("property").with_attribute(("name", *name));
            property.with_attribute(("value", shown(value).as_str())).write_empty()?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Whoever reads only this file must not take an empty report for a good one.
fn completeness(writer: &mut Writer<Vec<u8>>, report: &HealReport) -> io::Result<()> {
    let lines: Vec<String> = report.missing().map(|why| shown(&why)).collect();
    let class = format!("{SUITE}.report");
    let element = writer.create_element("testcase").with_attributes([
        ("classname", class.as_str()),
        ("name", "all nodes could be read"),
        ("time", "0"),
    ]);
    element.write_inner_content(|writer| {
        if !report.complete {
            let message = "incomplete: more may have happened than the report says";
            let error = writer.create_element("error");
            error
                .with_attributes([("message", message), ("type", "incomplete")])
                .write_text_content(BytesText::new(&lines.join("\n")))?;
        }
        if !lines.is_empty() {
            out(writer, &lines)?;
        }
        Ok(())
    })?;
    Ok(())
}

fn case(writer: &mut Writer<Vec<u8>>, finding: &HealFinding) -> io::Result<()> {
    let class = shown(&format!("{SUITE}.{}", finding.node));
    let ip = finding.ip.as_deref().unwrap_or("no single address");
    let name = shown(&format!("{}, {ip}", finding.pod));
    let element = writer.create_element("testcase").with_attributes([
        ("classname", class.as_str()),
        ("name", name.as_str()),
        ("time", "0"),
    ]);
    let word = finding.ending.as_str();
    element.write_inner_content(|writer| {
        let said = shown(&format!("{word}: {}", finding.reason));
        let fails: Vec<_> = finding.fails.iter().map(|on| on.as_str()).collect();
        let result = if fails.is_empty() { "warning" } else { "failOn" };
        let value = if fails.is_empty() { said.clone() } else { fails.join(",") };
        properties(
            writer,
            &[
                ("ending", word.to_owned()),
                ("verdict", finding.verdict.clone().unwrap_or_default()),
                ("podUid", finding.pod_uid.clone()),
                ("correlationIds", finding.correlation_ids.join(",")),
                (result, value),
            ],
        )?;
        let lines = story(finding);
        if !fails.is_empty() {
            let failure = writer.create_element("failure");
            failure
                .with_attributes([("message", said.as_str()), ("type", word)])
                .write_text_content(BytesText::new(&lines.join("\n")))?;
        }
        let warning = fails.is_empty().then(|| format!("WARNING: {said}"));
        out(writer, &warning.into_iter().chain(lines).collect::<Vec<_>>())
    })?;
    Ok(())
}

fn out(writer: &mut Writer<Vec<u8>>, lines: &[String]) -> io::Result<()> {
    writer.create_element("system-out").write_text_content(BytesText::new(&lines.join("\n")))?;
    Ok(())
}

/// What was done, what held it back, what was seen.
fn story(finding: &HealFinding) -> Vec<String> {
    let mut lines = Vec::new();
    for act in &finding.acts {
        let target = act.target.as_deref().unwrap_or("-");
        lines.push(shown(&format!("{:.0} {} aimed at {target}", act.began, act.remedy)));
        for step in &act.steps {
            lines.push(shown(&format!("{:.0} {} {}: {}", step.time, act.remedy, step.outcome, step.reason)));
        }
    }
    for held in &finding.held_back {
        let remedy = held.remedy.as_deref().unwrap_or("the remedy");
        lines.push(shown(&format!("{:.0} {remedy} held back by {}: {}", held.time, held.by, held.reason)));
    }
    for check in &finding.evidence {
        lines.push(shown(&format!("evidence: {} {}: {}", check.check, check.outcome, check.observed)));
    }
    for note in &finding.notes {
        let times = if note.count > 1 { format!(" ({} times)", note.count) } else { String::new() };
        lines.push(shown(&format!("{:.0} Event {}{times}: {}", note.last, note.reason, note.note)));
    }
    lines
}
