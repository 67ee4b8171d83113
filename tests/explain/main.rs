//! `explain` through the real binary, on the case files and on the simulated cluster: the texts that people read, the
//! JSON, and every refusal.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

mod cases;
#[cfg(feature = "sim")]
#[path = "../scan/cluster.rs"]
#[allow(dead_code, reason = "the scan's tests use all of it")]
mod cluster;
#[cfg(feature = "sim")]
#[path = "../support/daemon.rs"]
mod daemon;
mod errors;
#[cfg(feature = "sim")]
mod live;
#[cfg(feature = "sim")]
#[path = "../scan/run.rs"]
#[allow(dead_code, reason = "the scan's tests use all of it")]
mod run;
mod texts;
mod tool;
