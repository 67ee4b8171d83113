//! The file: what is on the disk when, what is not taken, and what a broken disk holds back.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use rstest::rstest;
use tempfile::TempDir;

use super::disks::{Script, Watched};
use super::{at, cause, ending, intent, node, open, refusal};
use crate::domain::ActOutcome::{Deleted, Disconnected, Healed};
use crate::domain::RemedyKind::{self, DeletePod, DisconnectEndpoint};
use crate::ledger::{Bound, BoundOptions, BreakerView, Ledger, LedgerError, ReadError, RecordError};
use crate::stored::schema_is_stored;

fn scripted(dir: &Path) -> (Ledger, Script) {
    let script = Script::default();
    let disk = Box::new(Watched(script.clone()));
    let opened = Ledger::open_on(disk, dir, &node(), BoundOptions::default(), at(0));
    (opened.unwrap().0, script)
}

fn tokens(ledger: &Ledger, remedy: RemedyKind, now: i64) -> u32 {
    ledger.state().tokens(remedy, at(now), ledger.options())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_was_done_is_there_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let inner = dir.path().join("a/b");
    let (mut ledger, aside) = open(&inner, 0);
    assert_eq!(aside, None);
    let first = ledger.begin(intent(DeletePod, 0, 0), at(0)).unwrap();
    ledger.end(first, ending(Deleted), at(1)).unwrap();
    let second = ledger.begin(intent(DisconnectEndpoint, 1, 1), at(2)).unwrap();
    ledger.sent(second, "freed", at(3)).unwrap();
    drop(ledger);

    let (mut ledger, aside) = open(&inner, 4);
    assert_eq!((aside, ledger.trouble()), (None, None));
    let left: Vec<_> = ledger.state().open_acts().collect();
    assert_eq!((left.len(), left[0].id(), &left[0].sent().unwrap().note), (1, second, &"freed".to_owned()));
    assert_eq!((tokens(&ledger, DeletePod, 4), tokens(&ledger, DisconnectEndpoint, 4)), (2, 29));
    assert_eq!(ledger.begin(intent(DeletePod, 5, 0), at(5)).unwrap_err().as_str(), "futile");
    let third = ledger.begin(intent(DeletePod, 5, 5), at(5)).unwrap();
    assert!(third > second);

    assert_eq!(names(&inner), ["ledger.json", "ledger.lock"]);
    let mode = |name| fs::metadata(inner.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("ledger.json"), mode("ledger.lock"), mode("")), (0o600, 0o600, 0o700));
}

#[test]
fn an_act_begins_once_its_intent_is_on_the_disk() {
    let dir = TempDir::new().unwrap();
    let (mut ledger, script) = scripted(dir.path());
    let save = [
        "remove ledger.json.tmp",
        "create ledger.json.tmp",
        "write",
        "sync",
        "rename ledger.json",
        "sync-dir",
    ];
    script.calls();
    let id = ledger.begin(intent(DisconnectEndpoint, 0, 0), at(1)).unwrap();
    assert_eq!(script.calls(), save);
    ledger.sent(id, "freed", at(2)).unwrap();
    assert_eq!(script.calls(), save);
    ledger.end(id, ending(Healed), at(3)).unwrap();
    assert_eq!(script.calls(), save);
    ledger.refuse(refusal(3, "budget"), at(4)).unwrap();
    assert_eq!(script.calls(), [""; 0], "a refusal waits");
    ledger.refuse(refusal(4, "budget"), at(9)).unwrap();
    assert_eq!(script.calls(), save, "but not for long");
    ledger.refuse(refusal(5, "budget"), at(10)).unwrap();
    ledger.flush(at(10)).unwrap();
    ledger.flush(at(10)).unwrap();
    assert_eq!(script.calls(), save);
}

#[rstest]
#[case("remove")]
#[case("create")]
#[case("write")]
#[case("sync")]
#[case("rename")]
#[case("sync-dir")]
fn a_disk_that_fails_holds_back_each_act(#[case] call: &'static str) {
    let dir = TempDir::new().unwrap();
    let (mut ledger, script) = scripted(dir.path());
    let id = ledger.begin(intent(DisconnectEndpoint, 0, 0), at(1)).unwrap();
    script.refuse(Some(call));
    let bound = ledger.begin(intent(DeletePod, 1, 1), at(2)).unwrap_err();
    assert!(matches!(&bound, Bound::Unrecorded(why) if why.contains("ledger.json")), "{bound:?}");
    assert_eq!(ledger.state().acts().len(), 1);
    assert!(matches!(ledger.end(id, ending(Healed), at(3)), Err(RecordError::Unsaved(_))));
    assert!(ledger.trouble().is_some());
    let checked = ledger.check(DeletePod, &cause(1), &"uid-1".parse().unwrap(), at(4));
    assert_eq!(checked.unwrap_err().as_str(), "unrecorded");
    assert!(ledger.flush(at(4)).is_err());

    script.refuse(None);
    ledger.begin(intent(DeletePod, 1, 1), at(5)).unwrap();
    assert_eq!(ledger.trouble(), None);
    let read = Ledger::read(dir.path()).unwrap();
    assert_eq!(read.state(), ledger.state(), "what had failed is written with it");
    assert_eq!(read.state().acts()[0].helped(), Some(true));
}

