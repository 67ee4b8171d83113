//! The verdict table: an observation in, a judgement with its evidence out. The first row that applies decides.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use super::evidence::{Check, Evidence, Outcome};
use super::failure::{Failure, NewestFailure, SandboxEvents};
use super::holder::{EndpointState, Holder, OwnerName};
use super::ids::PodName;
use super::limits::{Limits, signed};
use super::observation::{Lookup, Observation, Unreadable};
use super::pod::Pod;
use super::proof::{Dispute, Proof};
use super::verdict::{DisconnectTarget, Finding, Judgement, NotWedged, Remedy, Verdict, Withheld};

/// Judges one pod.
pub fn judge(obs: &Observation, limits: &Limits) -> Judgement {
    let mut trail = Trail::default();
    match candidate(obs, &mut trail) {
        Candidate::NotWedged(reason) => Judgement::NotWedged(NotWedged { reason, evidence: trail.0 }),
        Candidate::EventsUnread(why) => {
            let ruling = Ruling::refuse(
                Verdict::InsufficientEvidence,
                format!("nobody knows why this pod waits: {why}"),
            );
            Judgement::Wedged(Box::new(ruling.finding(None, None, None, trail)))
        }
        Candidate::Wedge(failure) => {
            let (ip, owner, ruling) = rule(obs, limits, &failure, &mut trail);
            Judgement::Wedged(Box::new(ruling.finding(ip, owner, Some(failure), trail)))
        }
    }
}

/// The evidence so far.
#[derive(Default)]
struct Trail(Vec<Evidence>);

impl Trail {
    fn note(&mut self, check: Check, outcome: Outcome, observed: impl Into<String>) {
        self.0.push(Evidence { check, outcome, observed: observed.into() });
    }

    fn pass(&mut self, check: Check, observed: impl Into<String>) {
        self.note(check, Outcome::Pass, observed);
    }

    fn fail(&mut self, check: Check, observed: impl Into<String>) {
        self.note(check, Outcome::Fail, observed);
    }

    fn unknown(&mut self, check: Check, observed: impl Into<String>) {
        self.note(check, Outcome::Unknown, observed);
    }
}

/// What a row says when it applies.
struct Ruling {
    verdict: Verdict,
    remedy: Remedy,
    withheld: Option<Withheld>,
    proof: Option<Proof>,
    reason: String,
    look_again: Option<Timestamp>,
}

impl Ruling {
    fn refuse(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self {
            verdict,
            remedy: Remedy::None,
            withheld: None,
            proof: None,
            reason: reason.into(),
            look_again: None,
        }
    }

    fn until(self, look_again: Option<Timestamp>) -> Self {
        Self { look_again, ..self }
    }

    fn finding(
        self,
        ip: Option<IpAddr>,
        owner: Option<PodName>,
        failure: Option<Failure>,
        trail: Trail,
    ) -> Finding {
        let Self { verdict, remedy, withheld, proof, reason, look_again } = self;
        Finding {
            ip,
            verdict,
            remedy,
            withheld,
            proof,
            owner,
            reason,
            evidence: trail.0,
            failure,
            look_again,
        }
    }
}

/// Whether a pod is a wedge.
enum Candidate {
    NotWedged(String),
    EventsUnread(Unreadable),
    Wedge(Failure),
}

fn candidate(obs: &Observation, trail: &mut Trail) -> Candidate {
    let pod = &obs.pod;
    let not_waiting = if pod.node.as_ref() == Some(&obs.node) {
        pod.not_waiting()
    } else {
        Some("it is not bound to this node")
    };
    if let Some(why) = not_waiting {
        trail.fail(Check::WaitingPod, why);
        return Candidate::NotWedged(format!("the pod does not wait for a sandbox: {why}"));
    }
    trail.pass(Check::WaitingPod, format!("phase {}, no address, no container running", pod.phase.as_str()));
    if let Some(why) = &obs.events.unreadable {
        trail.unknown(Check::PodEvents, why.to_string());
    }
    let newest = SandboxEvents::of(pod, &obs.node, &obs.events.known).newest();
    if let NewestFailure::Refusal(failure) = newest {
        let addresses: Vec<String> = failure.addresses.iter().map(IpAddr::to_string).collect();
        let seen =
            format!("IP {} is already in use, counted {} times", addresses.join(" and IP "), failure.count);
        trail.pass(Check::NewestFailure, seen);
        return Candidate::Wedge(failure);
    }
    if let Some(why) = &obs.events.unreadable {
        return Candidate::EventsUnread(why.clone());
    }
    let (seen, reason) = match newest {
        NewestFailure::Other(message) => (
            message.chars().take(300).collect(),
            "the pod's newest sandbox failure is not about an address in use",
        ),
        NewestFailure::CameUp(event) => (
            format!("Event {event} is not older than the newest failure"),
            "the pod's sandbox came up after the newest failure",
        ),
        NewestFailure::Nothing | NewestFailure::Refusal(_) => (
            "no FailedCreatePodSandBox Event of this pod on this node".to_owned(),
            "the pod has no sandbox failure",
        ),
    };
    trail.fail(Check::NewestFailure, seen);
    Candidate::NotWedged(reason.to_owned())
}

