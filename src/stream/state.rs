//! What all events so far add up to: the document of `/v1/state`, which the status page shows.
//!
//! A pure fold, bounded: what is left out is counted.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::{Acted, Acting, CheckChanged, CheckState, Event, HeldBack, Judged, Started};
use super::position::Position;

/// So many wedges are shown, those that have waited longest.
const WEDGES: usize = 200;
/// So many acts, the latest.
pub const ACTS: usize = 50;

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WatchdogState")]
pub struct State {
    /// Always `WatchdogState`.
    pub kind: &'static str,
    /// The version of this form: 1.
    pub schema_version: u64,
    /// The node.
    pub node: String,
    /// The version of the program.
    pub version: String,
    /// `observe` or `heal`.
    pub mode: String,
    /// The remedies that the mode `heal` may use.
    pub remedies: Vec<String>,
    /// When this process started.
    pub started: Timestamp,
    /// When this document was made.
    pub time: Timestamp,
    /// The id of the latest event in it: `/v1/events?since=` takes it, and nothing is missed in between.
    pub position: String,
    /// Whether the process is about to end.
    pub stopping: bool,
    /// The health checks.
    pub checks: Vec<CheckView>,
    /// The wedges of this node, those that have waited longest first.
    pub wedges: Vec<WedgeView>,
    /// Wedges that are not shown for want of space.
    pub wedges_omitted: usize,
    /// What was done, the latest first; of earlier processes as far as the ledger has it.
    pub acts: Vec<ActView>,
}

/// A health check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckView {
    /// Its name.
    pub check: String,
    /// How it stands.
    pub state: CheckState,
    /// Why it is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when it stands so.
    pub since: Timestamp,
}

/// A wedge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WedgeView {
    /// The latest judgement that differed from the one before.
    #[serde(flatten)]
    pub judged: Judged,
    /// When it was made.
    pub judged_at: Timestamp,
    /// What holds a remedy back, as told last, one entry a remedy.
    pub held_back: Vec<Wait>,
}

/// What holds a remedy back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// The remedy.
    pub remedy: String,
    /// What holds it back, in a word.
    pub by: String,
    /// One sentence for people.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

/// An act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActView {
    /// As it was begun.
    #[serde(flatten)]
    pub acting: Acting,
    /// When it was begun.
    pub began: Timestamp,
    /// The steps, the last of them the end of it, if it has come to one.
    pub steps: Vec<Step>,
    /// Whether it has come to its end.
    pub ended: bool,
}

/// A step of an act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// When.
    pub time: Timestamp,
    /// What came of it, in a word.
    pub outcome: String,
    /// One sentence for people.
    pub reason: String,
}

impl State {
    pub(super) fn new(started: &Started, position: Position, now: Timestamp) -> Self {
        Self {
            kind: "WatchdogState",
            schema_version: 1,
            node: started.node.clone(),
            version: started.version.clone(),
            mode: started.mode.clone(),
            remedies: started.remedies.clone(),
            started: now,
            time: now,
            position: position.to_string(),
            stopping: false,
            checks: Vec::new(),
            wedges: Vec::new(),
            wedges_omitted: 0,
            acts: Vec::new(),
        }
    }

    /// The same, as it is handed out.
    pub(super) fn at(mut self, now: Timestamp) -> Self {
        self.time = now;
        self.wedges.sort_by_key(|wedge| wedge.judged.waiting_since);
        self.wedges_omitted = self.wedges.len().saturating_sub(WEDGES);
        self.wedges.truncate(WEDGES);
        self.acts.reverse();
        self
    }

    /// Takes an event in.
    pub(super) fn apply(&mut self, event: &Event, position: Position, now: Timestamp) {
        self.position = position.to_string();
        match event {
            Event::Started(_) | Event::Heartbeat(_) | Event::Gap(_) => {}
            Event::Stopping(_) => self.stopping = true,
            Event::CheckChanged(changed) => self.check(changed, now),
            Event::Judged(judged) => self.judged(judged, now),
            Event::HeldBack(held) => self.held_back(held, now),
            Event::Acting(acting) => self.acting(acting, now),
            Event::Acted(acted) => self.acted(acted, now),
            Event::Over(over) => self.wedges.retain(|wedge| wedge.judged.about.pod_uid != over.about.pod_uid),
        }
    }

    /// Acts of earlier processes: before all of this one.
    pub(super) fn remember_acts(&mut self, acts: impl IntoIterator<Item = ActView>) {
        let own = std::mem::replace(&mut self.acts, acts.into_iter().collect());
        self.acts.extend(own);
        self.bound_acts();
    }

    fn bound_acts(&mut self) {
        let over = self.acts.len().saturating_sub(ACTS);
        self.acts.drain(..over);
    }

    fn check(&mut self, changed: &CheckChanged, now: Timestamp) {
        let view = CheckView {
            check: changed.check.clone(),
            state: changed.state,
            reason: changed.reason.clone(),
            since: now,
        };
        match self.checks.iter_mut().find(|check| check.check == changed.check) {
            Some(check) if check.state == view.state => check.reason = view.reason,
            Some(check) => *check = view,
            None => self.checks.push(view),
        }
    }

    fn judged(&mut self, judged: &Judged, now: Timestamp) {
        let at = self.wedges.iter().position(|wedge| wedge.judged.about.pod_uid == judged.about.pod_uid);
        match (judged.about.verdict.is_some(), at) {
            (true, Some(at)) => {
                let held_back = std::mem::take(&mut self.wedges[at].held_back);
                self.wedges[at] = WedgeView { judged: judged.clone(), judged_at: now, held_back };
            }
            (true, None) => {
                self.wedges.push(WedgeView { judged: judged.clone(), judged_at: now, held_back: Vec::new() });
            }
            (false, Some(at)) => drop(self.wedges.remove(at)),
            (false, None) => {}
        }
    }

    fn held_back(&mut self, held: &HeldBack, now: Timestamp) {
        let of = |wedge: &&mut WedgeView| wedge.judged.about.pod_uid == held.about.pod_uid;
        let Some(wedge) = self.wedges.iter_mut().find(of) else {
            return;
        };
        wedge.held_back.retain(|wait| wait.remedy != held.remedy);
        wedge.held_back.push(Wait {
            remedy: held.remedy.clone(),
            by: held.by.clone(),
            reason: held.reason.clone(),
            since: now,
        });
    }

    fn acting(&mut self, acting: &Acting, now: Timestamp) {
        for wedge in &mut self.wedges {
            if wedge.judged.about.pod_uid == acting.about.pod_uid {
                wedge.held_back.retain(|wait| wait.remedy != acting.remedy);
            }
        }
        self.acts.push(ActView { acting: acting.clone(), began: now, steps: Vec::new(), ended: false });
        self.bound_acts();
    }

    fn acted(&mut self, acted: &Acted, now: Timestamp) {
        let step = Step { time: now, outcome: acted.outcome.clone(), reason: acted.reason.clone() };
        let of = |act: &&mut ActView| {
            !act.ended
                && act.acting.about.correlation_id == acted.about.correlation_id
                && act.acting.remedy == acted.remedy
        };
        // What was given up before it was begun is no act.
        if let Some(act) = self.acts.iter_mut().rfind(of) {
            act.steps.push(step);
            act.ended = acted.is_final;
        }
    }
}
