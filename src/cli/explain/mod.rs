//! `explain`: the story of one wedge, from a cluster or from a snapshot. It reads and prints; it changes nothing.

mod advice;
mod facts;
mod fill;
mod live;
mod pick;
mod story;
mod text;

use std::io::{Write, stderr, stdout};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;

use super::Output;
use super::connection::ConnectionArgs;
use super::scan::{AgentArgs, OneByOne, Seen};
use super::wrap::clean;
use crate::domain::{AnomalyKind, Events, Limits, NewestFailure, NodeName, Pod, SandboxEvents, judge};
use crate::engine::{Sources, observe};
use crate::snapshot::{ReportFinding, Resource, Snapshot, View, replay};
use facts::Story;
use fill::AgentPlace;
use pick::{Candidate, Target, pick};
use story::Told;

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The pod that hangs, or the address that it waits for. A name without namespace is looked for in all of them.
    #[arg(value_name = "[NAMESPACE/]POD|IP")]
    target: Target,

    /// Namespace of the pod.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Judge this snapshot (`scan --save`), not a cluster.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    from: Option<PathBuf>,

    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,

    #[command(flatten)]
    agent: AgentArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Tells the story. Nothing is printed before it is whole.
pub(super) async fn explain(args: ExplainArgs, called: &str) -> Result<()> {
    let target = args.target.clone().within(args.namespace.as_deref()).map_err(|why| anyhow!(why))?;
    let (namespace, label, container) = args.agent.place();
    let mut place =
        AgentPlace { label: label.to_owned(), container: container.to_owned(), ..AgentPlace::default() };
    if let Some(namespace) = namespace {
        namespace.clone_into(&mut place.namespace);
    }
    let story = match &args.from {
        Some(from) => {
            let snapshot = Snapshot::load(from)?;
            let story = of_snapshot(&snapshot, &target, args.namespace.as_deref(), &place, called).await;
            story.map_err(|why| anyhow!("{}: {why}", from.display()))?
        }
        None => of_cluster(&args, &target, place, called).await?,
    };
    let out = match args.output {
        Output::Text => text::text(&story),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&story)?),
    };
    stdout().write_all(out.as_bytes()).or_else(|error| {
        // The reader, `head` for example, has had enough.
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Ok(())
        } else {
            Err(anyhow!("standard output: {error}"))
        }
    })
}

/// The story of one pod of a live cluster.
async fn of_cluster(
    args: &ExplainArgs,
    target: &Target,
    mut place: AgentPlace,
    called: &str,
) -> Result<Story> {
    let cluster = OneByOne::new(&args.connection, &args.agent).await?;
    let seen = live::seen(&cluster, target, args.namespace.as_deref()).await.map_err(|why| anyhow!(why))?;
    let Seen { mut obs, events, agent_namespace, unread } = seen;
    for line in unread {
        drop(writeln!(stderr(), "could not be read: {}", clean(&line)));
    }
    if let Some(namespace) = agent_namespace {
        place.namespace = namespace;
    }
    place.flags = args.connection.flags();
    let judgement = judge(&obs, &Limits::default());
    // The rules need no Events of a pod that does not wait; its story does.
    obs.events = events;
    Ok(Told { obs: &obs, judgement: &judgement, anomalies: &[], mode: "live", place: &place, called }.story())
}

/// The story of one pod of a snapshot.
async fn of_snapshot(
    snapshot: &Snapshot,
    target: &Target,
    namespace: Option<&str>,
    place: &AgentPlace,
    called: &str,
) -> Result<Story, String> {
    let view = View::new(snapshot);
    let nowhere = no_node()?;
    let mut addresses = Vec::with_capacity(view.pods.len());
    for pod in &view.pods {
        let node = pod.node.as_ref().unwrap_or(&nowhere);
        addresses.push(disputed(pod, &view.node(node).events(pod).await));
    }
    let pod = pick(target, &candidates(&view.pods, &addresses, namespace)).map_err(|why| {
        let unread = snapshot.cluster.unreadable.iter().any(|it| it.resource == Resource::Pods);
        if unread { format!("{why}; not all pods could be read when the snapshot was taken") } else { why }
    })?;
    let node = pod.node.as_ref().unwrap_or(&nowhere);
    let sources = view.node(node);
    let limits = Limits::default();
    let mut obs = observe(&sources, node, pod.clone(), snapshot.taken_at, |_, _| None).await;
    let judgement = judge(&obs, &limits);
    if judgement.finding().is_none() {
        // The rules need no Events of a pod that does not wait; its story does.
        obs.events = sources.events(pod).await;
    }
    let addresses = judgement.finding().and_then(|finding| finding.ip);
    let report = replay(snapshot, &limits).await;
    let anomalies: Vec<(AnomalyKind, String)> =
        report.findings.iter().filter_map(|finding| about(finding, pod, addresses)).collect();
    let told =
        Told { obs: &obs, judgement: &judgement, anomalies: &anomalies, mode: "replay", place, called };
    Ok(told.story())
}

/// A pod of no node is judged as one of a node that is not its own: it waits for no sandbox.
fn no_node() -> Result<NodeName, String> {
    "no-node".parse().map_err(|error| format!("{error}"))
}

/// The addresses that a pod's newest failure says are in use, where the pod waits for a sandbox.
fn disputed(pod: &Pod, events: &Events) -> Vec<IpAddr> {
    let Some(node) = pod.node.as_ref().filter(|_| pod.not_waiting().is_none()) else {
        return Vec::new();
    };
    match SandboxEvents::of(pod, node, &events.known).newest() {
        NewestFailure::Refusal(failure) => failure.addresses,
        NewestFailure::Nothing | NewestFailure::Other(_) | NewestFailure::CameUp(_) => Vec::new(),
    }
}

/// The pods that may be meant, with the addresses that each waits for.
fn candidates<'a>(
    pods: &'a [Pod],
    addresses: &'a [Vec<IpAddr>],
    namespace: Option<&str>,
) -> Vec<Candidate<'a>> {
    pods.iter()
        .zip(addresses)
        .filter(|(pod, _)| namespace.is_none_or(|namespace| pod.name.namespace() == namespace))
        .map(|(pod, disputed)| Candidate { pod, disputed })
        .collect()
}

/// A finding without a wedge that is about the pod, its CiliumEndpoint, or the disputed address.
fn about(finding: &ReportFinding, pod: &Pod, ip: Option<IpAddr>) -> Option<(AnomalyKind, String)> {
    let kind = AnomalyKind::ALL.into_iter().find(|kind| kind.as_str() == finding.verdict)?;
    let subject = &finding.subject;
    let same_pod =
        subject.namespace.as_deref() == Some(pod.name.namespace()) && subject.name == pod.name.name();
    let same_ip = ip.is_some_and(|ip| finding.ip.as_deref() == Some(ip.to_string().as_str()));
    (same_pod || same_ip).then(|| (kind, finding.reason.clone()))
}