/// The rows from `agent-unknown` down.
fn rule(
    obs: &Observation,
    limits: &Limits,
    failure: &Failure,
    trail: &mut Trail,
) -> (Option<IpAddr>, Option<PodName>, Ruling) {
    let clock = Clock { obs, limits, failure };
    let &[ip] = failure.addresses.as_slice() else {
        let ruling = clock.settling(trail).unwrap_or_else(|| {
            Ruling::refuse(
                Verdict::InsufficientEvidence,
                "the newest failure names two addresses: nobody knows which one is in the way",
            )
        });
        return (None, None, ruling);
    };
    let holder = match &obs.lookup {
        Lookup::Unknown(why) => {
            trail.unknown(Check::AgentLookup, why.to_string());
            let ruling =
                Ruling::refuse(Verdict::AgentUnknown, format!("the agent did not say who holds {ip}: {why}"));
            return (Some(ip), None, ruling);
        }
        Lookup::NotHeld => {
            trail.fail(Check::AgentLookup, format!("GET endpoint/{}: 404, nobody holds it", registry_id(ip)));
            None
        }
        Lookup::Held(holder) => {
            trail.pass(Check::AgentLookup, format!("GET endpoint/{}: {}", registry_id(ip), describe(holder)));
            Some(&**holder)
        }
    };
    if let Some(ruling) = reserved_holder(&clock, ip, holder, trail) {
        return (Some(ip), None, ruling);
    }
    let Some(holder) = holder else {
        let reason = format!(
            "the agent does not hold {ip} any more: the kubelet's next try succeeds, or a newer Event comes"
        );
        return (Some(ip), None, Ruling::refuse(Verdict::NotHeld, reason));
    };
    let wedge = Wedge { dispute: Dispute { obs, limits, failure, ip, holder }, owner: owner_of(obs, holder) };
    let ruling = clock
        .settling(trail)
        .or_else(|| wedge.holder_settling(trail))
        .or_else(|| clock.bad_age(trail))
        .or_else(|| wedge.insufficient_evidence(trail))
        .or_else(|| wedge.unmanaged_holder(trail))
        .or_else(|| wedge.shared_by_design(trail))
        .or_else(|| wedge.live_duplicate(trail))
        .or_else(|| wedge.stale_endpoint(trail))
        .unwrap_or_else(|| {
            Ruling::refuse(Verdict::InsufficientEvidence, "no proof says that the holder is left over")
        });
    (Some(ip), wedge.owner.pod().cloned(), ruling)
}

/// The id by which the registry knows an address.
fn registry_id(ip: IpAddr) -> String {
    format!("{}:{ip}", if ip.is_ipv4() { "ipv4" } else { "ipv6" })
}

fn describe(holder: &Holder) -> String {
    let id = match (&holder.attachment, &holder.container_field) {
        (Some(attachment), _) => format!("cni-attachment-id {attachment}"),
        (None, Some(container)) => format!("container-id {container}"),
        (None, None) => "without an id".to_owned(),
    };
    format!("endpoint {}, {}, {id}", holder.id, holder.state.as_str())
}

fn owner_of(obs: &Observation, holder: &Holder) -> OwnerName {
    let endpoints = obs.endpoints.as_ref().ok().and_then(Option::as_deref).unwrap_or_default();
    holder.owner(endpoints)
}

