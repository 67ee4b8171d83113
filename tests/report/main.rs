//! `report` through the real binary: on the simulated cluster, with a real daemon behind each watchdog's pod.
#![cfg(feature = "sim")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

#[path = "../support/daemon.rs"]
mod daemon;
mod formats;
mod hostile;
mod incomplete;
mod masked;
#[allow(dead_code, reason = "shared with the tests of `events`")]
#[path = "../events/stage.rs"]
mod stage;
mod story;
mod without_watchdogs;
