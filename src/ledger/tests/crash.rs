//! A process that ends at any call of the disk: what it said was done is there, and no bound is full again.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::disks::{Crash, How, Watched};
use super::{at, ending, intent, node, open, refusal};
use crate::domain::ActOutcome::{Aborted, Deleted, Healed};
use crate::domain::RemedyKind::{self, DeletePod, DisconnectEndpoint, RestartAgent};
use crate::ledger::{BoundOptions, Ledger};

/// For the child: directory, number of the call, how it ends there.
const CHILD: &str = "LEDGER_CRASH_CHILD";

/// Says what has returned, at once.
fn told(what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\ntold {what}").and_then(|()| out.flush()).unwrap();
}

/// What a watchdog does in its life: the acts of each remedy, some ended, some not.
fn life(ledger: &mut Ledger) {
    let begin = |ledger: &mut Ledger, remedy: RemedyKind, number| {
        let id = ledger.begin(intent(remedy, number, number), at(1)).unwrap();
        told(&format!("begun {remedy} {number} {id}"));
        id
    };
    let first = begin(ledger, DeletePod, 1);
    ledger.sent(first, "accepted", at(1)).unwrap();
    told(&format!("sent {first}"));
    ledger.refuse(refusal(1, "budget"), at(1)).unwrap();
    ledger.end(first, ending(Deleted), at(1)).unwrap();
    told(&format!("ended {first}"));
    let second = begin(ledger, DisconnectEndpoint, 2);
    ledger.end(second, ending(Healed), at(1)).unwrap();
    told(&format!("ended {second}"));
    let third = begin(ledger, DeletePod, 3);
    ledger.end(third, ending(Aborted), at(1)).unwrap();
    told(&format!("ended {third}"));
    begin(ledger, RestartAgent, 4);
    begin(ledger, DeletePod, 5);
}

/// The child: lives on a disk that ends it.
#[test]
fn child() {
    let Ok(spec) = std::env::var(CHILD) else {
        return;
    };
    let parts: Vec<&str> = spec.split('|').collect();
    let how = match parts[2] {
        "before" => How::Before,
        "after" => How::After,
        _ => How::Torn,
    };
    let disk = Box::new(Watched(Crash { at: parts[1].parse().unwrap(), how, calls: 0 }));
    let (mut ledger, _) =
        Ledger::open_on(disk, Path::new(parts[0]), &node(), BoundOptions::default(), at(0)).unwrap();
    life(&mut ledger);
    told("all");
}

/// What a child said before it ended.
fn run_child(dir: &Path, call: usize, how: &str) -> Vec<String> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ledger::tests::crash::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{}|{call}|{how}", dir.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let told: Vec<String> =
        out.lines().filter_map(|line| line.strip_prefix("told ")).map(str::to_owned).collect();
    assert!(output.status.success() == told.iter().any(|line| line == "all"), "{out}");
    told
}

/// What the next process must find, by what the child said.
fn verify(dir: &Path, told: &[String], about: &str) {
    let (mut ledger, aside) = open(dir, 2);
    assert_eq!((aside, ledger.trouble()), (None, None), "{about}");
    let words: Vec<Vec<&str>> = told.iter().map(|line| line.split(' ').collect()).collect();
    let begun: Vec<(&str, usize, &str)> = words
        .iter()
        .filter(|words| words[0] == "begun")
        .map(|words| (words[1], words[2].parse().unwrap(), words[3]))
        .collect();
    let of = |word: &str| -> HashSet<&str> {
        words.iter().filter(|words| words[0] == word).map(|words| words[1]).collect()
    };
    let (sent, ended) = (of("sent"), of("ended"));
    let acts = ledger.state().acts();
    // At most what was under way is there as well.
    assert!(acts.len() >= begun.len() && acts.len() <= begun.len() + 1, "{about}");
    for (_, number, id) in &begun {
        let act =
            acts.iter().find(|act| act.id().to_string() == *id).unwrap_or_else(|| panic!("{about}: {id}"));
        assert_eq!(act.intent(), &intent(act.intent().remedy, *number, *number), "{about}");
        assert!(act.sent().is_some() || !sent.contains(id), "{about}: {id} was sent");
        assert!(!act.is_open() || !ended.contains(id), "{about}: {id} had ended");
    }
    let last = begun.last().map_or("", |it| it.2);
    let surely_open = acts.iter().filter(|act| !ended.contains(act.id().to_string().as_str()));
    for act in surely_open.filter(|act| act.id().to_string() != last) {
        assert!(act.is_open(), "{about}: {} never ended", act.id());
    }
    let options = BoundOptions::default();
    for remedy in RemedyKind::ALL {
        let taken = begun.iter().filter(|it| it.0 == remedy.as_str()).count();
        let left = options.bucket(remedy).burst - u32::try_from(taken).unwrap();
        assert!(ledger.state().tokens(remedy, at(2), &options) <= left, "{about}: {remedy}");
    }
    for (remedy, number, id) in begun.iter().filter(|it| it.0 != "disconnect-endpoint") {
        let aborted = *number == 3 && ended.contains(id);
        let under_way = *number == 3 && !ended.contains(id);
        let remedy = RemedyKind::of_word(remedy).unwrap();
        // Another pod of the same cause.
        let again = ledger.state().clone().begin(intent(remedy, 90 + number, *number), at(2), &options);
        if !aborted && !under_way {
            assert_eq!(again.unwrap_err().as_str(), "futile", "{about}: {remedy} {number}");
        }
    }
    // The next process goes on.
    let left: Vec<_> = ledger.state().open_acts().map(crate::ledger::Act::id).collect();
    for id in left {
        ledger.end(id, ending(Healed), at(3)).unwrap();
    }
    ledger.begin(intent(DisconnectEndpoint, 50, 50), at(3)).unwrap();
}

#[test]
fn a_process_that_ends_at_any_call_loses_nothing_that_it_said() {
    let dir = TempDir::new().unwrap();
    let whole = run_child(dir.path(), usize::MAX, "before");
    assert_eq!(whole.last().map(String::as_str), Some("all"));
    verify(dir.path(), &whole, "a whole life");
    let mut died = 0;
    for how in ["before", "after", "torn"] {
        for call in 1.. {
            let dir = TempDir::new().unwrap();
            let told = run_child(dir.path(), call, how);
            verify(dir.path(), &told, &format!("{how} call {call}"));
            if told.iter().any(|line| line == "all") {
                break;
            }
            died += 1;
        }
    }
    // Ten saves of six calls each, and the opening's one.
    assert!(died >= 3 * 61, "{died}");
}

#[test]
fn no_restart_while_a_file_is_set_aside_makes_a_bound_full() {
    for how in ["before", "after", "torn"] {
        for call in 1..=8 {
            let dir = TempDir::new().unwrap();
            std::fs::write(dir.path().join("ledger.json"), "torn").unwrap();
            run_child(dir.path(), call, how);
            let (ledger, _) = open(dir.path(), 0);
            for remedy in RemedyKind::ALL {
                assert_eq!(ledger.state().tokens(remedy, at(0), ledger.options()), 0, "{how} {call}");
            }
        }
    }
}
