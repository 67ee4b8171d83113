//! Who asks, and whether that is allowed.
//!
//! Must not know: what a request does.

use std::collections::BTreeMap;

use hyper::Method;
use serde_json::{Value, json};

use super::api_options::Attributes;
use super::apiserver::Shared;
use super::clock::{lock, seconds};
use super::http::Call;
use super::resource::{
    NAMESPACES, NODES, PODS, Resource, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Target, key, text,
};
use super::routes::{Query, Result};
use super::status::Status;

const POD_CLAIM: &str = "authentication.kubernetes.io/pod-";
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-";

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub name: String,
    pub uid: String,
    /// What the token says besides, as the pod that it is bound to.
    pub extra: BTreeMap<String, Vec<String>>,
    /// The pod that the token is bound to, as its key and UID: the token ends with it.
    pub bound_to: Option<(String, String)>,
}

impl User {
    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn groups(&self) -> Vec<String> {
        let of_account =
            self.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let own = match of_account {
            Some((namespace, _)) => {
                vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
            }
            None if self.name == "system:anonymous" => return vec!["system:unauthenticated".to_owned()],
            None => Vec::new(),
        };
        own.into_iter().chain(["system:authenticated".to_owned()]).collect()
    }
}

/// The user of a request.
pub(crate) fn authenticate(shared: &Shared, call: &Call) -> Result<User> {
    let options = &shared.options;
    let Some(token) = call.header("authorization").strip_prefix("Bearer ") else {
        return if options.anonymous {
            Ok(User::named("system:anonymous"))
        } else {
            Err(Status::unauthorized())
        };
    };
    bearer(shared, token).ok_or_else(Status::unauthorized)
}

/// The user of a token that is valid now.
fn bearer(shared: &Shared, token: &str) -> Option<User> {
    if let Some(name) = shared.options.tokens.get(token) {
        return Some(User::named(name));
    }
    let issued = lock(&shared.issued).get(token).cloned();
    let lives = |user: &User| {
        user.bound_to.as_ref().is_none_or(|(key, uid)| {
            let pod = shared.lifecycle.store.get(PODS.storage, key);
            pod.is_some_and(|pod| text(&pod, "/metadata/uid") == uid)
        })
    };
    issued.filter(lives)
}

/// Issues a token of a service account; of a pod it carries the claims that the server puts into one.
pub(crate) fn issue_token(shared: &Shared, namespace: &str, account: &str, pod: Option<&Value>) -> String {
    let random = &shared.lifecycle.random;
    let id = random.uuid();
    let mut user = User::named(&format!("system:serviceaccount:{namespace}:{account}"));
    user.uid = random.uuid();
    let mut claim = |name: String, value: &str| user.extra.insert(name, vec![value.to_owned()]);
    claim("authentication.kubernetes.io/credential-id".to_owned(), &format!("JTI={id}"));
    if let Some(pod) = pod {
        let (name, uid) = (text(pod, "/metadata/name"), text(pod, "/metadata/uid"));
        claim(format!("{POD_CLAIM}name"), name);
        claim(format!("{POD_CLAIM}uid"), uid);
        let node = text(pod, "/spec/nodeName");
        if !node.is_empty() {
            claim(format!("{NODE_CLAIM}name"), node);
        }
        if let Some(node) = shared.lifecycle.store.get(NODES.storage, node) {
            claim(format!("{NODE_CLAIM}uid"), text(&node, "/metadata/uid"));
        }
        user.bound_to = Some((key(namespace, name), uid.to_owned()));
    }
    let token = format!("token-{id}");
    lock(&shared.issued).insert(token.clone(), user);
    token
}

/// `userInfo`, as all reviews have it.
fn info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups()});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

/// The answer to a `TokenReview`.
pub(crate) fn token_review(shared: &Shared, review: &Value) -> Result<Value> {
    let token = text(review, "/spec/token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let status = match bearer(shared, token) {
        Some(user) => json!({
            "authenticated": true, "user": info(&user),
            "audiences": ["https://kubernetes.default.svc.cluster.local"],
        }),
        None => json!({"user": {}, "error": "invalid bearer token"}),
    };
    Ok(json!({
        "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {}, "spec": {"token": token}, "status": status,
    }))
}

