//! One act: everything read again, the precondition, the call, and the look afterwards.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;

use super::live::Live;
use super::memory::Memory;
use super::observe::{Sources, observe};
use super::options::EngineOptions;
use super::wedge::Grounds;
use crate::cilium::{Allocations, CallError, Disconnected};
use crate::domain::{DisconnectTarget, IpamMode, Lookup, Observation, Remedy, judge};
use crate::kube::DeleteOutcome;

/// What an act came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Acted {
    /// The endpoint is gone from the registry; a note on how.
    Disconnected(String),
    /// The API server took the pod's deletion.
    PodDeleted,
    /// Nothing was done: something has changed since the judgement, or at this instant the act could hit another pod.
    Aborted(String),
    /// It was tried, and did not work, or nobody knows.
    Failed(String),
}

/// How often the look-up after a disconnect is tried before the act counts as failed.
const LOOKS_AFTER: u32 = 4;

/// Acts on grounds that two judgements agreed on. Once `stop` ends, no call that changes anything is begun; one that was
/// is followed to its end.
pub(super) async fn act(
    live: &Live,
    memory: &Memory,
    options: &EngineOptions,
    grounds: &Grounds,
    stop: impl Future<Output = ()>,
) -> Acted {
    let looking = tokio::select! {
        biased;
        () = stop => return Acted::Aborted("the watchdog is being stopped".to_owned()),
        looked = tokio::time::timeout(options.judge_timeout, look_again(live, memory, options, grounds)) => looked,
    };
    let fresh = match looking {
        Ok(Ok(fresh)) => fresh,
        Ok(Err(why)) => return Acted::Aborted(why),
        Err(_) => return Acted::Aborted("what the act rests on could not be read again in time".to_owned()),
    };
    match (&grounds.remedy, grounds.ip) {
        (Remedy::DisconnectEndpoint(target), Some(ip)) => disconnect(live, target, ip).await,
        (Remedy::DeletePod, Some(_)) => delete_pod(live, &fresh).await,
        _ => Acted::Aborted("no remedy".to_owned()),
    }
}

/// Reads everything again. Any change aborts: the pod (UID and version), the holder (its container), the owner.
async fn look_again(
    live: &Live,
    memory: &Memory,
    options: &EngineOptions,
    grounds: &Grounds,
) -> Result<Observation, String> {
    let stored = live.store.get(&grounds.pod.0).ok_or("the wedged pod is gone")?;
    let pod = match live.pod(&stored.name).await {
        Ok(Some(pod)) => pod,
        Ok(None) => return Err(format!("GET pods/{}: 404, the wedged pod is gone", stored.name)),
        Err(why) => return Err(format!("the wedged pod could not be read again: {why}")),
    };
    if pod.uid != grounds.pod.0 {
        return Err(format!("pod {} was replaced by another of its name", pod.name));
    }
    let fresh =
        observe(live, &options.node, pod, Timestamp::now(), |ip, holder| memory.first_seen(ip, holder)).await;
    let judgement = judge(&fresh, &options.limits);
    let Some(finding) = judgement.finding() else {
        return Err("the pod is no wedge any more".to_owned());
    };
    match Grounds::of(&fresh, finding) {
        Some(now) if now == *grounds => {
            if let (Some(ip), Some(_)) = (grounds.ip, grounds.target()) {
                not_allocated_elsewhere(live, &fresh, ip).await?;
            }
            if live.agent_started().await != fresh.agent_started {
                return Err("the agent was restarted since the look-up".to_owned());
            }
            Ok(fresh)
        }
        Some(_) => Err(format!("something has changed since the judgement: {}", finding.reason)),
        None => Err(format!("the verdict is {} now: {}", finding.verdict, finding.reason)),
    }
}

