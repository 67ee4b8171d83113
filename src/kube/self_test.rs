//! Whether the watchdog's protection works: its identity, its rights, and the fence around its deletes.
//!
//! Reads first, then a pure verdict. What is unknown is never taken for working. It must not know what follows from that.

use futures::future::join_all;

use super::access::{AccessWish, WhoAmI};
use super::fence::FenceAnswer;
use super::reader::Reader;
use crate::domain::{NodeName, Read, ReadFailure, Unreadable};

/// Reviews that are in flight at once: every node's watchdog asks when a DaemonSet is rolled out.
const AT_ONCE: usize = 8;

/// What was read.
#[derive(Debug, Clone)]
pub struct SelfTest {
    /// The node that the watchdog works for.
    pub node: NodeName,
    /// Whether it is to delete pods at all; else there is nothing to fence, and the right must not be there.
    pub deletes: bool,
    /// Who it is.
    pub who: Read<WhoAmI>,
    /// The rights it needs, and whether they are there.
    pub wanted: Vec<(AccessWish, Read<bool>)>,
    /// The rights it must not have, and whether they are there.
    pub unwanted: Vec<(AccessWish, Read<bool>)>,
    /// The dry run of a delete that the fence must refuse.
    pub fence: Read<FenceAnswer>,
}

/// Whether the watchdog may act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// Everything that protects is in place.
    Working,
    /// Something is provably not: a sentence for each finding, those that are only unknown last.
    Missing(Vec<String>),
    /// Something could not be read, and nothing is provably wrong.
    Unknown(Vec<String>),
}

impl Protection {
    /// The word for it in the metric.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Missing(_) => "missing",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// Asks the API server all of it. Each request is bounded by the reader's time-out.
pub async fn self_test(
    reader: &Reader,
    node: &NodeName,
    deletes: bool,
    wanted: &[AccessWish],
    unwanted: &[AccessWish],
) -> SelfTest {
    let who = reader.who_am_i().await;
    let fence = match &who {
        Ok(WhoAmI { pod: Some(pod), .. }) => reader.try_fence(pod).await,
        Ok(_) => Err(Unreadable::not_asked("dry run of a delete: the token names no pod")),
        Err(_) => Err(Unreadable::not_asked("dry run of a delete: who the watchdog is could not be read")),
    };
    SelfTest {
        node: node.clone(),
        deletes,
        who,
        wanted: review(reader, wanted).await,
        unwanted: review(reader, unwanted).await,
        fence,
    }
}

async fn review(reader: &Reader, wishes: &[AccessWish]) -> Vec<(AccessWish, Read<bool>)> {
    let mut answers = Vec::new();
    for few in wishes.chunks(AT_ONCE) {
        let asked = join_all(few.iter().map(|wish| reader.may(wish))).await;
        answers.extend(few.iter().cloned().zip(asked));
    }
    answers
}

/// The findings, by whether they are proven.
#[derive(Default)]
struct Findings {
    missing: Vec<String>,
    unknown: Vec<String>,
}

impl SelfTest {
    /// What follows.
    pub fn verdict(&self) -> Protection {
        let mut findings = Findings::default();
        self.rights(&mut findings);
        if self.deletes {
            self.identity(&mut findings);
            self.fenced(&mut findings);
        }
        let Findings { mut missing, unknown } = findings;
        if missing.is_empty() && unknown.is_empty() {
            Protection::Working
        } else if missing.is_empty() {
            Protection::Unknown(unknown)
        } else {
            missing.extend(unknown);
            Protection::Missing(missing)
        }
    }

    fn identity(&self, findings: &mut Findings) {
        match &self.who {
            Ok(WhoAmI { node: Some(node), .. }) if node == self.node.as_str() => {}
            Ok(WhoAmI { node: Some(node), .. }) => findings.missing.push(format!(
                "the token is bound to node {node}, and the watchdog works for node {}: take the node's name from \
                 spec.nodeName, as deploy/daemonset.yaml does",
                self.node
            )),
            Ok(WhoAmI { node: None, username, .. }) => findings.missing.push(format!(
                "the token of {username} names no node, so no policy can hold the watchdog to its own: run it as a pod \
                 on Kubernetes 1.30 or newer, with the token that the kubelet mounts"
            )),
            // A proxy's 404 looks the same, so it is not proven.
            Err(Unreadable { why: ReadFailure::Status { status: 404, .. }, .. }) => findings.unknown.push(
                "the API server does not say who the watchdog is: to act, Kubernetes 1.30 or newer is needed".to_owned(),
            ),
            Err(error) => {
                findings.unknown.push(format!("who the watchdog is to the API server is unknown: {error}"));
            }
        }
    }

    fn rights(&self, findings: &mut Findings) {
        for (wish, answer) in &self.wanted {
            match answer {
                Ok(true) => {}
                Ok(false) => {
                    // The rights of the remedy `restart-agent` are in a file of their own.
                    let restart = matches!(wish.resource, "daemonsets" | "nodes")
                        || wish.name.ends_with("-restart-agent");
                    let file = if restart { "restart-agent" } else { "heal" };
                    findings
                        .missing
                        .push(format!("the right to {wish} is missing: kubectl apply -f rbac/{file}.yaml"));
                }
                Err(error) => {
                    findings
                        .unknown
                        .push(format!("whether the right to {wish} is there is unknown: {error}"));
                }
            }
        }
        for (wish, answer) in &self.unwanted {
            match answer {
                Ok(false) => {}
                Ok(true) => findings.missing.push(format!(
                    "the watchdog has the right to {wish}, which it must not have: find the binding with kubectl get \
                     clusterrolebindings,rolebindings -A -o wide, and take it away"
                )),
                Err(error) => findings
                    .unknown
                    .push(format!("whether the watchdog lacks the right to {wish} is unknown: {error}")),
            }
        }
    }

    fn fenced(&self, findings: &mut Findings) {
        const MEND: &str = "kubectl apply -f rbac/fence.yaml";
        match &self.fence {
            Ok(FenceAnswer::Refused(_)) => {}
            Ok(FenceAnswer::Allowed) => findings.missing.push(format!(
                "the API server would let the watchdog delete a running pod (a dry run on its own): the fence is not \
                 there, or not bound: {MEND}"
            )),
            Ok(FenceAnswer::RefusedByRights(_)) => findings.missing.push(
                "the watchdog may not delete pods, so nothing is known of the fence: kubectl apply -f rbac/heal.yaml \
                 -f rbac/fence.yaml"
                    .to_owned(),
            ),
            Ok(FenceAnswer::RefusedByOther(words)) => findings.missing.push(format!(
                "the dry run of a delete was refused by something else than a working fence, which proves nothing: \
                 {MEND}, and see who says this: {words}"
            )),
            Ok(FenceAnswer::Undecided(why)) => {
                findings.unknown.push(format!("whether the fence works is unknown: {why}"));
            }
            Ok(FenceAnswer::NoSuchPod) => findings
                .unknown
                .push("whether the fence works is unknown: the watchdog's own pod is gone".to_owned()),
            Err(error) => findings.unknown.push(format!("whether the fence works is unknown: {error}")),
        }
    }
}
