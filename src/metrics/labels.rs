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
pub const HELD_BACK: [&str; 10] = [
    "observe-mode",
    "remedy-off",
    "namespace",
    "quiet-period",
    "fence",
    "opt-out",
    "paused",
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

/// A verb of the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiVerb {
    /// Read one object.
    Get,
    /// Read many.
    List,
    /// Follow changes.
    Watch,
    /// Write a new object: an Event.
    Create,
    /// Change an object: an Event's series.
    Patch,
    /// Replace an object in the version it was read in: a Lease.
    Update,
    /// Delete one object.
    Delete,
}

impl ApiVerb {
    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// What a node's watchdog asks for in its life.
    pub(super) fn usual() -> [(Self, ApiResource); 9] {
        [
            (Self::Create, ApiResource::Events),
            (Self::List, ApiResource::Pods),
            (Self::Watch, ApiResource::Pods),
            (Self::Get, ApiResource::Pods),
            (Self::Delete, ApiResource::Pods),
            (Self::List, ApiResource::Events),
            (Self::Get, ApiResource::CiliumNodes),
            (Self::List, ApiResource::CiliumEndpoints),
            (Self::List, ApiResource::CiliumEndpointSlices),
        ]
    }
}

/// A resource of the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiResource {
    /// `pods`.
    Pods,
    /// `events`, of both API groups.
    Events,
    /// `ciliumnodes.cilium.io`.
    CiliumNodes,
    /// `ciliumendpoints.cilium.io`.
    CiliumEndpoints,
    /// `ciliumendpointslices.cilium.io`.
    CiliumEndpointSlices,
    /// `namespaces`.
    Namespaces,
    /// `nodes`.
    Nodes,
    /// `daemonsets.apps`.
    DaemonSets,
    /// `leases.coordination.k8s.io`.
    Leases,
    /// `selfsubjectreviews.authentication.k8s.io`.
    SelfSubjectReviews,
    /// `selfsubjectaccessreviews.authorization.k8s.io`.
    SelfSubjectAccessReviews,
    /// `/api`, `/apis`, `/version`.
    Discovery,
    /// Any other.
    Other,
}

impl ApiResource {
    /// Those whose objects are decoded.
    pub(super) const OBJECTS: [Self; 5] =
        [Self::Pods, Self::Events, Self::CiliumNodes, Self::CiliumEndpoints, Self::CiliumEndpointSlices];

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Events => "events",
            Self::CiliumNodes => "ciliumnodes",
            Self::CiliumEndpoints => "ciliumendpoints",
            Self::CiliumEndpointSlices => "ciliumendpointslices",
            Self::Namespaces => "namespaces",
            Self::Nodes => "nodes",
            Self::DaemonSets => "daemonsets",
            Self::Leases => "leases",
            Self::SelfSubjectReviews => "selfsubjectreviews",
            Self::SelfSubjectAccessReviews => "selfsubjectaccessreviews",
            Self::Discovery => "discovery",
            Self::Other => "other",
        }
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

/// How a request to the API server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiOutcome {
    /// 1xx to 3xx.
    Ok,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 409: a precondition did not hold.
    Conflict,
    /// 410: the watch's version is too old.
    Gone,
    /// 429.
    TooManyRequests,
    /// Another 4xx.
    ClientError,
    /// 5xx.
    ServerError,
    /// No answer in time.
    Timeout,
    /// No connection, or an answer that could not be read.
    Error,
}

impl ApiOutcome {
    /// The ends that are there from the start.
    pub(super) const USUAL: [Self; 6] =
        [Self::Ok, Self::Forbidden, Self::TooManyRequests, Self::ServerError, Self::Timeout, Self::Error];

    /// From an HTTP status.
    pub fn of_status(status: u16) -> Self {
        match status {
            100..=399 => Self::Ok,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            409 => Self::Conflict,
            410 => Self::Gone,
            429 => Self::TooManyRequests,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::Error,
        }
    }

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::NotFound => "404",
            Self::Conflict => "409",
            Self::Gone => "410",
            Self::TooManyRequests => "429",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}
