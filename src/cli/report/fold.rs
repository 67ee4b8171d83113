//! What was told, folded into one draft a wedge: the events of each node, its state, and the Kubernetes Events.
//!
//! Pure. Must not know: how it was read, nor what the ending is called.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use serde::Deserialize;

use super::form::{ActDone, HeldBackBy, NoteSaid, Source, StepDone};
use super::notes::Noted;
use crate::domain::{ActOutcome, Verdict};
use crate::snapshot::EvidenceLine;
use crate::stream::{About, ActView, Acted, Acting, Event, HeldBack, Judged, Step, WedgeView};

/// What is read of a watchdog's state.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeState {
    pub(super) version: String,
    pub(super) mode: String,
    pub(super) started: Timestamp,
    pub(super) wedges: Vec<WedgeView>,
    pub(super) wedges_omitted: usize,
    pub(super) acts: Vec<ActView>,
}

/// A wedge: the UID of its pod, and the address.
type Key = (String, Option<IpAddr>);

/// The wedges.
#[derive(Debug, Default)]
pub(super) struct Fold(BTreeMap<Key, Draft>);

/// A judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opinion {
    pub(super) time: Timestamp,
    pub(super) verdict: String,
    pub(super) withheld: Option<String>,
    pub(super) reason: String,
    pub(super) evidence: Vec<EvidenceLine>,
}

/// One wedge.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) node: String,
    pub(super) pod: String,
    pub(super) pod_uid: String,
    pub(super) controller: Option<String>,
    pub(super) ip: Option<IpAddr>,
    pub(super) owner: Option<String>,
    /// The latest judgement that says whose the address is.
    pub(super) firm: Option<Opinion>,
    /// The latest judgement.
    pub(super) latest: Option<Opinion>,
    pub(super) acts: Vec<ActDone>,
    pub(super) holds: Vec<HeldBackBy>,
    /// Why the pod waits no more.
    pub(super) over: Option<String>,
    /// Its watchdog says that it still waits.
    pub(super) standing: bool,
    pub(super) notes: Vec<NoteSaid>,
    pub(super) sources: BTreeSet<Source>,
    pub(super) correlation_ids: BTreeSet<String>,
    pub(super) first_seen: Timestamp,
    pub(super) last_seen: Timestamp,
}

/// Whether a verdict says whose the address is; the others say that this is not known yet.
pub(super) fn is_firm(verdict: &str) -> bool {
    !Verdict::of_word(verdict).is_some_and(Verdict::mostly_passes)
}

impl Fold {
    pub(super) fn into_drafts(self) -> impl Iterator<Item = Draft> {
        self.0.into_values()
    }

    /// Takes in what another node told.
    pub(super) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// An event of a node's stream. The name of the node is the cluster's, whatever the event says.
    pub(super) fn event(&mut self, node: &str, time: Timestamp, event: Event) {
        match event {
            Event::Judged(judged) if judged.about.verdict.is_some() => {
                let draft = self.draft(node, &judged.about, time, Source::Stream);
                draft.judged(judged, time);
            }
            Event::Judged(Judged { about, reason, .. }) => self.over(&about, &reason, time),
            Event::Over(over) => self.over(&over.about, &over.reason, time),
            Event::HeldBack(held) => {
                self.draft(node, &held.about, time, Source::Stream).held_back(held, time);
            }
            Event::Acting(acting) => {
                let draft = self.draft(node, &acting.about, time, Source::Stream);
                draft.rest_on(&acting, time);
                draft.acts.push(begun(acting, time));
            }
            Event::Acted(acted) => self.draft(node, &acted.about, time, Source::Stream).acted(&acted, time),
            Event::Started(_)
            | Event::Stopping(_)
            | Event::CheckChanged(_)
            | Event::Heartbeat(_)
            | Event::Gap(_) => {}
        }
    }

    /// The state of a node, after its events.
    pub(super) fn state(&mut self, node: &str, state: NodeState) {
        for WedgeView { judged, judged_at, held_back } in state.wedges {
            let draft = self.draft(node, &judged.about, judged_at, Source::State);
            draft.standing = true;
            draft.over = None;
            if draft.latest.as_ref().is_none_or(|latest| latest.time < judged_at) {
                draft.judged(judged, judged_at);
            }
            for wait in held_back {
                if !draft.holds.iter().any(|hold| hold.is(Some(&wait.remedy), &wait.by)) {
                    draft.holds.push(HeldBackBy {
                        remedy: Some(wait.remedy),
                        by: wait.by,
                        reason: wait.reason,
                        time: wait.since,
                    });
                }
            }
        }
        for ActView { acting, began, steps, ended } in state.acts {
            let last = steps.last().map_or(began, |step| step.time);
            let draft = self.draft(node, &acting.about, began, Source::State);
            draft.last_seen = draft.last_seen.max(last);
            draft.rest_on(&acting, began);
            let act = ActDone { steps: steps.into_iter().map(done).collect(), ended, ..begun(acting, began) };
            draft.known_act(act.concluded());
        }
    }

