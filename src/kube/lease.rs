//! How many acts are in flight in the cluster: each holds one of a few Leases, which a person made beforehand.
//!
//! It must not know what an act is. A Lease of another node counts as left behind only where this very process saw its
//! record unchanged for as long as it is valid: clocks of two nodes are never compared.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::reader::{Reader, undecodable};
use crate::clock::WallClock;
use crate::domain::{NodeName, PodName, Read, ReadFailure, Unreadable};

/// No act lasts as long as this: a Lease that says so is not believed.
const LONGEST: Duration = Duration::from_hours(1);

/// The Leases of the cluster, as one node uses them.
pub struct Leases {
    reader: Arc<Reader>,
    namespace: String,
    names: Vec<String>,
    holder: NodeName,
    ttl: Duration,
    clock: WallClock,
    /// Records of others by the Lease's name: their resourceVersion, and since when this process has seen it.
    seen: Mutex<HashMap<String, (String, Instant)>>,
    /// One at a time in this process: its own Lease would be given to each who asks.
    one: Arc<Semaphore>,
}

/// A Lease that is held. Dropped without [`Leases::release`] it runs out, or the next [`Leases::acquire`] finds it.
#[derive(Debug)]
pub struct Held {
    name: String,
    record: Lease,
    until: Instant,
    _one: OwnedSemaphorePermit,
}

impl Held {
    /// The Lease's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Until when no other node takes it, on the monotonic clock: begin nothing that may last longer.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// One that no API server knows of, for tests of those who act.
    #[cfg(test)]
    pub(crate) fn made(until: Instant) -> Self {
        let one = Arc::new(Semaphore::new(1)).try_acquire_owned();
        Self { name: "made".to_owned(), record: Lease::default(), until, _one: one.expect("a permit") }
    }

    /// Whether it is valid for that much longer.
    pub fn lasts(&self, another: Duration) -> bool {
        Instant::now() + another <= self.until
    }
}

/// Why no Lease was got. Nothing may be done then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoLease {
    /// Other nodes have them all.
    #[error("all Leases are held, by {}", by.join(", "))]
    AllHeld {
        /// Their holders, each once.
        by: Vec<String>,
    },
    /// Not one of them exists.
    #[error("no Lease named {0} exists: kubectl apply -f rbac/heal.yaml makes them")]
    Missing(String),
    /// The API server gave no answer. After this one may be held: the next `acquire` finds it, else it runs out.
    #[error(transparent)]
    Unreadable(Unreadable),
}

/// What a Lease's record says to this node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Claim {
    /// It is this node's own, from a life before or from an answer that got lost.
    Ours,
    /// Nobody has it.
    Free,
    /// Another node has it, and let it run out before our eyes.
    RanOut(String),
    /// Another node has it.
    Held(String),
}

impl Leases {
    /// `names` are those of Leases in `namespace` that exist; `holder` is this node, `ttl` how long a Lease is valid;
    /// `clock` is for people who read it.
    pub fn new(
        reader: Arc<Reader>,
        namespace: String,
        names: Vec<String>,
        holder: NodeName,
        ttl: Duration,
        clock: WallClock,
    ) -> Self {
        // The API server refuses a duration of no seconds.
        let ttl = ttl.max(Duration::from_secs(1));
        Self {
            reader,
            namespace,
            names,
            holder,
            ttl,
            clock,
            seen: Mutex::default(),
            one: Arc::new(Semaphore::new(1)),
        }
    }

    /// Takes a Lease: this node's own, else a free one, else one that ran out. It makes at most two requests a Lease,
    /// and ends with the first that fails. While one is held here, it gives no other.
    pub async fn acquire(&self) -> Result<Held, NoLease> {
        let Ok(permit) = Arc::clone(&self.one).try_acquire_owned() else {
            return Err(NoLease::AllHeld { by: vec![format!("{}, in this process", self.holder)] });
        };
        let mut records = Vec::new();
        for name in self.in_turn() {
            match self.read(name).await.map_err(NoLease::Unreadable)? {
                Some(record) => records.push((self.claim(name, &record), name, record)),
                None => self.forget(name),
            }
        }
        if records.is_empty() {
            return Err(NoLease::Missing(self.names.join(" or ")));
        }
        // All are read first, so that a node that has one never takes a second. A stable sort keeps the turns.
        records.sort_by_key(|(claim, ..)| match claim {
            Claim::Ours => 0,
            Claim::Free => 1,
            Claim::RanOut(_) => 2,
            Claim::Held(_) => 3,
        });
        let mut by = Vec::new();
        for (claim, name, record) in records {
            match claim {
                Claim::Held(holder) => by.push(holder),
                Claim::Ours | Claim::Free | Claim::RanOut(_) => {
                    let from = Instant::now();
                    match self.write(name, self.taken(record)).await.map_err(NoLease::Unreadable)? {
                        Some(record) => {
                            self.forget(name);
                            let until = from + self.ttl;
                            return Ok(Held { name: name.to_owned(), record, until, _one: permit });
                        }
                        None => by.push("a node that was quicker".to_owned()),
                    }
                }
            }
        }
        by.sort();
        by.dedup();
        Err(NoLease::AllHeld { by })
    }

