//! The rules about time that need no holder: the agent's start, and the age of the newest failure.

use jiff::{SignedDuration, Timestamp};

use super::ruling::{Ruling, Trail};
use crate::domain::evidence::Check;
use crate::domain::failure::Failure;
use crate::domain::limits::{Limits, signed};
use crate::domain::observation::Observation;
use crate::domain::verdict::Verdict;

/// The rules about time that need no holder.
pub(super) struct Clock<'a> {
    pub(super) obs: &'a Observation,
    pub(super) limits: &'a Limits,
    pub(super) failure: &'a Failure,
}

impl Clock<'_> {
    fn age(&self, of: Timestamp) -> SignedDuration {
        self.obs.now.duration_since(of)
    }

    /// The agent has just started, or started after the failure; or the failure is the first one and fresh.
    pub(super) fn settling(&self, trail: &mut Trail) -> Option<Ruling> {
        let settle = |reason: String, until| Some(Ruling::refuse(Verdict::Settling, reason).until(until));
        let Some(started) = self.obs.agent_started else {
            trail.unknown(Check::AgentStart, "unknown, which counts as just now");
            return settle(
                "nobody knows when the agent started: it may still be sorting out its endpoints".to_owned(),
                None,
            );
        };
        if self.age(started) < signed(self.limits.agent_settle) {
            trail.fail(
                Check::AgentStart,
                format!("{}, {} ago", clock_time(started), seconds(self.age(started))),
            );
            let reason = format!(
                "the agent started {} ago: queued deletions may still be replayed",
                seconds(self.age(started))
            );
            return settle(reason, started.checked_add(self.limits.agent_settle).ok());
        }
        if self.failure.at.is_some_and(|failed| started > failed) {
            trail.fail(Check::AgentStart, format!("{}, after the newest failure", clock_time(started)));
            return settle(
                "the newest failure is the answer of an agent that has been restarted since".to_owned(),
                None,
            );
        }
        trail.pass(Check::AgentStart, format!("{}, before the newest failure", clock_time(started)));
        let failed = self.failure.at?;
        if self.failure.lone && self.age(failed) < signed(self.limits.lone_failure_age) {
            trail.fail(Check::FailureAge, format!("the only failure, {} old", seconds(self.age(failed))));
            let reason = "the pod failed once, just now: the next try may succeed".to_owned();
            return settle(reason, failed.checked_add(self.limits.lone_failure_age).ok());
        }
        None
    }

    /// The newest failure says nothing about the present.
    pub(super) fn bad_age(&self, trail: &mut Trail) -> Option<Ruling> {
        let Some(failed) = self.failure.at else {
            trail.unknown(Check::FailureAge, "the Event carries no time");
            return Some(Ruling::refuse(
                Verdict::InsufficientEvidence,
                "nobody knows when the newest failure was",
            ));
        };
        let age = self.age(failed);
        let wrong = if age > signed(self.limits.failure_max_age) {
            "too old to say anything about now"
        } else if age < -signed(self.limits.failure_max_skew) {
            "in the future: a clock is wrong"
        } else {
            trail.pass(Check::FailureAge, format!("{} old", seconds(age)));
            return None;
        };
        trail.fail(Check::FailureAge, format!("{}, {} old", clock_time(failed), seconds(age)));
        Some(Ruling::refuse(Verdict::InsufficientEvidence, format!("the newest failure is {wrong}")))
    }

    /// What keeps a wedged pod from being moved now, by the rules about the agent's start and the failure's age. While
    /// not all Events are known, the newest failure is not.
    pub(super) fn blocks_moving(&self, trail: &mut Trail) -> Option<Ruling> {
        if let Some(why) = &self.obs.events.unreadable {
            let reason = format!("not all Events of the pod could be read: {why}");
            return Some(Ruling::refuse(Verdict::InsufficientEvidence, reason));
        }
        self.settling(trail).or_else(|| self.bad_age(trail))
    }
}

/// A time for people: whole seconds, as Events tell them.
pub(super) fn clock_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn seconds(duration: SignedDuration) -> String {
    format!("{} s", duration.as_secs())
}