    /// A telling on the objects of the cluster. Where the watchdog itself told of the wedge, it only adds what that has lost.
    pub(super) fn note(&mut self, noted: &Noted) {
        let about = About {
            node: noted.tail.node.clone(),
            pod: noted.pod.clone(),
            pod_uid: noted.pod_uid.clone(),
            controller: noted.controller.clone(),
            ip: noted.tail.ip,
            verdict: noted.tail.verdict.clone(),
            correlation_id: noted.tail.correlation_id.clone(),
        };
        let draft = self.draft(&noted.tail.node, &about, noted.first, Source::KubernetesEvents);
        draft.last_seen = draft.last_seen.max(noted.last);
        draft.note(noted);
    }

    fn draft(&mut self, node: &str, about: &About, time: Timestamp, source: Source) -> &mut Draft {
        let draft = self.0.entry((about.pod_uid.clone(), about.ip)).or_insert_with(|| Draft {
            node: node.to_owned(),
            pod: about.pod.clone(),
            pod_uid: about.pod_uid.clone(),
            controller: None,
            ip: about.ip,
            owner: None,
            firm: None,
            latest: None,
            acts: Vec::new(),
            holds: Vec::new(),
            over: None,
            standing: false,
            notes: Vec::new(),
            sources: BTreeSet::new(),
            correlation_ids: BTreeSet::new(),
            first_seen: time,
            last_seen: time,
        });
        draft.seen(time, source);
        draft.correlation_ids.insert(about.correlation_id.clone());
        if about.controller.is_some() {
            draft.controller.clone_from(&about.controller);
        }
        draft
    }

    /// A pod waits no more, for whichever address.
    fn over(&mut self, about: &About, reason: &str, time: Timestamp) {
        for draft in self.0.values_mut().filter(|draft| draft.pod_uid == about.pod_uid) {
            draft.over = Some(reason.to_owned());
            draft.seen(time, Source::Stream);
        }
    }
}

impl Draft {
    fn seen(&mut self, time: Timestamp, source: Source) {
        self.first_seen = self.first_seen.min(time);
        self.last_seen = self.last_seen.max(time);
        self.sources.insert(source);
    }

    /// Whether a watchdog itself told of it.
    pub(super) fn is_told(&self) -> bool {
        self.sources.contains(&Source::Stream) || self.sources.contains(&Source::State)
    }

    fn judged(&mut self, judged: Judged, time: Timestamp) {
        self.over = None;
        self.owner = judged.owner.or(self.owner.take());
        if let Some(verdict) = judged.about.verdict {
            self.think(Opinion {
                time,
                verdict,
                withheld: judged.withheld,
                reason: judged.reason,
                evidence: judged.evidence,
            });
        }
    }

    fn think(&mut self, opinion: Opinion) {
        if is_firm(&opinion.verdict) {
            self.firm = Some(opinion.clone());
        }
        self.latest = Some(opinion);
    }

    /// An act rests on a judgement: where that is lost, the act still names it.
    fn rest_on(&mut self, acting: &Acting, time: Timestamp) {
        if let (None, Some(verdict)) = (&self.firm, &acting.about.verdict) {
            let (verdict, reason) = (verdict.clone(), acting.reason.clone());
            self.firm = Some(Opinion { time, verdict, withheld: None, reason, evidence: Vec::new() });
        }
    }

    fn held_back(&mut self, held: HeldBack, time: Timestamp) {
        self.hold(HeldBackBy { remedy: Some(held.remedy), by: held.by, reason: held.reason, time });
    }

    /// The same hold is kept once, where it was told last.
    fn hold(&mut self, hold: HeldBackBy) {
        self.holds.retain(|known| !known.is(hold.remedy.as_deref(), &hold.by));
        self.holds.push(hold);
    }

