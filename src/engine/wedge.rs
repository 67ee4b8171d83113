//! The state machine of one pod that waits: when to look again, and when two judgements agree.
//!
//! Pure: judgements and instants in, the next step out. Reading and acting are `engine`'s.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use jiff::Timestamp;
use tokio::time::Instant;

use super::gates::By;
use super::options::EngineOptions;
use super::subject::Subject;
use crate::domain::{
    ActOutcome, Controller, DisconnectTarget, Finding, Judgement, Observation, Pod, PodName, PodUid, Proof,
    Remedy, RemedyKind, Verdict, Withheld,
};
use crate::kube::Held;
use crate::ledger::ActId;

/// What two judgements must agree on, and what must still be so right before acting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grounds {
    /// The disputed address.
    pub ip: Option<IpAddr>,
    /// The remedy, with the endpoint that it names.
    pub remedy: Remedy,
    /// What proves it.
    pub proof: Option<Proof>,
    /// UID and version of the wedged pod.
    pub pod: (PodUid, String),
    /// UID, phase and node of the pod that has the owner's name, if one has.
    pub owner: Option<(PodUid, &'static str, Option<String>)>,
}

impl Grounds {
    /// The grounds of a finding that has a remedy.
    pub(super) fn of(obs: &Observation, finding: &Finding) -> Option<Self> {
        if finding.remedy == Remedy::None {
            return None;
        }
        let owner =
            |pod: &Pod| (pod.uid.clone(), pod.phase.as_str(), pod.node.as_ref().map(ToString::to_string));
        Some(Self {
            ip: finding.ip,
            remedy: finding.remedy.clone(),
            proof: finding.proof,
            pod: (obs.pod.uid.clone(), obs.pod.resource_version.clone()),
            owner: obs.owner.as_ref().ok().and_then(Option::as_ref).map(owner),
        })
    }

    /// The endpoint to disconnect, if that is the remedy.
    pub(super) fn target(&self) -> Option<&DisconnectTarget> {
        match &self.remedy {
            Remedy::DisconnectEndpoint(target) => Some(target),
            Remedy::DeletePod | Remedy::None => None,
        }
    }
}

/// What is told when it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// The verdict; `None`: no wedge.
    pub verdict: Option<Verdict>,
    /// The disputed address.
    pub ip: Option<IpAddr>,
    /// The remedy, in a word.
    pub remedy: &'static str,
    /// Why it is withheld.
    pub withheld: Option<Withheld>,
}

/// Where the machine stands.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing to act on.
    Watching,
    /// One judgement gave these grounds, first at this instant.
    Suspected(Grounds, Instant),
    /// The act was taken: it should show.
    Verifying(Box<Running>),
}

/// An act whose effect is waited for.
#[derive(Debug)]
pub(super) struct Running {
    /// Its record.
    pub id: ActId,
    /// What was done.
    pub remedy: RemedyKind,
    /// It should show before this.
    pub deadline: Instant,
    /// The place in the cluster that it takes.
    pub lease: Option<Held>,
    /// Somebody said that it was taken.
    pub answered: bool,
    /// How often it could not be found out in the end whether it shows.
    pub unread: u32,
    /// When the call was over, by the clock.
    pub taken: Timestamp,
    /// How often it was given more time.
    pub longer: u32,
}

impl Running {
    /// What a pod shows of it; `None`: the pod waits still.
    pub(super) fn shows(&self, pod: Option<&Pod>) -> Option<(ActOutcome, &'static str)> {
        let going = pod.is_none_or(|pod| pod.deleting);
        match (self.remedy, pod) {
            (_, Some(pod)) if !going && pod.not_waiting().is_none() => None,
            (RemedyKind::DeletePod, _) if going => {
                Some((ActOutcome::Deleted, "the pod is gone, or on its way out"))
            }
            (RemedyKind::DeletePod, _) => Some((ActOutcome::NotHealed, "the pod got a sandbox instead")),
            (_, Some(pod)) if has_sandbox(pod) => Some((ActOutcome::Healed, "the pod has its sandbox")),
            _ => Some((
                ActOutcome::Disconnected,
                "the address is free; the pod went before its sandbox was seen",
            )),
        }
    }

    /// Whether it may be given more time: the address is free, and the agent has many pods to let in.
    pub(super) fn may_take_longer(&self) -> bool {
        self.remedy == RemedyKind::DisconnectEndpoint && self.answered && self.longer < MOST_LONGER
    }

    /// Whether the pod has not tried since, or waits for something else than the address by now, as far as anybody can
    /// tell. `None`: no judgement came out in time.
    pub(super) fn may_yet_show(&self, judgement: Option<&Judgement>) -> bool {
        let as_before = |finding: &Finding| match finding.verdict {
            Verdict::AgentUnknown | Verdict::Settling | Verdict::InsufficientEvidence => true,
            // Refused again since the address was free: this did not help.
            Verdict::NotHeld => {
                finding.failure.as_ref().and_then(|failure| failure.at).is_some_and(|at| at <= self.taken)
            }
            _ => false,
        };
        self.may_take_longer() && judgement.and_then(Judgement::finding).is_none_or(as_before)
    }

