//! The proofs of staleness, each from a live read. An unknown is never part of one.

use std::net::IpAddr;

use super::failure::Failure;
use super::holder::Holder;
use super::ids::PodUid;
use super::limits::{Limits, signed};
use super::observation::Observation;
use super::pod::Pod;

/// Why a holder is left over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// 1: the API server has no pod of the owner's name.
    OwnerGone,
    /// 2: the owner has ended, and no container of it runs.
    OwnerEnded,
    /// 3: the pod of that name has another UID than the endpoint, and the address is not that pod's.
    FormerIncarnation,
    /// 4: the pod of that name is bound to another node, or to none.
    BoundElsewhere,
    /// 5: the holder is an earlier sandbox of the wedged pod itself.
    EarlierSandbox,
    /// 6: the holder is nameless, and no pod of this node can be its owner.
    NoPossibleOwner,
}

impl Proof {
    /// Its number in the design.
    pub fn number(self) -> u8 {
        match self {
            Self::OwnerGone => 1,
            Self::OwnerEnded => 2,
            Self::FormerIncarnation => 3,
            Self::BoundElsewhere => 4,
            Self::EarlierSandbox => 5,
            Self::NoPossibleOwner => 6,
        }
    }

    /// What it says, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OwnerGone => "its pod is gone",
            Self::OwnerEnded => "its pod has ended",
            Self::FormerIncarnation => "it is of a former pod of that name",
            Self::BoundElsewhere => "the pod of that name is not on this node",
            Self::EarlierSandbox => "it is an earlier sandbox of the wedged pod",
            Self::NoPossibleOwner => "no pod of this node can be its owner",
        }
    }
}

/// What a proof looks at: one holder of one disputed address.
pub(super) struct Dispute<'a> {
    pub(super) obs: &'a Observation,
    pub(super) limits: &'a Limits,
    pub(super) failure: &'a Failure,
    pub(super) ip: IpAddr,
    pub(super) holder: &'a Holder,
}

impl Dispute<'_> {
    /// Whether the pod is the wedged one.
    pub(super) fn is_wedged(&self, pod: &Pod) -> bool {
        pod.uid == self.obs.pod.uid
    }

    /// Older than the newest failure: by its log, as the sandbox of an older failure, or as the watchdog saw it.
    pub(super) fn is_older(&self) -> bool {
        let Some(failed) = self.failure.at else {
            return false;
        };
        let by_log = self
            .holder
            .oldest_entry()
            .is_some_and(|oldest| failed.duration_since(oldest) >= signed(self.limits.older_margin));
        let by_event = self.holder.container().is_some_and(|id| self.failure.earlier_sandboxes.contains(id));
        let by_sight = self.obs.holder_first_seen.is_some_and(|seen| seen < failed);
        by_log || by_event || by_sight
    }

    /// The holder's container and the refused sandbox are both known, and differ.
    pub(super) fn is_other_sandbox(&self) -> bool {
        match (self.holder.container(), self.failure.sandbox()) {
            (Some(container), Some(sandbox)) => container != sandbox,
            _ => false,
        }
    }

    /// The proof that holds for a named owner, if one does.
    pub(super) fn named(&self, owner: Option<&Pod>) -> Option<Proof> {
        let Some(owner) = owner else {
            return Some(Proof::OwnerGone);
        };
        if !owner.is_live() {
            return Some(Proof::OwnerEnded);
        }
        self.of_live(owner)
    }

    /// Proofs 3 to 5: those that hold while a pod of the owner's name is there.
    pub(super) fn of_live(&self, owner: &Pod) -> Option<Proof> {
        if owner.node.as_ref() != Some(&self.obs.node) {
            return Some(Proof::BoundElsewhere);
        }
        if self.is_wedged(owner) && self.is_other_sandbox() && self.is_older() {
            return Some(Proof::EarlierSandbox);
        }
        let free_of_it = if self.is_wedged(owner) { self.is_older() } else { owner.lists_others(self.ip) };
        (owner.mirror.is_none() && free_of_it && self.has_other_uid(owner))
            .then_some(Proof::FormerIncarnation)
    }

    /// A UID of the endpoint is known, and none that is known is the pod's.
    fn has_other_uid(&self, pod: &Pod) -> bool {
        let uids = self.endpoint_uids(pod);
        !uids.is_empty() && uids.iter().all(|uid| **uid != pod.uid)
    }

    /// The UIDs that Cilium's objects give for this endpoint. None while CiliumEndpoints or slices are unread: what
    /// cannot be read could name the pod.
    pub(super) fn endpoint_uids(&self, pod: &Pod) -> Vec<&PodUid> {
        let (Ok(endpoints), Ok(slices)) = (&self.obs.endpoints, &self.obs.slices) else {
            return Vec::new();
        };
        let container = self.holder.container();
        let by_endpoint = endpoints
            .iter()
            .flatten()
            .filter(|cep| {
                cep.id == Some(self.holder.id) && container.is_some() && cep.container() == container
            })
            .flat_map(|cep| cep.owners.iter().map(|(_, uid)| uid));
        let node = self.obs.cilium_node.iter().flatten().next();
        let by_slice = slices
            .iter()
            .flatten()
            .filter(|entry| entry.name == pod.name && entry.ips.contains(&self.ip))
            .filter(|entry| {
                node.is_some_and(|node| entry.node.is_some_and(|ip| node.addresses.contains(&ip)))
            })
            .filter_map(|entry| entry.uid.as_ref());
        by_endpoint.chain(by_slice).collect()
    }

    /// Proof 6: a pod of this node that may own the nameless holder of this namespace, if there is one.
    pub(super) fn possible_owner<'p>(&self, namespace: &str, pods: &'p [Pod]) -> Option<&'p Pod> {
        let may_own =
            |pod: &&Pod| pod.name.namespace() == namespace && pod.is_live() && !self.cannot_own(pod);
        pods.iter().find(may_own)
    }

    fn cannot_own(&self, pod: &Pod) -> bool {
        if pod.host_network || pod.lists_others(self.ip) {
            return true;
        }
        let started_later = match (pod.started, self.holder.oldest_entry()) {
            (Some(started), Some(oldest)) => {
                pod.mirror.is_none() && started.duration_since(oldest) > signed(self.limits.start_margin)
            }
            _ => false,
        };
        started_later || (self.is_wedged(pod) && self.is_older() && self.is_other_sandbox())
    }
}
