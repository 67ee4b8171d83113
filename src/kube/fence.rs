//! Whether the admission fence stands: a delete that it must refuse, which nothing is ever deleted by.
//!
//! The fence is a `ValidatingAdmissionPolicy`; its rules live in `rbac/`, and nothing here knows them.

use http::Request;
use serde::de::IgnoredAny;
use serde_json::json;

use super::reader::{Reader, undecodable};
use crate::domain::{Phase, PodName, PodUid, Read, ReadFailure, Unreadable};

/// The beginning of the names of the policies that make the fence.
pub const FENCE: &str = "cilium-leak-healer";

/// What came of the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FenceAnswer {
    /// The fence refused it, with these words: it works.
    Refused(String),
    /// Nobody refused it.
    Allowed,
    /// The right to delete pods is missing, so that admission was not reached: nothing is known of the fence.
    RefusedByRights(String),
    /// Another policy or a webhook refused it, or the fence failed to evaluate.
    RefusedByOther(String),
    /// Nobody refused it, but it proves nothing now: look again.
    Undecided(String),
    /// There is no such pod.
    NoSuchPod,
}

impl Reader {
    /// Tries to delete the watchdog's own pod, as a dry run. A working fence refuses, since the pod is running.
    ///
    /// It cannot delete anything: `dryRun=All` is in the query and in the body (the API server reads the body; a proxy
    /// may drop the body of a DELETE), and the UID must be that of the live pod.
    pub async fn try_fence(&self, own_pod: &PodName) -> Read<FenceAnswer> {
        let Some(pod) = self.pod(own_pod).await? else {
            return Ok(FenceAnswer::NoSuchPod);
        };
        let what = format!("DELETE pods/{own_pod} (dry run)");
        let request =
            dry_delete(own_pod, &pod.uid).map_err(|error| undecodable(&what, &error.to_string()))?;
        match self.bounded(&what, self.client().request::<IgnoredAny>(request)).await {
            Ok(_) if pod.phase == Phase::Running => Ok(FenceAnswer::Allowed),
            // A pod that is pending by its status is what the fence lets through: the kubelet has not reported yet.
            Ok(_) => {
                let why = format!("{own_pod} is not Running yet by its status, so the fence may let it go");
                Ok(FenceAnswer::Undecided(why))
            }
            Err(unreadable) => refusal(unreadable),
        }
    }
}

/// The dry run of the delete.
pub(super) fn dry_delete(pod: &PodName, uid: &PodUid) -> http::Result<Request<Vec<u8>>> {
    let body = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "dryRun": ["All"],
        "preconditions": {"uid": uid.as_str()},
    });
    let path = format!("/api/v1/namespaces/{}/pods/{}?dryRun=All", pod.namespace(), pod.name());
    Request::delete(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
}

/// Who refused, by the words of the API server.
fn refusal(unreadable: Unreadable) -> Read<FenceAnswer> {
    let ReadFailure::Status { status, message } = &unreadable.why else {
        return Err(unreadable);
    };
    let message = message.clone();
    match status {
        404 => Ok(FenceAnswer::NoSuchPod),
        409 => Ok(FenceAnswer::Undecided("the pod was replaced meanwhile".to_owned())),
        // A policy chooses its status: 401, 403, 413 or 422.
        400..=499 if is_fence(&message) && failed_to_evaluate(&message) => {
            Ok(FenceAnswer::RefusedByOther(message))
        }
        400..=499 if is_fence(&message) => Ok(FenceAnswer::Refused(message)),
        403 if message.contains(" cannot delete resource ") => Ok(FenceAnswer::RefusedByRights(message)),
        400 | 403 | 405 | 413 | 422 => Ok(FenceAnswer::RefusedByOther(message)),
        _ => Err(unreadable),
    }
}

/// `… ValidatingAdmissionPolicy 'cilium-leak-healer' with binding '…' denied request: …`
fn is_fence(message: &str) -> bool {
    let policy =
        message.split_once("ValidatingAdmissionPolicy '").and_then(|(_, rest)| rest.split_once('\''));
    policy.is_some_and(|(name, rest)| name.starts_with(FENCE) && rest.contains("denied request"))
}

/// A policy that cannot be evaluated refuses everything: it is no proof that its rules are right.
fn failed_to_evaluate(message: &str) -> bool {
    // An expression may be longer than what is kept of a message, so its beginning counts as well.
    ["denied request: expression '", " resulted in error", "failed to configure", "compilation error"]
        .iter()
        .any(|words| message.contains(words))
}
