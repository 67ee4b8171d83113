//! One act: everything read again, the precondition, the intent on record, the call, and the look afterwards.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;

use super::book::Book;
use super::gates::{HeldBack, by_people, owners_namespace};
use super::memory::Memory;
use super::observe::observe;
use super::options::EngineOptions;
use super::parts::Parts;
use super::wedge::Grounds;
use crate::cilium::{Allocations, CallError, Disconnected};
use crate::domain::{
    ActOutcome, Cause, DisconnectTarget, Finding, IpamMode, Judgement, Lookup, Observation, Pod, Remedy,
};
use crate::kube::{DeleteOutcome, Held};
use crate::ledger::{ActId, Ending, Intent};

/// What an act came to.
#[derive(Debug)]
pub(super) enum Acted {
    /// Nothing was begun: something has changed since the judgement, or at this instant the act could hit another pod.
    Aborted(String),
    /// Nothing was begun: somebody or something says no.
    HeldBack(HeldBack),
    /// It was begun, and is on record under this id.
    Begun(ActId, Sent),
}

/// What came back of a call.
#[derive(Debug)]
pub(super) enum Sent {
    /// It was done: the address is free, or the API server took the deletion. A note on how.
    Done(String),
    /// No answer that says what became of it: it may take effect yet.
    Unanswered(String),
    /// The agent says that the endpoint is gone, and still holds the address by it.
    StillHeld(String),
    /// It is over: it failed, nothing was done, or it shows that it should not have been done.
    Ended(Ending),
}

impl Sent {
    fn failed(why: String) -> Self {
        Self::Ended(Ending::new(ActOutcome::Failed, why))
    }

    /// The object was gone, or another one: nothing was done.
    fn nothing(why: String) -> Self {
        Self::Ended(Ending::new(ActOutcome::Aborted, why))
    }
}

/// Bound on the reads of the second opinion.
const SECOND_OPINION: Duration = Duration::from_secs(20);
/// A Lease must last at least this much longer when the call is made.
const LEASE_LEFT: Duration = Duration::from_secs(20);
/// How often the look-up after a disconnect is tried before the act counts as failed.
const LOOKS_AFTER: u32 = 4;

/// What an act is made with.
pub(super) struct Acting<'a, P> {
    pub(super) parts: &'a P,
    pub(super) memory: &'a Memory,
    pub(super) options: &'a EngineOptions,
    pub(super) book: &'a mut Book,
    pub(super) correlation_id: &'a str,
    /// Told right before the call.
    pub(super) announce: &'a (dyn Fn(Timestamp) + Sync),
}

