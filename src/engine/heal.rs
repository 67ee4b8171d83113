//! From two judgements that agree to the end of the act: what may hold it back, the act, and what came of it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::act::{Acted, Acting, Sent};
use super::gates::{self, HeldBack};
use super::parts::Parts;
use super::subject::Subject;
use super::wedge::{Grounds, Running, Wedge};
use super::{Engine, stopped};
use crate::domain::{
    ActOutcome, Cause, DisconnectTarget, Finding, Judgement, Lookup, Observation, PodUid, RemedyKind,
};
use crate::kube::Held;
use crate::ledger::{ActId, Ending, Refusal};

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
        let (subject, target) = (wedge.subject(), grounds.target().map(DisconnectTarget::as_str));
        let why = judgement.finding().map_or("", |finding| finding.reason.as_str());
        let announce = |now| self.tell.acting(&subject, remedy, target, why, now);
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
        let deadline = Instant::now() + self.options.verify_timeout;
        let taken = self.parts.now();
        let running = Running { id, remedy, deadline, lease, answered: true, unread: 0, taken, longer: 0 };
        self.begun(uid, obs, &grounds, running, sent);
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
                let step = if running.remedy == RemedyKind::DeletePod { "accepted" } else { "freed" };
                self.tell.step(&wedge.subject(), running.remedy, step, &note, clock);
                wedge.sent(running);
            }
            Sent::Unanswered(why) => {
                running.answered = false;
                self.tell.step(&wedge.subject(), running.remedy, "unanswered", &why, clock);
                wedge.sent(running);
            }
            Sent::Ended(ending) => {
                self.finish(&wedge, running, &ending);
                if ending.outcome() == ActOutcome::Aborted {
                    wedge.aborted(now);
                } else {
                    wedge.retry_later(now);
                }
            }
            Sent::StillHeld(why) => {
                self.finish(&wedge, running, &Ending::new(ActOutcome::Failed, why));
                wedge.retry_later(now);
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
        }
        self.wedges.insert(uid.clone(), wedge);
    }

    /// Nothing was begun after all.
    pub(super) fn aborted(&mut self, uid: &PodUid, remedy: RemedyKind, why: &str) {
        if let Some(wedge) = self.wedges.get_mut(uid) {
            wedge.aborted(Instant::now());
            self.tell.ended(&wedge.subject(), remedy, ActOutcome::Aborted, why, self.parts.now());
        }
    }

    /// Whether an act without an end, perhaps of an earlier process, keeps this one waiting: while the agent restarts
    /// nothing else is begun, and one pod is in deletion at a time.
    pub(super) fn others_wait_for(&self, remedy: RemedyKind) -> bool {
        let any = |of: RemedyKind| self.book.open_acts().any(|act| act.intent().remedy == of);
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
        let namespace = obs.pod.name.namespace();
        gates::by_settings(&self.options, &self.protection.borrow(), remedy, namespace, self.quiet, now)?;
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
        if self.tell.held_back(wedge, remedy, why, self.parts.now()) {
            self.metrics.held_back(why.by.as_str());
            if let Some(finding) = judgement.finding() {
                let refusal = refusal(wedge, uid, finding, Some(remedy), why.by.as_str(), &why.why);
                self.book.refuse(refusal, self.parts.now());
            }
        }
        wedge.hold(Instant::now(), why.until);
    }

    /// Whether the time of an act on this pod is over.
    pub(super) fn is_overdue(&self, uid: &PodUid) -> bool {
        self.wedges.get(uid).is_some_and(|wedge| wedge.is_overdue(Instant::now()))
    }

    /// The time of an act is over: a live read says whether it shows, since the watch may be behind. Where it does not and
    /// may be given more time, a judgement says whether it is.
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
                Ok(pod) => match running.shows(pod.as_ref()) {
                    None if running.may_take_longer() => wedge.sent(running),
                    shown => {
                        let (outcome, note) = shown.unwrap_or_else(|| running.in_vain());
                        self.finish(&wedge, running, &Ending::new(outcome, note));
                    }
                },
                Err(_) if running.unread < UNREAD => {
                    running.unread += 1;
                    running.deadline = Instant::now() + self.options.verify_timeout;
                    wedge.sent(running);
                }
                Err(why) => {
                    let note = format!("nobody could tell what became of it: {why}");
                    self.finish(&wedge, running, &Ending::new(ActOutcome::Interrupted, note));
                }
            }
        }
        self.wedges.insert(uid.clone(), wedge);
    }

    /// Where an act does not show in time: it was in vain, or is given more time.
    pub(super) fn unseen(&mut self, uid: &PodUid, judgement: Option<&Judgement>) {
        let now = Instant::now();
        if !self.is_overdue(uid) {
            return;
        }
        let Some(mut wedge) = self.wedges.remove(uid) else {
            return;
        };
        if let Some(mut running) = wedge.take_running() {
            if running.may_yet_show(judgement) {
                running.longer += 1;
                running.deadline = now + self.options.verify_timeout;
                wedge.sent(running);
            } else {
                let (outcome, note) = running.in_vain();
                self.finish(&wedge, running, &Ending::new(outcome, note));
            }
        }
        self.wedges.insert(uid.clone(), wedge);
    }

    /// The act of a wedge has come to its end; its place in the cluster is free again.
    pub(super) fn finish(&mut self, wedge: &Wedge, running: Running, ending: &Ending) {
        let Running { id, remedy, lease, .. } = running;
        self.to_release.extend(lease.map(|held| (remedy, held)));
        self.conclude(id, &wedge.subject(), remedy, ending);
    }

    /// An act has come to its end: on record, counted, told.
    pub(super) fn conclude(&mut self, id: ActId, subject: &Subject, remedy: RemedyKind, ending: &Ending) {
        let now = self.parts.now();
        self.book.end(id, ending.clone(), now);
        self.tell.ended(subject, remedy, ending.outcome(), ending.note(), now);
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
