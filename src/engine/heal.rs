//! From two judgements that agree to the end of the act: what may hold it back, the act, and what came of it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::act::{Acted, Acting, Sent};
use super::gates::{self, HeldBack};
use super::parts::Parts;
use super::wedge::{Grounds, Running, Wedge};
use super::{Engine, stopped};
use crate::domain::{ActOutcome, Cause, Finding, Judgement, Lookup, Observation, PodUid, RemedyKind};
use crate::kube::Held;
use crate::ledger::{Ending, Refusal};

/// An endpoint that the agent says is gone and that is still there is looked at again after this.
const PHANTOM_LOOK: Duration = Duration::from_secs(61);

/// How often an act's effect is looked for again where it could not be read.
const UNREAD: u32 = 5;

impl<P: Parts> Engine<P> {
    /// Two judgements agree: act, or say why not.
    pub(super) async fn agreed(
        &mut self,
        uid: &PodUid,
        grounds: Grounds,
        obs: &Observation,
        judgement: &Judgement,
        stop: &watch::Receiver<bool>,
    ) {
        let (Some(remedy), Some(ip)) = (grounds.remedy.kind(), grounds.ip) else {
            return;
        };
        let cause = Cause::of(&obs.pod, ip);
        let limit = self.options.judge_timeout;
        let permit = tokio::time::timeout(limit, self.permit(remedy, &cause, obs, judgement)).await;
        self.health.beat();
        let lease = match permit.unwrap_or_else(|_| Err(HeldBack::too_slow(limit))) {
            Ok(lease) => lease,
            Err(why) => return self.hold_back(uid, judgement, remedy, &why),
        };
        let Some(wedge) = self.wedges.get(uid) else {
            return;
        };
        let announce = || self.tell.acting(wedge, &grounds);
        let mut acting = Acting {
            parts: &self.parts,
            memory: &self.memory,
            options: &self.options,
            book: &mut self.book,
            correlation_id: &wedge.correlation_id,
            announce: &announce,
        };
        let acted = acting.act(&grounds, lease.as_ref(), stopped(stop)).await;
        self.health.beat();
        let (id, sent) = match acted {
            Acted::Begun(id, sent) => (id, sent),
            Acted::Aborted(why) => {
                self.to_release.extend(lease.map(|held| (remedy, held)));
                return self.aborted(uid, remedy, &why);
            }
            Acted::HeldBack(why) => {
                self.to_release.extend(lease.map(|held| (remedy, held)));
                return self.hold_back(uid, judgement, remedy, &why);
            }
        };
        self.begun(
            uid,
            obs,
            &grounds,
            Running { id, remedy, deadline: Instant::now(), lease, answered: true, unread: 0 },
            sent,
        );
    }

    /// An act was begun: what came back of the call.
    fn begun(
        &mut self,
        uid: &PodUid,
        obs: &Observation,
        grounds: &Grounds,
        mut running: Running,
        sent: Sent,
    ) {
        let (now, clock) = (Instant::now(), self.parts.now());
        let Some(mut wedge) = self.wedges.remove(uid) else {
            return;
        };
        match sent {
            Sent::Done(note) => {
                self.book.sent(running.id, &note, clock);
                self.own_acts.insert(running.id);
                let step = if running.remedy == RemedyKind::DeletePod { "accepted" } else { "freed" };
                self.tell.acted(&wedge, running.remedy, step, &note);
                running.deadline = now + self.options.verify_timeout;
                wedge.sent(running);
            }
            Sent::Unanswered(why) => {
                self.own_acts.insert(running.id);
                running.answered = false;
                self.tell.acted(&wedge, running.remedy, "unanswered", &why);
                running.deadline = now + self.options.verify_timeout;
                wedge.sent(running);
            }
            Sent::Nothing(why) => {
                self.book.end(running.id, Ending::new(ActOutcome::Aborted, why.clone()), clock);
                self.to_release.extend(running.lease.map(|held| (running.remedy, held)));
                self.wedges.insert(uid.clone(), wedge);
                return self.aborted(uid, running.remedy, &why);
            }
            Sent::Refused(why) => {
                self.book.end(running.id, Ending::new(ActOutcome::Failed, why.clone()).nothing_done(), clock);
                self.failed(&mut wedge, running, &why);
            }
            Sent::Wrong(why) => {
                running.deadline = now;
                self.finish(&wedge, running, ActOutcome::NotHealed, &why);
                wedge.retry_later(now);
            }
            Sent::StillHeld(why) => {
                self.book.end(running.id, Ending::new(ActOutcome::Failed, why.clone()), clock);
                self.failed(&mut wedge, running, &why);
                if let (Some(started), Lookup::Held(holder), Some(ip)) =
                    (obs.agent_started, &obs.lookup, grounds.ip)
                {
                    self.histories.disconnected(uid, ip, holder, started, clock);
                    if self.options.remedies.contains(&RemedyKind::RestartAgent) {
                        // The history needs looks with no further DELETE in between.
                        wedge.due = now + PHANTOM_LOOK;
                    }
                }
            }
            Sent::Failed(why) => {
                self.book.end(running.id, Ending::new(ActOutcome::Failed, why.clone()), clock);
                self.failed(&mut wedge, running, &why);
            }
        }
        self.wedges.insert(uid.clone(), wedge);
    }

