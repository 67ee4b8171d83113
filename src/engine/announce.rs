//! Which events become Kubernetes Events, on which objects, and with what text: one table for all of them.
//!
//! It must not know how an Event is written, nor wait for it.

mod tail;

use std::fmt::Write as _;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;

pub use self::tail::NoteTail;
use super::gates::By;
use super::options::Mode;
use super::subject::Subject;
use crate::domain::{ActOutcome, NodeName, PodName, Remedy, RemedyKind, Verdict};
use crate::kube::{Note, NoteType, controller_reference, named_pod_reference, node_reference, pod_reference};
use crate::stream::{Acted, Event, HeldBack, Judged};

/// `reason` of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoteReason {
    /// An endpoint is left over.
    EndpointLeakDetected,
    /// A pod hangs on an address, and nothing is done about it.
    EndpointLeakRefused,
    /// An endpoint was disconnected.
    StaleEndpointDisconnected,
    /// That did not work, or did not help.
    StaleEndpointDisconnectFailed,
    /// A wedged pod was deleted.
    WedgedPodDeleted,
    /// That did not work.
    WedgedPodDeleteFailed,
    /// The node's agent is restarted.
    AgentRestartRequested,
    /// That did not work, or did not help.
    AgentRestartFailed,
    /// A person has paused the watchdog.
    HealPaused,
    /// The watchdog is not fenced in.
    FenceMissing,
}

/// What the table says of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoteRow {
    /// `reason`.
    pub reason: NoteReason,
    /// Its word.
    pub word: &'static str,
    /// `type`.
    pub type_: NoteType,
    /// `action`.
    pub action: &'static str,
    /// When it is written, for people.
    pub when: &'static str,
    /// What a person does about it.
    pub to_do: &'static str,
}

/// All of them.
pub const NOTES: [NoteRow; 10] = {
    use NoteReason as R;
    use NoteType::{Normal, Warning};
    const fn row(
        reason: NoteReason,
        word: &'static str,
        type_: NoteType,
        action: &'static str,
        when: &'static str,
        to_do: &'static str,
    ) -> NoteRow {
        NoteRow { reason, word, type_, action, when, to_do }
    }
    [
        row(
            R::EndpointLeakDetected,
            "EndpointLeakDetected",
            Warning,
            "Judge",
            "the verdict is `stale-endpoint`, and the endpoint can be disconnected; in the mode `observe` too",
            "`observe`: disconnect it by hand, as `explain` says, or turn healing on. `heal`: nothing",
        ),
        row(
            R::EndpointLeakRefused,
            "EndpointLeakRefused",
            Warning,
            "Refuse",
            "another verdict, or a remedy that is withheld or held back. What mostly passes by itself (`settling`, `not-held`, `agent-unknown`, `insufficient-evidence`) is told once it has lasted 30 s; a quiet period or a place in the cluster that is waited for is not told",
            "read the reason; `cilium-leak-healer explain NAMESPACE/POD` says what is safe",
        ),
        row(
            R::StaleEndpointDisconnected,
            "StaleEndpointDisconnected",
            Normal,
            "DisconnectEndpoint",
            "the endpoint is disconnected, and the look-up by address says so",
            "nothing; find out why it was left",
        ),
        row(
            R::StaleEndpointDisconnectFailed,
            "StaleEndpointDisconnectFailed",
            Warning,
            "DisconnectEndpoint",
            "the disconnect failed, or the pod did not get its sandbox after it",
            "`explain`; the ledger has what was tried",
        ),
        row(
            R::WedgedPodDeleted,
            "WedgedPodDeleted",
            Normal,
            "DeletePod",
            "the API server took the deletion of a pod that never ran, so that it comes back with another address",
            "find out why two IPAMs hand out one range",
        ),
        row(
            R::WedgedPodDeleteFailed,
            "WedgedPodDeleteFailed",
            Warning,
            "DeletePod",
            "the deletion failed, or the pod is still there after it",
            "`explain`; the ledger has what was tried",
        ),
        row(
            R::AgentRestartRequested,
            "AgentRestartRequested",
            Warning,
            "RestartAgent",
            "the pod of the node's agent is deleted, by the remedy `restart-agent`",
            "report it upstream: the agent was at odds with itself",
        ),
        row(
            R::AgentRestartFailed,
            "AgentRestartFailed",
            Warning,
            "RestartAgent",
            "that deletion failed, or the wedged pod did not get its sandbox after it",
            "look at the agent's pod",
        ),
        row(
            R::HealPaused,
            "HealPaused",
            Warning,
            "Refuse",
            "two judgements agree on a remedy, and the annotation `cilium-leak-healer/paused` holds it back",
            "take the annotation away when the reason for it is gone",
        ),
        row(
            R::FenceMissing,
            "FenceMissing",
            Warning,
            "SelfTest",
            "the self-test failed: a right too many, one too few, or the admission fence is not at work. On the Node only",
            "apply `rbac/fence.yaml` and `rbac/heal.yaml`; `cilium-leak-healer doctor` says more",
        ),
    ]
};

