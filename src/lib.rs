//! Per-node watchdog that tells a stale Cilium endpoint from a live one, with proof, and heals only the former.
//!
//! The layout follows purity: [`domain`] decides and knows no I/O; everything else reads for it or acts on its word.

pub mod admin;
pub mod cilium;
pub mod cli;
pub mod clock;
pub mod domain;
pub mod engine;
pub mod kube;
pub mod ledger;
mod metadata;
pub mod metrics;
#[cfg(feature = "sim")]
pub mod sim;
pub mod snapshot;
#[cfg(test)]
mod stored;
pub mod stream;
mod text;