fn reserved_holder(
    clock: &Clock<'_>,
    ip: IpAddr,
    holder: Option<&Holder>,
    trail: &mut Trail,
) -> Option<Ruling> {
    let by_node =
        clock.obs.cilium_node.as_ref().ok().and_then(Option::as_ref).and_then(|node| node.reserved_use(ip));
    let by_label = holder.and_then(Holder::reserved_label);
    let what = match (by_node, by_label) {
        (Some(used), _) => format!("{ip} is the {} address of this node's CiliumNode", used.as_str()),
        (None, Some(label)) => format!("the holder of {ip} is Cilium's own ({label})"),
        (None, None) => return None,
    };
    trail.fail(Check::ReservedHolder, what.clone());
    let blocked = clock.blocks_moving(trail).map(|why| (Withheld::Timing, why)).or_else(|| {
        let why = clock.obs.pod.not_movable()?;
        trail.fail(Check::MovablePod, why);
        Some((Withheld::NotMovable, why.to_owned()))
    });
    let (remedy, withheld, then) = match blocked {
        Some((withheld, why)) => (Remedy::None, Some(withheld), format!("the pod is not moved: {why}")),
        None => {
            trail.pass(Check::MovablePod, "Pending, never ran, has a controller");
            (Remedy::DeletePod, None, "the pod may be moved once".to_owned())
        }
    };
    let reason = format!("{what}: two IPAMs hand out one range; {then}");
    Some(Ruling { remedy, withheld, ..Ruling::refuse(Verdict::ReservedHolder, reason) })
}

/// The rules about time that need no holder.
struct Clock<'a> {
    obs: &'a Observation,
    limits: &'a Limits,
    failure: &'a Failure,
}

impl Clock<'_> {
    fn age(&self, of: Timestamp) -> SignedDuration {
        self.obs.now.duration_since(of)
    }

    /// The agent has just started, or started after the failure; or the failure is the first one and fresh.
    fn settling(&self, trail: &mut Trail) -> Option<Ruling> {
        let settle = |reason: String, until| Some(Ruling::refuse(Verdict::Settling, reason).until(until));
        let Some(started) = self.obs.agent_started else {
            trail.unknown(Check::AgentStart, "unknown, which counts as just now");
            return settle(
                "nobody knows when the agent started: it may still be sorting out its endpoints".to_owned(),
                None,
            );
        };
        if self.age(started) < signed(self.limits.agent_settle) {
            trail.fail(
                Check::AgentStart,
                format!("{}, {} ago", clock_time(started), seconds(self.age(started))),
            );
            let reason = format!(
                "the agent started {} ago: queued deletions may still be replayed",
                seconds(self.age(started))
            );
            return settle(reason, started.checked_add(self.limits.agent_settle).ok());
        }
        if self.failure.at.is_some_and(|failed| started > failed) {
            trail.fail(Check::AgentStart, format!("{}, after the newest failure", clock_time(started)));
            return settle(
                "the newest failure is the answer of an agent that has been restarted since".to_owned(),
                None,
            );
        }
        trail.pass(Check::AgentStart, format!("{}, before the newest failure", clock_time(started)));
        let failed = self.failure.at?;
        if self.failure.lone && self.age(failed) < signed(self.limits.lone_failure_age) {
            trail.fail(Check::FailureAge, format!("the only failure, {} old", seconds(self.age(failed))));
            let reason = "the pod failed once, just now: the next try may succeed".to_owned();
            return settle(reason, failed.checked_add(self.limits.lone_failure_age).ok());
        }
        None
    }

    /// The newest failure says nothing about the present.
    fn bad_age(&self, trail: &mut Trail) -> Option<Ruling> {
        let Some(failed) = self.failure.at else {
            trail.unknown(Check::FailureAge, "the Event carries no time");
            return Some(Ruling::refuse(
                Verdict::InsufficientEvidence,
                "nobody knows when the newest failure was",
            ));
        };
        let age = self.age(failed);
        let wrong = if age > signed(self.limits.failure_max_age) {
            "too old to say anything about now"
        } else if age < -signed(self.limits.failure_max_skew) {
            "in the future: a clock is wrong"
        } else {
            trail.pass(Check::FailureAge, format!("{} old", seconds(age)));
            return None;
        };
        trail.fail(Check::FailureAge, format!("{}, {} old", clock_time(failed), seconds(age)));
        Some(Ruling::refuse(Verdict::InsufficientEvidence, format!("the newest failure is {wrong}")))
    }

    /// Why a wedged pod is not moved now, by the rules about the agent's start and the failure's age. While not all
    /// Events are known, the newest failure is not.
    fn blocks_moving(&self, trail: &mut Trail) -> Option<String> {
        if let Some(why) = &self.obs.events.unreadable {
            return Some(format!("not all Events of the pod could be read: {why}"));
        }
        self.settling(trail).or_else(|| self.bad_age(trail)).map(|ruling| ruling.reason)
    }
}