impl<P: Parts> Acting<'_, P> {
    /// Acts on grounds that two judgements agreed on. Once `stop` ends, no call that changes anything is begun; one that
    /// was is followed to its end.
    pub(super) async fn act(
        &mut self,
        grounds: &Grounds,
        lease: Option<&Held>,
        stop: impl Future<Output = ()>,
    ) -> Acted {
        let limit = self.options.judge_timeout;
        let looking = tokio::select! {
            biased;
            () = stop => return Acted::Aborted("the watchdog is being stopped".to_owned()),
            looked = tokio::time::timeout(limit, self.look_again(grounds)) => looked,
        };
        let (fresh, finding) = match looking {
            Ok(Ok(fresh)) => fresh,
            Ok(Err(No::Changed(why))) => return Acted::Aborted(why),
            Ok(Err(No::HeldBack(why))) => return Acted::HeldBack(why),
            Err(_) => {
                return Acted::Aborted("what the act rests on could not be read again in time".to_owned());
            }
        };
        let (Some(ip), Some(intent)) = (grounds.ip, self.intent(&fresh, &finding)) else {
            return Acted::Aborted("no remedy".to_owned());
        };
        if lease.is_some_and(|held| !held.lasts(LEASE_LEFT)) {
            return Acted::Aborted("the Lease would run out within the act".to_owned());
        }
        // On record before it is begun: whatever happens from here on, a later process knows of it.
        let clock = self.parts.now();
        let id = match self.book.begin(intent, clock) {
            Ok(id) => id,
            Err(bound) => return Acted::HeldBack(HeldBack::by_bound(&bound, clock)),
        };
        (self.announce)(clock);
        let sent = match &grounds.remedy {
            Remedy::DisconnectEndpoint(target) => {
                let began = self.parts.now();
                match self.disconnect(target, ip).await {
                    Sent::Done(note) => {
                        let looking = self.harmed(&fresh, &finding, ip, began);
                        match tokio::time::timeout(SECOND_OPINION, looking).await {
                            Ok(Some(why)) => {
                                let why = format!("{note}; {why}");
                                Sent::Ended(Ending::new(ActOutcome::NotHealed, why))
                            }
                            Ok(None) => Sent::Done(note),
                            Err(_) => Sent::Done(format!("{note}; no second opinion in time")),
                        }
                    }
                    other => other,
                }
            }
            Remedy::DeletePod => delete_pod(self.parts, &fresh).await,
            Remedy::None => Sent::nothing("no remedy".to_owned()),
        };
        Acted::Begun(id, sent)
    }

    fn intent(&self, obs: &Observation, finding: &Finding) -> Option<Intent> {
        let target = match &finding.remedy {
            Remedy::DisconnectEndpoint(target) => Some(target),
            Remedy::DeletePod | Remedy::None => None,
        };
        Some(Intent {
            remedy: finding.remedy.kind()?,
            pod: obs.pod.name.clone(),
            pod_uid: obs.pod.uid.clone(),
            cause: Cause::of(&obs.pod, finding.ip?),
            target: target.map(ToString::to_string),
            container: target.map(|target| target.container().clone()),
            verdict: finding.verdict,
            reason: finding.reason.clone(),
            correlation_id: self.correlation_id.to_owned(),
        })
    }

    /// Reads everything again. Any change aborts: the pod (UID and version), the holder (its container), the owner.
    async fn look_again(&self, grounds: &Grounds) -> Result<(Observation, Finding), No> {
        let parts = self.parts;
        let stored = parts.store().get(&grounds.pod.0).ok_or("the wedged pod is gone")?;
        let pod = match parts.pod(&stored.name).await {
            Ok(Some(pod)) => pod,
            Ok(None) => return Err(format!("GET pods/{}: 404, the wedged pod is gone", stored.name).into()),
            Err(why) => return Err(format!("the wedged pod could not be read again: {why}").into()),
        };
        if pod.uid != grounds.pod.0 {
            return Err(format!("pod {} was replaced by another of its name", pod.name).into());
        }
        let now = parts.now();
        let fresh =
            observe(parts, &self.options.node, pod, now, |ip, holder| self.memory.first_seen(ip, holder))
                .await;
        let Judgement::Wedged(finding) = (self.options.judge)(&fresh, &self.options.limits) else {
            return Err("the pod is no wedge any more".into());
        };
        match Grounds::of(&fresh, &finding) {
            Some(now) if now == *grounds => {}
            Some(_) => {
                return Err(format!("something has changed since the judgement: {}", finding.reason).into());
            }
            None => return Err(format!("the verdict is {} now: {}", finding.verdict, finding.reason).into()),
        }
        let Some(remedy) = finding.remedy.kind() else {
            return Err("no remedy".into());
        };
        let owners = owners_namespace(&fresh, Some(&finding));
        by_people(parts, self.options, remedy, &fresh.pod, owners.as_deref()).await?;
        if let (Some(ip), Some(_)) = (grounds.ip, grounds.target()) {
            not_allocated_elsewhere(parts, &fresh, ip).await?;
        }
        if parts.agent_started().await != fresh.agent_started {
            return Err("the agent was restarted since the look-up".into());
        }
        Ok((fresh, *finding))
    }

    async fn disconnect(&self, target: &DisconnectTarget, ip: IpAddr) -> Sent {
        let note = match self.parts.disconnect(target).await {
            Ok(Disconnected::Removed) => "removed".to_owned(),
            Ok(Disconnected::RemovedWithErrors(errors)) => {
                format!("removed, with {errors} clean-up errors in the agent")
            }
            Ok(Disconnected::NotFound) => "it was gone already".to_owned(),
            // A DELETE that hangs may well succeed: the look-up tells.
            Err(why @ CallError::Timeout(after)) => {
                let note = format!("no answer to the DELETE within {} s", after.as_secs());
                // Nobody said that it is gone: it may still be on its way.
                let on_its_way =
                    |seen: &str| Sent::Unanswered(format!("DELETE endpoint/{target}: {why}; {seen}"));
                return match self.verify(target, ip, note).await {
                    Sent::StillHeld(seen) => on_its_way(&seen),
                    Sent::Ended(ending) => on_its_way(ending.note()),
                    seen => seen,
                };
            }
            Err(why) => return Sent::failed(format!("DELETE endpoint/{target}: {why}")),
        };
        self.verify(target, ip, note).await
    }

    /// A second opinion on the judgement, from reads that it does not rest on: whether the address was a live pod's after
    /// all. Pods that came since do not count.
    async fn harmed(
        &self,
        obs: &Observation,
        finding: &Finding,
        ip: IpAddr,
        began: Timestamp,
    ) -> Option<String> {
        let another = |pod: &Pod| may_be_victim(pod, &obs.pod, began);
        let here = |pod: &Pod| pod.node.as_ref() == Some(&self.options.node) && !pod.lists_others(ip);
        if let Some(name) = &finding.owner
            && let Ok(Some(owner)) = self.parts.pod(name).await
            && another(&owner)
            && here(&owner)
        {
            return Some(format!("but its owner {name} is alive: {}", owner.phase.as_str()));
        }
        let users = self.parts.pods_with_address(ip).await.ok()?;
        let user = users.iter().find(|pod| another(pod) && pod.lists(ip))?;
        Some(format!("but the pod {} is alive and lists {ip}", user.name))
    }

    /// The look-up by address must say that this endpoint does not hold it any more.
    async fn verify(&self, target: &DisconnectTarget, ip: IpAddr, note: String) -> Sent {
        let mut seen = String::new();
        let mut same = false;
        for look in 0..LOOKS_AFTER {
            if look > 0 {
                tokio::time::sleep(Duration::from_secs(u64::from(look))).await;
            }
            let found = self.parts.lookup(ip).await;
            same = matches!(&found, Lookup::Held(_));
            seen = match found {
                Lookup::NotHeld => return Sent::Done(note),
                Lookup::Held(holder) if holder.container().is_some_and(|id| id != target.container()) => {
                    return Sent::Done(format!("{note}; endpoint {} has the address now", holder.id));
                }
                Lookup::Held(_) => "the same endpoint still holds it".to_owned(),
                Lookup::Unknown(why) => why.to_string(),
            };
        }
        let why = format!(
            "DELETE endpoint/{target}: {note}, but the look-up by {ip} does not say that it is gone: {seen}"
        );
        if same { Sent::StillHeld(why) } else { Sent::failed(why) }
    }
}

