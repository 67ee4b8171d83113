//! The rows over a holder: what is known of it, whose it is, and whether that pod is alive.

use std::net::IpAddr;

use super::clock::clock_time;
use super::ruling::{Ruling, Trail};
use crate::domain::evidence::Check;
use crate::domain::holder::{EndpointState, OwnerName};
use crate::domain::ids::PodName;
use crate::domain::limits::signed;
use crate::domain::pod::Pod;
use crate::domain::proof::{Dispute, Proof};
use crate::domain::verdict::{DisconnectTarget, Remedy, Verdict, Withheld};

/// A dispute with the holder's owner.
pub(super) struct Wedge<'a> {
    pub(super) dispute: Dispute<'a>,
    pub(super) owner: OwnerName,
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
        let pods =
            obs.address_users.iter().flatten().chain(obs.node_pods.iter().flatten()).chain(self.owner_pod());
        pods.filter(|pod| !self.dispute.is_wedged(pod))
    }

    pub(super) fn holder_settling(&self, trail: &mut Trail) -> Option<Ruling> {
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

    pub(super) fn insufficient_evidence(&self, trail: &mut Trail) -> Option<Ruling> {
        let refuse = |reason: String| Some(Ruling::refuse(Verdict::InsufficientEvidence, reason));
        let Dispute { obs, ip, holder, .. } = self.dispute;
        if let Some(why) = &obs.events.unreadable {
            return refuse(format!("not all Events of the pod could be read: {why}"));
        }
        match &obs.cilium_node {
            Ok(Some(_)) => {
                trail.pass(Check::CiliumNode, format!("{ip} is none of Cilium's own addresses on this node"));
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
            return refuse(format!(
                "nobody knows whether the live pod {} has {ip}: it lists an address that is none",
                pod.name
            ));
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

    pub(super) fn unmanaged_holder(&self, trail: &mut Trail) -> Option<Ruling> {
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

    pub(super) fn shared_by_design(&self, trail: &mut Trail) -> Option<Ruling> {
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

    pub(super) fn live_duplicate(&self, trail: &mut Trail) -> Option<Ruling> {
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

    pub(super) fn stale_endpoint(&self, trail: &mut Trail) -> Option<Ruling> {
        let dispute = &self.dispute;
        let proof = match (&self.owner, &dispute.obs.owner) {
            // `insufficient-evidence` took every nameless holder that a pod may own.
            (OwnerName::Nameless, _) => Proof::NoPossibleOwner,
            (_, Ok(owner)) => {
                let Some(proof) = dispute.named(owner.as_ref()) else {
                    trail.fail(Check::Staleness, owner.as_ref().map_or_else(String::new, describe_pod));
                    return None;
                };
                proof
            }
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
