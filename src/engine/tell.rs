//! Everything that is told: each change as one event, to the log, the event stream and the cluster's own Events; the wedge
//! gauges.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::announce::{Announcer, NoteSink};
use super::gates::{By, HeldBack};
use super::log::log;
use super::options::Mode;
use super::subject::Subject;
use super::wedge::{Told, Wedge};
use crate::domain::{ActOutcome, Evidence, Finding, Judgement, NodeName, Pod, Remedy, RemedyKind};
use crate::ledger::{Act, SetAside};
use crate::metrics::Metrics;
use crate::snapshot::EvidenceLine;
use crate::stream::{ActView, Acted, Acting, Event, Hub, Judged, Over, Step};
use crate::text::cut;

/// What mostly passes by itself becomes a Kubernetes Event once it has lasted this long.
const PASSING: SignedDuration = SignedDuration::from_secs(30);
/// Bytes of a sentence, and of a value that was seen, in an event.
const SENTENCE: usize = 1024;
const SEEN: usize = 512;

/// Where it is told.
pub struct Channels {
    /// The event stream.
    pub hub: Hub,
    /// The Events of the cluster.
    pub notes: NoteSink,
}

/// Tells what the engine sees and does. Says nothing twice.
pub(super) struct Teller {
    node: NodeName,
    mode: Mode,
    metrics: Arc<Metrics>,
    hub: Hub,
    announcer: Announcer,
    counter: u64,
    agent: Option<bool>,
    ledger_closed: Option<String>,
}

impl Teller {
    pub(super) fn new(node: NodeName, mode: Mode, channels: Channels, metrics: Arc<Metrics>) -> Self {
        metrics.set_heal_mode(mode == Mode::Heal);
        let Channels { hub, notes } = channels;
        let announcer = Announcer::new(node.clone(), mode, notes);
        Self { node, mode, metrics, hub, announcer, counter: 0, agent: None, ledger_closed: None }
    }

    /// A new id: unique on this node, for as long as anybody asks.
    pub(super) fn correlation_id(&mut self) -> String {
        self.counter += 1;
        format!("{}-{}", self.hub.boot(), self.counter)
    }

    /// One event, to the log and the stream.
    fn tell(&self, event: Event, now: Timestamp) {
        log(&event, self.mode);
        self.hub.tell(event, now);
    }

    /// The same, and what of it belongs on the objects of the cluster.
    fn tell_all(&self, subject: &Subject, event: Event, now: Timestamp) {
        self.announcer.hear(subject, &event);
        self.tell(event, now);
    }

    /// A judgement. Returns whether it is another one than before.
    pub(super) fn judged(&self, wedge: &mut Wedge, pod: &Pod, judgement: &Judgement, now: Timestamp) -> bool {
        let finding = judgement.finding();
        let told = Told {
            verdict: finding.map(|finding| finding.verdict),
            ip: finding.and_then(|finding| finding.ip),
            remedy: finding.map_or(Remedy::None.as_str(), |finding| finding.remedy.as_str()),
            withheld: finding.and_then(|finding| finding.withheld),
        };
        let is_news = wedge.told.as_ref() != Some(&told);
        if is_news {
            // A pod that waits for something else is no news.
            let first_and_nothing = wedge.told.is_none() && told.verdict.is_none();
            wedge.told = Some(told);
            wedge.announce_at = finding.map(|finding| now.checked_add(patience(finding)).unwrap_or(now));
            wedge.controller.clone_from(&pod.controller);
            if first_and_nothing {
                return true;
            }
        }
        let is_due = wedge.announce_at.is_some_and(|at| now >= at);
        if is_news || is_due {
            let subject = wedge.subject();
            let event = self.judgement(&subject, judgement);
            if is_due {
                wedge.announce_at = None;
                self.announcer.hear(&subject, &event);
            }
            if is_news {
                self.tell(event, now);
            }
        }
        is_news
    }

