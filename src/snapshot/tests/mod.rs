//! What a snapshot file may be, what it answers, and what it must not give away.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod anonymous;
mod files;
mod load;
mod reads;
mod reports;

use std::fs;
use std::path::{Path, PathBuf};

use crate::domain::Limits;
use crate::snapshot::{ScanReport, Snapshot, replay};

/// The case files of this tree, and of a further directory where one is named.
fn cases() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let further = std::env::var_os("CILIUM_LEAK_HEALER_CASES").map(PathBuf::from);
    let files = [Some(own), further].into_iter().flatten().flat_map(|dir| fs::read_dir(dir).unwrap());
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "yaml"));
    files.sort();
    assert!(files.len() > 50);
    files
}

fn load(path: &Path) -> Snapshot {
    Snapshot::load(path).unwrap_or_else(|error| panic!("{error}"))
}

fn case(name: &str) -> Snapshot {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name))
}

/// No source of a snapshot ever waits: one poll is enough.
fn judged(snapshot: &Snapshot) -> ScanReport {
    now(replay(snapshot, &Limits::default()))
}

fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("a snapshot waited"),
    }
}
