//! What the watchdog itself remembers: holders that it saw, and pods that it moved. Bounded; gone with the process.

use std::collections::HashMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use crate::domain::{ContainerId, Controller, EndpointId, Holder};

/// A sighting or a move older than this is forgotten.
const KEEP: SignedDuration = SignedDuration::from_hours(24);
/// At most this many of each are kept; the oldest goes first.
const MOST: usize = 1024;

type Sighting = (IpAddr, EndpointId, Option<ContainerId>);
type Move = (Controller, IpAddr);

/// The memory of one node's watchdog.
#[derive(Debug, Default)]
pub(super) struct Memory {
    holders: HashMap<Sighting, Timestamp>,
    moved: HashMap<Move, Timestamp>,
}

impl Memory {
    /// When this very holder was first seen on this address.
    pub(super) fn first_seen(&self, ip: IpAddr, holder: &Holder) -> Option<Timestamp> {
        self.holders.get(&sighting(ip, holder)).copied()
    }

    /// A holder was seen.
    pub(super) fn saw(&mut self, ip: IpAddr, holder: &Holder, now: Timestamp) {
        bound(&mut self.holders, now);
        self.holders.entry(sighting(ip, holder)).or_insert(now);
    }

    /// Whether a pod of this controller was moved off this address before: moving it again would only loop.
    pub(super) fn was_moved(&self, controller: &Controller, ip: IpAddr) -> bool {
        self.moved.contains_key(&(controller.clone(), ip))
    }

    /// A pod of this controller is being moved off this address.
    pub(super) fn moving(&mut self, controller: Controller, ip: IpAddr, now: Timestamp) {
        bound(&mut self.moved, now);
        self.moved.insert((controller, ip), now);
    }

    /// It was not moved after all: nothing was sent.
    pub(super) fn not_moved(&mut self, controller: &Controller, ip: IpAddr) {
        self.moved.remove(&(controller.clone(), ip));
    }
}

fn sighting(ip: IpAddr, holder: &Holder) -> Sighting {
    (ip, holder.id, holder.container().cloned())
}

fn bound<K: Clone + Eq + std::hash::Hash>(entries: &mut HashMap<K, Timestamp>, now: Timestamp) {
    entries.retain(|_, at| now.duration_since(*at) < KEEP);
    if entries.len() >= MOST
        && let Some(oldest) = entries.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone())
    {
        entries.remove(&oldest);
    }
}