    fn acted(&mut self, acted: &Acted, time: Timestamp) {
        let step = StepDone { time, outcome: acted.outcome.clone(), reason: acted.reason.clone() };
        let of = |act: &&mut ActDone| {
            !act.ended && act.remedy == acted.remedy && act.correlation_id == acted.about.correlation_id
        };
        if let Some(act) = self.acts.iter_mut().rfind(of) {
            act.steps.push(step);
            act.ended = acted.is_final;
            act.worked = act.ended && works(&acted.outcome);
        } else {
            // It was given up before it was begun, or its beginning is lost.
            self.acts.push(ActDone {
                remedy: acted.remedy.clone(),
                target: None,
                began: time,
                ended: acted.is_final,
                worked: acted.is_final && works(&acted.outcome),
                steps: vec![step],
                correlation_id: acted.about.correlation_id.clone(),
            });
        }
    }

    /// An act as the watchdog keeps it: it knows more of it than its stream does.
    fn known_act(&mut self, act: ActDone) {
        let same = |known: &&mut ActDone| {
            let shared = || known.steps.iter().any(|step| act.steps.iter().any(|it| it.time == step.time));
            known.remedy == act.remedy
                && known.correlation_id == act.correlation_id
                && (known.began == act.began || shared())
        };
        match self.acts.iter_mut().find(same) {
            Some(known) if known.steps.len() <= act.steps.len() => *known = act,
            Some(_) => {}
            None => self.acts.push(act),
        }
        self.acts.sort_by_key(|act| act.began);
    }

    fn note(&mut self, noted: &Noted) {
        let act = noted.reason.act().map(|(remedy, done)| (remedy.to_string(), done));
        if self.is_told() {
            if let Some((remedy, done)) = act
                && !self.acts.iter().any(|known| known.is_of(&remedy, &noted.tail.correlation_id))
            {
                self.noted_act(noted, remedy, done);
                self.notes.push(said(noted));
            }
            return;
        }
        self.notes.push(said(noted));
        self.owner = noted.owner.clone().or(self.owner.take());
        if let Some((remedy, done)) = act {
            self.noted_act(noted, remedy, done);
        } else if let Some(by) = &noted.tail.held_back_by {
            let reason = noted.sentence.clone();
            self.hold(HeldBackBy { remedy: None, by: by.clone(), reason, time: noted.last });
        }
        if let Some(verdict) = &noted.tail.verdict {
            self.think(Opinion {
                time: noted.last,
                verdict: verdict.clone(),
                withheld: noted.tail.withheld.clone(),
                reason: noted.sentence.clone(),
                evidence: Vec::new(),
            });
        }
    }

    /// An act of which only the objects of the cluster tell: its end is told only where it failed.
    fn noted_act(&mut self, noted: &Noted, remedy: String, done: bool) {
        let outcome = noted.tail.outcome.clone();
        let outcome = outcome.unwrap_or_else(|| if done { "done" } else { "failed" }.to_owned());
        let step = StepDone { time: noted.last, outcome, reason: noted.sentence.clone() };
        let id = &noted.tail.correlation_id;
        let began = |act: &&mut ActDone| !act.ended && act.is_of(&remedy, id);
        match self.acts.iter_mut().rfind(began) {
            Some(act) if !done => {
                act.steps.push(step);
                (act.ended, act.worked) = (true, false);
            }
            _ => self.acts.push(ActDone {
                target: None,
                began: noted.first,
                steps: vec![step],
                ended: !done,
                worked: done,
                correlation_id: id.clone(),
                remedy,
            }),
        }
    }
}

impl HeldBackBy {
    fn is(&self, remedy: Option<&str>, by: &str) -> bool {
        self.remedy.as_deref() == remedy && self.by == by
    }
}

impl ActDone {
    fn is_of(&self, remedy: &str, correlation_id: &str) -> bool {
        self.remedy == remedy && self.correlation_id == correlation_id
    }

    fn concluded(mut self) -> Self {
        self.worked = self.ended && self.steps.last().is_some_and(|step| works(&step.outcome));
        self
    }
}

/// Whether an outcome says that the address is free, or that the pod was moved.
fn works(outcome: &str) -> bool {
    matches!(
        ActOutcome::of_word(outcome),
        Some(ActOutcome::Healed | ActOutcome::Disconnected | ActOutcome::Deleted)
    )
}

fn begun(acting: Acting, began: Timestamp) -> ActDone {
    ActDone {
        remedy: acting.remedy,
        target: acting.target,
        began,
        steps: Vec::new(),
        ended: false,
        worked: false,
        correlation_id: acting.about.correlation_id,
    }
}

fn done(step: Step) -> StepDone {
    StepDone { time: step.time, outcome: step.outcome, reason: step.reason }
}

fn said(noted: &Noted) -> NoteSaid {
    NoteSaid {
        reason: noted.reason.row().word.to_owned(),
        note: noted.sentence.clone(),
        first: noted.first,
        last: noted.last,
        count: noted.count,
    }
}
