//! Rules of the ledger's loader: it takes what was written as it was written; anything else is set aside, and the bounds
//! start closed.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use cilium_leak_healer::domain::{Cause, NodeName, RemedyKind, Verdict};
use cilium_leak_healer::ledger::{BoundOptions, BreakerView, Intent, Ledger, ReadError, SetAside, Snapshot};
use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use super::reader::Checked;

pub(crate) const WORDS: &[&str] = &[
    "null",
    "\"tokens\":0",
    "\"version\":1",
    "\"version\":2",
    "\"node\":\"node-1\"",
    "\"node\":\"node-2\"",
    "{}",
    "[]",
    ",",
    "\"",
    "}",
    "disconnect-endpoint",
    "delete-pod",
    "restart-agent",
    "healed",
    "not-healed",
    "deleted",
    "-009999-01-02T01:59:59Z",
    "9999-12-30T22:00:00Z",
    "1970-01-01T00:00:00Z",
    "2026-06-18T10:05:59Z",
    "\\u001b[2J",
    "\\ud800",
    "\u{202e}",
];
const FILE: &str = "ledger.json";

fn now() -> Timestamp {
    "2026-06-18T10:06:00Z".parse().expect("a time")
}

fn node() -> NodeName {
    "node-1".parse().expect("a name")
}

/// In memory where that is possible: each ledger waits for its disk.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory")
}

fn open(dir: &Path) -> Result<(Ledger, Option<SetAside>), String> {
    Ledger::open(dir, &node(), BoundOptions::default(), now()).map_err(|error| error.to_string())
}

fn intent(remedy: RemedyKind) -> Intent {
    Intent {
        remedy,
        pod: "shop/new".parse().expect("a name"),
        pod_uid: "u-new".parse().expect("a UID"),
        cause: Cause { of: "ReplicaSet/shop/new/c-9".to_owned(), ip: IpAddr::from([10, 9, 9, 9]) },
        target: None,
        container: None,
        verdict: Verdict::StaleEndpoint,
        reason: "a test".to_owned(),
        correlation_id: "w-9".to_owned(),
    }
}

pub(crate) fn check(input: &[u8]) -> Checked {
    let dir = directory();
    fs::write(dir.path().join(FILE), input).map_err(|error| error.to_string())?;
    let read = Ledger::read(dir.path());
    let (ledger, aside) = open(dir.path())?;
    match (read, aside) {
        (Ok(read), None) => {
            as_written(input, &read)?;
            no_more_than(&ledger, &read)?;
            again(dir.path(), ledger)?;
            Ok(true)
        }
        (Ok(read), Some(_)) if *read.node() != node() => closed(dir.path(), input, ledger).map(|()| false),
        (Err(ReadError::Bad { .. }), Some(_)) => closed(dir.path(), input, ledger).map(|()| false),
        (read, aside) => Err(format!("read as {read:?}, opened with {aside:?}")),
    }
}

/// What bounds the acts to come is what the file says.
fn as_written(input: &[u8], read: &Snapshot) -> Result<(), String> {
    let file: Value = serde_json::from_slice(input).map_err(|error| format!("read, and no JSON: {error}"))?;
    let kept = serde_json::to_value(read).map_err(|error| error.to_string())?;
    let mut places = vec!["/version".to_owned(), "/node".to_owned(), "/state/nextId".to_owned()];
    places
        .extend(["disconnect", "deletePod", "restartAgent"].map(|of| format!("/state/budgets/{of}/tokens")));
    places.extend(["from", "opened/trial"].map(|of| format!("/state/breaker/{of}")));
    for at in 0..read.state().acts().len() {
        places.extend(["id", "intent/remedy", "ended/outcome"].map(|of| format!("/state/acts/{at}/{of}")));
    }
    for place in places {
        let or_null = |value: &Value| value.pointer(&place).cloned().unwrap_or_default();
        if or_null(&file) != or_null(&kept) {
            return Err(format!("{place} is {} in the file, and read as {}", or_null(&file), or_null(&kept)));
        }
    }
    let count = |place: &str| file.pointer(place).and_then(Value::as_array).map(Vec::len);
    let (acts, futile) = (read.state().acts().len(), read.state().futile().len());
    if (count("/state/acts"), count("/state/futile")) != (Some(acts), Some(futile)) {
        return Err("acts or causes were lost".to_owned());
    }
    Ok(())
}

