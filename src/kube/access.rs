//! Who the watchdog is to the API server, and what it may do there: reviews of its own.
//!
//! Nothing here says whether an answer is good or bad; that is `self_test`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::reader::{Reader, undecodable};
use crate::domain::{PodName, Read, ReadFailure, Unreadable};

const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The user that the API server takes the watchdog for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhoAmI {
    /// `system:serviceaccount:<namespace>:<name>` for a service account.
    pub username: String,
    /// The node that the token is bound to (Kubernetes 1.30 and newer), as the API server vouches for it.
    pub node: Option<String>,
    /// The pod that the token is bound to.
    pub pod: Option<PodName>,
}

/// A request, as RBAC names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessWish {
    /// `get`, `delete`, …
    pub verb: &'static str,
    /// API group; empty: core.
    pub group: &'static str,
    /// Plural.
    pub resource: &'static str,
    /// `exec`, …; empty: the resource itself.
    pub subresource: &'static str,
    /// Empty: in all namespaces, or at the cluster's scope.
    pub namespace: Cow<'static, str>,
    /// Empty: any name. A right that is given by name must be asked for by name.
    pub name: Cow<'static, str>,
}

impl AccessWish {
    /// A wish for the resource itself, in all namespaces and by any name.
    pub const fn new(verb: &'static str, group: &'static str, resource: &'static str) -> Self {
        let (namespace, name) = (Cow::Borrowed(""), Cow::Borrowed(""));
        Self { verb, group, resource, subresource: "", namespace, name }
    }

    /// The same of core, or of what is below it there: `exec`.
    pub(crate) const fn of(verb: &'static str, resource: &'static str, subresource: &'static str) -> Self {
        let (namespace, name) = (Cow::Borrowed(""), Cow::Borrowed(""));
        Self { verb, group: "", resource, subresource, namespace, name }
    }

    /// The same within one namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self { namespace: Cow::Owned(namespace.to_owned()), ..self }
    }

    /// The same for one object.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Cow::Owned(name.to_owned()), ..self }
    }
}

/// `delete pods`, `create pods/exec`, `get leases.coordination.k8s.io/slot-0 in namespace x`.
impl fmt::Display for AccessWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        for (mark, part) in [(".", self.group), ("/", self.subresource), (" named ", self.name.as_ref())] {
            if !part.is_empty() {
                write!(f, "{mark}{part}")?;
            }
        }
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " in namespace {}", self.namespace) }
    }
}

/// What each act needs: to delete the wedged pod, and to see whether its namespace opted out.
pub const WANTED_HEAL: [AccessWish; 2] =
    [AccessWish::of("delete", "pods", ""), AccessWish::of("get", "namespaces", "")];

/// To tell in Events what is found and done, in each mode.
pub const WANTED_EVENTS: [AccessWish; 2] = [
    AccessWish::new("create", "events.k8s.io", "events"),
    AccessWish::new("patch", "events.k8s.io", "events"),
];

/// What `restart-agent` needs on top: whether a rollout is going on, and whether the node is fit to get a pod again.
pub const WANTED_RESTART: [AccessWish; 2] =
    [AccessWish::new("get", "apps", "daemonsets"), AccessWish::of("get", "nodes", "")];

/// What `--auth=token` needs: to ask who a bearer is, and whether they may.
pub const WANTED_AUTH: [AccessWish; 2] = [
    AccessWish::new("create", "authentication.k8s.io", "tokenreviews"),
    AccessWish::new("create", "authorization.k8s.io", "subjectaccessreviews"),
];

