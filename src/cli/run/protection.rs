//! What protects the cluster from the watchdog, wired: the Leases, the self-test, and the Event where it fails.

use std::sync::Arc;
use std::time::Duration;

use super::RunArgs;
use crate::clock::WallClock;
use crate::domain::{NodeName, RemedyKind};
use crate::engine::{EngineOptions, Mode, NoteReason};
use crate::kube::{
    AccessWish, Leases, Note, Protection, Reader, Recorder, UNWANTED, WANTED_EVENTS, WANTED_HEAL,
    WANTED_RESTART, node_reference, self_test, wanted_leases,
};

/// How long the Lease of a pod in deletion is valid: longer than an act with its verification.
const DELETE_LEASE: Duration = Duration::from_mins(3);
/// What a restart may take on top of the time in which it should show.
const RESTART_SLACK: Duration = Duration::from_mins(5);

/// The Lease for the restart of an agent, as the manifests make it.
pub(in crate::cli) const RESTART_LEASE: &str = "cilium-leak-healer-restart-agent";

/// The Leases for so many pods in deletion; the manifests make three.
pub(in crate::cli) fn delete_leases(count: u32) -> Vec<String> {
    (0..count).map(|slot| format!("cilium-leak-healer-delete-pod-{slot}")).collect()
}

/// The names of the Leases that the manifests make.
pub(super) struct LeaseNames {
    namespace: String,
    delete: Vec<String>,
    restart: Vec<String>,
}

impl LeaseNames {
    pub(super) fn of(args: &RunArgs) -> Self {
        Self {
            namespace: args.safety.own_namespace.clone(),
            delete: delete_leases(args.bounds.delete_in_flight),
            restart: vec![RESTART_LEASE.to_owned()],
        }
    }

    /// Those for pods in deletion, and the one for the restart of an agent.
    pub(super) fn leases(
        &self,
        reader: &Arc<Reader>,
        options: &EngineOptions,
        clock: &WallClock,
    ) -> (Leases, Leases) {
        let leases = |names: &Vec<String>, ttl| {
            let (reader, clock) = (Arc::clone(reader), clock.clone());
            Leases::new(reader, self.namespace.clone(), names.clone(), options.node.clone(), ttl, clock)
        };
        (
            leases(&self.delete, DELETE_LEASE + options.verify_timeout),
            leases(&self.restart, options.restart_timeout + RESTART_SLACK),
        )
    }
}

/// What the self-test asks.
pub(super) struct Questions {
    node: NodeName,
    deletes: bool,
    wanted: Vec<AccessWish>,
    unwanted: Vec<AccessWish>,
}

impl Questions {
    pub(super) fn of(args: &RunArgs, options: &EngineOptions, leases: &LeaseNames) -> Self {
        let uses = |remedy: RemedyKind| options.remedies.contains(&remedy);
        let deletes = uses(RemedyKind::DeletePod) || uses(RemedyKind::RestartAgent);
        let delete_pods = AccessWish::new("delete", "", "pods");
        let mut wanted: Vec<AccessWish> = WANTED_HEAL
            .into_iter()
            .chain(WANTED_EVENTS)
            .filter(|wish| deletes || *wish != delete_pods)
            .collect();
        let mut unwanted = UNWANTED.to_vec();
        if !deletes {
            unwanted.push(delete_pods);
        }
        if uses(RemedyKind::DeletePod) {
            wanted.extend(wanted_leases(&leases.namespace, &leases.delete));
        }
        if uses(RemedyKind::RestartAgent) {
            let agents = args.agent.agent_namespace.as_str();
            wanted.extend(
                WANTED_RESTART.map(
                    |wish| {
                        if wish.resource == "daemonsets" { wish.within(agents) } else { wish }
                    },
                ),
            );
            wanted.extend(wanted_leases(&leases.namespace, &leases.restart));
        }
        Self { node: options.node.clone(), deletes, wanted, unwanted }
    }

    pub(super) async fn ask(&self, reader: &Reader) -> Protection {
        self_test(reader, &self.node, self.deletes, &self.wanted, &self.unwanted).await.verdict()
    }
}

/// Tells a failed self-test on the Node, where `kubectl describe node` shows it.
pub(super) fn event(recorder: Arc<Recorder>, options: &EngineOptions) -> impl Fn(&Protection) + use<> {
    let node = options.node.clone();
    let required = options.require_fence;
    move |found| {
        // What could not be read may come out otherwise in a moment: the log and readiness tell it.
        let Protection::Missing(why) = found else {
            return;
        };
        let what = if required { "nothing is healed until it is mended" } else { "it heals all the same" };
        let row = NoteReason::FenceMissing.row();
        recorder.publish(Note {
            type_: row.type_,
            reason: row.word,
            action: row.action,
            regarding: node_reference(&node),
            related: None,
            note: format!("cilium-leak-healer on {node}: {what} ({})", why.join("; ")),
        });
    }
}

/// Only who acts needs protection, and has the rights to ask for it.
pub(super) fn is_needed(options: &EngineOptions) -> bool {
    options.mode == Mode::Heal
}