impl NoteReason {
    /// Its row.
    pub fn row(self) -> &'static NoteRow {
        &NOTES[self as usize]
    }

    /// The reason of that word.
    pub fn of_word(word: &str) -> Option<Self> {
        NOTES.iter().find(|row| row.word == word).map(|row| row.reason)
    }

    /// Of which remedy it tells, and whether it was done (`true`) or failed; `None`: it tells of no act.
    pub fn act(self) -> Option<(RemedyKind, bool)> {
        RemedyKind::ALL.into_iter().find_map(|remedy| {
            [(Self::done(remedy), true), (Self::failed(remedy), false)]
                .into_iter()
                .find_map(|(reason, done)| (reason == self).then_some((remedy, done)))
        })
    }

    fn done(remedy: RemedyKind) -> Self {
        match remedy {
            RemedyKind::DisconnectEndpoint => Self::StaleEndpointDisconnected,
            RemedyKind::DeletePod => Self::WedgedPodDeleted,
            RemedyKind::RestartAgent => Self::AgentRestartRequested,
        }
    }

    fn failed(remedy: RemedyKind) -> Self {
        match remedy {
            RemedyKind::DisconnectEndpoint => Self::StaleEndpointDisconnectFailed,
            RemedyKind::DeletePod => Self::WedgedPodDeleteFailed,
            RemedyKind::RestartAgent => Self::AgentRestartFailed,
        }
    }
}

/// Takes an Event to be written, and returns at once.
pub type NoteSink = Arc<dyn Fn(Note) + Send + Sync>;

/// Says on the objects of the cluster what happened to them.
pub(super) struct Announcer {
    node: NodeName,
    mode: Mode,
    sink: NoteSink,
}

impl Announcer {
    pub(super) fn new(node: NodeName, mode: Mode, sink: NoteSink) -> Self {
        Self { node, mode, sink }
    }

    /// Writes what of an event belongs on the objects that it is about.
    pub(super) fn hear(&self, subject: &Subject, event: &Event) {
        let (Some((reason, text)), Some(tail)) = (text(event, self.mode), NoteTail::of(event, self.mode))
        else {
            return;
        };
        let owner = match event {
            Event::Judged(Judged { owner, .. }) => owner.as_ref().and_then(|owner| owner.parse().ok()),
            _ => None,
        };
        self.write(subject, owner.as_ref(), reason, &text, &tail);
    }

    /// On the pod; on its controller, since a deleted pod's Events are hard to find; on the Node.
    fn write(
        &self,
        subject: &Subject,
        owner: Option<&PodName>,
        reason: NoteReason,
        text: &str,
        tail: &NoteTail,
    ) {
        let row = reason.row();
        let note = |regarding, related, text: String| {
            (self.sink)(Note {
                type_: row.type_,
                reason: row.word,
                action: row.action,
                regarding,
                related: Some(related),
                note: text,
            });
        };
        let (pod, own_node) = (pod_reference(&subject.pod, &subject.uid), node_reference(&self.node));
        let of_pod = tail.behind(&NoteTail::of_pod(&subject.pod.to_string(), text));
        // Another pod that has to do with it says more than the node does.
        let other: ObjectReference = owner
            .filter(|owner| **owner != subject.pod)
            .map_or_else(|| own_node.clone(), named_pod_reference);
        note(pod.clone(), other, tail.behind(text));
        if let Some(controller) = &subject.controller {
            note(controller_reference(subject.pod.namespace(), controller), pod.clone(), of_pod.clone());
        }
        note(own_node, pod, of_pod);
    }
}

/// The Event of an event: its reason, and what a person reads. Its start is what matters: the end may be cut.
fn text(event: &Event, mode: Mode) -> Option<(NoteReason, String)> {
    match event {
        Event::Judged(judged) => text_of_judgement(judged, mode),
        Event::HeldBack(held) => text_of_hold(held),
        Event::Acted(acted) => text_of_act(acted),
        _ => None,
    }
}

