//! What the bounds promise, and what a file survives.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::unwrap_used, reason = "tests")]

mod bounds;
mod crash;
mod disks;
mod files;
mod promise;

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{BoundOptions, Ending, Intent, Ledger, LedgerError, Refusal, SetAside};
use crate::domain::{ActOutcome, Cause, NodeName, RemedyKind, Verdict};

const MINUTE: Duration = Duration::from_mins(1);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn node() -> NodeName {
    "node-1".parse().unwrap()
}

/// The cause of that number: one controller, an address each.
fn cause(number: usize) -> Cause {
    let ip = format!("10.0.{}.{}", number / 250, number % 250 + 1);
    Cause { of: "ReplicaSet/shop/web-7d4b9c/0f6f2a8e".to_owned(), ip: ip.parse().unwrap() }
}

fn intent(remedy: RemedyKind, pod: usize, number: usize) -> Intent {
    Intent {
        remedy,
        pod: format!("shop/web-7d4b9c-{pod}").parse().unwrap(),
        pod_uid: format!("uid-{pod}").parse().unwrap(),
        cause: cause(number),
        target: Some(format!("cni-attachment-id:{pod}:eth0")),
        container: Some(format!("c{pod}").parse().unwrap()),
        verdict: Verdict::StaleEndpoint,
        reason: "the owner is gone".to_owned(),
        correlation_id: format!("w-{pod}"),
    }
}

fn refusal(pod: usize, word: &str) -> Refusal {
    Refusal {
        pod: format!("shop/web-7d4b9c-{pod}").parse().unwrap(),
        pod_uid: format!("uid-{pod}").parse().unwrap(),
        ip: Some(cause(pod).ip),
        verdict: Verdict::LiveDuplicate,
        remedy: None,
        word: word.to_owned(),
        why: "the owner is alive".to_owned(),
        correlation_id: format!("w-{pod}"),
    }
}

fn ending(outcome: ActOutcome) -> Ending {
    Ending::new(outcome, "seen")
}

/// Opens a ledger that nobody has. A child of another test may have the lock until it is another program.
fn open(dir: &Path, now: i64) -> (Ledger, Option<SetAside>) {
    let started = Instant::now();
    loop {
        match Ledger::open(dir, &node(), BoundOptions::default(), at(now)) {
            Err(LedgerError::Locked { .. }) if started.elapsed() < Duration::from_secs(20) => {
                std::thread::yield_now();
            }
            opened => return opened.unwrap(),
        }
    }
}
