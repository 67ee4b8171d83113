//! Everything that is told: one log line for each change, with the correlation id; the wedge gauges.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::gates::{By, HeldBack};
use super::options::Mode;
use super::wedge::{Grounds, Told, Wedge};
use crate::domain::{ActOutcome, Evidence, Judgement, NodeName, Pod, PodName, Remedy, RemedyKind};
use crate::ledger::{Intent, SetAside};
use crate::metrics::Metrics;

/// Tells what the engine sees and does. Says nothing twice.
pub(super) struct Teller {
    node: NodeName,
    mode: Mode,
    metrics: Arc<Metrics>,
    boot: u64,
    counter: u64,
    agent: Option<bool>,
    ledger_closed: Option<String>,
}

impl Teller {
    pub(super) fn new(node: NodeName, mode: Mode, now: Timestamp, metrics: Arc<Metrics>) -> Self {
        metrics.set_heal_mode(mode == Mode::Heal);
        let boot = u64::try_from(now.as_millisecond()).unwrap_or_default();
        Self { node, mode, metrics, boot, counter: 0, agent: None, ledger_closed: None }
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

    /// An act could follow, and does not. Returns whether that is news.
    pub(super) fn held_back(&self, wedge: &mut Wedge, remedy: RemedyKind, why: &HeldBack) -> bool {
        let same = |(by, text): &(By, String)| {
            // What a bound says changes with each second that goes by.
            *by == why.by && (matches!(by, By::Bound(_)) || *text == why.why)
        };
        if wedge.held_back.get(&remedy).is_some_and(same) {
            return false;
        }
        wedge.held_back.insert(remedy, (why.by, why.why.clone()));
        tracing::warn!(
            pod = %wedge.pod, node = %self.node, mode = self.mode.as_str(),
            ip = wedge.told_ip().map(tracing::field::display), remedy = remedy.as_str(), by = why.by.as_str(),
            reason = why.why, correlation_id = wedge.correlation_id, "held back"
        );
        true
    }

    /// An act begins.
    pub(super) fn acting(&self, wedge: &Wedge, grounds: &Grounds) {
        tracing::warn!(
            pod = %wedge.pod, node = %self.node, ip = grounds.ip.map(tracing::field::display), remedy = grounds.remedy.as_str(),
            target = target_of(&grounds.remedy), correlation_id = wedge.correlation_id, "acting"
        );
    }

    /// The agent is restarted.
    pub(super) fn restarting(&self, wedge: &Wedge, agent: &PodName, why: &str) {
        tracing::warn!(
            pod = %wedge.pod, node = %self.node, ip = wedge.told_ip().map(tracing::field::display),
            remedy = RemedyKind::RestartAgent.as_str(), target = %agent, reason = why,
            correlation_id = wedge.correlation_id, "acting"
        );
    }

    /// What came of a restart; its wedge may be over by then.
    pub(super) fn restarted(&self, pod: &PodName, correlation_id: &str, outcome: &'static str, note: &str) {
        tracing::warn!(
            pod = %pod, node = %self.node, remedy = RemedyKind::RestartAgent.as_str(), outcome, reason = note,
            correlation_id, "acted"
        );
    }

    /// An act came to an end, or to a step of it.
    pub(super) fn acted(&self, wedge: &Wedge, kind: RemedyKind, outcome: &'static str, note: &str) {
        tracing::warn!(
            pod = %wedge.pod, node = %self.node, remedy = kind.as_str(), outcome, reason = note,
            correlation_id = wedge.correlation_id, "acted"
        );
    }

    /// What became of an act that an earlier process began.
    pub(super) fn settled(&self, intent: &Intent, outcome: ActOutcome, note: &str) {
        tracing::warn!(
            pod = %intent.pod, node = %self.node, remedy = intent.remedy.as_str(), outcome = outcome.as_str(),
            reason = note, correlation_id = intent.correlation_id, "acted"
        );
    }

    /// The ledger can be used.
    pub(super) fn ledger_open(&self, aside: Option<&SetAside>) {
        match aside {
            None => tracing::info!(node = %self.node, "the ledger is open"),
            Some(aside) => tracing::error!(
                node = %self.node, reason = %aside,
                "the ledger could not be used and was set aside: the budgets start empty and the breaker open"
            ),
        }
    }

    /// It cannot.
    pub(super) fn ledger_closed(&mut self, why: &str) {
        if self.ledger_closed.as_deref() != Some(why) {
            tracing::error!(node = %self.node, reason = why, "the ledger cannot be used: nothing is done until it can");
            self.ledger_closed = Some(why.to_owned());
        }
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
    pub(super) fn wedges<'a>(&self, wedges: impl Iterator<Item = &'a Wedge> + Clone, now: Timestamp) {
        let told = wedges.filter(|wedge| wedge.told.as_ref().is_some_and(|told| told.verdict.is_some()));
        self.metrics.set_wedges(told.clone().filter_map(|wedge| wedge.told.as_ref()?.verdict));
        let oldest = told.map(|wedge| wedge.since).min();
        self.metrics
            .set_oldest_wedge(oldest.and_then(|since| Duration::try_from(now.duration_since(since)).ok()));
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
