//! Acts that an earlier process began and did not see the end of: what became of them.
//!
//! Nothing is done about them here: they are looked at until it shows, or until nobody can tell any more.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::options::EngineOptions;
use super::parts::Parts;
use super::subject::Subject;
use super::wedge::{MOST_LONGER, has_sandbox};
use super::{Engine, TURN};
use crate::domain::{ActOutcome, Lookup, Pod, RemedyKind};
use crate::ledger::{Act, ActId, Ending};

/// A call that was on its way when its process ended may take effect this much later: a DELETE of the agent was seen to
/// take 39 s.
const ON_ITS_WAY: Duration = Duration::from_mins(1);
/// After this long nobody waits for an answer any more.
const GIVE_UP: Duration = Duration::from_hours(1);

/// Who has the address that an endpoint was disconnected for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldBy {
    /// The endpoint that was to go.
    Target,
    /// Another one.
    Other,
    /// Nobody.
    Nobody,
    /// Nobody knows.
    Unknown,
}

/// What shows now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shows<'a> {
    /// The pod that the act was for, where the watch knows it.
    pub(super) pod: Option<&'a Pod>,
    /// Asked for a disconnect only.
    pub(super) held: HeldBy,
    /// For how long this process has looked.
    pub(super) seen_for: Duration,
    /// The agent's pod of the act is there and not on its way out; asked for a restart only.
    pub(super) same_agent: bool,
}

impl<P: Parts> Engine<P> {
    /// Acts that an earlier process left without an end: looks what became of them.
    pub(super) async fn settle_earlier_acts(&mut self) {
        let now = Instant::now();
        if now < self.next_settling || !self.parts.store().is_synced() {
            return;
        }
        self.next_settling = now + TURN;
        let seen_for = now.duration_since(self.began);
        self.settling = self.settling.wrapping_add(1);
        let earlier: Vec<&Act> = self.book.open_acts().filter(|act| !self.follows(act.id())).collect();
        // One at a time, in turn: each may cost a look-up, and the loop has other things to do.
        let at = self.settling.checked_rem(earlier.len()).unwrap_or(0);
        if earlier.len() > 1 {
            self.next_settling = now + Duration::from_secs(1);
        }
        if let Some(act) = earlier.get(at).copied().cloned() {
            let intent = act.intent();
            let pod = self.parts.store().get(&intent.pod_uid);
            let held = if intent.remedy == RemedyKind::DisconnectEndpoint {
                match self.parts.lookup(intent.cause.ip).await {
                    Lookup::Held(holder) if holder.container() == intent.container.as_ref() => HeldBy::Target,
                    Lookup::Held(_) => HeldBy::Other,
                    Lookup::NotHeld => HeldBy::Nobody,
                    Lookup::Unknown(_) => HeldBy::Unknown,
                }
            } else {
                HeldBy::Other
            };
            let agent = intent.target.as_ref().and_then(|uid| uid.parse().ok());
            let same_agent =
                agent.and_then(|uid| self.parts.store().get(&uid)).is_some_and(|agent| !agent.deleting);
            let clock = self.parts.now();
            let shows = Shows { pod: pod.as_ref(), held, seen_for, same_agent };
            if let Some((outcome, note)) = settle(&act, shows, &self.options, clock) {
                let ending = Ending::new(outcome, note);
                self.conclude(act.id(), &Subject::of(intent), intent.remedy, &ending);
            }
        }
    }

    /// Whether this process waits for the effect of that act; all others without an end are of an earlier one.
    fn follows(&self, id: ActId) -> bool {
        self.restarting.as_ref().is_some_and(|it| it.id == id)
            || self.wedges.values().any(|wedge| wedge.follows(id))
    }
}

/// The end of an act, if it shows by now. Pure.
pub(super) fn settle(
    act: &Act,
    shows: Shows<'_>,
    options: &EngineOptions,
    now: Timestamp,
) -> Option<(ActOutcome, &'static str)> {
    use ActOutcome::{Deleted, Disconnected, Failed, Healed, Interrupted, NotHealed};
    // A clock that was ahead must not hold an act for as long as it was: this process's own time counts as well.
    let older_than = |limit: Duration| {
        shows.seen_for > limit
            || now.duration_since(act.began())
                > SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX)
    };
    let gone = shows.pod.is_none_or(|pod| pod.deleting);
    let has_sandbox = shows.pod.is_some_and(has_sandbox);
    let taken = act.sent().is_some();
    let unseen = "the process ended before it took effect";
    let late = "seen after a restart: the pod did not get its sandbox in time";
    match act.intent().remedy {
        RemedyKind::DisconnectEndpoint => match shows.held {
            HeldBy::Unknown if older_than(GIVE_UP) => {
                Some((Interrupted, "nobody could tell what became of it"))
            }
            HeldBy::Unknown => None,
            HeldBy::Target if taken => Some((Failed, "the endpoint holds the address again")),
            HeldBy::Target => older_than(ON_ITS_WAY).then_some((Interrupted, unseen)),
            HeldBy::Other | HeldBy::Nobody if has_sandbox => {
                Some((Healed, "seen after a restart: the pod has its sandbox"))
            }
            HeldBy::Other | HeldBy::Nobody if gone => {
                Some((Disconnected, "seen after a restart: the address is free, the pod is gone"))
            }
            HeldBy::Other => older_than(options.verify_timeout + ON_ITS_WAY).then_some((NotHealed, late)),
            // The pod may wait for its turn at the agent.
            HeldBy::Nobody => older_than(options.verify_timeout * (1 + MOST_LONGER) + ON_ITS_WAY)
                .then_some((NotHealed, late)),
        },
        RemedyKind::DeletePod if gone => Some((Deleted, "seen after a restart: the pod is gone")),
        RemedyKind::DeletePod => older_than(ON_ITS_WAY).then_some(if taken {
            (NotHealed, "seen after a restart: the pod is still there")
        } else {
            (Interrupted, unseen)
        }),
        RemedyKind::RestartAgent if shows.same_agent => {
            older_than(ON_ITS_WAY).then_some((Interrupted, unseen))
        }
        RemedyKind::RestartAgent if gone => {
            Some((Disconnected, "seen after a restart: the agent is new, the pod is gone"))
        }
        RemedyKind::RestartAgent if has_sandbox => {
            Some((Healed, "seen after a restart: the pod has its sandbox"))
        }
        RemedyKind::RestartAgent => older_than(options.restart_timeout).then_some((NotHealed, late)),
    }
}
