//! The remedy `restart-agent`: deleting the pod of this node's own agent, where one of the two histories allows it.
//!
//! The history, the preconditions and all bounds are asked right before; afterwards it is followed until the wedged pod has
//! its sandbox, or its time is over.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::act::{Sent, deleted};
use super::gates::{By, HeldBack, by_own_namespace, by_people, by_settings};
use super::parts::Parts;
use super::subject::Subject;
use super::wedge::{Wedge, has_sandbox};
use super::{Engine, is_stopping, stopped};
use crate::domain::{
    ActOutcome, AgentPod, Cause, Judgement, Lookup, Observation, PodUid, RemedyKind, RestartCase,
    RestartFacts, RestartKind, Verdict, may_restart,
};
use crate::kube::Held;
use crate::ledger::{ActId, Ending, Intent};

const REMEDY: RemedyKind = RemedyKind::RestartAgent;
/// A Lease must last at least this much longer when the call is made.
const LEASE_LEFT: Duration = Duration::from_mins(1);

/// A restart whose effect is waited for.
#[derive(Debug)]
pub(super) struct Restarting {
    pub(super) id: ActId,
    /// The pod that it is for.
    pub(super) wedged: Subject,
    /// The agent's pod that was deleted.
    pub(super) agent: PodUid,
    /// It should show before this.
    pub(super) deadline: Instant,
    pub(super) lease: Held,
}

impl<P: Parts> Engine<P> {
    /// A history allows a restart: make it, or say why not. Whether this takes the place of any other act.
    pub(super) async fn consider_restart(
        &mut self,
        uid: &PodUid,
        case: &RestartCase,
        obs: &Observation,
        judgement: &Judgement,
        stop: &watch::Receiver<bool>,
    ) -> bool {
        let against = Cause::of(&obs.pod, case.ip);
        let limit = self.options.judge_timeout;
        let permit = tokio::time::timeout(limit, self.permit_restart(&against, obs)).await;
        self.health.beat();
        let lease = match permit.unwrap_or_else(|_| Err(HeldBack::too_slow(limit))) {
            Ok(lease) => lease,
            Err(why) => {
                self.hold_back(uid, judgement, REMEDY, &why);
                // What passes soon is worth waiting for: another DELETE would begin the history anew.
                return matches!(why.by, By::Lease | By::Quiet);
            }
        };
        let looking = tokio::select! {
            biased;
            () = stopped(stop) => Err("the watchdog is being stopped".to_owned()),
            found = tokio::time::timeout(self.options.judge_timeout, self.agent_to_restart(case, obs)) => {
                found.unwrap_or_else(|_| Err("what a restart rests on could not be read in time".to_owned()))
            }
        };
        let looking = match looking {
            Ok(_) if !lease.lasts(LEASE_LEFT) => Err("the Lease would run out within the act".to_owned()),
            looked => looked,
        };
        let agent = match looking {
            Ok(agent) => agent,
            Err(why) => {
                self.to_release.push((REMEDY, lease));
                self.aborted(uid, REMEDY, &why);
                return true;
            }
        };
        if let Err(why) = by_own_namespace(&self.parts, &self.options).await {
            self.to_release.push((REMEDY, lease));
            self.hold_back(uid, judgement, REMEDY, &why);
            return true;
        }
        self.health.beat();
        if is_stopping(stop) {
            self.to_release.push((REMEDY, lease));
            return true;
        }
        self.restart(uid, case, obs, judgement, agent, lease).await;
        true
    }

    async fn permit_restart(&mut self, cause: &Cause, obs: &Observation) -> Result<Held, HeldBack> {
        let now = Instant::now();
        let namespace = obs.pod.name.namespace();
        by_settings(&self.options, &self.protection.borrow(), REMEDY, namespace, self.quiet, now)?;
        if self.others_wait_for(REMEDY) || self.wedges.values().any(Wedge::is_verifying) {
            return Err(HeldBack::under_way());
        }
        let clock = self.parts.now();
        self.book
            .check(REMEDY, cause, &obs.pod.uid, clock)
            .map_err(|bound| HeldBack::by_bound(&bound, clock))?;
        by_people(&self.parts, &self.options, REMEDY, &obs.pod, None).await?;
        self.parts.acquire(REMEDY).await.map_err(|why| HeldBack::by_lease(&why, now))
    }

