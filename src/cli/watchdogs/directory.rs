//! Which pod is the watchdog of which node.
//!
//! Must not know: how a pod is reached.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::aside;
use crate::domain::Read;
use crate::kube::{ListScope, Reader};

/// Pods are listed this often, and when a stream has ended.
const RELIST: Duration = Duration::from_secs(30);
/// Between two lists: all streams of a rollout end soon after one another.
const PAUSE: Duration = Duration::from_secs(2);

/// Why a node without a watchdog cannot be asked.
pub(in crate::cli) const NO_POD: &str = "no pod of the watchdog is on it";

/// The pod of each node, or why it cannot be asked.
pub(in crate::cli) type Directory = BTreeMap<Arc<str>, Result<String, String>>;

/// What is looked for.
pub(in crate::cli) struct Search {
    pub(in crate::cli) reader: Reader,
    pub(in crate::cli) namespace: String,
    pub(in crate::cli) selector: String,
    /// Empty: all nodes.
    pub(in crate::cli) nodes: Vec<String>,
}

/// A pod of the watchdog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Found {
    pub(in crate::cli) name: String,
    node: Option<String>,
    phase: String,
    terminating: bool,
    created: Option<Timestamp>,
    /// How often its containers were started again.
    pub(in crate::cli) restarts: i32,
}

impl Search {
    /// The watchdogs' pods.
    pub(in crate::cli) async fn found(&self) -> Read<Vec<Found>> {
        let scope = ListScope {
            namespace: Some(self.namespace.clone()),
            labels: self.selector.clone(),
            fields: String::new(),
        };
        let mut found = Vec::new();
        self.reader.list(&scope, |pod: Pod| found.push(Found::of(&pod))).await?;
        Ok(found)
    }

    pub(in crate::cli) async fn list(&self) -> Read<Directory> {
        Ok(directory(self.found().await?, &self.nodes))
    }

    /// Keeps the directory as it is in the cluster. A list that fails changes nothing, and is said.
    pub(in crate::cli) async fn keep(&self, sender: &watch::Sender<Arc<Directory>>, wake: &Notify) {
        let mut said = None;
        loop {
            // Its end by time is as good as its end by a call.
            drop(timeout(RELIST, wake.notified()).await);
            match self.list().await {
                Ok(directory) => {
                    said = None;
                    sender.send_if_modified(|old| {
                        let differs = **old != directory;
                        if differs {
                            *old = Arc::new(directory);
                        }
                        differs
                    });
                }
                Err(why) => {
                    let why = why.to_string();
                    if said.as_ref() != Some(&why) {
                        aside(&format!("the watchdogs' pods: {why}"));
                    }
                    said = Some(why);
                }
            }
            sleep(PAUSE).await;
        }
    }
}

impl Found {
    fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        Self {
            name: meta.name.clone().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            phase: pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default(),
            terminating: meta.deletion_timestamp.is_some(),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            restarts: restarts(pod),
        }
    }

    fn runs(&self) -> bool {
        self.phase == "Running"
    }

    /// The greatest of a node is its watchdog: during a rollout there can be two, and what has failed stays for a while.
    fn rank(&self) -> (bool, bool, Option<Timestamp>) {
        (self.runs(), !self.terminating, self.created)
    }
}

fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    status.into_iter().flatten().map(|container| container.restart_count).sum()
}

/// Chooses among them; `wanted` empty: for all nodes.
pub(in crate::cli) fn directory(mut found: Vec<Found>, wanted: &[String]) -> Directory {
    found.sort_by_key(Found::rank);
    let mut directory = Directory::new();
    for node in wanted {
        directory.insert(node.as_str().into(), Err(NO_POD.to_owned()));
    }
    for pod in found {
        let Some(node) = &pod.node else {
            // It will be on some node: whoever wants to know of all must know that this one is missing.
            if wanted.is_empty() {
                directory.insert(format!("pod/{}", pod.name).into(), Err("it is on no node yet".to_owned()));
            }
            continue;
        };
        if !wanted.is_empty() && !wanted.contains(node) {
            continue;
        }
        let entry =
            if pod.runs() { Ok(pod.name) } else { Err(format!("its pod {} is {}", pod.name, pod.phase)) };
        directory.insert(node.as_str().into(), entry);
    }
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, phase: &str, terminating: bool, created: i64) -> Found {
        Found {
            name: name.to_owned(),
            node: (!node.is_empty()).then(|| node.to_owned()),
            phase: phase.to_owned(),
            terminating,
            created: Timestamp::from_second(created).ok(),
            restarts: 0,
        }
    }

    #[rstest::rstest]
    #[case::one(vec![pod("a", "n", "Running", false, 1)], Ok("a"))]
    #[case::a_rollout(vec![pod("new", "n", "Running", false, 9), pod("old", "n", "Running", true, 1)], Ok("new"))]
    #[case::its_successor_starts(vec![pod("new", "n", "Pending", false, 9), pod("old", "n", "Running", true, 1)], Ok("old"))]
    #[case::an_evicted_one_stays(vec![pod("new", "n", "Running", false, 1), pod("old", "n", "Failed", false, 9)], Ok("new"))]
    #[case::none_runs(vec![pod("a", "n", "Pending", false, 1)], Err("its pod a is Pending"))]
    fn the_pod_of_a_node(#[case] found: Vec<Found>, #[case] want: Result<&str, &str>) {
        let want = want.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(directory(found, &[]).get("n"), Some(&want));
    }

    #[test]
    fn only_nodes_that_are_wanted_and_all_of_these() {
        let found = vec![pod("a", "n", "Running", false, 1), pod("b", "m", "Running", false, 1)];
        let directory = directory(found, &["m".to_owned(), "x".to_owned()]);
        assert_eq!(directory.keys().map(|node| &**node).collect::<Vec<_>>(), ["m", "x"]);
        assert_eq!(directory["x"], Err("no pod of the watchdog is on it".to_owned()));
    }

    #[test]
    fn a_pod_without_a_node_is_missing() {
        let directory = directory(vec![pod("a", "", "Pending", false, 1)], &[]);
        assert_eq!(directory["pod/a"], Err("it is on no node yet".to_owned()));
    }
}