#[test]
fn a_disk_that_is_full_from_the_start_lets_it_observe() {
    let dir = TempDir::new().unwrap();
    let script = Script::default();
    script.refuse(Some("write"));
    let disk = Box::new(Watched(script.clone()));
    let (mut ledger, _) = Ledger::open_on(disk, dir.path(), &node(), BoundOptions::default(), at(0)).unwrap();
    assert!(ledger.trouble().unwrap().contains("ledger.json"));
    assert_eq!(ledger.begin(intent(DeletePod, 0, 0), at(0)).unwrap_err().as_str(), "unrecorded");
    script.refuse(None);
    ledger.flush(at(1)).unwrap();
    ledger.begin(intent(DeletePod, 0, 0), at(1)).unwrap();
}

#[test]
fn a_directory_that_cannot_be_made() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let opened = Ledger::open(&file.path().join("state"), &node(), BoundOptions::default(), at(0));
    assert!(matches!(opened.err(), Some(LedgerError::Io { what: "the directory cannot be made", .. })));
}

#[test]
fn a_second_process_is_told_who_has_it() {
    let dir = TempDir::new().unwrap();
    let first = open(dir.path(), 0);
    let error = Ledger::open(dir.path(), &node(), BoundOptions::default(), at(0)).err().unwrap();
    assert!(matches!(error, LedgerError::Locked { pid, .. } if pid == Some(std::process::id())), "{error}");
    fs::write(dir.path().join("ledger.lock"), "\u{1b}]no pid").unwrap();
    let error = Ledger::open(dir.path(), &node(), BoundOptions::default(), at(0)).err().unwrap();
    assert!(matches!(error, LedgerError::Locked { pid: None, .. }), "{error}");
    Ledger::read(dir.path()).unwrap();
    drop(first);
    open(dir.path(), 1);
}

/// Puts something at the file's place that was never one of ours.
fn put(dir: &Path, what: &str) {
    let path = dir.join("ledger.json");
    let (mut ledger, _) = open(dir, 0);
    ledger.begin(intent(DeletePod, 0, 0), at(0)).unwrap();
    drop(ledger);
    let good = fs::read_to_string(&path).unwrap();
    let text = match what {
        "empty" => String::new(),
        "torn" => good[..good.len() - 10].to_owned(),
        "zeros" => "\0".repeat(good.len()),
        "foreign" => r#"{"format":"somebody-elses","version":1}"#.to_owned(),
        "no object" => "[1, 2]".to_owned(),
        "future" => good.replace("\"version\":1", "\"version\":2"),
        "other node" => good.replace("\"node\":\"node-1\"", "\"node\":\"node-2\""),
        "unknown key" => good.replace("\"version\":1", "\"version\":1,\"more\":true"),
        "contradiction" => good.replace("\"nextId\":2", "\"nextId\":1"),
        "huge" => format!("{good}{}", " ".repeat(5 << 20)),
        "link" => {
            fs::rename(&path, dir.join("elsewhere.json")).unwrap();
            symlink("elsewhere.json", &path).unwrap();
            return;
        }
        "directory" => {
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
            return;
        }
        other => panic!("{other}"),
    };
    assert_ne!(text, good);
    fs::write(path, text).unwrap();
}

#[rstest]
#[case("empty", "torn")]
#[case("torn", "torn")]
#[case("zeros", "torn")]
#[case("foreign", "no ledger")]
#[case("no object", "no ledger")]
#[case("future", "its version is 2")]
#[case("other node", "of the node node-2")]
#[case("unknown key", "more")]
#[case("contradiction", "contradicts itself")]
#[case("huge", "larger than")]
#[case("link", "no regular file")]
#[case("directory", "no regular file")]
fn a_file_that_is_not_ours_is_set_aside_and_the_bounds_start_closed(#[case] what: &str, #[case] why: &str) {
    let dir = TempDir::new().unwrap();
    put(dir.path(), what);
    let read = Ledger::read(dir.path());
    assert!(what == "other node" || matches!(read, Err(ReadError::Bad { .. })), "{read:?}");
    let (mut ledger, aside) = open(dir.path(), 10);
    let aside = aside.expect("it is set aside");
    assert!(aside.why.contains(why), "{aside}");
    let to = aside.to.expect("a place");
    assert_eq!(to, dir.path().join("ledger.json.bad-1800000010"));
    assert!(fs::symlink_metadata(to).is_ok());

    assert!(RemedyKind::ALL.iter().all(|remedy| tokens(&ledger, *remedy, 10) == 0));
    let view = ledger.state().breaker(at(10));
    assert!(matches!(view, BreakerView::Open { until, .. } if until == at(1_810)), "{view:?}");
    assert_eq!(ledger.begin(intent(DisconnectEndpoint, 1, 1), at(1_809)).unwrap_err().as_str(), "breaker");
    assert_eq!(ledger.state().breaker(at(1_810)), BreakerView::HalfOpen);
    ledger.begin(intent(DisconnectEndpoint, 1, 1), at(1_810)).unwrap();
    drop(ledger);
    let (ledger, aside) = open(dir.path(), 1_811);
    assert_eq!((aside, ledger.state().open_acts().count()), (None, 1));
}

