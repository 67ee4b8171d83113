//! The label values that are no words of the domain, each a closed set.

use crate::domain::{ActOutcome, RemedyKind};

/// Each remedy with the ends that it can come to.
pub(super) fn act_pairs() -> impl Iterator<Item = (RemedyKind, ActOutcome)> {
    use ActOutcome::{Aborted, Deleted, Disconnected, Failed, Healed, Interrupted, NotHealed};
    let each = |kind| {
        let ends: &[ActOutcome] = match kind {
            RemedyKind::DisconnectEndpoint => {
                &[Healed, Disconnected, Aborted, Failed, NotHealed, Interrupted]
            }
            RemedyKind::DeletePod => &[Deleted, Aborted, Failed, NotHealed, Interrupted],
            RemedyKind::RestartAgent => &[Healed, Disconnected, Aborted, Failed, NotHealed, Interrupted],
        };
        ends.iter().map(move |end| (kind, *end))
    };
    RemedyKind::ALL.into_iter().flat_map(each)
}

/// What can hold an act back. The bounds' words come from the ledger.
pub const HELD_BACK: [&str; 11] = [
    "observe-mode",
    "remedy-off",
    "namespace",
    "quiet-period",
    "fence",
    "opt-out",
    "paused",
    "heal-for",
    "agent-version",
    "lease",
    "unreadable",
];

/// A call of the agent's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentCall {
    /// `GET /endpoint/{id}`.
    GetEndpoint,
    /// `GET /endpoint/{id}/log`.
    GetEndpointLog,
    /// `GET /config`.
    GetConfig,
    /// `GET /healthz`.
    GetHealthz,
    /// `DELETE /endpoint/{id}`.
    DeleteEndpoint,
}

/// How calls of the agent's API can end.
pub const AGENT_OUTCOMES: [&str; 16] = [
    "ok",
    "timeout",
    "no-socket",
    "refused",
    "connection",
    "too-many-requests",
    "server-error",
    "undecodable",
    "not-found",
    "partial",
    "bad-request",
    "forbidden",
    "no-such-path",
    "unprocessable",
    "other-status",
    "too-large",
];

impl AgentCall {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::GetEndpoint, Self::GetEndpointLog, Self::GetConfig, Self::GetHealthz, Self::DeleteEndpoint];

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GetEndpoint => "get-endpoint",
            Self::GetEndpointLog => "get-endpoint-log",
            Self::GetConfig => "get-config",
            Self::GetHealthz => "get-healthz",
            Self::DeleteEndpoint => "delete-endpoint",
        }
    }

    /// The ends that are there from the start. The others are bugs or odd settings, and appear with their first one.
    pub(super) fn usual_outcomes(self) -> impl Iterator<Item = &'static str> {
        let own: &[&str] = match self {
            Self::GetEndpoint => &["not-found"],
            Self::DeleteEndpoint => &["not-found", "partial", "bad-request", "forbidden"],
            Self::GetEndpointLog | Self::GetConfig | Self::GetHealthz => &[],
        };
        AGENT_OUTCOMES.iter().take(8).chain(own).copied()
    }
}

/// What became of a Kubernetes Event that the watchdog had to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoteOutcome {
    /// The API server took it.
    Written,
    /// It did not, or gave no answer in time.
    Failed,
    /// Too many were waiting.
    Dropped,
}

impl NoteOutcome {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Written, Self::Failed, Self::Dropped];

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}
