//! The admission fence around the watchdog's right to delete pods: the rules of `rbac/fence.yaml` and
//! `rbac/restart-agent.yaml`, and the words in which the API server denies.
//!
//! Must not know: the store, HTTP.

use serde_json::Value;

use super::access::User;
use super::resource::{PODS, text};
use super::status::Status;

const OPT_OUT: &str = "/metadata/labels/cilium-leak-healer~1opt-out";
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// Whose deletes are fenced, and whether the file for the remedy `restart-agent` is applied as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The user; nobody else is fenced.
    pub user: String,
    /// Whether the agent's pods have the policy of `rbac/restart-agent.yaml`; if not, the strict rules are theirs too.
    pub restart_agent: bool,
}

impl Default for Fence {
    fn default() -> Self {
        Self {
            user: "system:serviceaccount:cilium-leak-healer:cilium-leak-healer".to_owned(),
            restart_agent: false,
        }
    }
}

/// A delete, as admission sees it.
pub(crate) struct Wish<'a> {
    pub user: &'a User,
    /// The name in the path; none for a `deletecollection`.
    pub name: &'a str,
    /// `preconditions.uid`.
    pub uid: &'a str,
    /// Where the request has none, mostly the pod's own.
    pub grace: Option<i64>,
    pub pod: &'a Value,
    pub namespace: &'a Value,
}

/// A rule: whether it is for the agent's pods too, what it says, and when it holds.
type Rule = (bool, &'static str, fn(&Wish<'_>) -> bool);

const RULES: [Rule; 12] = [
    (
        true,
        "node-claim: the token names no node, so it is not one that a kubelet mounted into a pod",
        |wish| !wish.node().is_empty(),
    ),
    (true, "by-name: the request names no single pod", |wish| !wish.name.is_empty()),
    (true, "own-node: the pod is not on the node of the token", |wish| {
        text(wish.pod, "/spec/nodeName") == wish.node()
    }),
    (false, "pending: the pod's phase is not Pending", |wish| text(wish.pod, "/status/phase") == "Pending"),
    (false, "no-address: the pod has an address", |wish| {
        text(wish.pod, "/status/podIP").is_empty() && items(wish.pod, "/status/podIPs").next().is_none()
    }),
    (false, "no-container: a container of the pod runs, or ran before", |wish| {
        ["/status/initContainerStatuses", "/status/containerStatuses", "/status/ephemeralContainerStatuses"]
            .iter()
            .all(|list| items(wish.pod, list).all(never_ran))
    }),
    (false, "controller: the pod has no controller that would make it again", |wish| {
        items(wish.pod, "/metadata/ownerReferences").any(is_controller)
    }),
    (false, "no-mirror: the pod is the mirror of a static pod", |wish| {
        wish.pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_none()
    }),
    (true, "not-deleting: the pod is being deleted already", |wish| {
        let metadata = &wish.pod["metadata"];
        metadata.get("deletionTimestamp").is_none()
            || metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64) == Some(0)
    }),
    (true, "uid-precondition: the request does not name the pod's UID as a precondition", |wish| {
        wish.uid == text(wish.pod, "/metadata/uid")
    }),
    (true, "grace: the request's grace period is shorter than the pod's own", |wish| {
        let own = wish.pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
        wish.grace.is_none_or(|grace| grace >= own.unwrap_or_default())
    }),
    (true, "opt-out: the pod or its namespace has the label cilium-leak-healer/opt-out", |wish| {
        [wish.pod, wish.namespace]
            .iter()
            .all(|object| object.pointer(OPT_OUT).is_none_or(|label| label == "false"))
    }),
];

impl Wish<'_> {
    /// The node of the token, or the empty text.
    fn node(&self) -> &str {
        match self.user.extra.get(NODE_CLAIM).map(Vec::as_slice) {
            Some([node]) => node,
            _ => "",
        }
    }
}

impl Fence {
    /// Whether a delete may pass; the first rule that does not hold is told.
    pub(crate) fn admit(&self, wish: &Wish<'_>) -> Result<(), Status> {
        if wish.user.name != self.user {
            return Ok(());
        }
        let as_agent = self.restart_agent && is_agent(wish.pod);
        let policy = if as_agent { "cilium-leak-healer-restart-agent" } else { "cilium-leak-healer" };
        let mut rules = RULES.iter().filter(|(for_agent, ..)| *for_agent || !as_agent);
        match rules.find(|(.., holds)| !holds(wish)) {
            None => Ok(()),
            Some((_, message, _)) => {
                let why = format!(
                    "ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {message}"
                );
                let name = if wish.name.is_empty() { "Unknown" } else { wish.name };
                Err(Status::forbidden(Some(&PODS), name, &why).with_cause(&why))
            }
        }
    }
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn never_ran(container: &Value) -> bool {
    let ran = ["/state/running", "/state/terminated", "/lastState/running", "/lastState/terminated"];
    ran.iter().all(|state| container.pointer(state).is_none())
        && container.get("restartCount").and_then(Value::as_i64).unwrap_or_default() == 0
        && container.get("started") != Some(&Value::Bool(true))
}

fn is_controller(owner: &Value) -> bool {
    owner.get("controller") == Some(&Value::Bool(true))
}

fn is_agent(pod: &Value) -> bool {
    text(pod, "/metadata/namespace") == "kube-system"
        && text(pod, "/metadata/labels/k8s-app") == "cilium"
        && items(pod, "/metadata/ownerReferences")
            .any(|owner| is_controller(owner) && text(owner, "/kind") == "DaemonSet")
}
