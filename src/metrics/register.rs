//! Names and help texts of the metrics, and the series that are there from the start.

use std::hash::Hash;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::labels::act_pairs;
use super::process::Process;
use super::{AgentCall, ApiOutcome, ApiResource, ApiVerb, HELD_BACK, Metrics, NOT_WEDGED, NoteOutcome};
use crate::domain::{RemedyKind, Verdict, Withheld};

const MODES: [&str; 2] = ["observe", "heal"];

impl Metrics {
    pub(super) fn start_at_zero(&self) {
        for verdict in Verdict::ALL {
            create(&self.wedges, &[("verdict", verdict.as_str())]);
            create(&self.judgements, &[("verdict", verdict.as_str())]);
            // A refusal of a stale endpoint goes by the word of what is withheld.
            if verdict != Verdict::StaleEndpoint {
                create(&self.refusals, &[("reason", verdict.as_str())]);
            }
        }
        create(&self.judgements, &[("verdict", NOT_WEDGED)]);
        for withheld in Withheld::ALL {
            create(&self.refusals, &[("reason", withheld.as_str())]);
        }
        for (kind, outcome) in act_pairs() {
            create(&self.acts, &[("remedy", kind.as_str()), ("outcome", outcome.as_str())]);
        }
        for word in HELD_BACK {
            create(&self.held_back, &[("reason", word)]);
        }
        self.set_bounds(RemedyKind::ALL.map(|remedy| (remedy, 0)), None);
        self.set_fence("not-tested");
        for call in AgentCall::ALL {
            create(&self.agent_durations, &[("call", call.as_str())]);
            for outcome in call.usual_outcomes() {
                create(&self.agent_requests, &[("call", call.as_str()), ("outcome", outcome)]);
            }
        }
        for (verb, resource) in ApiVerb::usual() {
            let [verb, resource] = [("verb", verb.as_str()), ("resource", resource.as_str())];
            create(&self.api_durations, &[verb, resource]);
            for outcome in ApiOutcome::USUAL {
                create(&self.api_requests, &[verb, resource, ("outcome", outcome.as_str())]);
            }
        }
        for resource in ApiResource::OBJECTS {
            create(&self.malformed, &[("resource", resource.as_str())]);
        }
        for outcome in NoteOutcome::ALL {
            create(&self.notes, &[("outcome", outcome.as_str())]);
        }
        for mode in MODES {
            create(&self.mode, &[("mode", mode)]);
        }
        self.serving.start_at_zero();
    }

    /// Registers all of them: the process's under the names of the ecosystem, the others under ours.
    pub(super) fn register(&mut self) {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process::starting_now()));
        let own = registry.sub_registry_with_prefix("cilium_leak_healer");
        self.register_findings(own);
        self.register_requests(own);
        self.serving.register(own);
        self.register_process(own);
        self.registry = registry;
    }

    fn register_findings(&self, r: &mut Registry) {
        r.register("wedges", "Pods of this node that are wedged now, by verdict", self.wedges.clone());
        r.register_with_unit(
            "oldest_wedge",
            "Age of the oldest wedge of this node, in seconds; 0 without any",
            Unit::Seconds,
            self.oldest_wedge.clone(),
        );
        r.register("judgements", "Judgements made, by verdict", self.judgements.clone());
        r.register(
            "refusals",
            "Findings that were left alone, by verdict or by what withheld the remedy",
            self.refusals.clone(),
        );
        r.register("acts", "Remedies begun, by how they ended", self.acts.clone());
        r.register_with_unit(
            "heal_latency",
            "Time from the first sight of a waiting pod to its sandbox, where an act healed it, in seconds",
            Unit::Seconds,
            self.heal_latency.clone(),
        );
        r.register(
            "held_back",
            "Times that two judgements agreed on a remedy and it was held back, by what did so",
            self.held_back.clone(),
        );
        r.register(
            "budget_tokens",
            "Acts that the budget of this node allows now, by remedy; 0 without a ledger",
            self.budget_tokens.clone(),
        );
        r.register(
            "breaker",
            "1 for the state of the breaker, 0 for the others; open without a ledger",
            self.breaker.clone(),
        );
        r.register(
            "fence",
            "1 for what the self-test of rights and admission fence found, 0 for the others",
            self.fence.clone(),
        );
    }

    fn register_requests(&self, r: &mut Registry) {
        r.register(
            "agent_requests",
            "Calls of the Cilium agent's API, by outcome",
            self.agent_requests.clone(),
        );
        r.register_with_unit(
            "agent_request_duration",
            "Time that calls of the Cilium agent's API took, failed ones included, in seconds",
            Unit::Seconds,
            self.agent_durations.clone(),
        );
        r.register(
            "api_requests",
            "Requests to the Kubernetes API server, by outcome",
            self.api_requests.clone(),
        );
        r.register_with_unit(
            "api_request_duration",
            "Time to the answer of the Kubernetes API server, of a watch to its first byte, in seconds",
            Unit::Seconds,
            self.api_durations.clone(),
        );
        r.register(
            "kubernetes_events",
            "Kubernetes Events that the watchdog had to write, by what became of them",
            self.notes.clone(),
        );
        r.register(
            "malformed_objects",
            "Objects of the Kubernetes API that could not be understood",
            self.malformed.clone(),
        );
        r.register(
            "watch_restarts",
            "Times that the watch on pods was begun anew",
            self.watch_restarts.clone(),
        );
    }

    fn register_process(&self, r: &mut Registry) {
        r.register("pods_watched", "Pods of this node that the watch knows", self.pods_watched.clone());
        r.register("mode", "1 for the mode that the program runs in, 0 for the other", self.mode.clone());
        r.register("build", "The build of the program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
    }
}

/// Makes the series of a label set, at zero.
pub(super) fn create<L, M, C>(family: &Family<L, M, C>, labels: &L)
where
    L: Clone + Hash + Eq + EncodeLabelSet,
    C: MetricConstructor<M>,
{
    drop(family.get_or_create(labels));
}
