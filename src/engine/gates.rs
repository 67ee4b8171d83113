//! Why no act follows though two judgements agree: the settings, the protection, the bounds, and what people asked for.
//!
//! Everything here can only say no. What cannot be read says no as well.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::options::{EngineOptions, Mode};
use super::parts::Parts;
use crate::domain::{Finding, Gate, Lookup, Observation, Pod, RemedyKind, Unreadable, gate};
use crate::kube::{NoLease, Protection};
use crate::ledger::Bound;

/// What holds an act back: a word of a closed set, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldBack {
    pub(super) by: By,
    pub(super) why: String,
    /// When it may come out otherwise, if that is known.
    pub(super) until: Option<Instant>,
}

/// The word for what holds an act back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// The mode is observe.
    Mode,
    /// The remedy is off.
    Remedy,
    /// The namespace is not among those that may be acted in.
    Namespace,
    /// The start-up quiet period, or the one after a restart of the agent.
    Quiet,
    /// The admission fence does not work, or nobody knows.
    Fence,
    /// A label of the pod, its namespace or the owner's namespace.
    OptOut,
    /// A person has paused the whole cluster's watchdogs.
    Paused,
    /// The time for which it was to heal is over.
    HealFor,
    /// The agent's version or IPAM mode is not known well enough.
    Version,
    /// As many acts as may be are in flight in the cluster.
    Lease,
    /// Budgets, breaker, memory: the ledger's word.
    Bound(&'static str),
    /// Something that an act rests on could not be read.
    Unreadable,
}

impl By {
    /// The word of the metric's label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Mode => "observe-mode",
            Self::Remedy => "remedy-off",
            Self::Namespace => "namespace",
            Self::Quiet => "quiet-period",
            Self::Fence => "fence",
            Self::OptOut => "opt-out",
            Self::Paused => "paused",
            Self::HealFor => "heal-for",
            Self::Version => "agent-version",
            Self::Lease => "lease",
            Self::Bound(word) => word,
            Self::Unreadable => "unreadable",
        }
    }
}

/// No act before an instant, and why.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quiet {
    pub(super) until: Instant,
    pub(super) why: &'static str,
}

fn held(by: By, why: impl Into<String>) -> HeldBack {
    HeldBack { by, why: why.into(), until: None }
}

/// What can be said without asking anybody.
pub(super) fn by_settings(
    options: &EngineOptions,
    protection: &Protection,
    remedy: RemedyKind,
    namespace: &str,
    quiet: Quiet,
    now: Instant,
) -> Result<(), HeldBack> {
    if options.mode == Mode::Observe {
        return Err(held(By::Mode, "observe mode: it only tells"));
    }
    if !options.remedies.contains(&remedy) {
        return Err(held(By::Remedy, format!("the remedy {remedy} is off")));
    }
    if let Some(why) = options.namespaces.refuse(remedy, namespace) {
        return Err(held(By::Namespace, why));
    }
    if now < quiet.until {
        return Err(HeldBack { until: Some(quiet.until), ..held(By::Quiet, quiet.why) });
    }
    by_protection(options, protection)
}

fn by_protection(options: &EngineOptions, protection: &Protection) -> Result<(), HeldBack> {
    let (what, why) = match protection {
        Protection::Working => return Ok(()),
        Protection::Missing(why) => ("the self-test failed", why),
        Protection::Unknown(why) => ("the self-test could not be made", why),
    };
    if options.require_fence {
        return Err(held(By::Fence, format!("{what}: {}", why.join("; "))));
    }
    Ok(())
}

impl HeldBack {
    /// A bound of this node. What it waits for mostly comes within seconds, unless it says when.
    pub(super) fn by_bound(bound: &Bound, clock: Timestamp) -> Self {
        let wait = bound.until().and_then(|until| Duration::try_from(until.duration_since(clock)).ok());
        let until = Some(Instant::now() + wait.unwrap_or_default().max(BOUND_PAUSE));
        Self { until, ..held(By::Bound(bound.as_str()), bound.to_string()) }
    }

    /// What can say no could not be asked in time.
    pub(super) fn too_slow(limit: Duration) -> Self {
        held(By::Unreadable, format!("what an act rests on could not be read within {} s", limit.as_secs()))
    }

    /// One act at a time: an earlier one is being followed.
    pub(super) fn under_way() -> Self {
        let until = Some(Instant::now() + BOUND_PAUSE);
        Self { until, ..held(By::Quiet, "an earlier act on this node is still being followed") }
    }