async fn disconnect(live: &Live, target: &DisconnectTarget, ip: IpAddr) -> Acted {
    let note = match live.agent.disconnect(target).await {
        Ok(Disconnected::Removed) => "removed".to_owned(),
        Ok(Disconnected::RemovedWithErrors(errors)) => {
            format!("removed, with {errors} clean-up errors in the agent")
        }
        Ok(Disconnected::NotFound) => "it was gone already".to_owned(),
        // A DELETE that hangs may well succeed: the look-up tells.
        Err(CallError::Timeout(after)) => format!("no answer to the DELETE within {} s", after.as_secs()),
        Err(why) => return Acted::Failed(format!("DELETE endpoint/{target}: {why}")),
    };
    verify(live, target, ip, note).await
}

/// The look-up by address must say that this endpoint does not hold it any more.
async fn verify(live: &Live, target: &DisconnectTarget, ip: IpAddr, note: String) -> Acted {
    let mut seen = String::new();
    for look in 0..LOOKS_AFTER {
        if look > 0 {
            tokio::time::sleep(Duration::from_secs(u64::from(look))).await;
        }
        seen = match live.lookup(ip).await {
            Lookup::NotHeld => return Acted::Disconnected(note),
            Lookup::Held(holder) if holder.container().is_some_and(|id| id != target.container()) => {
                return Acted::Disconnected(format!("{note}; endpoint {} has the address now", holder.id));
            }
            Lookup::Held(_) => "the same endpoint still holds it".to_owned(),
            Lookup::Unknown(why) => why.to_string(),
        };
    }
    Acted::Failed(format!(
        "DELETE endpoint/{target}: {note}, but the look-up by {ip} does not say that it is gone: {seen}"
    ))
}

/// Where Cilium itself allocates, a disconnect frees the address in its IPAM as well: if at this instant another pod
/// than the holder's has it there, that pod would lose it. The agent collects this list every 5 s (1.20), so it can be
/// that old: it tells of an allocation that lasts, and the fresh reads before tell of the rest.
async fn not_allocated_elsewhere(live: &Live, obs: &Observation, ip: IpAddr) -> Result<(), String> {
    let config =
        live.config().await.map_err(|why| format!("the agent's configuration could not be read: {why}"))?;
    if config.ipam_mode.as_ref().is_some_and(IpamMode::is_delegated) {
        return Ok(());
    }
    let allocations = live
        .agent
        .allocations()
        .await
        .map_err(|why| format!("the agent's allocations could not be read: {why}"))?;
    if allocations.chaining.clone().or(config.chaining_mode).is_some_and(|mode| mode != "none") {
        return Ok(());
    }
    // The router's address is always allocated: an empty list is no answer.
    if allocations.is_empty() {
        return Err("the agent's list of allocations is empty".to_owned());
    }
    let holders = match &obs.lookup {
        Lookup::Held(holder) => {
            holder.owner(obs.endpoints.iter().flatten().flatten().cloned().collect::<Vec<_>>().as_slice())
        }
        Lookup::NotHeld | Lookup::Unknown(_) => return Err("the look-up gave no holder".to_owned()),
    };
    // The wedged pod's own allocation is its sandbox on the way, also where the holder's former pod had the same name:
    // only what the agent restored at its start is surely the former one's.
    let is_wedged = |owner: &str| {
        !Allocations::is_restored(owner) && Allocations::pod(owner).as_ref() == Some(&obs.pod.name)
    };
    let is_holders = |owner: &&String| {
        !is_wedged(owner) && Allocations::pod(owner).is_some_and(|pod| Some(&pod) == holders.pod())
    };
    let other = allocations.owners(ip).iter().find(|owner| !is_holders(owner));
    other.map_or(Ok(()), |owner| {
        Err(format!("the agent's IPAM has {ip} allocated to {owner:?} at this instant"))
    })
}

async fn delete_pod(live: &Live, obs: &Observation) -> Acted {
    let pod = &obs.pod;
    match live.reader.delete_pod(&pod.name, &pod.uid, &pod.resource_version).await {
        DeleteOutcome::Accepted => Acted::PodDeleted,
        DeleteOutcome::Gone => Acted::Aborted("404: the pod was gone already".to_owned()),
        DeleteOutcome::Changed(why) => Acted::Aborted(format!("409: {why}")),
        DeleteOutcome::Failed(why) => Acted::Failed(format!("DELETE pods/{}: {why}", pod.name)),
    }
}