/// To open a ledger makes nothing possible that its file does not allow.
fn no_more_than(ledger: &Ledger, read: &Snapshot) -> Result<(), String> {
    let (state, before, options) = (ledger.state(), read.state(), ledger.options());
    for remedy in RemedyKind::ALL {
        let (tokens, were) = (state.tokens(remedy, now(), options), before.tokens(remedy, now(), options));
        if tokens > were || tokens > options.bucket(remedy).burst {
            return Err(format!("{tokens} tokens of {remedy} where the file allows {were}"));
        }
        let cause = |it: &Cause| state.check(remedy, it, &intent(remedy).pod_uid, now(), options).is_ok();
        let again = before.futile().iter().find(|futile| {
            futile.remedy() == remedy
                && cause(futile.cause())
                && before.check(remedy, futile.cause(), &intent(remedy).pod_uid, now(), options).is_err()
        });
        if let Some(again) = again {
            return Err(format!("{remedy} against {:?} is possible again", again.cause()));
        }
    }
    if state.acts() != before.acts() || state.refusals() != before.refusals() {
        return Err("opened, it holds other acts or refusals".to_owned());
    }
    let is_open = |view: &BreakerView| matches!(view, BreakerView::Open { .. });
    if is_open(&before.breaker(now())) && !is_open(&state.breaker(now())) {
        return Err("the breaker was open, and is not".to_owned());
    }
    Ok(())
}

/// What was opened is on the disk, and reads as the same.
fn again(dir: &Path, ledger: Ledger) -> Result<(), String> {
    let want = ledger.snapshot(now());
    if let Some(trouble) = ledger.trouble() {
        return Err(format!("it cannot be written: {trouble}"));
    }
    drop(ledger);
    let read = Ledger::read(dir).map_err(|error| format!("what was written cannot be read: {error}"))?;
    if read != want {
        return Err(format!("written as {want:?}\nread as {read:?}"));
    }
    let (opened, aside) = open(dir)?;
    if aside.is_some() || opened.state() != want.state() {
        return Err(format!("opened again, it is another: {aside:?}"));
    }
    Ok(())
}

/// Nothing may begin, neither now nor in the next process, and the file is kept.
fn closed(dir: &Path, input: &[u8], ledger: Ledger) -> Result<(), String> {
    let bad = dir.join(format!("{FILE}.bad-{}", now().as_second()));
    if fs::read(&bad).map_err(|error| format!("{}: {error}", bad.display()))? != input {
        return Err("what was set aside is not what was there".to_owned());
    }
    let mut ledger = ledger;
    for process in ["this", "the next"] {
        for remedy in RemedyKind::ALL {
            let tokens = ledger.state().tokens(remedy, now(), ledger.options());
            let begun = ledger.begin(intent(remedy), now());
            if tokens > 0 || begun.is_ok() {
                return Err(format!("{process} process has {tokens} tokens, and {remedy} began: {begun:?}"));
            }
        }
        if !matches!(ledger.state().breaker(now()), BreakerView::Open { .. }) {
            return Err(format!("the breaker of {process} process is not open"));
        }
        drop(ledger);
        ledger = open(dir)?.0;
    }
    Ok(())
}

/// Every proper beginning of a ledger, and every one whose end is zeros, as a file system leaves them.
#[test]
fn a_torn_ledger_is_never_read() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus/ledger");
    let dir = directory();
    let path = dir.path().join(FILE);
    let mut torn = 0;
    for name in ["fresh.json", "half-open.json"] {
        let whole = fs::read(corpus.join(name)).expect("a corpus file");
        let whole = whole.trim_ascii_end();
        fs::write(&path, whole).expect("written");
        Ledger::read(dir.path()).expect("whole, it is read");
        for len in 0..whole.len() {
            let mut zeros = whole.to_vec();
            zeros[len..].fill(0);
            for part in [&whole[..len], &zeros] {
                fs::write(&path, part).expect("written");
                let read = Ledger::read(dir.path());
                assert!(matches!(read, Err(ReadError::Bad { .. })), "{name}, {len} bytes: {read:?}");
                torn += 1;
            }
        }
    }
    println!("{torn} torn ledgers");
    assert!(torn > 1000, "only {torn}");
}