    /// The end of one that does not show in time.
    pub(super) fn in_vain(&self) -> (ActOutcome, &'static str) {
        match (self.answered, self.remedy) {
            (false, _) => (ActOutcome::Failed, "nobody answered, and nothing shows"),
            (true, RemedyKind::DeletePod) => (ActOutcome::NotHealed, "the pod is still there"),
            (true, _) => (ActOutcome::NotHealed, "the pod did not get its sandbox in time"),
        }
    }
}

/// Whether a pod has the sandbox that it waited for: one that has ended may never have had any.
pub(super) fn has_sandbox(pod: &Pod) -> bool {
    !pod.deleting && !pod.phase.is_terminal() && pod.not_waiting().is_some()
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Look again when it is due.
    Wait,
    /// Two judgements agree: act on these grounds.
    Act(Grounds),
}

/// One pod that waits for its sandbox.
#[derive(Debug)]
pub(super) struct Wedge {
    /// Names all that is told about this wedge.
    pub correlation_id: String,
    /// The pod.
    pub pod: PodName,
    /// Its UID.
    pub uid: PodUid,
    /// Its controller, as seen last.
    pub controller: Option<Controller>,
    /// Since when the pod waits.
    pub since: Timestamp,
    /// When it was looked at last.
    pub looked: Option<Instant>,
    /// When to look again.
    pub due: Instant,
    /// Where the machine stands.
    pub stage: Stage,
    /// What was told last.
    pub told: Option<Told>,
    /// When that becomes a Kubernetes Event, if it has not yet.
    pub announce_at: Option<Timestamp>,
    /// Why no act followed, as told last.
    pub held_back: HashMap<RemedyKind, (By, String)>,
    quiet_looks: u32,
    aborts: u32,
    /// Pauses while the agent does not answer; from the start once it does.
    silences: ExponentialBackoff,
    /// Pauses between acts that failed.
    failures: ExponentialBackoff,
}

impl Wedge {
    /// A pod that was seen waiting.
    pub(super) fn new(correlation_id: String, pod: Pod, since: Timestamp, due: Instant) -> Self {
        Self {
            correlation_id,
            pod: pod.name,
            uid: pod.uid,
            controller: pod.controller,
            since,
            looked: None,
            due,
            stage: Stage::Watching,
            told: None,
            announce_at: None,
            held_back: HashMap::new(),
            quiet_looks: 0,
            aborts: 0,
            silences: delays(),
            failures: delays(),
        }
    }

    /// Takes a judgement and says what is next. Sets when it is due.
    pub(super) fn judged(
        &mut self,
        now: Instant,
        clock: Timestamp,
        judgement: &Judgement,
        grounds: Option<Grounds>,
        options: &EngineOptions,
    ) -> Next {
        self.looked = Some(now);
        if self.waits_for_effect() {
            return Next::Wait;
        }
        let Some(finding) = judgement.finding() else {
            self.stage = Stage::Watching;
            self.due = now + quiet_delay(self.quiet_looks);
            self.quiet_looks = self.quiet_looks.saturating_add(1);
            return Next::Wait;
        };
        self.quiet_looks = 0;
        if finding.verdict != Verdict::AgentUnknown {
            self.silences = delays();
        }
        let Some(grounds) = grounds else {
            self.stage = Stage::Watching;
            self.due = now + self.refused_delay(clock, finding);
            return Next::Wait;
        };
        match &self.stage {
            Stage::Suspected(first, at)
                if same_case(first, &grounds) && now.duration_since(*at) >= options.confirm_gap =>
            {
                return Next::Act(grounds);
            }
            Stage::Suspected(first, at) if same_case(first, &grounds) => self.due = *at + options.confirm_gap,
            Stage::Suspected(..) | Stage::Watching | Stage::Verifying(_) => {
                self.stage = Stage::Suspected(grounds, now);
                self.due = now + options.confirm_gap;
            }
        }
        Next::Wait
    }

    /// Whether an act's effect is waited for: then nothing is due before its time is over.
    fn waits_for_effect(&mut self) -> bool {
        let Stage::Verifying(running) = &self.stage else {
            return false;
        };
        self.due = running.deadline;
        true
    }

    /// The act was put off or failed: begin again, later each time.
    pub(super) fn retry_later(&mut self, now: Instant) {
        self.stage = Stage::Watching;
        self.due = now + self.failures.next().unwrap_or(MOST_PATIENCE);
    }

