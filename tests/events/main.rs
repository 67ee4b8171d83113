//! `events` through the real binary: on the simulated cluster, with a real daemon behind each watchdog's pod.
#![cfg(feature = "sim")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

mod all_nodes;
mod command_line;
#[path = "../support/daemon.rs"]
mod daemon;
mod following;
mod many;
mod refused;
mod stage;
mod verb;
