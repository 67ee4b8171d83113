//! Kubernetes Events about what the watchdog did and refused, written behind a short queue.
//!
//! Nobody waits for them and nothing depends on them: what cannot be written is logged, counted and dropped. It must not
//! know what is told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder as Series, Reporter};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::reader::describe;
use crate::domain::{Controller, NodeName, PodName, PodUid, ReadFailure};
use crate::metrics::{Metrics, NoteOutcome};
use crate::text::{cut, one_line};

/// `reportingController` of each Event.
pub const REPORTER: &str = "cilium-leak-healer";

/// Events that wait to be written.
const QUEUE: usize = 64;
/// Bytes of a note, and of the reporting instance, that the API server takes.
pub const NOTE_LIMIT: usize = 1024;
const INSTANCE_LIMIT: usize = 128;
/// Different notes whose repetitions are counted in one Event each.
const NOTES_KEPT: usize = 16;

/// `type` of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteType {
    /// As it should be.
    Normal,
    /// A person should look.
    Warning,
}

impl NoteType {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One Event.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// Its type.
    pub type_: NoteType,
    /// Why, in one word: at most 128 bytes.
    pub reason: &'static str,
    /// What was done or left, in one word: at most 128 bytes.
    pub action: &'static str,
    /// What it is about. The Event lives in its namespace, or in `default`.
    pub regarding: ObjectReference,
    /// Another object that has to do with it.
    pub related: Option<ObjectReference>,
    /// What a person reads; cut to 1 kB, on one line.
    pub note: String,
}

/// Writes Events. Dropping it lets what is queued be written, as long as the runtime lives.
#[derive(Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Note>,
    task: JoinHandle<()>,
    metrics: Arc<Metrics>,
}

impl Recorder {
    /// Starts the task that writes. `timeout` bounds each write.
    pub fn new(client: Client, node: &NodeName, timeout: Duration, metrics: Arc<Metrics>) -> Self {
        let (queue, notes) = mpsc::channel(QUEUE);
        let instance = node.as_str().get(..INSTANCE_LIMIT).unwrap_or(node.as_str()).to_owned();
        let reporter = Reporter { controller: REPORTER.to_owned(), instance: Some(instance) };
        let writer =
            Writer { client, reporter, timeout, metrics: Arc::clone(&metrics), series: VecDeque::new() };
        Self { queue, task: tokio::spawn(writer.run(notes)), metrics }
    }

    /// Queues an Event and returns at once; where the queue is full it is dropped and counted.
    pub fn publish(&self, note: Note) {
        if let Err(error) = self.queue.try_send(note) {
            self.metrics.noted(NoteOutcome::Dropped);
            tracing::debug!(%error, "dropped a Kubernetes Event");
        }
    }

    /// Waits until all that is queued is written, at most that long: at the end of the process.
    pub async fn finish(self, at_most: Duration) {
        let Self { queue, mut task, .. } = self;
        drop(queue);
        if tokio::time::timeout(at_most, &mut task).await.is_err() {
            task.abort();
        }
    }
}

struct Writer {
    client: Client,
    reporter: Reporter,
    timeout: Duration,
    metrics: Arc<Metrics>,
    /// A writer for each note's text, latest first: kube's would count a new text as a repetition of an older one.
    series: VecDeque<(String, Series)>,
}

impl Writer {
    async fn run(mut self, mut notes: mpsc::Receiver<Note>) {
        let mut failing = false;
        while let Some(note) = notes.recv().await {
            let (outcome, why) = self.write(note).await;
            self.metrics.noted(outcome);
            // The first of a row is worth a line; the others would only repeat it.
            match why {
                Some(why) if failing => tracing::debug!(%why, "could not write a Kubernetes Event"),
                Some(ref why) => tracing::warn!(%why, "could not write a Kubernetes Event"),
                None => {}
            }
            failing = outcome == NoteOutcome::Failed;
        }
    }

    async fn write(&mut self, note: Note) -> (NoteOutcome, Option<ReadFailure>) {
        let text = cut(one_line(note.note.trim()), NOTE_LIMIT);
        let event = Event {
            type_: match note.type_ {
                NoteType::Normal => EventType::Normal,
                NoteType::Warning => EventType::Warning,
            },
            reason: note.reason.to_owned(),
            note: Some(text.clone()),
            action: note.action.to_owned(),
            secondary: note.related,
        };
        let series = self.series_of(text);
        match tokio::time::timeout(self.timeout, series.publish(&event, &note.regarding)).await {
            Ok(Ok(())) => (NoteOutcome::Written, None),
            Ok(Err(error)) => (NoteOutcome::Failed, Some(describe(&error))),
            Err(_) => (NoteOutcome::Failed, Some(ReadFailure::Timeout)),
        }
    }

    fn series_of(&mut self, text: String) -> Series {
        let known = self.series.iter().position(|(known, _)| *known == text);
        let entry = known.and_then(|at| self.series.remove(at));
        let entry = entry.unwrap_or_else(|| (text, Series::new(self.client.clone(), self.reporter.clone())));
        let series = entry.1.clone();
        self.series.push_front(entry);
        self.series.truncate(NOTES_KEPT);
        series
    }
}

/// A Node, with its name as UID: so the kubelet does, and `kubectl describe node` looks for that.
pub fn node_reference(node: &NodeName) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.as_str().to_owned()),
        uid: Some(node.as_str().to_owned()),
        ..ObjectReference::default()
    }
}

/// A pod; without its version, or each repetition would be another Event.
pub fn pod_reference(name: &PodName, uid: &PodUid) -> ObjectReference {
    ObjectReference { uid: Some(uid.as_str().to_owned()), ..named_pod_reference(name) }
}

/// The pod of a name, whichever that is.
pub fn named_pod_reference(name: &PodName) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(name.namespace().to_owned()),
        name: Some(name.name().to_owned()),
        ..ObjectReference::default()
    }
}

/// The controller of a pod, in the pod's namespace. The API version is given for the usual kinds only.
pub fn controller_reference(namespace: &str, controller: &Controller) -> ObjectReference {
    let api_version = match controller.kind.as_str() {
        "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Deployment" => Some("apps/v1"),
        "Job" | "CronJob" => Some("batch/v1"),
        "ReplicationController" => Some("v1"),
        "VirtualMachineInstance" => Some("kubevirt.io/v1"),
        _ => None,
    };
    ObjectReference {
        api_version: api_version.map(str::to_owned),
        kind: Some(controller.kind.clone()),
        namespace: Some(namespace.to_owned()),
        name: Some(controller.name.clone()),
        uid: Some(controller.uid.clone()),
        ..ObjectReference::default()
    }
}
