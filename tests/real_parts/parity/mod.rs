//! The simulated parts answer as the real ones do: the same requests to both, and the answers compared.

mod access;
mod agent;
mod api;
mod fence;
mod requests;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::Answer;

/// What must be alike of one answer.
#[derive(Debug, PartialEq)]
struct Seen {
    step: String,
    status: u16,
    content_type: Option<String>,
    /// The text of a failure, the shape of an object; masked, where each server has its own values.
    body: BTreeSet<String>,
}

impl Seen {
    /// The whole text.
    fn text(step: impl Into<String>, answer: &Answer) -> Self {
        let body = BTreeSet::from([masked(&answer.body)]);
        Self { step: step.into(), status: answer.status, content_type: answer.content_type.clone(), body }
    }

    /// Nothing of the body, where nobody relies on the words.
    fn status(step: impl Into<String>, answer: &Answer) -> Self {
        Self { body: BTreeSet::new(), ..Self::text(step, answer) }
    }

    /// All fields with their types, and these fields' values.
    fn shape(step: impl Into<String>, answer: &Answer, values: &[&str]) -> Self {
        let Ok(json) = serde_json::from_str::<Value>(&answer.body) else {
            return Self::text(step, answer);
        };
        let mut seen = Self::part(step, answer, values);
        shape("", &json, &mut seen.body);
        seen
    }

    /// These fields alone.
    fn part(step: impl Into<String>, answer: &Answer, values: &[&str]) -> Self {
        let mut seen = Self::status(step, answer);
        let json: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        for pointer in values {
            let value = json.pointer(pointer).map(Value::to_string).unwrap_or_default();
            seen.body.insert(format!("{pointer} = {}", masked(&value)));
        }
        seen
    }
}

/// Fields and types; the elements of an array count as one.
fn shape(path: &str, value: &Value, into: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(items) => {
            for item in items {
                shape(&format!("{path}[]"), item, into);
            }
            "array"
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                shape(&format!("{path}/{name}"), field, into);
            }
            "object"
        }
    };
    into.insert(format!("{path}: {kind}"));
}

/// With UIDs and numbers in place of those that each server makes up, and JSON in one order.
fn masked(text: &str) -> String {
    let text = serde_json::from_str::<Value>(text).map_or_else(|_| text.to_owned(), |json| json.to_string());
    let mut out = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
        let token = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        if token.len() == 36 && token.matches('-').count() == 4 {
            out.push_str("UID");
            out.push_str(&part[token.len()..]);
        } else {
            mask_numbers(part, &mut out);
        }
    }
    out
}

fn mask_numbers(text: &str, into: &mut String) {
    for run in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = run.trim_end_matches(|c: char| !c.is_ascii_digit());
        into.push_str(if digits.len() > 1 { "#" } else { digits });
        into.push_str(&run[digits.len()..]);
    }
}

/// Compares step by step, so that the first difference is the one that is told.
fn assert_alike(real: &[Seen], simulated: &[Seen]) {
    let mut different = Vec::new();
    for (real, simulated) in real.iter().zip(simulated) {
        if real != simulated {
            let only = |one: &Seen, other: &Seen| {
                one.body.difference(&other.body).cloned().collect::<Vec<_>>().join("\n    ")
            };
            different.push(format!(
                "{}: real {} {:?}, simulated {} {:?}\n  only real:\n    {}\n  only simulated:\n    {}",
                real.step,
                real.status,
                real.content_type,
                simulated.status,
                simulated.content_type,
                only(real, simulated),
                only(simulated, real),
            ));
        }
    }
    assert_eq!(real.len(), simulated.len());
    assert!(
        different.is_empty(),
        "{} of {} answers differ\n{}",
        different.len(),
        real.len(),
        different.join("\n")
    );
}
