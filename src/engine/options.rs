//! The engine's settings, each with its default.

use std::time::Duration;

use crate::domain::{Limits, NodeName};

/// Whether the healer acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Watch, judge and tell.
    Observe,
    /// Act on what is proven.
    Heal,
}

impl Mode {
    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Heal => "heal",
        }
    }
}

/// How the engine works.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The node.
    pub node: NodeName,
    /// Whether it acts.
    pub mode: Mode,
    /// Whether `disconnect-endpoint` is among its remedies.
    pub disconnect_endpoint: bool,
    /// Whether `delete-pod` is among its remedies.
    pub delete_pod: bool,
    /// The time limits of the rules.
    pub limits: Limits,
    /// No act within this after the start.
    pub startup_quiet: Duration,
    /// The least time between the two judgements that confirm a remedy.
    pub confirm_gap: Duration,
    /// A pod's Events are first read when it has waited this long without a sandbox.
    pub event_delay: Duration,
    /// After a disconnect, how long the pod may take to get its sandbox.
    pub verify_timeout: Duration,
    /// Bound on one judgement with all its reads.
    pub judge_timeout: Duration,
}
