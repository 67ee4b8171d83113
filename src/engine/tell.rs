//! Everything that is told: one log line for each change, with the correlation id; the wedge gauges.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::options::Mode;
use super::wedge::{Grounds, Told, Wedge};
use crate::domain::{Evidence, Judgement, NodeName, Pod, Remedy};
use crate::metrics::{ActKind, Metrics};

/// Tells what the engine sees and does. Says nothing twice.
pub(super) struct Teller {
    node: NodeName,
    mode: Mode,
    metrics: Arc<Metrics>,
    boot: u64,
    counter: u64,
    agent: Option<bool>,
}

impl Teller {
    pub(super) fn new(node: NodeName, mode: Mode, metrics: Arc<Metrics>) -> Self {
        metrics.set_heal_mode(mode == Mode::Heal);
        let boot = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        Self { node, mode, metrics, boot, counter: 0, agent: None }
    }

    /// A new id: unique on this node, for as long as anybody asks.
    pub(super) fn correlation_id(&mut self) -> String {
        self.counter += 1;
        format!("{:x}-{}", self.boot, self.counter)
    }

    /// A judgement. Returns whether it is another one than before.
    pub(super) fn judged(&self, wedge: &mut Wedge, pod: &Pod, judgement: &Judgement) -> bool {
        let finding = judgement.finding();
        let told = Told {
            verdict: finding.map(|finding| finding.verdict),
            ip: finding.and_then(|finding| finding.ip),
            remedy: finding.map_or("none", |finding| finding.remedy.as_str()),
            withheld: finding.and_then(|finding| finding.withheld),
        };
        if wedge.told.as_ref() == Some(&told) {
            return false;
        }
        let first_and_nothing = wedge.told.is_none() && told.verdict.is_none();
        wedge.told = Some(told);
        match judgement {
            Judgement::Wedged(finding) => tracing::warn!(
                pod = %pod.name, pod_uid = %pod.uid, node = %self.node,
                ip = finding.ip.map(tracing::field::display), verdict = %finding.verdict, remedy = finding.remedy.as_str(),
                target = target_of(&finding.remedy), owner = finding.owner.as_ref().map(tracing::field::display),
                reason = finding.reason, evidence = evidence(&finding.evidence), correlation_id = wedge.correlation_id, "judged"
            ),
            // A pod that waits for something else is no news.
            Judgement::NotWedged(_) if first_and_nothing => {}
            Judgement::NotWedged(none) => tracing::info!(
                pod = %pod.name, pod_uid = %pod.uid, node = %self.node, verdict = "none", reason = none.reason,
                correlation_id = wedge.correlation_id, "judged"
            ),
        }
        true
    }

    /// Two judgements agree, and no act follows.
    pub(super) fn held_back(&self, wedge: &mut Wedge, grounds: &Grounds, why: &str) {
        if wedge.held_back.as_deref() == Some(why) {
            return;
        }
        wedge.held_back = Some(why.to_owned());
        tracing::info!(
            pod = %wedge.pod, node = %self.node, mode = self.mode.as_str(), ip = grounds.ip.map(tracing::field::display),
            remedy = grounds.remedy.as_str(), target = target_of(&grounds.remedy), reason = why,
            correlation_id = wedge.correlation_id, "held back"
        );
    }

    /// An act begins.
    pub(super) fn acting(&self, wedge: &Wedge, grounds: &Grounds) {
        tracing::warn!(
            pod = %wedge.pod, node = %self.node, ip = grounds.ip.map(tracing::field::display), remedy = grounds.remedy.as_str(),
            target = target_of(&grounds.remedy), correlation_id = wedge.correlation_id, "acting"
        );
    }

    /// An act came to an end, or to a step of it.
    pub(super) fn acted(&self, wedge: &Wedge, kind: ActKind, outcome: &'static str, note: &str) {
        tracing::warn!(
            pod = %wedge.pod, node = %self.node, remedy = kind.as_str(), outcome, reason = note,
            correlation_id = wedge.correlation_id, "acted"
        );
    }

    /// A pod that was told about waits no more.
    pub(super) fn over(&self, wedge: &Wedge, why: &str) {
        if wedge.told.as_ref().is_some_and(|told| told.verdict.is_some()) {
            tracing::info!(pod = %wedge.pod, node = %self.node, reason = why, correlation_id = wedge.correlation_id, "over");
        }
    }

    /// A judgement took longer than it may.
    pub(super) fn too_slow(&self, wedge: &Wedge, limit: Duration) {
        tracing::warn!(
            pod = %wedge.pod, node = %self.node, limit_seconds = limit.as_secs(),
            correlation_id = wedge.correlation_id, "no judgement in time"
        );
    }

    /// Whether the agent can be reached; told when it changes.
    pub(super) fn agent(&mut self, reached: &Result<(), String>) {
        if self.agent.replace(reached.is_ok()) == Some(reached.is_ok()) {
            return;
        }
        match reached {
            Ok(()) => tracing::info!(node = %self.node, "the agent can be reached"),
            Err(why) => tracing::warn!(node = %self.node, reason = why, "the agent cannot be reached"),
        }
    }

    /// The loop ended.
    pub(super) fn stopped(&self) {
        tracing::info!(node = %self.node, "stopped");
    }

    /// The gauges.
    pub(super) fn wedges<'a>(&self, wedges: impl Iterator<Item = &'a Wedge> + Clone) {
        let told = wedges.filter(|wedge| wedge.told.as_ref().is_some_and(|told| told.verdict.is_some()));
        self.metrics.set_wedges(told.clone().filter_map(|wedge| wedge.told.as_ref()?.verdict));
        let oldest = told.map(|wedge| wedge.since).min();
        self.metrics.set_oldest_wedge(
            oldest.and_then(|since| Duration::try_from(Timestamp::now().duration_since(since)).ok()),
        );
    }
}

fn target_of(remedy: &Remedy) -> Option<&str> {
    match remedy {
        Remedy::DisconnectEndpoint(target) => Some(target.as_str()),
        Remedy::DeletePod | Remedy::None => None,
    }
}

/// All checks in one line.
fn evidence(all: &[Evidence]) -> String {
    let each = all.iter().map(|it| format!("{} {}: {}", it.check, it.outcome.as_str(), it.observed));
    each.collect::<Vec<_>>().join("; ")
}
