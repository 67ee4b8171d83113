//! What is delivered for Prometheus and Grafana: that it works, and names nothing that is not there.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "clippy.toml allows them in functions that are tests, and these serve nothing else"
)]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

mod alerts;
mod dashboard;
mod promql;
mod promtool;
mod served;

use std::fs;
use std::path::{Path, PathBuf};

/// A path of the repository.
fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn text(of: &str) -> String {
    fs::read_to_string(path(of)).unwrap_or_else(|error| panic!("{of}: {error}"))
}