#[test]
fn few_files_that_were_set_aside_are_kept() {
    let dir = TempDir::new().unwrap();
    for now in 0..6 {
        fs::write(dir.path().join("ledger.json"), "x").unwrap();
        open(dir.path(), now);
    }
    assert_eq!(
        names(dir.path()),
        [
            "ledger.json",
            "ledger.json.bad-1800000003",
            "ledger.json.bad-1800000004",
            "ledger.json.bad-1800000005",
            "ledger.lock"
        ]
    );
}

#[test]
fn no_restart_between_setting_aside_and_writing_makes_the_bounds_full() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("ledger.json.bad-1799999990"), "x").unwrap();
    let (ledger, aside) = open(dir.path(), 0);
    assert_eq!(aside.expect("it is told").to, None);
    assert_eq!(tokens(&ledger, DeletePod, 0), 0);
}

#[test]
fn what_an_interrupted_save_left_is_removed_and_no_link_is_followed() {
    let dir = TempDir::new().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    symlink("victim", dir.path().join("ledger.json.tmp")).unwrap();
    let (mut ledger, aside) = open(dir.path(), 0);
    ledger.begin(intent(DeletePod, 0, 0), at(0)).unwrap();
    assert_eq!(aside, None);
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
    assert_eq!(names(dir.path()), ["ledger.json", "ledger.lock", "victim"]);
    drop(ledger);
    fs::remove_file(dir.path().join("ledger.lock")).unwrap();
    symlink("victim", dir.path().join("ledger.lock")).unwrap();
    assert!(Ledger::open(dir.path(), &node(), BoundOptions::default(), at(0)).is_err());
}

#[test]
fn nothing_is_read_where_nothing_is() {
    let dir = TempDir::new().unwrap();
    assert!(matches!(Ledger::read(dir.path()), Err(ReadError::Missing { .. })));
    assert!(matches!(Ledger::read(&dir.path().join("no")), Err(ReadError::Missing { .. })));
}

#[test]
fn in_memory_alone_the_bounds_are_the_same() {
    let mut ledger = Ledger::volatile(&node(), BoundOptions::default());
    for pod in 0..3 {
        let id = ledger.begin(intent(DeletePod, pod, pod), at(0)).unwrap();
        ledger.end(id, ending(Deleted), at(0)).unwrap();
    }
    ledger.refuse(refusal(0, "budget"), at(0)).unwrap();
    assert_eq!(ledger.begin(intent(DeletePod, 3, 3), at(0)).unwrap_err().as_str(), "budget");
}

#[rstest]
#[case::usual("the owner shop/web is gone: 404 from the API server")]
#[case::hostile("\u{1b}[2J\"\\🐝")]
fn ten_thousand_acts_stay_small(#[case] text: &str) {
    let options = BoundOptions::default();
    let mut state = crate::ledger::State::fresh(&options);
    for number in 0..10_000_usize {
        let now = at(i64::try_from(number).unwrap() * 60);
        let remedy = if number % 3 == 0 { DeletePod } else { DisconnectEndpoint };
        let mut intent = intent(remedy, number, number);
        intent.reason = text.repeat(if text.len() < 20 { 500 } else { 1 });
        let outcome = match (remedy, number % 7) {
            (DeletePod, _) => Deleted,
            (_, 0) => Disconnected,
            _ => Healed,
        };
        if let Ok(id) = state.begin(intent, now, &options) {
            state.sent(id, text, now).unwrap();
            state.end(id, ending(outcome), now, &options).unwrap();
        }
        state.refuse(refusal(number, "live-duplicate"), now);
    }
    assert!(state.acts().len() == 128 && state.refusals().len() == 128);
    let snapshot = crate::ledger::Snapshot::new(node(), at(0), options, state);
    let bytes = serde_json::to_vec(&snapshot).unwrap();
    println!("{} bytes", bytes.len());
    assert!(bytes.len() < 400 << 10, "{}", bytes.len());
    assert!(!bytes.contains(&0x1b) && !String::from_utf8_lossy(&bytes).contains("u001b"));
}

/// `UPDATE_SCHEMAS=1` writes it anew.
#[test]
fn the_stored_schema_is_that_of_the_types() {
    schema_is_stored("ledger-v1.json", &crate::ledger::schema());
}

#[test]
fn what_steers_a_terminal_is_gone_whoever_wrote_it() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ledger.json");
    let (mut ledger, _) = open(dir.path(), 0);
    ledger.begin(intent(DeletePod, 0, 0), at(0)).unwrap();
    drop(ledger);
    let hostile = fs::read_to_string(&path).unwrap().replace("the owner is gone", "\\u001b[2J\u{9b}\u{202e}");
    fs::write(&path, hostile).unwrap();
    let read = Ledger::read(dir.path()).unwrap();
    assert_eq!(read.state().acts()[0].intent().reason, " [2J  ");
}