    /// Gives a Lease back, if it still is what this node made of it.
    pub async fn release(&self, held: Held) -> Read<()> {
        let Held { name, record, _one, .. } = held;
        let acquired = record.spec.as_ref().and_then(|spec| spec.acquire_time.clone());
        if self.write(&name, freed(record)).await?.is_some() {
            return Ok(());
        }
        // Somebody wrote to it since: another holder, or only a label.
        let Some(now) = self.read(&name).await? else { return Ok(()) };
        let same = now.spec.as_ref().is_some_and(|spec| {
            spec.holder_identity.as_deref() == Some(self.holder.as_str()) && spec.acquire_time == acquired
        });
        if same && self.write(&name, freed(now)).await?.is_none() {
            let what = format!("PUT leases/{}/{name}", self.namespace);
            let why = ReadFailure::Status { status: 409, message: "it keeps changing".to_owned() };
            return Err(Unreadable { what, why });
        }
        Ok(())
    }

    /// The names, beginning with another one on each node, so that they do not all ask for the first.
    fn in_turn(&self) -> impl Iterator<Item = &str> {
        let many = u64::try_from(self.names.len()).unwrap_or(1);
        let first = usize::try_from(self.holder.spread(many)).unwrap_or(0);
        self.names.iter().cycle().skip(first).take(self.names.len()).map(String::as_str)
    }

    async fn read(&self, name: &str) -> Read<Option<Lease>> {
        let what = format!("GET leases/{}/{name}", self.namespace);
        let full =
            PodName::new(&self.namespace, name).map_err(|error| undecodable(&what, &error.to_string()))?;
        let lease = self.reader.get_namespaced::<Lease>(&full).await?;
        // Without a version a PUT would overwrite whatever is there.
        let versioned =
            |lease: &Lease| lease.metadata.resource_version.as_ref().is_some_and(|it| !it.is_empty());
        match lease {
            Some(lease) if !versioned(&lease) => Err(undecodable(&what, "it has no resourceVersion")),
            other => Ok(other),
        }
    }

    /// Replaces a record in the version it was read in; `None`: it has changed or gone.
    async fn write(&self, name: &str, record: Lease) -> Read<Option<Lease>> {
        let api: Api<Lease> = Api::namespaced(self.reader.client(), &self.namespace);
        let what = format!("PUT leases/{}/{name}", self.namespace);
        let params = PostParams::default();
        match self.reader.bounded(&what, api.replace(name, &params, &record)).await {
            Ok(record) => Ok(Some(record)),
            Err(Unreadable { why: ReadFailure::Status { status: 404 | 409, .. }, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn claim(&self, name: &str, record: &Lease) -> Claim {
        let spec = record.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.clone()).filter(|holder| !holder.is_empty());
        let Some(holder) = holder else {
            self.forget(name);
            return Claim::Free;
        };
        if holder == self.holder.as_str() {
            self.forget(name);
            return Claim::Ours;
        }
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|it| u64::try_from(it).ok());
        let valid = seconds.filter(|seconds| *seconds > 0).map_or(self.ttl, Duration::from_secs);
        // Whoever writes a huge one must not hold all others up for ever.
        let valid = valid.min(LONGEST);
        let version = record.metadata.resource_version.clone().unwrap_or_default();
        if self.seen_for(name, version) >= valid { Claim::RanOut(holder) } else { Claim::Held(holder) }
    }

    /// How long this process has seen a Lease in this version.
    fn seen_for(&self, name: &str, version: String) -> Duration {
        // A poisoned lock only means that a thread panicked; each write leaves a whole entry behind.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match seen.get(name) {
            Some((known, since)) if *known == version => now.duration_since(*since),
            _ => {
                seen.insert(name.to_owned(), (version, now));
                Duration::ZERO
            }
        }
    }

    fn forget(&self, name: &str) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn taken(&self, mut record: Lease) -> Lease {
        let now = MicroTime(self.clock.now());
        let spec = record.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(self.holder.as_str()) {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        // Rounded up: others wait at least as long as this node thinks it has it.
        let seconds = self.ttl.as_secs() + u64::from(self.ttl.subsec_nanos() > 0);
        spec.holder_identity = Some(self.holder.as_str().to_owned());
        spec.lease_duration_seconds = Some(i32::try_from(seconds).unwrap_or(i32::MAX));
        spec.acquire_time = Some(now.clone());
        spec.renew_time = Some(now);
        record
    }
}

/// The record with no holder. Absent and not empty: the API server need not take an empty one.
fn freed(mut record: Lease) -> Lease {
    let transitions = record.spec.take().and_then(|spec| spec.lease_transitions);
    record.spec = Some(LeaseSpec { lease_transitions: transitions, ..LeaseSpec::default() });
    record
}
