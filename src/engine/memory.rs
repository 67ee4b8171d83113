//! What the watchdog itself saw: holders, and since when. Bounded; gone with the process, which can only make it more careful.

use std::collections::HashMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use crate::domain::{ContainerId, EndpointId, Holder};

/// A sighting older than this is forgotten.
const KEEP: SignedDuration = SignedDuration::from_hours(24);
/// At most this many are kept; the oldest goes first.
const MOST: usize = 1024;

type Sighting = (IpAddr, EndpointId, Option<ContainerId>);

/// The memory of one node's watchdog.
#[derive(Debug, Default)]
pub(super) struct Memory {
    holders: HashMap<Sighting, Timestamp>,
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