/// A time for people: whole seconds, as Events tell them.
fn clock_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn seconds(duration: SignedDuration) -> String {
    format!("{} s", duration.as_secs())
}

/// A dispute with the holder's owner.
struct Wedge<'a> {
    dispute: Dispute<'a>,
    owner: OwnerName,
}

impl Wedge<'_> {
    /// The pod of the owner's name, where one is named and could be read.
    fn owner_pod(&self) -> Option<&Pod> {
        self.owner.pod()?;
        self.dispute.obs.owner.as_ref().ok()?.as_ref()
    }

    /// Every pod that was read, except for the wedged one.
    fn others(&self) -> impl Iterator<Item = &Pod> {
        let obs = self.dispute.obs;
        let pods = obs.address_users.iter().flatten().chain(obs.node_pods.iter().flatten()).chain(self.owner_pod());
        pods.filter(|pod| !self.dispute.is_wedged(pod))
    }

    fn holder_settling(&self, trail: &mut Trail) -> Option<Ruling> {
        let Dispute { obs, limits, holder, .. } = self.dispute;
        let newest = holder.newest_entry();
        let young = newest.is_none_or(|at| obs.now.duration_since(at) < signed(limits.holder_settle));
        let moving = match holder.state {
            EndpointState::Restoring
            | EndpointState::Disconnecting
            | EndpointState::WaitingForIdentity
            | EndpointState::WaitingToRegenerate => true,
            EndpointState::Regenerating => !holder.was_ready(),
            EndpointState::Ready | EndpointState::Other => false,
        };
        let seen = match newest {
            Some(at) => format!("{}, newest log entry {}", holder.state.as_str(), clock_time(at)),
            None => format!("{}, no log", holder.state.as_str()),
        };
        if young && moving {
            trail.fail(Check::HolderState, seen);
            let until = newest.and_then(|at| at.checked_add(limits.holder_settle).ok());
            let reason =
                format!("the holder is {}: it may still be on its way up or down", holder.state.as_str());
            return Some(Ruling::refuse(Verdict::Settling, reason).until(until));
        }
        trail.pass(Check::HolderState, seen);
        None
    }

    fn insufficient_evidence(&self, trail: &mut Trail) -> Option<Ruling> {
        let refuse = |reason: String| Some(Ruling::refuse(Verdict::InsufficientEvidence, reason));
        let Dispute { obs, ip, holder, .. } = self.dispute;
        if let Some(why) = &obs.events.unreadable {
            return refuse(format!("not all Events of the pod could be read: {why}"));
        }
        match &obs.cilium_node {
            Ok(Some(_)) => {
                trail.pass(Check::CiliumNode, format!("{ip} is none of Cilium's own addresses on this node"))
            }
            Ok(None) => {
                trail.fail(Check::CiliumNode, "404");
                return refuse(
                    "this node has no CiliumNode: nobody knows which addresses are Cilium's own".to_owned(),
                );
            }
            Err(why) => {
                trail.unknown(Check::CiliumNode, why.to_string());
                return refuse(format!("nobody knows which addresses are Cilium's own: {why}"));
            }
        }
        if !holder.addresses.contains(&ip) {
            trail.fail(Check::HolderAddress, "the endpoint does not carry the disputed address");
            return refuse(format!("the agent's answer does not carry {ip}"));
        }
        trail.pass(Check::HolderAddress, ip.to_string());
        if let Err(why) = &obs.address_users {
            trail.unknown(Check::AddressUsers, why.to_string());
            return refuse(format!("nobody knows whether another pod has {ip}: {why}"));
        }
        if let Some(pod) = self.others().find(|pod| pod.unparsed_ips && pod.is_live() && !pod.host_network) {
            trail.unknown(Check::AddressUsers, format!("{} lists an address that is none", pod.name));
            return refuse(format!("nobody knows whether the live pod {} has {ip}: it lists an address that is none", pod.name));
        }
        match self.owner.pod() {
            Some(name) => self.insufficient_owner(name, trail),
            None => self.insufficient_nameless(trail),
        }
    }

    fn insufficient_owner(&self, name: &PodName, trail: &mut Trail) -> Option<Ruling> {
        let source = match &self.owner {
            OwnerName::ByIdentifiers(_) => "its external identifiers",
            OwnerName::ByController(_) => "its controller resolve-labels",
            OwnerName::ByCiliumEndpoint(_) | OwnerName::Nameless => "its CiliumEndpoint",
        };
        trail.pass(Check::OwnerName, format!("{name}, by {source}"));
        let owner = match &self.dispute.obs.owner {
            Ok(owner) => owner.as_ref(),
            Err(why) => {
                trail.unknown(Check::OwnerPod, why.to_string());
                let reason = format!("nobody knows whether the owner {name} is alive: {why}");
                return Some(Ruling::refuse(Verdict::InsufficientEvidence, reason));
            }
        };
        let owner = owner?;
        if self.dispute.is_wedged(owner) && self.dispute.of_live(owner).is_none() {
            trail.fail(Check::OwnerPod, "the wedged pod itself");
            let reason =
                "the holder is the wedged pod's own, and nothing proves that it is an earlier sandbox of it";
            return Some(Ruling::refuse(Verdict::InsufficientEvidence, reason));
        }
        None
    }

    fn insufficient_nameless(&self, trail: &mut Trail) -> Option<Ruling> {
        let refuse = |reason: String| Some(Ruling::refuse(Verdict::InsufficientEvidence, reason));
        let Dispute { obs, holder, .. } = self.dispute;
        trail.fail(Check::OwnerName, "nothing names the owner");
        if let Err(why) = &obs.endpoints {
            trail.unknown(Check::CiliumEndpoints, why.to_string());
            return refuse(format!("a CiliumEndpoint could name the owner: {why}"));
        }
        let namespace = holder.namespace_label()?;
        let pods = match &obs.node_pods {
            Ok(pods) => pods,
            Err(why) => {
                trail.unknown(Check::NodePods, why.to_string());
                return refuse(format!("nobody knows which pods of {namespace} may own the holder: {why}"));
            }
        };
        if let Some(pod) = self.dispute.possible_owner(namespace, pods) {
            trail.fail(Check::NodePods, format!("{} may be the owner", pod.name));
            return refuse(format!(
                "nothing names the holder's owner, and it may be the live pod {}",
                pod.name
            ));
        }
        trail.pass(Check::NodePods, format!("no live pod of {namespace} on this node can be the owner"));
        None
    }

    fn unmanaged_holder(&self, trail: &mut Trail) -> Option<Ruling> {
        let holder = self.dispute.holder;
        if self.owner.pod().is_some() {
            return None;
        }
        let what = if holder.namespace_label().is_none() {
            "no namespace label"
        } else if holder.attachment.as_ref().is_some_and(|id| id.interface() != Some("eth0")) {
            "an attachment of another interface than eth0"
        } else {
            return None;
        };
        trail.fail(Check::OwnerName, what);
        Some(Ruling::refuse(
            Verdict::UnmanagedHolder,
            format!("the holder names no pod and has {what}: nobody can tell whose it is"),
        ))
    }

    fn shared_by_design(&self, trail: &mut Trail) -> Option<Ruling> {
        let owner = self.owner_pod()?;
        let wedged = &self.dispute.obs.pod;
        if owner.phase.is_terminal() || self.dispute.is_wedged(owner) {
            return None;
        }
        let same_vm = owner.name.namespace() == wedged.name.namespace()
            && owner.vm_labels.iter().any(|label| !label.1.is_empty() && wedged.vm_labels.contains(label));
        let differ = |a: Option<&String>, b: Option<&String>| matches!((a, b), (Some(a), Some(b)) if a != b);
        let (ours, theirs) = (&wedged.ovn, &owner.ovn);
        let ip = self.dispute.ip;
        let overlapping = ours.ip_address.contains(&ip)
            && theirs.ip_address.contains(&ip)
            && (differ(ours.vpc.as_ref(), theirs.vpc.as_ref())
                || differ(ours.logical_switch.as_ref(), theirs.logical_switch.as_ref()));
        let how = if same_vm {
            "both pods are of one virtual machine"
        } else if overlapping {
            "both addresses are fixed by kube-ovn in separate networks"
        } else {
            return None;
        };
        trail.fail(Check::SharedByDesign, how);
        Some(Ruling::refuse(
            Verdict::SharedByDesign,
            format!("{} and the wedged pod have {ip} on purpose: {how}", owner.name),
        ))
    }

    fn live_duplicate(&self, trail: &mut Trail) -> Option<Ruling> {
        let ip = self.dispute.ip;
        if let Some(owner) = self.owner_pod()
            && !owner.phase.is_terminal()
            && self.dispute.of_live(owner).is_none()
        {
            trail.fail(Check::OwnerPod, describe_pod(owner));
            let reason = format!(
                "the owner {} is alive ({}): disconnecting would cut it off",
                owner.name,
                owner.phase.as_str()
            );
            return Some(Ruling::refuse(Verdict::LiveDuplicate, reason));
        }
        let user = self.others().find(|pod| pod.is_live() && !pod.host_network && pod.lists(ip));
        if let Some(user) = user {
            trail.fail(Check::AddressUsers, describe_pod(user));
            let reason = format!("the live pod {} has {ip}: two pods were given one address", user.name);
            return Some(Ruling::refuse(Verdict::LiveDuplicate, reason));
        }
        trail.pass(Check::AddressUsers, format!("no other live pod has {ip}"));
        None
    }

    fn stale_endpoint(&self, trail: &mut Trail) -> Option<Ruling> {
        let dispute = &self.dispute;
        let proof = match (&self.owner, &dispute.obs.owner) {
            // `insufficient-evidence` took every nameless holder that a pod may own.
            (OwnerName::Nameless, _) => Proof::NoPossibleOwner,
            (_, Ok(owner)) => match dispute.named(owner.as_ref()) {
                Some(proof) => proof,
                None => {
                    trail.fail(Check::Staleness, owner.as_ref().map_or_else(String::new, describe_pod));
                    return None;
                }
            },
            (_, Err(_)) => return None,
        };
        let owner = match (self.owner.pod(), self.owner_pod()) {
            (Some(name), None) => format!("GET pods/{name}: 404"),
            (_, Some(pod)) => describe_pod(pod),
            (None, None) => "nothing names one".to_owned(),
        };
        trail.pass(Check::OwnerPod, owner);
        trail.pass(Check::Staleness, format!("proof {}: {}", proof.number(), proof.as_str()));
        let whose = self.owner.pod().map_or_else(|| "nobody".to_owned(), PodName::to_string);
        let reason =
            format!("the endpoint of {whose} holds {} and is left over: {}", dispute.ip, proof.as_str());
        let (remedy, withheld, but) = match disconnect(dispute, trail) {
            Ok(target) => (Remedy::DisconnectEndpoint(target), None, String::new()),
            Err((withheld, why)) => {
                (Remedy::None, Some(withheld), format!("; disconnecting is withheld: {why}"))
            }
        };
        let ruling = Ruling::refuse(Verdict::StaleEndpoint, format!("{reason}{but}"));
        Some(Ruling { remedy, withheld, proof: Some(proof), ..ruling })
    }
}