/// What no watchdog may have: with any of these a thief of its token could do more than the fence holds back.
pub const UNWANTED: [AccessWish; 23] = [
    AccessWish::of("create", "pods", "exec"),
    AccessWish::of("get", "pods", "exec"),
    AccessWish::of("create", "pods", "eviction"),
    AccessWish::of("deletecollection", "pods", ""),
    AccessWish::of("create", "pods", ""),
    // Whoever may write a pod's status can make a running one look as if it never ran.
    AccessWish::of("patch", "pods", ""),
    AccessWish::of("update", "pods", ""),
    AccessWish::of("patch", "pods", "status"),
    AccessWish::of("update", "pods", "status"),
    AccessWish::of("patch", "pods", "ephemeralcontainers"),
    AccessWish::of("update", "pods", "ephemeralcontainers"),
    AccessWish::of("create", "pods", "attach"),
    AccessWish::of("get", "pods", "attach"),
    AccessWish::of("get", "secrets", ""),
    AccessWish::of("list", "secrets", ""),
    AccessWish::of("watch", "secrets", ""),
    AccessWish::of("create", "serviceaccounts", "token"),
    AccessWish::of("impersonate", "users", ""),
    // By it, commands run in pods as well.
    AccessWish::of("get", "nodes", "proxy"),
    AccessWish::of("create", "nodes", "proxy"),
    AccessWish::new("create", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    AccessWish::of("patch", "nodes", ""),
    AccessWish::of("update", "nodes", ""),
];

/// What an act in flight needs of its Leases, by name as `rbac/` gives it.
pub fn wanted_leases(namespace: &str, names: &[String]) -> Vec<AccessWish> {
    let wish = |verb, name: &String| {
        AccessWish::new(verb, "coordination.k8s.io", "leases").within(namespace).named(name)
    };
    names.iter().flat_map(|name| [wish("get", name), wish("update", name)]).collect()
}

impl Reader {
    /// Who the API server takes the watchdog for (`SelfSubjectReview`, Kubernetes 1.28 and newer).
    pub async fn who_am_i(&self) -> Read<WhoAmI> {
        let what = "POST selfsubjectreviews";
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer: SelfReview = self.post(what, SELF_REVIEWS, &review).await?;
        let user = answer.status.user_info;
        if user.username.is_empty() {
            return Err(undecodable(what, "it names no user"));
        }
        let extra = |key: &str| match user.extra.get(key).map(Vec::as_slice) {
            Some([one]) if !one.is_empty() => Some(one.clone()),
            _ => None,
        };
        let namespace =
            user.username.strip_prefix("system:serviceaccount:").and_then(|it| it.split_once(':'));
        let pod = extra("authentication.kubernetes.io/pod-name");
        Ok(WhoAmI {
            node: extra("authentication.kubernetes.io/node-name"),
            pod: namespace.zip(pod).and_then(|((namespace, _), pod)| PodName::new(namespace, &pod).ok()),
            username: user.username,
        })
    }

    /// Whether the watchdog may do this (`SelfSubjectAccessReview`). Rights that RBAC gives; admission is not asked.
    pub async fn may(&self, wish: &AccessWish) -> Read<bool> {
        let what = format!("POST selfsubjectaccessreviews {wish}");
        let AccessWish { verb, group, resource, subresource, namespace, name } = wish;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                "namespace": namespace, "name": name,
            }},
        });
        let AccessAnswer { status } = self.post(&what, ACCESS_REVIEWS, &review).await?;
        match status.evaluation_error.filter(|error| !error.is_empty()) {
            // An authorizer failed: what it would have said is not known. An allowance by another one stands.
            Some(error) if !status.allowed => Err(undecodable(&what, &error)),
            _ => Ok(status.allowed),
        }
    }

    /// Posts a review, which stores nothing.
    pub(super) async fn post<T: DeserializeOwned>(&self, what: &str, path: &str, body: &Value) -> Read<T> {
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes());
        let request = request.map_err(|error| Unreadable {
            what: what.to_owned(),
            why: ReadFailure::Connection(error.to_string()),
        })?;
        self.bounded(what, self.client().request(request)).await
    }
}

#[derive(Deserialize)]
struct SelfReview {
    status: SelfReviewStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelfReviewStatus {
    user_info: UserInfo,
}

#[derive(Deserialize)]
struct UserInfo {
    username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

/// The answer to each kind of access review.
#[derive(Deserialize)]
pub(super) struct AccessAnswer {
    pub(super) status: AccessStatus,
}

/// No default for `allowed`: an answer without it is none.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AccessStatus {
    pub(super) allowed: bool,
    #[serde(default)]
    pub(super) denied: bool,
    pub(super) evaluation_error: Option<String>,
}
