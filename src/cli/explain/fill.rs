//! Fills the words in braces of the advice with what was seen.
//!
//! Must not know: which verdict the advice is for.

use std::net::IpAddr;

use serde::Serialize;

use super::advice::{Step, When};
use crate::domain::{Finding, Pod, PodName, Remedy};

/// Where the agent's pods are, for commands that a person can copy.
#[derive(Debug, Clone)]
pub(super) struct AgentPlace {
    pub(super) namespace: String,
    pub(super) label: String,
    pub(super) container: String,
    /// Flags of kubectl and of this program that lead to the same cluster.
    pub(super) flags: String,
}

impl Default for AgentPlace {
    fn default() -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            label: "k8s-app=cilium".to_owned(),
            container: "cilium-agent".to_owned(),
            flags: String::new(),
        }
    }
}

/// What stands for the words.
pub(super) struct Words<'a> {
    pub(super) place: &'a AgentPlace,
    /// How this program was called.
    pub(super) called: &'a str,
    pub(super) pod: &'a Pod,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) owner: Option<&'a PodName>,
    pub(super) finding: Option<&'a Finding>,
}

/// A step with its words filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Filled {
    pub(super) text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) commands: Vec<String>,
}

impl Words<'_> {
    /// The steps that are of use here. One whose words have no value is left out.
    pub(super) fn steps(&self, steps: &[Step]) -> Vec<Filled> {
        steps.iter().filter(|step| self.applies(step.when)).filter_map(|step| self.step(step)).collect()
    }

    fn applies(&self, when: When) -> bool {
        match when {
            When::Always => true,
            When::Movable => self.pod.not_movable().is_none(),
            When::NotMovable => self.pod.not_movable().is_some(),
            When::Remedy => self.finding.is_some_and(|finding| finding.remedy != Remedy::None),
            When::Withheld => self.finding.is_some_and(|finding| finding.withheld.is_some()),
        }
    }

    fn step(&self, step: &Step) -> Option<Filled> {
        let commands: Vec<String> = step.commands.iter().flat_map(|command| self.fill(command)).collect();
        let left_out = commands.len() < step.commands.len();
        (!left_out).then(|| Filled { text: step.text.to_owned(), commands })
    }

    /// The text once, or once for each disputed address that it speaks of; nothing where a word has no value.
    fn fill(&self, text: &str) -> Vec<String> {
        if !text.contains("{ip}") && !text.contains("{registry-id}") {
            return self.fill_for(text, None).into_iter().collect();
        }
        self.addresses.iter().filter_map(|ip| self.fill_for(text, Some(*ip))).collect()
    }

    fn fill_for(&self, text: &str, ip: Option<IpAddr>) -> Option<String> {
        let mut filled = text.to_owned();
        for (word, value) in self.values(ip) {
            if filled.contains(word) {
                filled = filled.replace(word, &value?);
            }
        }
        if !self.place.flags.is_empty() {
            filled = filled.replace("kubectl -n ", &format!("kubectl {} -n ", self.place.flags));
            filled = filled.replace("kubectl get ", &format!("kubectl {} get ", self.place.flags));
            filled = filled.replace(" explain ", &format!(" explain {} ", self.place.flags));
        }
        Some(filled)
    }

    fn values(&self, ip: Option<IpAddr>) -> [(&'static str, Option<String>); 12] {
        let target = match self.finding.map(|finding| &finding.remedy) {
            Some(Remedy::DisconnectEndpoint(target)) => Some(target.to_string()),
            _ => None,
        };
        [
            ("{agent-ns}", Some(self.place.namespace.clone())),
            ("{agent-label}", Some(self.place.label.clone())),
            ("{agent-container}", Some(self.place.container.clone())),
            ("{node}", self.pod.node.as_ref().map(ToString::to_string)),
            ("{registry-id}", ip.map(registry_id)),
            ("{ns}", Some(self.pod.name.namespace().to_owned())),
            ("{pod}", Some(self.pod.name.name().to_owned())),
            ("{ip}", ip.map(|ip| ip.to_string())),
            ("{owner-ns}", self.owner.map(|owner| owner.namespace().to_owned())),
            ("{owner-name}", self.owner.map(|owner| owner.name().to_owned())),
            ("{target}", target),
            ("{self}", Some(self.called.to_owned())),
        ]
    }
}

/// The id by which the agent's registry knows an address.
pub(super) fn registry_id(ip: IpAddr) -> String {
    format!("{}:{ip}", if ip.is_ipv4() { "ipv4" } else { "ipv6" })
}
