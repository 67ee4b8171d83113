//! The verdict table: an observation in, a judgement with its evidence out. The first row that applies decides.

mod clock;
mod ruling;
mod wedge;

use std::net::IpAddr;

use super::evidence::Check;
use super::failure::{Failure, NewestFailure, SandboxEvents};
use super::holder::{Holder, OwnerName};
use super::ids::PodName;
use super::limits::Limits;
use super::observation::{Lookup, Observation, Unreadable};
use super::proof::Dispute;
use super::verdict::{Judgement, NotWedged, Remedy, Verdict, Withheld};
use clock::Clock;
use ruling::{Ruling, Trail};
use wedge::Wedge;

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
        let times = if failure.count == 1 { "once".to_owned() } else { format!("{} times", failure.count) };
        let seen = format!("IP {} is already in use, counted {times}", addresses.join(" and IP "));
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
    let told = |then: &str| {
        Ruling::refuse(Verdict::ReservedHolder, format!("{what}: two IPAMs hand out one range; {then}"))
    };
    if let Some(why) = clock.obs.pod.not_movable() {
        trail.fail(Check::MovablePod, why);
        return Some(Ruling {
            withheld: Some(Withheld::NotMovable),
            ..told(&format!("the pod is not moved: {why}"))
        });
    }
    trail.pass(Check::MovablePod, "Pending, never ran, has a controller");
    if let Some(blocked) = clock.blocks_moving(trail) {
        let ruling = told(&format!("the pod is not moved now: {}", blocked.reason));
        return Some(Ruling { withheld: Some(Withheld::Timing), ..ruling }.until(blocked.look_again));
    }
    Some(Ruling { remedy: Remedy::DeletePod, ..told("the pod may be moved once") })
}
