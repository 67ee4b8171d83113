//! The story of one pod: an observation and its judgement in, what there is to tell out. Pure.
//!
//! It decides nothing: the verdict, the evidence and the remedy are the domain's, word for word. Must not know: where
//! the observation came from, how the story is printed.

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::json;

use super::advice::{self, Advice};
use super::facts::{
    AlsoFound, Call, CheckLine, FailureFacts, Heal, HolderFacts, OwnerFacts, PodFacts, ProofFacts, Rule,
    SCHEMA_VERSION, Story, Subject, WithheldFacts,
};
use super::fill::{AgentPlace, Filled, Words};
use crate::domain::{
    AnomalyKind, Check, Event, Evidence, Finding, Holder, Judgement, Lookup, NewestFailure, Observation,
    Outcome, OwnerName, Pod, PodName, ReadFailure, Remedy, SandboxEvents, Unreadable, Verdict,
};

/// Kubelet and scheduler name most failures `Failed…`; these are the others that keep a pod from running.
const FAILURE_REASONS: [&str; 9] = [
    "BackOff",
    "ErrImageNeverPull",
    "Evicted",
    "InspectFailed",
    "NetworkNotReady",
    "NodeNotReady",
    "Preempted",
    "ProbeError",
    "Unhealthy",
];

/// What the story is told of.
pub(super) struct Told<'a> {
    pub(super) obs: &'a Observation,
    pub(super) judgement: &'a Judgement,
    /// Findings without a wedge about the same pod or address.
    pub(super) anomalies: &'a [(AnomalyKind, String)],
    /// `live` or `replay`.
    pub(super) mode: &'static str,
    pub(super) place: &'a AgentPlace,
    /// How this program was called.
    pub(super) called: &'a str,
}

