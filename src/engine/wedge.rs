//! The state machine of one pod that waits: when to look again, and when two judgements agree.
//!
//! Pure: judgements and instants in, the next step out. Reading and acting are `engine`'s.

use std::net::IpAddr;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use jiff::Timestamp;
use tokio::time::Instant;

use super::options::EngineOptions;
use crate::domain::{
    DisconnectTarget, Finding, Judgement, Observation, Pod, PodUid, Proof, Remedy, Verdict, Withheld,
};

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
#[derive(Debug, Clone)]
pub(super) enum Stage {
    /// Nothing to act on.
    Watching,
    /// One judgement gave these grounds, first at this instant.
    Suspected(Grounds, Instant),
    /// The address is free: the pod should get its sandbox before this instant.
    Verifying(Instant),
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
    /// Since when the pod waits.
    pub since: Timestamp,
    /// When to look again.
    pub due: Instant,
    /// Where the machine stands.
    pub stage: Stage,
    /// What was told last.
    pub told: Option<Told>,
    /// Why no act followed, as told last.
    pub held_back: Option<String>,
    quiet_looks: u32,
    aborts: u32,
    failures: ExponentialBackoff,
}

impl Wedge {
    /// A pod that was seen waiting.
    pub(super) fn new(correlation_id: String, since: Timestamp, due: Instant) -> Self {
        Self {
            correlation_id,
            since,
            due,
            stage: Stage::Watching,
            told: None,
            held_back: None,
            quiet_looks: 0,
            aborts: 0,
            failures: failure_delays(),
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
        let Some(finding) = judgement.finding() else {
            self.stage = Stage::Watching;
            self.due = now + quiet_delay(self.quiet_looks);
            self.quiet_looks = self.quiet_looks.saturating_add(1);
            return Next::Wait;
        };
        self.quiet_looks = 0;
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

    /// The act was put off or failed: begin again, later each time.
    pub(super) fn retry_later(&mut self, now: Instant) {
        self.stage = Stage::Watching;
        self.due = now + self.failures.next().unwrap_or(MOST_PATIENCE);
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

    /// The grounds stand, and no act follows: in observe mode, or where the remedy is off.
    pub(super) fn hold(&mut self, now: Instant) {
        self.due = now + PATIENCE;
    }

    /// The act freed the address.
    pub(super) fn freed(&mut self, now: Instant, options: &EngineOptions) {
        self.stage = Stage::Verifying(now + options.verify_timeout);
        self.due = now + options.verify_timeout;
    }

    fn refused_delay(&mut self, clock: Timestamp, finding: &Finding) -> Duration {
        let until = finding.look_again.and_then(|at| Duration::try_from(at.duration_since(clock)).ok());
        match finding.verdict {
            Verdict::AgentUnknown => self.failures.next().unwrap_or(MOST_PATIENCE),
            // A rule about time: look when it may come out otherwise, and now and then before.
            Verdict::Settling => until.map_or(PATIENCE / 3, |until| until.clamp(SOON / 10, PATIENCE / 3)),
            Verdict::NotHeld | Verdict::InsufficientEvidence => PATIENCE / 2,
            _ => PATIENCE,
        }
    }
}

/// A pause between two looks at a wedge that nothing can be done about.
const PATIENCE: Duration = Duration::from_secs(30);
const MOST_PATIENCE: Duration = Duration::from_mins(2);
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

fn failure_delays() -> ExponentialBackoff {
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
