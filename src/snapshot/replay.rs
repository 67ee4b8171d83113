//! Judges all of a snapshot, as a scan judges a cluster.

use std::collections::HashSet;

use super::format::{NodeObject, Snapshot};
use super::report::{Mode, ReportFinding, ScanReport};
use super::view::View;
use super::whole::anomalies;
use crate::domain::{Disputed, Limits, Lookup, judge};
use crate::engine::observe;

/// Judges every pod that is bound to a node, then what is wrong without a wedge.
pub async fn replay(snapshot: &Snapshot, limits: &Limits) -> ScanReport {
    let view = View::new(snapshot);
    let mut findings = Vec::new();
    let mut disputed = Vec::new();
    for pod in view.pods.iter().filter(|pod| pod.not_waiting().is_none()) {
        let Some(node) = &pod.node else {
            continue;
        };
        // A snapshot has no memory of what the watchdog saw before.
        let obs = observe(&view.node(node), node, pod.clone(), snapshot.taken_at, |_, _| None).await;
        let judgement = judge(&obs, limits);
        let Some(finding) = judgement.finding() else {
            continue;
        };
        findings.push(ReportFinding::on_wedge(pod, node, finding));
        disputed.push(Disputed {
            ip: finding.ip,
            holder: match &obs.lookup {
                Lookup::Held(holder) => Some((holder.id, holder.container().cloned())),
                Lookup::NotHeld | Lookup::Unknown(_) => None,
            },
        });
    }
    findings.extend(anomalies(&view, &disputed).iter().map(ReportFinding::without_wedge));
    ScanReport::new(snapshot.taken_at, Mode::Replay, view.pods.len(), nodes(snapshot, &view), findings)
}

/// All nodes that anything speaks of.
fn nodes(snapshot: &Snapshot, view: &View<'_>) -> usize {
    let cluster = &snapshot.cluster;
    let mut names: HashSet<&str> = cluster.nodes.iter().map(NodeObject::name).collect();
    if names.is_empty() {
        names.extend(cluster.cilium_nodes.iter().filter_map(|node| node.metadata.name.as_deref()));
        names.extend(view.pods.iter().filter_map(|pod| Some(pod.node.as_ref()?.as_str())));
    }
    names.len()
}
