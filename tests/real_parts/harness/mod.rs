//! What the scenarios stand on: real programs, started once or for each test, and the parts that the tests play.

mod agent;
mod api_server;
mod audit;
#[path = "../../support/daemon.rs"]
mod child;
mod daemon;
mod envtest;
mod go;
mod http;
mod kubelet;
mod manifests;
mod node;
mod process;
mod wait;
mod workload;

use std::io::{self, Write as _};

pub use self::{
    agent::{AgentApi, endpoint},
    api_server::{ApiServer, client_of},
    audit::Request,
    child::own_address,
    daemon::{Daemon, Mode, QUICK},
    http::Answer,
    kubelet::{EventForm, container_id},
    manifests::{NAMESPACE, Rights, agent_owner, apply, documents, dry_run, fence_in},
    node::Node,
    wait::{PATIENCE, eventually},
    workload::Workload,
};

/// Tells the person at the terminal, past the capture of test output.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "real-parts: {line}");
}