impl Told<'_> {
    /// Tells it.
    pub(super) fn story(&self) -> Story {
        let Observation { now, pod, .. } = self.obs;
        let finding = self.judgement.finding();
        let evidence = match self.judgement {
            Judgement::NotWedged(not) => &not.evidence,
            Judgement::Wedged(finding) => &finding.evidence,
        };
        Story {
            kind: "Explanation",
            schema_version: SCHEMA_VERSION,
            taken_at: *now,
            mode: self.mode,
            subject: Subject {
                kind: "Pod",
                namespace: pod.name.namespace().to_owned(),
                name: pod.name.name().to_owned(),
                uid: pod.uid.to_string(),
            },
            node: pod.node.as_ref().map(ToString::to_string),
            pod: PodFacts {
                phase: pod.phase.as_str(),
                created: pod.created,
                controller: pod.controller.as_ref().map(|owner| format!("{} {}", owner.kind, owner.name)),
                addresses: pod.ips.clone(),
            },
            wedged: finding.is_some(),
            ip: finding.and_then(|finding| finding.ip),
            verdict: finding.map(|finding| finding.verdict.as_str()),
            meaning: finding.map(|finding| advice::of_verdict(finding.verdict).meaning),
            reason: self.reason(),
            failure: self.failure(),
            holder: finding.map(|_| holder(&self.obs.lookup)),
            owner: finding.and_then(|_| self.owner()),
            checks: evidence.iter().map(check_line).collect(),
            rule: rule(finding),
            heal: finding.map_or_else(Heal::nothing, |finding| heal(finding, pod)),
            changes: finding.map(|finding| self.changes(finding)).unwrap_or_default(),
            in_short: finding.map(in_short),
            steps: self.steps(finding),
            also_found: self.anomalies.iter().map(|(kind, reason)| self.also(*kind, reason)).collect(),
        }
    }

    fn reason(&self) -> String {
        match self.judgement {
            Judgement::NotWedged(_) if self.obs.pod.node.is_none() => {
                "the pod is not bound to a node yet".to_owned()
            }
            Judgement::NotWedged(not) => not.reason.clone(),
            Judgement::Wedged(finding) => finding.reason.clone(),
        }
    }

    /// The newest failure: of the sandbox where the pod is wedged or waits, else of any kind.
    fn failure(&self) -> Option<FailureFacts> {
        let Observation { pod, node, events, .. } = self.obs;
        let newest = SandboxEvents::of(pod, node, &events.known).newest();
        let of_sandbox = |event: &&Event| {
            event.reason == "FailedCreatePodSandBox" && event.node.as_ref().is_none_or(|other| other == node)
        };
        let failing = |event: &&Event| {
            event.reason.starts_with("Failed") || FAILURE_REASONS.contains(&event.reason.as_str())
        };
        let own = || events.known.iter().filter(|event| event.object_uid == pod.event_uid());
        let latest = |event: &&Event| (event.at.is_none(), event.at);
        match newest {
            NewestFailure::Refusal(failure) => {
                let event = own().filter(of_sandbox).max_by_key(latest)?;
                Some(FailureFacts {
                    reason: event.reason.clone(),
                    at: failure.at,
                    count: failure.count,
                    message: event.message.clone(),
                    meaning: None,
                    sandboxes: failure.sandboxes.iter().map(ToString::to_string).collect(),
                    addresses: failure.addresses,
                })
            }
            NewestFailure::Other(_) | NewestFailure::CameUp(_) | NewestFailure::Nothing => {
                let event = own().filter(failing).max_by_key(latest)?;
                Some(FailureFacts {
                    reason: event.reason.clone(),
                    at: event.at,
                    count: event.count.max(1),
                    message: event.message.clone(),
                    meaning: advice::of_look_alike(&event.message),
                    addresses: Vec::new(),
                    sandboxes: Vec::new(),
                })
            }
        }
    }

    fn owner_name(&self) -> OwnerName {
        let Lookup::Held(holder) = &self.obs.lookup else {
            return OwnerName::Nameless;
        };
        let endpoints = self.obs.endpoints.as_ref().ok().and_then(Option::as_deref).unwrap_or_default();
        holder.owner(endpoints)
    }

    fn owner(&self) -> Option<OwnerFacts> {
        let Lookup::Held(holder) = &self.obs.lookup else {
            return None;
        };
        if let Some(label) = holder.reserved_label() {
            let now = format!("Cilium itself, by the holder's label {label}: it stands for no pod");
            return Some(OwnerFacts { pod: None, named_by: "label", now });
        }
        let owner = self.owner_name();
        let (named_by, now) = match &owner {
            OwnerName::ByIdentifiers(_) => ("the holder's external identifiers", self.owner_now()),
            OwnerName::ByController(_) => ("the holder's controller resolve-labels", self.owner_now()),
            OwnerName::ByCiliumEndpoint(_) => {
                ("the CiliumEndpoint with the holder's id and attachment", self.owner_now())
            }
            OwnerName::Nameless => (
                "nothing",
                holder.namespace_label().map_or_else(
                    || "the holder names no pod and no namespace".to_owned(),
                    |namespace| format!("the holder names no pod; its label says namespace {namespace}"),
                ),
            ),
        };
        Some(OwnerFacts { pod: owner.pod().map(ToString::to_string), named_by, now })
    }

    fn owner_now(&self) -> String {
        match &self.obs.owner {
            Ok(None) => "the API server has no pod of that name (404)".to_owned(),
            Ok(Some(pod)) if pod.uid == self.obs.pod.uid => "it is the wedged pod itself".to_owned(),
            Ok(Some(pod)) => describe_pod(pod),
            Err(Unreadable { why: ReadFailure::NotAsked, .. }) => {
                "not asked: the rules decided before".to_owned()
            }
            Err(why) => format!("unknown: {why}"),
        }
    }

    fn words<'a>(&'a self, owner: Option<&'a PodName>) -> Words<'a> {
        let finding = self.judgement.finding();
        let addresses = match finding {
            Some(Finding { ip: Some(ip), .. }) => vec![*ip],
            Some(Finding { failure: Some(failure), .. }) => failure.addresses.clone(),
            _ => Vec::new(),
        };
        Words { place: self.place, called: self.called, pod: &self.obs.pod, addresses, owner, finding }
    }

    fn steps(&self, finding: Option<&Finding>) -> Vec<Filled> {
        let steps =
            finding.map_or(advice::NOT_WEDGED_STEPS, |finding| advice::of_verdict(finding.verdict).steps);
        self.words(self.owner_name().pod()).steps(steps)
    }

    fn also(&self, kind: AnomalyKind, reason: &str) -> AlsoFound {
        let advice = advice::of_anomaly(kind);
        AlsoFound {
            verdict: kind.as_str(),
            meaning: advice.meaning,
            reason: reason.to_owned(),
            in_short: advice.person,
            steps: self.words(None).steps(advice.steps),
        }
    }

    /// What would make the verdict another one: time where a rule about it decided, what was open where something was,
    /// and what the table says.
    fn changes(&self, finding: &Finding) -> Vec<String> {
        let mut changes = Vec::new();
        if let Some(at) = finding.look_again {
            changes.push(format!(
                "At {}, {} from now, the rule about time comes out otherwise.",
                clock_time(at),
                span(at.duration_since(self.obs.now).as_secs())
            ));
        }
        if names_two(finding) {
            changes.push(advice::of_open_check(Check::NewestFailure).to_owned());
        }
        if finding.verdict == Verdict::InsufficientEvidence {
            let open = finding.evidence.iter().filter(|it| it.outcome != Outcome::Pass);
            changes.extend(open.map(|it| advice::of_open_check(it.check).to_owned()));
        }
        changes.extend(advice::of_verdict(finding.verdict).changes.iter().map(ToString::to_string));
        if let Some(why) = finding.withheld {
            changes.push(format!("For the remedy: {}", advice::of_withheld(why).1));
        }
        changes
    }
}