fn text_of_judgement(judged: &Judged, mode: Mode) -> Option<(NoteReason, String)> {
    let verdict = judged.about.verdict.as_deref()?;
    let ip = judged.about.ip.map_or_else(|| "The address".to_owned(), |ip| ip.to_string());
    let reason = &judged.reason;
    let next = match mode {
        Mode::Observe => "Nothing is done: the watchdog observes only.",
        Mode::Heal => "The watchdog heals it after a second look.",
    };
    if verdict == Verdict::StaleEndpoint.as_str() && judged.remedy != Remedy::None.as_str() {
        let text = format!("{ip} is held by an endpoint that is left over: {reason}. {next}");
        return Some((NoteReason::EndpointLeakDetected, text));
    }
    let mut text = format!("{ip} is in use, and no endpoint is touched. {verdict}: {reason}.");
    if judged.remedy == RemedyKind::DeletePod.as_str() {
        let next = match mode {
            Mode::Observe => "Deleting the pod would give it another address; the watchdog observes only.",
            Mode::Heal => {
                "The watchdog deletes the pod after a second look, so that it gets another address."
            }
        };
        // A String takes all that is written to it.
        let _ = write!(text, " {next}");
    }
    Some((NoteReason::EndpointLeakRefused, text))
}

fn text_of_hold(held: &HeldBack) -> Option<(NoteReason, String)> {
    let HeldBack { remedy, by, reason, .. } = held;
    // The judgement says it already, or it passes in seconds.
    if [By::Mode, By::Quiet, By::Lease].iter().any(|passing| passing.as_str() == by) {
        return None;
    }
    Some(if by == By::Paused.as_str() {
        (NoteReason::HealPaused, format!("{remedy} is held back: {reason}."))
    } else {
        (NoteReason::EndpointLeakRefused, format!("{remedy} is held back by {by}: {reason}."))
    })
}

fn text_of_act(acted: &Acted) -> Option<(NoteReason, String)> {
    let remedy = RemedyKind::of_word(&acted.remedy)?;
    let ip = acted.about.ip.map_or_else(|| "the address".to_owned(), |ip| ip.to_string());
    let reason = &acted.reason;
    if !acted.is_final {
        let text = match (remedy, acted.outcome.as_str()) {
            // Nobody knows yet: its end tells.
            (_, "unanswered") => return None,
            (RemedyKind::DisconnectEndpoint, _) => {
                format!(
                    "Disconnected the endpoint that was left over with {ip}: {reason}. The address is free."
                )
            }
            (RemedyKind::DeletePod, _) => {
                format!(
                    "Deleted the pod, which never ran, so that it gets another address than {ip}: {reason}."
                )
            }
            (RemedyKind::RestartAgent, _) => {
                format!(
                    "Deleted the pod of this node's Cilium agent, which is at odds with itself about {ip}: {reason}."
                )
            }
        };
        return Some((NoteReason::done(remedy), text));
    }
    match ActOutcome::of_word(&acted.outcome)? {
        ActOutcome::Failed | ActOutcome::NotHealed | ActOutcome::Interrupted => {
            Some((NoteReason::failed(remedy), format!("{remedy} for {ip}: {}: {reason}.", acted.outcome)))
        }
        // The pod's own Events tell how it went on.
        ActOutcome::Healed | ActOutcome::Disconnected | ActOutcome::Deleted | ActOutcome::Aborted => None,
    }
}

/// `docs/kubernetes-events.md`.
pub fn document() -> String {
    let mut table = String::new();
    for NoteRow { word, type_, action, when, to_do, .. } in &NOTES {
        let _ = writeln!(table, "| `{word}` | {} | `{action}` | {when} | {to_do} |", type_.as_str());
    }
    let tail = NoteTail::example();
    format!(
        "# Kubernetes Events\n\n\
         This page is made from the table in `src/engine/announce.rs`; `UPDATE_DOCS=1 cargo test --lib engine` writes it anew.\n\n\
         What the watchdog finds and does is written as Events (`events.k8s.io/v1`, `reportingController: cilium-leak-healer`) on three\n\
         objects: the wedged pod, its controller (a deleted pod's Events are hard to find), and the Node. So `kubectl describe pod` tells\n\
         the story by itself, next to what the kubelet says:\n\n\
         \x20   kubectl describe pod -n NAMESPACE POD\n\
         \x20   kubectl get events -A --field-selector reportingComponent=cilium-leak-healer\n\n\
         The related object is the pod that the address belongs to, where one is known, else the Node; on controller and Node, the wedged\n\
         pod. A repetition is counted in the same Event. A note is at most 1 kB, on one line; a longer sentence is cut, its end is not:\n\n\
         \x20   … {tail}\n\n\
         It has the verdict, the address, where there is one the outcome or what holds the act back, the node, and the correlation id of\n\
         the log, the ledger and the [event stream](events.md). [`report`](report.md) reads it.\n\n\
         Events are written behind a queue of 64 and never waited for: what cannot be written is logged and counted\n\
         (`cilium_leak_healer_kubernetes_events_total`). The ledger is what is complete.\n\n\
         | reason | type | action | when | what to do |\n|---|---|---|---|---|\n{table}\n\
         Verdicts are explained in [`verdicts.md`](verdicts.md), what holds an act back in [`bounds.md`](bounds.md).\n"
    )
}
