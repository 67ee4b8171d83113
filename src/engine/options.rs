//! The engine's settings.

use std::time::Duration;

use crate::domain::{Judgement, Limits, NodeName, Observation, RemedyKind};

/// Whether the healer acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Watch, judge and tell.
    Observe,
    /// Act on what is proven.
    Heal,
}

impl Mode {
    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Heal => "heal",
        }
    }
}

/// In whose favour the watchdog may act: the namespaces of the wedged pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// If there are any, only these.
    pub allow: Vec<String>,
    /// Never these: it wins.
    pub deny: Vec<String>,
}

/// Its own pods keep the cluster up: none is deleted unless it is allowed by name.
const SYSTEM: &str = "kube-system";

impl Namespaces {
    /// Why this remedy may not be used for a pod of that namespace, if so.
    pub(super) fn refuse(&self, remedy: RemedyKind, namespace: &str) -> Option<String> {
        let named = |list: &[String]| list.iter().any(|name| name == namespace);
        if named(&self.deny) {
            Some(format!("--namespace-deny names {namespace}"))
        } else if !self.allow.is_empty() && !named(&self.allow) {
            Some(format!("--namespace-allow does not name {namespace}"))
        } else if namespace == SYSTEM && remedy == RemedyKind::DeletePod && self.allow.is_empty() {
            Some(format!("pods of {SYSTEM} are deleted only if --namespace-allow names it"))
        } else {
            None
        }
    }
}

/// What decides: the rules, or in a test something that is wrong.
pub type Judge = fn(&Observation, &Limits) -> Judgement;

/// How the engine works.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The node.
    pub node: NodeName,
    /// The namespace of the watchdog itself: where the pause switch and the Leases are.
    pub own_namespace: String,
    /// Whether it acts.
    pub mode: Mode,
    /// The remedies that may be used.
    pub remedies: Vec<RemedyKind>,
    /// In whose favour.
    pub namespaces: Namespaces,
    /// Whether it acts only while the self-test finds the admission fence at work.
    pub require_fence: bool,
    /// It acts only this long after its own namespace was made; `None`: without an end.
    pub heal_for: Option<Duration>,
    /// Whether it acts on versions of Cilium that it does not know.
    pub unknown_versions: bool,
    /// The rules.
    pub judge: Judge,
    /// Their time limits.
    pub limits: Limits,
    /// No act within this after the start.
    pub startup_quiet: Duration,
    /// The least time between the two judgements that confirm a remedy.
    pub confirm_gap: Duration,
    /// A pod's Events are first read when it has waited this long without a sandbox.
    pub event_delay: Duration,
    /// After an act, how long it may take until it shows.
    pub verify_timeout: Duration,
    /// After a restart of the agent, how long until the wedged pod has its sandbox.
    pub restart_timeout: Duration,
    /// After a restart of the agent, no act within this.
    pub restart_quiet: Duration,
    /// Bound on one judgement with all its reads.
    pub judge_timeout: Duration,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_mode_has_its_word() {
        assert_eq!([Mode::Observe, Mode::Heal].map(Mode::as_str), ["observe", "heal"]);
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[rstest]
    #[case::by_default_anywhere(&[], &[], "shop", RemedyKind::DeletePod, true)]
    #[case::by_default_no_system_pod_is_deleted(&[], &[], "kube-system", RemedyKind::DeletePod, false)]
    #[case::for_a_system_pod_endpoints_are_disconnected(&[], &[], "kube-system", RemedyKind::DisconnectEndpoint, true)]
    #[case::a_system_pod_is_deleted_if_allowed_by_name(&["kube-system"], &[], "kube-system", RemedyKind::DeletePod, true)]
    #[case::not_allowed(&["shop"], &[], "bank", RemedyKind::DisconnectEndpoint, false)]
    #[case::allowed(&["shop"], &[], "shop", RemedyKind::DeletePod, true)]
    #[case::denied(&[], &["shop"], "shop", RemedyKind::DisconnectEndpoint, false)]
    #[case::deny_wins(&["shop"], &["shop"], "shop", RemedyKind::DeletePod, false)]
    fn in_whose_favour(
        #[case] allow: &[&str],
        #[case] deny: &[&str],
        #[case] namespace: &str,
        #[case] remedy: RemedyKind,
        #[case] may: bool,
    ) {
        let namespaces = Namespaces { allow: list(allow), deny: list(deny) };
        assert_eq!(namespaces.refuse(remedy, namespace).is_none(), may);
    }
}
