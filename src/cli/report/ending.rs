//! How a wedge ended, of all that was told about it. Pure.
//!
//! What is not known is never taken for a good end: `healed` needs an act that worked.

use super::fold::{Draft, Opinion};
use super::form::{ActDone, Ending, FailOn, HealFinding, HeldBackBy};
use crate::domain::{ActOutcome, Verdict};

impl Draft {
    /// The finding.
    pub(super) fn finding(self, fail_on: &[FailOn]) -> HealFinding {
        let (ending, reason) = self.ending();
        let Self { firm, latest, holds, mut acts, .. } = self;
        let decisive = firm.or(latest);
        acts.sort_by_key(|act| act.began);
        let (verdict, evidence) = decisive.map_or((None, Vec::new()), |it| (Some(it.verdict), it.evidence));
        let mut finding = HealFinding {
            pod: self.pod,
            pod_uid: self.pod_uid,
            node: self.node,
            controller: self.controller,
            ip: self.ip.map(|ip| ip.to_string()),
            owner: self.owner,
            verdict,
            ending,
            reason,
            fails: Vec::new(),
            first_seen: self.first_seen,
            last_seen: self.last_seen,
            over: self.over,
            acts,
            held_back: holds,
            evidence,
            notes: self.notes,
            sources: self.sources.into_iter().collect(),
            correlation_ids: self.correlation_ids.into_iter().collect(),
        };
        finding.fails = fail_on.iter().copied().filter(|on| on.is_met(&finding)).collect();
        finding
    }

    fn ending(&self) -> (Ending, String) {
        let opinion = self.firm.as_ref().or(self.latest.as_ref());
        if let Some(act) = self.acts.iter().rfind(|act| !act.is_given_up()) {
            return self.ending_of_act(act);
        }
        match opinion {
            Some(opinion) => self.ending_of_opinion(opinion),
            None => (Ending::Open, "nothing is known but that the pod waited".to_owned()),
        }
    }

    fn ending_of_act(&self, act: &ActDone) -> (Ending, String) {
        let came_to = act.steps.last();
        let said = came_to.map_or_else(
            || format!("{} was begun, and nobody knows what came of it", act.remedy),
            |step| format!("{} {}: {}", act.remedy, step.outcome, step.reason),
        );
        let ended_at = came_to.map_or(act.began, |step| step.time);
        // A watchdog's own words: an Event of the judgement can be seen again after the act.
        let again = self.standing && self.latest.as_ref().is_some_and(|latest| latest.time > ended_at);
        if act.worked && again {
            let now = self.latest.as_ref().map_or("", |latest| &latest.reason);
            return (Ending::Unhealed, format!("{said}; and it waits again: {now}"));
        }
        match (act.worked, act.ended) {
            (true, _) => (Ending::Healed, said),
            (false, true) => (Ending::Unhealed, said),
            (false, false) => (Ending::Open, said),
        }
    }

    fn ending_of_opinion(&self, opinion: &Opinion) -> (Ending, String) {
        let held = self.holds.iter().max_by_key(|hold| hold.time);
        match Verdict::of_word(&opinion.verdict) {
            Some(Verdict::StaleEndpoint) => self.ending_of_leak(opinion, held),
            Some(
                Verdict::ReservedHolder
                | Verdict::UnmanagedHolder
                | Verdict::SharedByDesign
                | Verdict::LiveDuplicate,
            ) => {
                let held = held.filter(|_| self.is_told());
                let held = held.map(|hold| format!("; {}", sentence(hold))).unwrap_or_default();
                (Ending::Refused, format!("{}{held}", opinion.reason))
            }
            Some(Verdict::InsufficientEvidence | Verdict::AgentUnknown) if self.over.is_none() => {
                (Ending::Refused, opinion.reason.clone())
            }
            Some(
                Verdict::Settling | Verdict::NotHeld | Verdict::InsufficientEvidence | Verdict::AgentUnknown,
            ) => match &self.over {
                Some(over) => (Ending::Passed, over.clone()),
                None => (Ending::Open, opinion.reason.clone()),
            },
            None => (Ending::Open, format!("{}: {}", opinion.verdict, opinion.reason)),
        }
    }

    /// It is proven that the endpoint is left over, and nothing was done.
    fn ending_of_leak(&self, opinion: &Opinion, held: Option<&HeldBackBy>) -> (Ending, String) {
        let given_up = self.acts.last().and_then(|act| act.steps.last());
        let why = match (held, &opinion.withheld, given_up) {
            (Some(held), ..) => sentence(held),
            (None, Some(withheld), _) => format!("the remedy is withheld by {withheld}: {}", opinion.reason),
            (None, None, Some(step)) => format!("given up before it was begun: {}", step.reason),
            (None, None, None) if self.standing => return (Ending::Open, opinion.reason.clone()),
            (None, None, None) => format!("nothing tells of an act: {}", opinion.reason),
        };
        let over = self.over.as_ref().map(|over| format!("; the pod waits no more: {over}"));
        (Ending::Unhealed, format!("{why}{}", over.unwrap_or_default()))
    }
}

impl ActDone {
    /// Nothing was done.
    fn is_given_up(&self) -> bool {
        self.ended && self.steps.last().is_some_and(|step| step.outcome == ActOutcome::Aborted.as_str())
    }
}

fn sentence(hold: &HeldBackBy) -> String {
    match &hold.remedy {
        Some(remedy) => format!("{remedy} is held back by {}: {}", hold.by, hold.reason),
        // The note says it in its own words.
        None => hold.reason.clone(),
    }
}