    fn judgement(&self, subject: &Subject, judgement: &Judgement) -> Event {
        let about = subject.about(&self.node);
        let waiting_since = subject.since.unwrap_or_default();
        Event::Judged(match judgement {
            Judgement::Wedged(finding) => Judged {
                about,
                remedy: finding.remedy.as_str().to_owned(),
                target: target_of(&finding.remedy).map(str::to_owned),
                withheld: finding.withheld.map(|withheld| withheld.as_str().to_owned()),
                owner: finding.owner.as_ref().map(ToString::to_string),
                waiting_since,
                reason: sentence(&finding.reason),
                evidence: finding.evidence.iter().map(seen).collect(),
            },
            Judgement::NotWedged(none) => Judged {
                about,
                remedy: Remedy::None.as_str().to_owned(),
                target: None,
                withheld: None,
                owner: None,
                waiting_since,
                reason: sentence(&none.reason),
                evidence: none.evidence.iter().map(seen).collect(),
            },
        })
    }

    /// An act could follow, and does not. Returns whether that is news.
    pub(super) fn held_back(
        &self,
        wedge: &mut Wedge,
        remedy: RemedyKind,
        why: &HeldBack,
        now: Timestamp,
    ) -> bool {
        let same = |(by, text): &(By, String)| {
            // What a bound says changes with each second that goes by.
            *by == why.by && (matches!(by, By::Bound(_)) || *text == why.why)
        };
        if wedge.held_back.get(&remedy).is_some_and(same) {
            return false;
        }
        wedge.held_back.insert(remedy, (why.by, why.why.clone()));
        let subject = wedge.subject();
        let held = crate::stream::HeldBack {
            about: subject.about(&self.node),
            remedy: remedy.to_string(),
            by: why.by.as_str().to_owned(),
            reason: sentence(&why.why),
        };
        self.tell_all(&subject, Event::HeldBack(held), now);
        true
    }

    /// An act begins.
    pub(super) fn acting(
        &self,
        subject: &Subject,
        remedy: RemedyKind,
        target: Option<&str>,
        why: &str,
        now: Timestamp,
    ) {
        let acting = Acting {
            about: subject.about(&self.node),
            remedy: remedy.to_string(),
            target: target.map(str::to_owned),
            reason: sentence(why),
        };
        self.tell_all(subject, Event::Acting(acting), now);
    }

    /// A step of an act: what came back of the call.
    pub(super) fn step(
        &self,
        subject: &Subject,
        remedy: RemedyKind,
        outcome: &str,
        note: &str,
        now: Timestamp,
    ) {
        let acted = self.acted_event(subject, remedy, outcome, note);
        self.tell_all(subject, Event::Acted(acted), now);
    }

    /// An act came to its end, or was given up before it was begun.
    pub(super) fn ended(
        &self,
        subject: &Subject,
        remedy: RemedyKind,
        outcome: ActOutcome,
        note: &str,
        now: Timestamp,
    ) {
        self.metrics.acted(remedy, outcome);
        let waited = subject.since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
        let latency = waited.filter(|_| outcome == ActOutcome::Healed);
        if let Some(latency) = latency {
            self.metrics.healed_after(latency);
        }
        let acted = Acted {
            is_final: true,
            heal_latency_seconds: latency.map(|latency| latency.as_secs()),
            ..self.acted_event(subject, remedy, outcome.as_str(), note)
        };
        self.tell_all(subject, Event::Acted(acted), now);
    }

    fn acted_event(&self, subject: &Subject, remedy: RemedyKind, outcome: &str, note: &str) -> Acted {
        Acted {
            about: subject.about(&self.node),
            remedy: remedy.to_string(),
            outcome: outcome.to_owned(),
            is_final: false,
            heal_latency_seconds: None,
            reason: sentence(note),
        }
    }