/// The target of a disconnect, or why it is withheld.
fn disconnect(dispute: &Dispute<'_>, trail: &mut Trail) -> Result<DisconnectTarget, (Withheld, String)> {
    match &dispute.obs.ipam_mode {
        Err(why) => {
            trail.unknown(Check::IpamMode, why.to_string());
            return Err((Withheld::IpamModeUnknown, format!("the IPAM mode could not be read: {why}")));
        }
        Ok(mode) if mode.forbids_disconnect() => {
            trail.fail(Check::IpamMode, mode.0.clone());
            return Err((
                Withheld::IpamMode,
                format!("on IPAM mode {} it could remove the new owner's rules", mode.0),
            ));
        }
        Ok(mode) => trail.pass(Check::IpamMode, mode.0.clone()),
    }
    let Some(target) = DisconnectTarget::of(dispute.holder) else {
        trail.fail(Check::DisconnectTarget, "neither cni-attachment-id nor container-id");
        return Err((Withheld::NoIdentifier, "the holder shows no id that names it for good".to_owned()));
    };
    trail.pass(Check::DisconnectTarget, target.as_str());
    Ok(target)
}

fn describe_pod(pod: &Pod) -> String {
    let node = pod.node.as_ref().map_or("no node", |node| node.as_str());
    let ips: Vec<String> = pod.ips.iter().map(IpAddr::to_string).collect();
    let addresses = if ips.is_empty() { "no address".to_owned() } else { ips.join(", ") };
    let deleting = if pod.deleting { ", being deleted" } else { "" };
    let running = if pod.containers.running { ", a container running" } else { "" };
    format!("pod {} is {}{deleting}{running}, on {node}, {addresses}", pod.name, pod.phase.as_str())
}
