//! Rules of the snapshot's loader: what loads is judged the same once saved; what does not says where.

use cilium_leak_healer::domain::Limits;
use cilium_leak_healer::snapshot::{Problem, Snapshot, SnapshotError, replay};
use serde_json::Value;

use super::reader::Checked;

pub(crate) const WORDS: &[&str] = &[
    "takenAt",
    "cluster",
    "pods",
    "agents",
    "endpoints",
    "null",
    "~",
    "true",
    "[]",
    "{}",
    "- ",
    "\n",
    ": ",
    "  ",
    "\"",
    "&a ",
    "*a",
    "---\n",
    "!!binary ",
    "|",
    "#",
    "2026-06-18T10:05:00Z",
    "9999-12-31T23:59:59Z",
    "-009999-01-02T01:59:59Z",
    "10.244.1.12",
    "fd00::1",
    "Running",
    "Pending",
    "Succeeded",
    "worker-1",
    "\u{feff}",
    "\u{1b}[2J",
];

pub(crate) fn check(input: &[u8]) -> Checked {
    let text = match std::str::from_utf8(input) {
        Ok(text) => text,
        Err(error) => return no_text(input, error.valid_up_to()),
    };
    match Snapshot::from_str(text) {
        Ok(snapshot) => round(&snapshot).map(|()| true),
        Err(error) => place(text, &error).map(|()| false),
    }
}

fn no_text(input: &[u8], at: usize) -> Checked {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = dir.path().join("snapshot.yaml");
    std::fs::write(&file, input).map_err(|error| error.to_string())?;
    match Snapshot::load(&file) {
        Err(SnapshotError { problem: Problem::NotText(seen), .. }) if seen == at => Ok(false),
        other => {
            Err(format!("byte {at} is not UTF-8, and the loader says {:?}", other.map(|_| "a snapshot")))
        }
    }
}

/// The error has a line of the text, and is one line for a person.
fn place(text: &str, error: &SnapshotError) -> Result<(), String> {
    let said = error.to_string();
    match &error.problem {
        Problem::Empty if text.trim_start_matches('\u{feff}').trim().is_empty() => {}
        Problem::Malformed { line, column, why, .. } => {
            let lines = text.split('\n').count() as u64;
            if *line < 1 || *line > lines || *column < 1 || why.is_empty() {
                return Err(format!("no place in a text of {lines} lines: {said}"));
            }
        }
        _ => return Err(format!("not what is wrong with it: {said}")),
    }
    Ok(())
}

/// Saved and loaded again, it gets the same report; from then on it is the same text. The first time a list may be
/// written that is empty once what no rule reads is gone.
fn round(snapshot: &Snapshot) -> Result<(), String> {
    let (first, again) = saved(snapshot)?;
    let (second, _) = saved(&again)?;
    let (third, _) = saved(&Snapshot::from_str(&second).map_err(|error| error.to_string())?)?;
    if second != third {
        return Err(format!("saved again, it is another:\n{first}\n{second}\n{third}"));
    }
    let (before, after) = (report(snapshot)?, report(&again)?);
    if before != after {
        return Err(format!("once saved, it is judged otherwise:\n{before}\n{after}"));
    }
    Ok(())
}

fn saved(snapshot: &Snapshot) -> Result<(String, Snapshot), String> {
    let text = serde_json::to_string(snapshot).map_err(|error| format!("it cannot be saved: {error}"))?;
    match Snapshot::from_str(&text) {
        Ok(again) => Ok((text, again)),
        Err(error) => Err(format!("what was saved does not load: {error}\n{text}")),
    }
}

fn report(snapshot: &Snapshot) -> Result<Value, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    let report = runtime.block_on(replay(snapshot, &Limits::default()));
    serde_json::to_value(report).map_err(|error| error.to_string())
}