    /// The ledger can be used; it knows the acts of earlier processes.
    pub(super) fn ledger_open<'a>(&self, aside: Option<&SetAside>, acts: impl Iterator<Item = &'a Act>) {
        self.hub.remember_acts(acts.map(|act| self.view(act)));
        match aside {
            None => tracing::info!(node = %self.node, "the ledger is open"),
            Some(aside) => tracing::error!(
                node = %self.node, reason = %aside,
                "the ledger could not be used and was set aside: the budgets start empty and the breaker open"
            ),
        }
    }

    fn view(&self, act: &Act) -> ActView {
        let intent = act.intent();
        let sent = act.sent().map(|note| Step {
            time: note.at,
            outcome: "sent".to_owned(),
            reason: note.note.clone(),
        });
        let ended = act.ended().map(|end| Step {
            time: end.at,
            outcome: end.outcome.to_string(),
            reason: end.note.clone(),
        });
        ActView {
            acting: Acting {
                about: Subject::of(intent).about(&self.node),
                remedy: intent.remedy.to_string(),
                target: intent.target.clone(),
                reason: intent.reason.clone(),
            },
            began: act.began(),
            ended: ended.is_some(),
            steps: sent.into_iter().chain(ended).collect(),
        }
    }

    /// It cannot.
    pub(super) fn ledger_closed(&mut self, why: &str) {
        if self.ledger_closed.as_deref() != Some(why) {
            tracing::error!(node = %self.node, reason = why, "the ledger cannot be used: nothing is done until it can");
            self.ledger_closed = Some(why.to_owned());
        }
    }

    /// A pod that was told about waits no more.
    pub(super) fn over(&self, wedge: &Wedge, why: &str, now: Timestamp) {
        if wedge.told_verdict().is_some() {
            let over = Over { about: wedge.subject().about(&self.node), reason: sentence(why) };
            self.tell(Event::Over(over), now);
        }
    }

    /// A judgement took longer than it may.
    pub(super) fn too_slow(&self, wedge: &Wedge, limit: Duration) {
        tracing::warn!(
            pod = %wedge.pod, node = %self.node, limit_seconds = limit.as_secs(),
            correlation_id = wedge.correlation_id, "no judgement in time"
        );
    }

    /// Whether the agent can be reached; told when it changes.
    pub(super) fn agent(&mut self, reached: &Result<(), String>) {
        if self.agent.replace(reached.is_ok()) == Some(reached.is_ok()) {
            return;
        }
        match reached {
            Ok(()) => tracing::info!(node = %self.node, "the agent can be reached"),
            Err(why) => tracing::warn!(node = %self.node, reason = why, "the agent cannot be reached"),
        }
    }

    /// The loop ended.
    pub(super) fn stopped(&self) {
        tracing::info!(node = %self.node, "stopped");
    }

    /// The gauges.
    pub(super) fn wedges<'a>(&self, wedges: impl Iterator<Item = &'a Wedge> + Clone, now: Timestamp) {
        let told = wedges.filter(|wedge| wedge.told.as_ref().is_some_and(|told| told.verdict.is_some()));
        self.metrics.set_wedges(told.clone().filter_map(|wedge| wedge.told.as_ref()?.verdict));
        let oldest = told.map(|wedge| wedge.since).min();
        self.metrics
            .set_oldest_wedge(oldest.and_then(|since| Duration::try_from(now.duration_since(since)).ok()));
    }
}

/// How long a finding has to last before it is told on the objects of the cluster.
fn patience(finding: &Finding) -> SignedDuration {
    if finding.verdict.mostly_passes() { PASSING } else { SignedDuration::ZERO }
}

fn sentence(text: &str) -> String {
    cut(text.to_owned(), SENTENCE)
}

fn seen(evidence: &Evidence) -> EvidenceLine {
    let line = EvidenceLine::from(evidence);
    EvidenceLine { observed: cut(line.observed, SEEN), ..line }
}

fn target_of(remedy: &Remedy) -> Option<&str> {
    match remedy {
        Remedy::DisconnectEndpoint(target) => Some(target.as_str()),
        Remedy::DeletePod | Remedy::None => None,
    }
}
