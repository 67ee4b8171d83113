//! How the simulated API server is set up, and who may do what.
//!
//! Must not know: the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::fence::Fence;
use super::rights::watchdog_may;

/// What somebody wants to do, as an authorizer sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The user, from the bearer token; `system:anonymous` without one.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the method.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Plural resource name, empty for other paths.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace, empty for all.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// The path, where no resource is meant.
    pub path: String,
}

/// Decides whether somebody may do something.
pub type Authorizer = Arc<dyn Fn(&Attributes) -> bool + Send + Sync>;

/// How the API server behaves.
#[derive(Clone)]
pub struct ApiOptions {
    /// `gitVersion` of `/version`.
    pub kubernetes_version: String,
    /// Serve CiliumEndpoints; not so in Cilium's slim mode.
    pub serve_cilium_endpoints: bool,
    /// Serve CiliumEndpointSlices.
    pub serve_cilium_endpoint_slices: bool,
    /// How often a watch that allows them gets a bookmark.
    pub bookmark_interval: Duration,
    /// How many changes the history holds; an older watch or list gets a 410.
    pub history: usize,
    /// Bearer tokens and their users. A token that is not here gets a 401.
    pub tokens: BTreeMap<String, String>,
    /// Whether a request without a token is let in, as `system:anonymous`.
    pub anonymous: bool,
    /// Decides on every request; `None` allows all.
    pub authorizer: Option<Authorizer>,
    /// The admission fence around the deletes of one user; `None` for none.
    pub fence: Option<Fence>,
    /// How long the garbage collector takes.
    pub garbage_collection_delay: Duration,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            kubernetes_version: "v1.36.3".to_owned(),
            serve_cilium_endpoints: true,
            serve_cilium_endpoint_slices: true,
            bookmark_interval: Duration::from_mins(1),
            history: 10_000,
            tokens: BTreeMap::from([("sim-token".to_owned(), "system:admin".to_owned())]),
            anonymous: true,
            authorizer: None,
            fence: None,
            garbage_collection_delay: Duration::from_millis(20),
        }
    }
}

impl ApiOptions {
    /// As where the manifests in `rbac/` are applied: the watchdog has its rights and no others, behind the fence.
    #[must_use]
    pub fn with_manifests() -> Self {
        Self { fence: Some(Fence::default()), authorizer: Some(Arc::new(watchdog_may)), ..Self::default() }
    }
}

impl std::fmt::Debug for ApiOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiOptions")
            .field("kubernetes_version", &self.kubernetes_version)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}