    /// No judgement came out in time.
    pub(super) fn unjudged(&mut self, now: Instant) {
        if self.waits_for_effect() {
            return;
        }
        self.stage = Stage::Watching;
        self.due = now + self.silences.next().unwrap_or(MOST_PATIENCE);
    }

    /// A pod of this node is gone or has ended: it may be the owner that was alive so far. Look soon, not in a rush.
    pub(super) fn hurry(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Verifying(_)) {
            return;
        }
        let was_alive = self.told.as_ref().is_some_and(|told| told.verdict == Some(Verdict::LiveDuplicate));
        if was_alive {
            let soon = self.looked.map_or(now, |looked| looked + LEAST_PAUSE);
            self.due = self.due.min(soon.max(now));
        }
    }

    /// Nothing was done, because something had changed: look anew at once, after the third time later and later.
    pub(super) fn aborted(&mut self, now: Instant) {
        self.aborts += 1;
        if self.aborts > 3 {
            return self.retry_later(now);
        }
        self.stage = Stage::Watching;
        self.due = now + SOON;
    }

    /// The grounds stand, and no act follows. Looks again when it may come out otherwise.
    pub(super) fn hold(&mut self, now: Instant, until: Option<Instant>) {
        self.due = until.unwrap_or(now + PATIENCE).clamp(now + SOON, now + PATIENCE);
    }

    /// The act that is being verified; nothing is from now on.
    pub(super) fn take_running(&mut self) -> Option<Running> {
        match std::mem::replace(&mut self.stage, Stage::Watching) {
            Stage::Verifying(running) => Some(*running),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// Whether an act's time to show is over.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        matches!(&self.stage, Stage::Verifying(running) if now >= running.deadline)
    }

    /// Whether the effect of this very act is waited for.
    pub(super) fn follows(&self, id: ActId) -> bool {
        matches!(&self.stage, Stage::Verifying(running) if running.id == id)
    }

    /// Whether an act's effect is waited for.
    pub(super) fn is_verifying(&self) -> bool {
        matches!(self.stage, Stage::Verifying(_))
    }

    /// Whom all that is told of it is about.
    pub(super) fn subject(&self) -> Subject {
        Subject {
            pod: self.pod.clone(),
            uid: self.uid.clone(),
            controller: self.controller.clone(),
            ip: self.told_ip(),
            verdict: self.told_verdict(),
            correlation_id: self.correlation_id.clone(),
            since: Some(self.since),
        }
    }

    /// The verdict, as told last.
    pub(super) fn told_verdict(&self) -> Option<Verdict> {
        self.told.as_ref()?.verdict
    }

    /// The disputed address, as told last.
    pub(super) fn told_ip(&self) -> Option<IpAddr> {
        self.told.as_ref()?.ip
    }

    /// The act was taken.
    pub(super) fn sent(&mut self, running: Running) {
        self.due = running.deadline;
        self.stage = Stage::Verifying(Box::new(running));
    }

    fn refused_delay(&mut self, clock: Timestamp, finding: &Finding) -> Duration {
        let until = finding.look_again.and_then(|at| Duration::try_from(at.duration_since(clock)).ok());
        let about_time = finding.verdict == Verdict::Settling || finding.withheld == Some(Withheld::Timing);
        match finding.verdict {
            Verdict::AgentUnknown => self.silences.next().unwrap_or(MOST_PATIENCE),
            // A rule about time: look when it may come out otherwise, and now and then before.
            _ if about_time => until.map_or(PATIENCE / 3, |until| until.clamp(SOON / 10, PATIENCE / 3)),
            Verdict::NotHeld | Verdict::InsufficientEvidence => PATIENCE / 2,
            _ => PATIENCE,
        }
    }
}

/// A disconnect is given its time to show this much oftener where the pod waits for its turn at the agent.
pub(super) const MOST_LONGER: u32 = 9;
/// A pause between two looks at a wedge that nothing can be done about.
const PATIENCE: Duration = Duration::from_secs(30);
const MOST_PATIENCE: Duration = Duration::from_mins(2);
/// The least pause between two looks at a live duplicate.
const LEAST_PAUSE: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(1);

/// The pause before a pod's Events are read again: 5 s in its first five minutes, then 15 s, after
/// twenty minutes 30 s.
fn quiet_delay(looks: u32) -> Duration {
    Duration::from_secs(match looks {
        0..60 => 5,
        60..120 => 15,
        _ => 30,
    })
}

fn delays() -> ExponentialBackoff {
    let delays =
        ExponentialBuilder::new().with_min_delay(Duration::from_secs(5)).with_max_delay(MOST_PATIENCE);
    delays.without_max_times().with_jitter().build()
}

/// Whether two judgements speak of the same case; the pod's version may have moved on between them.
fn same_case(first: &Grounds, second: &Grounds) -> bool {
    first.pod.0 == second.pod.0
        && first.ip == second.ip
        && first.remedy == second.remedy
        && first.proof == second.proof
        && first.owner == second.owner
}