    /// A bound of the cluster.
    pub(super) fn by_lease(why: &NoLease, now: Instant) -> Self {
        let by = if matches!(why, NoLease::AllHeld { .. }) { By::Lease } else { By::Unreadable };
        HeldBack { until: Some(now + LEASE_PAUSE), ..held(by, why.to_string()) }
    }
}

/// Between two looks at a bound.
const BOUND_PAUSE: Duration = Duration::from_secs(5);
/// Between two tries for a Lease.
const LEASE_PAUSE: Duration = Duration::from_secs(10);

/// The namespace that an act against the holder is at the cost of: its owner's, else that of its label.
pub(super) fn owners_namespace(obs: &Observation, finding: Option<&Finding>) -> Option<String> {
    let named = finding.and_then(|finding| finding.owner.as_ref()).map(|owner| owner.namespace().to_owned());
    named.or_else(|| match &obs.lookup {
        Lookup::Held(holder) => holder.namespace_label().map(str::to_owned),
        Lookup::NotHeld | Lookup::Unknown(_) => None,
    })
}

/// What people and the agent say, read live: the pause switch, opt-outs, the agent's version.
pub(super) async fn by_people<P: Parts>(
    parts: &P,
    options: &EngineOptions,
    remedy: RemedyKind,
    pod: &Pod,
    owners: Option<&str>,
) -> Result<(), HeldBack> {
    by_own_namespace(parts, options).await?;
    if pod.opt_out {
        return Err(held(
            By::OptOut,
            format!("the pod {} has the label cilium-leak-healer/opt-out", pod.name),
        ));
    }
    let mut namespaces = vec![pod.name.namespace()];
    namespaces.extend(owners.filter(|owners| *owners != pod.name.namespace()));
    for name in namespaces {
        let facts = parts.namespace(name).await.map_err(|why| unreadable(&why))?;
        if facts.is_some_and(|facts| facts.opt_out) {
            let why = format!("the namespace {name} has the label cilium-leak-healer/opt-out");
            return Err(held(By::OptOut, why));
        }
    }
    by_version(parts, options, remedy).await
}

/// The pause switch, an annotation of the watchdog's own namespace; and that namespace's age, where it bounds the healing.
pub(super) async fn by_own_namespace<P: Parts>(parts: &P, options: &EngineOptions) -> Result<(), HeldBack> {
    let own = &options.own_namespace;
    match parts.namespace(own).await.map_err(|why| unreadable(&why))? {
        None => {
            let why = format!(
                "GET namespaces/{own}: 404, so nobody could pause it; --own-namespace names the watchdog's own namespace"
            );
            Err(held(By::Unreadable, why))
        }
        Some(facts) => match facts.paused {
            None => by_age(options, facts.created, parts.now()),
            Some(why) if why.is_empty() => Err(held(By::Paused, format!("paused on the namespace {own}"))),
            Some(why) => Err(held(By::Paused, format!("paused on the namespace {own}: {why}"))),
        },
    }
}

/// A watchdog that came with a test installation must not become a part of production unnoticed.
fn by_age(options: &EngineOptions, made: Option<Timestamp>, now: Timestamp) -> Result<(), HeldBack> {
    let (Some(limit), own) = (options.heal_for, &options.own_namespace) else {
        return Ok(());
    };
    let Some(made) = made else {
        return Err(held(By::Unreadable, format!("nobody knows how old the namespace {own} is")));
    };
    match Duration::try_from(now.duration_since(made)) {
        Ok(age) if age >= limit => {
            let why = format!(
                "the namespace {own} is from {made:.0}, and --heal-for={}s is over: it only tells",
                limit.as_secs()
            );
            Err(held(By::HealFor, why))
        }
        // One that lies ahead is a clock that differs.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Versions and IPAM modes of Cilium that nobody has looked at are left alone, unless told otherwise.
async fn by_version<P: Parts>(
    parts: &P,
    options: &EngineOptions,
    remedy: RemedyKind,
) -> Result<(), HeldBack> {
    if options.unknown_versions {
        return Ok(());
    }
    let mode = parts.ipam_mode().await.map_err(|why| unreadable(&why))?;
    match gate(&parts.version().await, &mode) {
        Gate::NoDisconnect(why) if remedy == RemedyKind::DisconnectEndpoint => Err(held(By::Version, why)),
        Gate::Heal | Gate::NoDisconnect(_) => Ok(()),
        Gate::Observe(why) => Err(held(By::Version, why)),
    }
}

fn unreadable(why: &Unreadable) -> HeldBack {
    held(By::Unreadable, why.to_string())
}