    /// The agent's pod, if every precondition holds and the agent is still at odds with itself.
    pub(super) async fn agent_to_restart(
        &self,
        case: &RestartCase,
        obs: &Observation,
    ) -> Result<AgentPod, String> {
        let parts = &self.parts;
        match parts.pod(&obs.pod.name).await {
            Ok(Some(pod)) if pod.uid == obs.pod.uid && pod.opt_out => {
                return Err("the wedged pod has opted out".to_owned());
            }
            Ok(Some(pod)) if pod.uid == obs.pod.uid && pod.not_waiting().is_none() => {}
            Ok(_) => return Err("the wedged pod is gone, or waits no more".to_owned()),
            Err(why) => return Err(format!("the wedged pod could not be read again: {why}")),
        }
        let agents = parts.agent_pods().await;
        let agent = agents.as_ref().ok().and_then(|agents| agents.first());
        let rollout = match agent.and_then(|agent| Some((agent.name.namespace(), agent.daemon_set.as_ref()?)))
        {
            Some((namespace, (name, _))) => parts.rollout(namespace, name).await,
            None => Ok(None),
        };
        let node_state = parts.node().await;
        let namespace_opted_out = match agent {
            Some(agent) => parts
                .namespace(agent.name.namespace())
                .await
                .map(|facts| facts.is_some_and(|facts| facts.opt_out)),
            None => Ok(false),
        };
        // What the case is about last; the agent's start after it, so that a restart in between shows.
        let holds = match (case.kind, parts.lookup(case.ip).await, &obs.lookup) {
            (RestartKind::PhantomHolder, Lookup::Held(now), Lookup::Held(then)) => {
                now.id == then.id && now.container() == then.container()
            }
            (RestartKind::HiddenHolder, Lookup::NotHeld, _) => true,
            _ => false,
        };
        if !holds {
            return Err("the agent gives another answer now".to_owned());
        }
        let facts = RestartFacts {
            node: self.options.node.clone(),
            node_state,
            agent_started: parts.agent_started().await,
            agents,
            rollout,
            namespace_opted_out,
        };
        may_restart(case, &facts).cloned()
    }

    async fn restart(
        &mut self,
        uid: &PodUid,
        case: &RestartCase,
        obs: &Observation,
        judgement: &Judgement,
        agent: AgentPod,
        lease: Held,
    ) {
        let Some(wedge) = self.wedges.get(uid) else {
            return self.to_release.push((REMEDY, lease));
        };
        let reason = format!("{}: {}", case.kind, case.evidence.join("; "));
        let intent = Intent {
            remedy: REMEDY,
            pod: obs.pod.name.clone(),
            pod_uid: uid.clone(),
            cause: Cause::of(&obs.pod, case.ip),
            target: Some(agent.uid.to_string()),
            container: None,
            verdict: wedge.told_verdict().unwrap_or(Verdict::NotHeld),
            reason: reason.clone(),
            correlation_id: wedge.correlation_id.clone(),
        };
        let id = match self.book.begin(intent, self.parts.now()) {
            Ok(id) => id,
            Err(bound) => {
                self.to_release.push((REMEDY, lease));
                let why = HeldBack::by_bound(&bound, self.parts.now());
                return self.hold_back(uid, judgement, REMEDY, &why);
            }
        };
        let subject = wedge.subject();
        let target = agent.name.to_string();
        self.tell.acting(&subject, REMEDY, Some(&target), &reason, self.parts.now());
        let outcome = self.parts.delete_pod(&agent.name, &agent.uid, &agent.resource_version).await;
        let (now, clock) = (Instant::now(), self.parts.now());
        let taken = match deleted(outcome, &format!("DELETE pods/{}", agent.name)) {
            Sent::Done(note) => {
                self.book.sent(id, &note, clock);
                Ok(("accepted", note))
            }
            // Followed as if it were done: a restart that takes effect late must not come as a surprise.
            Sent::Unanswered(why) => Ok(("unanswered", why)),
            Sent::Ended(ending) => Err(ending),
            Sent::StillHeld(why) => Err(Ending::new(ActOutcome::Failed, why)),
        };
        let (step, note) = match taken {
            Ok(taken) => taken,
            Err(ending) => {
                self.to_release.push((REMEDY, lease));
                self.conclude(id, &subject, REMEDY, &ending);
                if let Some(wedge) = self.wedges.get_mut(uid) {
                    wedge.retry_later(now);
                }
                return;
            }
        };
        self.keep_quiet(self.options.restart_quiet);
        self.tell.step(&subject, REMEDY, step, &note, clock);
        if let Some(wedge) = self.wedges.get_mut(uid) {
            wedge.hold(now, None);
        }
        self.restarting = Some(Restarting {
            id,
            wedged: subject,
            agent: agent.uid,
            deadline: now + self.options.restart_timeout,
            lease,
        });
    }

    /// Whether the restart has shown its effect.
    pub(super) fn follow_restart(&mut self) {
        let now = Instant::now();
        let Some(restarting) = &self.restarting else {
            return;
        };
        let store = self.parts.store();
        let same_agent = store.get(&restarting.agent).is_some_and(|agent| !agent.deleting);
        let wedged = store.get(&restarting.wedged.uid);
        let (outcome, note) = match &wedged {
            _ if same_agent && now < restarting.deadline => return,
            _ if same_agent => (ActOutcome::NotHealed, "the agent's pod is still there"),
            Some(pod) if has_sandbox(pod) => {
                (ActOutcome::Healed, "the agent is new, and the pod has its sandbox")
            }
            Some(pod) if pod.not_waiting().is_none() && now < restarting.deadline => return,
            Some(pod) if pod.not_waiting().is_none() => {
                (ActOutcome::NotHealed, "the pod did not get its sandbox in time")
            }
            _ => (ActOutcome::Disconnected, "the agent is new; the pod went before its sandbox was seen"),
        };
        if let Some(Restarting { id, wedged, lease, .. }) = self.restarting.take() {
            self.to_release.push((REMEDY, lease));
            self.conclude(id, &wedged, REMEDY, &Ending::new(outcome, note));
        }
    }
}
