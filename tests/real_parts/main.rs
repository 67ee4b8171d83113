//! The binary against real parts: a kube-apiserver with controllers, and the endpoint API of the real Cilium agent.
//!
//! `cargo test --features real-parts`. Both are built on first use, from `tests/control-plane` and `tests/cilium-agent`;
//! with `KUBEBUILDER_ASSETS` etcd and kube-apiserver are envtest's. The tests mostly wait: `--test-threads 4` halves the
//! time, at 200 MB more for each agent.
#![cfg(feature = "real-parts")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "clippy.toml allows them in functions that are tests, and these serve nothing else"
)]
#![allow(unreachable_pub, reason = "nothing outside uses a test")]

mod access;
mod fence;
mod harness;
mod helm;
mod installs;
mod manifests;
mod outages;
mod parity;
mod races;
mod refused;
mod report;
mod reserved;
mod restart;
mod rights;
mod safety;
mod scan;
mod stale;
mod telling;
