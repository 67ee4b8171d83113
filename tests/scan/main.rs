//! `scan`, as the real binary: on every case file, on the simulated cluster through `pods/exec`, on bad input.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy.toml allows them in functions that are tests, and these serve nothing else"
)]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

mod bad_input;
mod cases;
#[cfg(feature = "sim")]
mod cluster;
#[path = "../support/daemon.rs"]
mod daemon;
#[cfg(feature = "sim")]
mod live;
#[cfg(feature = "sim")]
mod reach;
mod run;
mod text;
