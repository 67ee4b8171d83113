//! The status page in a real browser: with the real binary on the simulated cluster, and with answers made up.
//!
//! Needs Chromium; without it all of these are skipped, and fail in CI. With `STATUS_PAGE_PICTURES=DIR` some leave a
//! picture there.
#![cfg(feature = "sim")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "clippy.toml allows them in functions that are tests, and these serve nothing else"
)]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

mod chromium;
#[path = "../support/daemon.rs"]
mod daemon;
mod fake;
mod live;
#[path = "../simulated/scene.rs"]
#[allow(dead_code, reason = "the quick suite uses the rest of it")]
mod scene;
mod shown;
