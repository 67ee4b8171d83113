//! The label values of requests to the Kubernetes API, each a closed set.

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
    /// All of them.
    #[cfg(test)]
    pub(super) const ALL: [Self; 7] =
        [Self::Get, Self::List, Self::Watch, Self::Create, Self::Patch, Self::Update, Self::Delete];

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
    /// `tokenreviews.authentication.k8s.io`.
    TokenReviews,
    /// `subjectaccessreviews.authorization.k8s.io`.
    SubjectAccessReviews,
    /// `/api`, `/apis`, `/version`.
    Discovery,
    /// Any other.
    Other,
}

impl ApiResource {
    /// All of them.
    #[cfg(test)]
    pub(super) const ALL: [Self; 15] = [
        Self::Pods,
        Self::Events,
        Self::CiliumNodes,
        Self::CiliumEndpoints,
        Self::CiliumEndpointSlices,
        Self::Namespaces,
        Self::Nodes,
        Self::DaemonSets,
        Self::Leases,
        Self::SelfSubjectReviews,
        Self::SelfSubjectAccessReviews,
        Self::TokenReviews,
        Self::SubjectAccessReviews,
        Self::Discovery,
        Self::Other,
    ];

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
            Self::TokenReviews => "tokenreviews",
            Self::SubjectAccessReviews => "subjectaccessreviews",
            Self::Discovery => "discovery",
            Self::Other => "other",
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
    /// All of them.
    #[cfg(test)]
    pub(super) const ALL: [Self; 11] = [
        Self::Ok,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Conflict,
        Self::Gone,
        Self::TooManyRequests,
        Self::ClientError,
        Self::ServerError,
        Self::Timeout,
        Self::Error,
    ];

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
