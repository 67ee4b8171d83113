//! The whole watchdog in this process, against a simulated node in memory, on a clock that goes as fast as the machine can.
//!
//! Must not know what is tested or measured.

use std::path::Path;
use std::sync::Arc;

use cilium_leak_healer::cilium::Wire;
use cilium_leak_healer::cli::{Around, InProcess};
use cilium_leak_healer::clock::WallClock;
use cilium_leak_healer::sim::{ApiServer, DeleteOptions, EVENTS, Node};
use tempfile::TempDir;

/// Runs a future on a clock of its own, with the random pauses of a seed.
pub(crate) fn on_paused_time<T>(seed: u64, work: impl Future<Output = T>) -> T {
    // The pauses after failures are drawn by `backon`, also within kube's watcher, from this thread's generator.
    fastrand::seed(seed);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().expect("a runtime").block_on(work)
}

/// In memory where that can be had: a ledger is written at each act.
pub(crate) fn directory() -> TempDir {
    let named = || tempfile::Builder::new().prefix("clh").to_owned();
    named().tempdir_in("/dev/shm").or_else(|_| named().tempdir()).expect("a directory")
}

/// Deletes all Events, as the API server does with old ones.
pub(crate) fn forget_events(api: &ApiServer) {
    for event in api.list(&EVENTS, "", "", "").unwrap_or_default() {
        let of = |field: &str| event["metadata"][field].as_str().unwrap_or_default().to_owned();
        drop(api.delete(&EVENTS, &of("namespace"), &of("name"), &DeleteOptions::now()));
    }
}

/// The watchdog of a node in the mode `heal`, with the settings that it has by default. The same seed gives the same pauses.
pub(crate) fn watchdog(
    api: &ApiServer,
    node: &Node,
    token: &str,
    state_dir: &Path,
    clock: WallClock,
    seed: u64,
) -> InProcess {
    let name = |path: &Path| path.to_str().expect("a name").to_owned();
    let (state, sockets) = (name(state_dir), name(node.socket_dir()));
    let own = ["--node-name", node.name(), "--mode", "heal"];
    let places = ["--state-dir", &state, "--agent-socket-dir", &sockets];
    let agent = node.agent().clone();
    let around = Around { clock, wire: Wire::Memory(Arc::new(move || agent.dial())), jitter: Some(seed) };
    InProcess::start(&[own, places].concat(), api.local(token), around).expect("flags of run")
}