fn names_two(finding: &Finding) -> bool {
    finding.failure.as_ref().is_some_and(|failure| failure.addresses.len() > 1)
}

fn in_short(finding: &Finding) -> &'static str {
    if names_two(finding) {
        advice::TWO_ADDRESSES_PERSON
    } else if finding.verdict == Verdict::StaleEndpoint && finding.withheld.is_some() {
        advice::WITHHELD_PERSON
    } else {
        advice::of_verdict(finding.verdict).person
    }
}

fn check_line(evidence: &Evidence) -> CheckLine {
    CheckLine {
        check: evidence.check.as_str(),
        outcome: evidence.outcome.as_str(),
        observed: evidence.observed.clone(),
    }
}

fn holder(lookup: &Lookup) -> HolderFacts {
    let said = |answer, text| HolderFacts {
        answer,
        text,
        endpoint: None,
        state: None,
        attachment: None,
        container: None,
        oldest_log_entry: None,
        newest_log_entry: None,
        addresses: Vec::new(),
        labels: Vec::new(),
    };
    match lookup {
        Lookup::Held(holder) => HolderFacts {
            endpoint: Some(holder.id.0),
            state: Some(holder.state.as_str()),
            attachment: holder.attachment.as_ref().map(ToString::to_string),
            container: holder.container().map(ToString::to_string),
            oldest_log_entry: holder.oldest_entry(),
            newest_log_entry: holder.newest_entry(),
            addresses: holder.addresses.clone(),
            labels: holder.labels.clone(),
            ..said("held", held(holder))
        },
        Lookup::NotHeld => said("nobody", "nobody: the agent answered with an empty 404".to_owned()),
        Lookup::Unknown(Unreadable { why: ReadFailure::NotAsked, .. }) => {
            said("not-asked", "the agent was not asked: the rules decided before".to_owned())
        }
        Lookup::Unknown(why) => said("unknown", format!("nobody knows: {why}")),
    }
}

