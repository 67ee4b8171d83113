//! Which pods are meant, and what of a report is about them.

use std::collections::HashSet;

use crate::domain::{NodeName, Pod, PodUid};
use crate::kube::ListScope;
use crate::snapshot::{Mode, ScanReport, Snapshot};

/// Everything that is asked for must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) namespace: Option<String>,
    pub(super) node: Option<NodeName>,
    pub(super) labels: Option<String>,
}

impl Scope {
    pub(super) fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// As the API server selects.
    pub(super) fn list_scope(&self) -> ListScope {
        let fields = self.node.as_ref().map(|node| format!("spec.nodeName={node}")).unwrap_or_default();
        let labels = self.labels.clone().unwrap_or_default();
        ListScope { namespace: self.namespace.clone(), fields, labels }
    }

    /// Whether the pod is meant; `selected` are those that the labels mean.
    pub(super) fn has_pod(&self, pod: &Pod, selected: Option<&HashSet<PodUid>>) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == pod.name.namespace())
            && self.node.as_ref().is_none_or(|node| pod.node.as_ref() == Some(node))
            && selected.is_none_or(|selected| selected.contains(&pod.uid))
    }

    /// The part of a report that is about what is meant, counted anew.
    pub(super) fn narrow(
        &self,
        report: ScanReport,
        snapshot: &Snapshot,
        selected: Option<&HashSet<PodUid>>,
    ) -> ScanReport {
        let ScanReport { taken_at, mode, summary, mut findings, .. } = report;
        if self.is_everything() {
            return ScanReport::new(taken_at, mode, summary.pods, summary.nodes, findings);
        }
        let mut nodes = HashSet::new();
        let mut uids = HashSet::new();
        for pod in snapshot.cluster.pods.iter().filter_map(|pod| pod.to_domain().ok()) {
            if self.has_pod(&pod, selected) {
                nodes.extend(pod.node);
                uids.insert(pod.uid.to_string());
            }
        }
        findings.retain(|finding| {
            let subject = &finding.subject;
            if subject.kind == "Pod" {
                return subject.uid.as_ref().is_some_and(|uid| uids.contains(uid));
            }
            let of_node = finding.node.as_deref();
            selected.is_none()
                && self.namespace.as_deref().is_none_or(|it| subject.namespace.as_deref() == Some(it))
                && self.node.as_ref().is_none_or(|node| of_node == Some(node.as_str()))
        });
        ScanReport::new(taken_at, mode, uids.len(), nodes.len(), findings)
    }
}

/// The same report, said to be of a cluster.
pub(super) fn live(report: ScanReport) -> ScanReport {
    ScanReport { mode: Mode::Live, ..report }
}