/// The answer to a `SelfSubjectReview`.
pub(crate) fn self_review(shared: &Shared, user: &User) -> Value {
    let info = info(user);
    json!({
        "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": seconds(shared.lifecycle.clock.now())}, "status": {"userInfo": info},
    })
}

/// The namespace of an object, as admission sees it.
pub(crate) fn namespace_of(shared: &Shared, name: &str) -> Value {
    let namespace = shared.lifecycle.store.get(NAMESPACES.storage, name);
    namespace.map(|namespace| Value::clone(&namespace)).unwrap_or_default()
}

/// The resource of a review about somebody else, which takes a right. It is no target: nothing is stored.
pub(crate) fn review_of_others(call: &Call) -> Option<&'static Resource> {
    let of = |resource: &&Resource| {
        call.method == Method::POST
            && call.path == format!("/apis/{}/{}", resource.api_version(), resource.plural)
    };
    [&TOKEN_REVIEWS, &SUBJECT_ACCESS_REVIEWS].into_iter().find(of)
}

/// What a request wants to do.
pub(crate) fn attributes(user: &str, call: &Call, target: Option<&Target>, query: &Query) -> Attributes {
    let user = user.to_owned();
    let Some(target) = target else {
        if let Some(resource) = review_of_others(call) {
            let (group, resource) = (resource.group.to_owned(), resource.plural.to_owned());
            return Attributes { user, verb: "create".to_owned(), group, resource, ..Attributes::default() };
        }
        let (verb, path) = (call.method.as_str().to_lowercase(), call.path.clone());
        return Attributes { user, verb, path, ..Attributes::default() };
    };
    let verb = match (call.method.as_str(), target.name.is_empty()) {
        ("GET", _) if query.flag("watch") => "watch",
        ("GET", true) => "list",
        ("GET", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ => "unknown",
    };
    Attributes {
        user,
        verb: verb.to_owned(),
        group: target.resource.group.to_owned(),
        resource: target.resource.plural.to_owned(),
        subresource: target.subresource.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        path: String::new(),
    }
}

/// Whether it may; `what` is the resource that a refusal names.
pub(crate) fn authorize(shared: &Shared, wish: &Attributes, what: Option<&Resource>) -> Result<()> {
    // Discovery, health and reviews of one's own access are open to everybody who is authenticated.
    if wish.resource.is_empty() || shared.options.authorizer.as_ref().is_none_or(|allows| allows(wish)) {
        return Ok(());
    }
    let Attributes { user, verb, group, resource, subresource, namespace, name, .. } = wish;
    let resource =
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") };
    let scope = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{namespace}\"")
    };
    let why =
        format!("User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}");
    Err(Status::forbidden(what, name, &why))
}

/// The answer to a `SelfSubjectAccessReview`, or to a `SubjectAccessReview` where `user` is the one that it names.
pub(crate) fn access_review(shared: &Shared, kind: &str, user: &str, mut review: Value) -> Value {
    let resource = review.pointer("/spec/resourceAttributes");
    let wish =
        resource.or_else(|| review.pointer("/spec/nonResourceAttributes")).cloned().unwrap_or_default();
    let field = |name: &str| wish.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let attributes = Attributes {
        user: user.to_owned(),
        verb: field("verb"),
        group: field("group"),
        resource: field("resource"),
        subresource: field("subresource"),
        namespace: field("namespace"),
        name: field("name"),
        path: field("path"),
    };
    if !review.is_object() {
        review = json!({});
    }
    review["apiVersion"] = "authorization.k8s.io/v1".into();
    review["kind"] = kind.into();
    if review.get("metadata").is_none() {
        review["metadata"] = json!({});
    }
    review["status"] =
        json!({"allowed": shared.options.authorizer.as_ref().is_none_or(|allows| allows(&attributes))});
    review
}