/// Whether a pod lives and was there when a call for the wedged pod began, by this node's clock.
pub(super) fn may_be_victim(pod: &Pod, wedged: &Pod, began: Timestamp) -> bool {
    // The wedged pod was read right before. Another of its name came since, whatever the clocks say.
    pod.name != wedged.name
        && pod.is_live()
        && !pod.host_network
        && pod.created.is_some_and(|created| created < began)
}

/// Why nothing is begun.
enum No {
    Changed(String),
    HeldBack(HeldBack),
}

impl From<String> for No {
    fn from(why: String) -> Self {
        Self::Changed(why)
    }
}

impl From<&str> for No {
    fn from(why: &str) -> Self {
        Self::Changed(why.to_owned())
    }
}

impl From<HeldBack> for No {
    fn from(why: HeldBack) -> Self {
        Self::HeldBack(why)
    }
}

/// Where Cilium itself allocates, a disconnect frees the address in its IPAM as well: if at this instant another pod
/// than the holder's has it there, that pod would lose it. The agent collects this list every 5 s (1.20), so it can be
/// that old: it tells of an allocation that lasts, and the fresh reads before tell of the rest.
async fn not_allocated_elsewhere<P: Parts>(parts: &P, obs: &Observation, ip: IpAddr) -> Result<(), String> {
    let config =
        parts.config().await.map_err(|why| format!("the agent's configuration could not be read: {why}"))?;
    if config.ipam_mode.as_ref().is_some_and(IpamMode::is_delegated) {
        // Then the teardown of an endpoint removes routing rules by address, its new owner's too.
        if config.uplink_routes {
            let why = "the agent keeps routing rules by address (install-uplink-routes-for-delegated-ipam)";
            return Err(why.to_owned());
        }
        return Ok(());
    }
    let allocations = parts
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

/// Deletes the wedged pod of this observation.
async fn delete_pod<P: Parts>(parts: &P, obs: &Observation) -> Sent {
    let pod = &obs.pod;
    let outcome = parts.delete_pod(&pod.name, &pod.uid, &pod.resource_version).await;
    deleted(outcome, &format!("DELETE pods/{}", pod.name))
}

/// What a deletion came to. A refusal by status says for sure that nothing was done.
pub(super) fn deleted(outcome: DeleteOutcome, what: &str) -> Sent {
    use crate::domain::ReadFailure::Status;
    match outcome {
        DeleteOutcome::Accepted => Sent::Done("the API server took the deletion".to_owned()),
        DeleteOutcome::Gone => Sent::nothing("404: the pod was gone already".to_owned()),
        DeleteOutcome::Changed(why) => Sent::nothing(format!("409: {why}")),
        DeleteOutcome::Failed(why @ Status { status: 400..500, .. }) => {
            Sent::Ended(Ending::new(ActOutcome::Failed, format!("{what}: {why}")).nothing_done())
        }
        DeleteOutcome::Failed(why) => Sent::Unanswered(format!("{what}: {why}")),
    }
}