fn held(holder: &Holder) -> String {
    format!("endpoint {} of this node's agent, in state {}", holder.id, holder.state.as_str())
}

fn rule(finding: Option<&Finding>) -> Rule {
    let Some(finding) = finding else {
        let text = "There is a finding only on a pod that waits for its sandbox and whose newest sandbox failure is \"IP … is already in use\".";
        return Rule { row: None, text, proof: None };
    };
    let Advice { rule, .. } = advice::of_verdict(finding.verdict);
    let row = Verdict::ALL.iter().position(|verdict| *verdict == finding.verdict).map(|at| at + 1);
    let no_proof = finding.verdict == Verdict::InsufficientEvidence
        && finding.evidence.iter().any(|it| it.check == Check::Staleness && it.outcome == Outcome::Fail);
    let (row, text) = if no_proof {
        (Some(Verdict::ALL.len() + 1), advice::LAST_ROW)
    } else if names_two(finding) && finding.verdict == Verdict::InsufficientEvidence {
        (None, advice::TWO_ADDRESSES)
    } else {
        (row, rule)
    };
    let proof =
        finding.proof.map(|proof| ProofFacts { number: proof.number(), text: advice::of_proof(proof) });
    Rule { row, text, proof }
}

impl Heal {
    fn nothing() -> Self {
        Self { remedy: Remedy::None.as_str(), target: None, call: None, withheld: None }
    }
}

/// The exact call that `engine` would make.
fn heal(finding: &Finding, pod: &Pod) -> Heal {
    let (target, call) = match &finding.remedy {
        Remedy::None => (None, None),
        Remedy::DisconnectEndpoint(target) => {
            let path = format!("/v1/endpoint/{}", path_segment(target.as_str()));
            let call = Call { to: "cilium-agent", method: "DELETE", path, body: None };
            (Some(target.to_string()), Some(call))
        }
        Remedy::DeletePod => {
            let path = format!("/api/v1/namespaces/{}/pods/{}", pod.name.namespace(), pod.name.name());
            let preconditions = json!({"uid": pod.uid.as_str(), "resourceVersion": pod.resource_version});
            let body = Some(json!({ "preconditions": preconditions }));
            (None, Some(Call { to: "kube-apiserver", method: "DELETE", path, body }))
        }
    };
    let withheld =
        finding.withheld.map(|why| WithheldFacts { why: why.as_str(), text: advice::of_withheld(why).0 });
    Heal { remedy: finding.remedy.as_str(), target, call, withheld }
}

/// An id as one segment of a path.
fn path_segment(id: &str) -> String {
    id.bytes()
        .map(|byte| match byte {
            b'-' | b'.' | b'_' | b'~' | b':' => char::from(byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

fn describe_pod(pod: &Pod) -> String {
    let node = pod.node.as_ref().map_or_else(|| "bound to no node".to_owned(), |node| format!("on {node}"));
    let ips: Vec<String> = pod.ips.iter().map(IpAddr::to_string).collect();
    let addresses = if ips.is_empty() { "no address".to_owned() } else { ips.join(", ") };
    let deleting = if pod.deleting { ", being deleted" } else { "" };
    let running = if pod.containers.running { ", a container running" } else { "" };
    format!("{}{deleting}{running}, {node}, {addresses}, UID {}", pod.phase.as_str(), pod.uid)
}

/// A time for people: whole seconds, as Events tell them.
pub(super) fn clock_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A length of time for people.
pub(super) fn span(seconds: i64) -> String {
    let (sign, seconds) = if seconds < 0 { ("-", -seconds) } else { ("", seconds) };
    match seconds {
        0..=119 => format!("{sign}{seconds} s"),
        120..=7_199 => format!("{sign}{} min", seconds / 60),
        7_200..=172_799 => format!("{sign}{} h", seconds / 3_600),
        _ => format!("{sign}{} d", seconds / 86_400),
    }
}