    fn failed(&mut self, wedge: &mut Wedge, running: Running, why: &str) {
        wedge.retry_later(Instant::now());
        self.to_release.extend(running.lease.map(|held| (running.remedy, held)));
        self.metrics.acted(running.remedy, ActOutcome::Failed);
        self.tell.acted(wedge, running.remedy, ActOutcome::Failed.as_str(), why);
    }

    pub(super) fn aborted(&mut self, uid: &PodUid, remedy: RemedyKind, why: &str) {
        self.metrics.acted(remedy, ActOutcome::Aborted);
        if let Some(wedge) = self.wedges.get_mut(uid) {
            wedge.aborted(Instant::now());
            self.tell.acted(wedge, remedy, ActOutcome::Aborted.as_str(), why);
        }
    }

    /// Whether an act without an end, perhaps of an earlier process, keeps this one waiting: while the agent restarts
    /// nothing else is begun, and one pod is in deletion at a time.
    pub(super) fn others_wait_for(&self, remedy: RemedyKind) -> bool {
        let open = self.book.open_acts();
        let any = |of: RemedyKind| open.iter().any(|act| act.intent().remedy == of);
        self.restarting.is_some()
            || any(RemedyKind::RestartAgent)
            || (remedy == RemedyKind::DeletePod && any(RemedyKind::DeletePod))
    }

    /// Everything that can say no before anything is read again; for what the cluster bounds, a place there.
    async fn permit(
        &mut self,
        remedy: RemedyKind,
        cause: &Cause,
        obs: &Observation,
        judgement: &Judgement,
    ) -> Result<Option<Held>, HeldBack> {
        let now = Instant::now();
        let protection = self.protection.borrow().clone();
        gates::by_settings(&self.options, &protection, remedy, obs.pod.name.namespace(), self.quiet, now)?;
        if self.others_wait_for(remedy) {
            return Err(HeldBack::under_way());
        }
        let (pod, clock) = (&obs.pod.uid, self.parts.now());
        self.book.check(remedy, cause, pod, clock).map_err(|bound| HeldBack::by_bound(&bound, clock))?;
        if remedy == RemedyKind::DisconnectEndpoint {
            return Ok(None);
        }
        // Asked before a place in the cluster is taken in vain; the act asks again.
        let owners = gates::owners_namespace(obs, judgement.finding());
        gates::by_people(&self.parts, &self.options, remedy, &obs.pod, owners.as_deref()).await?;
        match self.parts.acquire(remedy).await {
            Ok(held) => Ok(Some(held)),
            Err(why) => Err(HeldBack::by_lease(&why, now)),
        }
    }

    /// The grounds stand, and no act follows.
    pub(super) fn hold_back(
        &mut self,
        uid: &PodUid,
        judgement: &Judgement,
        remedy: RemedyKind,
        why: &HeldBack,
    ) {
        let Some(wedge) = self.wedges.get_mut(uid) else {
            return;
        };
        if self.tell.held_back(wedge, remedy, why) {
            self.metrics.held_back(why.by.as_str());
            if let Some(finding) = judgement.finding() {
                let refusal = refusal(wedge, uid, finding, Some(remedy), why.by.as_str(), &why.why);
                self.book.refuse(refusal, self.parts.now());
            }
        }
        wedge.hold(Instant::now(), why.until);
    }
    /// The time of an act is over: a live read says whether it shows, since the watch may be behind.
    pub(super) async fn overdue(&mut self, uid: &PodUid) {
        let Some(name) = self.wedges.get(uid).map(|wedge| wedge.pod.clone()) else {
            return;
        };
        let read = self.parts.pod(&name).await;
        let Some(mut wedge) = self.wedges.remove(uid) else {
            return;
        };
        if let Some(mut running) = wedge.take_running() {
            match read.map(|pod| pod.filter(|pod| pod.uid == *uid)) {
                Ok(pod) => {
                    let (outcome, note) = running.shows(pod.as_ref()).unwrap_or_else(|| running.in_vain());
                    self.finish(&wedge, running, outcome, note);
                }
                Err(_) if running.unread < UNREAD => {
                    running.unread += 1;
                    running.deadline = Instant::now() + self.options.verify_timeout;
                    wedge.sent(running);
                }
                Err(why) => {
                    let note = format!("nobody could tell what became of it: {why}");
                    self.finish(&wedge, running, ActOutcome::Interrupted, &note);
                }
            }
        }
        self.wedges.insert(uid.clone(), wedge);
    }

    /// An act has come to its end: on record, counted, told.
    pub(super) fn finish(&mut self, wedge: &Wedge, running: Running, outcome: ActOutcome, note: &str) {
        let Running { id, remedy, lease, .. } = running;
        self.to_release.extend(lease.map(|held| (remedy, held)));
        self.own_acts.remove(&id);
        self.book.end(id, Ending::new(outcome, note), self.parts.now());
        self.metrics.acted(remedy, outcome);
        self.tell.acted(wedge, remedy, outcome.as_str(), note);
    }
}

/// What is left alone, as the ledger keeps it.
pub(super) fn refusal(
    wedge: &Wedge,
    uid: &PodUid,
    finding: &Finding,
    remedy: Option<RemedyKind>,
    word: &str,
    why: &str,
) -> Refusal {
    Refusal {
        pod: wedge.pod.clone(),
        pod_uid: uid.clone(),
        ip: finding.ip,
        verdict: finding.verdict,
        remedy,
        word: word.to_owned(),
        why: why.to_owned(),
        correlation_id: wedge.correlation_id.clone(),
    }
}
