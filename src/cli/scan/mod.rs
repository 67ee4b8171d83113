//! `scan`: reads a cluster into a snapshot, judges that, and prints it. Read-only.
//!
//! A live scan and a saved one take the same way: [`capture()`] makes a [`Snapshot`], [`replay`] judges it.

mod agents;
mod capture;
mod live;
mod notes;
mod one;
mod progress;
mod record;
mod scope;
mod table;

use std::collections::HashSet;
use std::io::{IsTerminal as _, Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use kube::Client;

pub(super) use self::one::{OneByOne, Seen};

use self::agents::AgentOptions;
use self::capture::{CaptureOptions, Captured, capture};
use self::notes::Notes;
use self::progress::Progress;
use self::scope::Scope;
use self::table::{Context, Style, rows, summary};
use super::connection::ConnectionArgs;
use super::duration;
use crate::domain::{Limits, NodeName, PodUid};
use crate::kube::{LabelMatch, PodStore, Reader, connect};
use crate::metrics::Metrics;
use crate::snapshot::{ScanReport, Snapshot, replay};

/// Findings exist.
const FOUND: u8 = 2;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct ScanArgs {
    /// Only pods of this node.
    #[arg(long, value_name = "NODE")]
    node: Option<NodeName>,

    /// Only pods of this namespace.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Only pods with these labels, as in kubectl.
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "from")]
    selector: Option<String>,

    /// Form of the output: wide has the reasons and whole names.
    #[arg(short, long, value_enum, default_value_t = Output::Table, value_name = "FORM")]
    output: Output,

    /// Without the line with the columns' names; what was looked at goes to standard error then.
    #[arg(long)]
    no_headers: bool,

    /// Ask every agent for its list: finds CiliumEndpoints that are left over, wrong or missing.
    #[arg(long, conflicts_with = "from")]
    hygiene: bool,

    /// Write what was read to a file that `--from` and `explain --from` judge again.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// With --save: other names, namespaces and addresses in the file, equal ones staying equal.
    #[arg(long, requires = "save")]
    anonymize: bool,

    /// Judge a saved snapshot instead of a cluster.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    from: Option<PathBuf>,

    /// Scan again and again, and print when something changed; ends with Ctrl-C.
    #[arg(long, conflicts_with_all = ["from", "save"])]
    watch: bool,

    /// Time between two scans of --watch.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::positive)]
    interval: Duration,

    /// Exit status 0 also where something was found.
    #[arg(long)]
    exit_zero: bool,

    #[command(flatten)]
    agent: AgentArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Cilium agent")]
pub(super) struct AgentArgs {
    /// Namespace of the agents' pods; without it any.
    #[arg(long, value_name = "NAMESPACE", env = "CILIUM_LEAK_HEALER_AGENT_NAMESPACE")]
    agent_namespace: Option<String>,

    /// Labels of the agents' pods.
    #[arg(long, value_name = "KEY=VALUE,…", default_value = "k8s-app=cilium", value_parser = selector, env = "CILIUM_LEAK_HEALER_AGENT_POD_SELECTOR")]
    agent_pod_selector: String,

    /// The agent's container in them.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "cilium-agent",
        env = "CILIUM_LEAK_HEALER_AGENT_CONTAINER"
    )]
    agent_container: String,

    /// Limit of one command in the agent's container.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::positive)]
    exec_timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Wide,
    Json,
    Yaml,
}

fn selector(text: &str) -> Result<String, String> {
    text.parse::<LabelMatch>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

impl ScanArgs {
    fn scope(&self) -> Scope {
        Scope { namespace: self.namespace.clone(), node: self.node.clone(), labels: self.selector.clone() }
    }

    fn capture_options(&self) -> CaptureOptions {
        CaptureOptions {
            scope: self.scope(),
            hygiene: self.hygiene,
            whole: self.save.is_some(),
            agents: self.agent.options(),
        }
    }
}

impl AgentArgs {
    fn options(&self) -> AgentOptions {
        AgentOptions {
            namespace: self.agent_namespace.clone(),
            selector: self.agent_pod_selector.clone(),
            container: self.agent_container.clone(),
            timeout: self.exec_timeout,
        }
    }

    /// Namespace, label and container, for commands that a person can copy.
    pub(super) fn place(&self) -> (Option<&str>, &str, &str) {
        (self.agent_namespace.as_deref(), &self.agent_pod_selector, &self.agent_container)
    }
}

/// A report with what is to be said beside it.
struct Scanned {
    report: ScanReport,
    context: Context,
}

/// Scans, once or again and again. `called` is how this program was called.
pub(super) async fn scan(args: ScanArgs, called: &str) -> Result<ExitCode> {
    if let Some(path) = &args.from {
        let snapshot = Snapshot::load(path)?;
        let notes = Notes::of(&snapshot);
        let scanned = judge(&args, &snapshot, notes, None, Vec::new(), false).await;
        in_scope(&args, &scanned)?;
        if let Some(file) = &args.save {
            save(&args, file, snapshot)?;
        }
        print(&args, &scanned)?;
        return Ok(exit(&args, &scanned));
    }
    let options = args.connection.options();
    let (client, _) = connect(&options, &Arc::new(Metrics::new())).await?;
    let reader = Reader::new(client.clone(), options.timeout, PodStore::default());
    if args.watch {
        return watch(&args, &reader, &client, called).await;
    }
    let scanned = once(&args, &reader, &client).await?;
    in_scope(&args, &scanned)?;
    print(&args, &scanned)?;
    Ok(exit(&args, &scanned))
}

/// Who mistypes a node or a namespace must not read that nothing was found.
fn in_scope(args: &ScanArgs, scanned: &Scanned) -> Result<()> {
    let is_narrowed = args.node.is_some() || args.namespace.is_some() || args.selector.is_some();
    if is_narrowed && scanned.report.summary.pods == 0 && scanned.report.findings.is_empty() {
        bail!("no pod is in this scope: look at --node, --namespace and --selector");
    }
    Ok(())
}

fn exit(args: &ScanArgs, scanned: &Scanned) -> ExitCode {
    if scanned.report.findings.is_empty() || args.exit_zero { ExitCode::SUCCESS } else { FOUND.into() }
}

async fn once(args: &ScanArgs, reader: &Reader, client: &Client) -> Result<Scanned> {
    let options = args.capture_options();
    let progress = Progress::new(true);
    let captured = capture(reader, client.clone(), &options, &progress).await;
    progress.end();
    let Captured { snapshot, notes, selected, counts, left_out } = captured?;
    let mut scanned = judge(args, &snapshot, notes, selected.as_ref(), left_out, true).await;
    if let Some((pods, nodes)) = counts {
        let summary = &mut scanned.report.summary;
        (summary.pods, summary.nodes) = (pods, nodes);
    }
    let blind = snapshot
        .cluster
        .unreadable
        .iter()
        .any(|unread| unread.resource == crate::snapshot::Resource::Events && unread.name.is_none());
    if let Some(file) = &args.save {
        save(args, file, snapshot)?;
    }
    if blind && scanned.report.findings.is_empty() {
        bail!("the Events cannot be read, so nothing can be said: {}", scanned.context.unread.join("; "));
    }
    Ok(scanned)
}

async fn judge(
    args: &ScanArgs,
    snapshot: &Snapshot,
    notes: Notes,
    selected: Option<&HashSet<PodUid>>,
    left_out: Vec<String>,
    live: bool,
) -> Scanned {
    let scope = args.scope();
    let report = replay(snapshot, &Limits::default()).await;
    let report = scope.narrow(report, snapshot, selected);
    let report = if live { scope::live(report) } else { report };
    let waits = snapshot.cluster.pods.iter().filter_map(|pod| pod.to_domain().ok());
    let waiting = waits
        .filter(|pod| pod.node.is_some() && pod.not_waiting().is_none() && scope.has_pod(pod, selected))
        .count();
    Scanned { report, context: Context { waiting, unread: notes.lines().collect(), left_out } }
}

fn save(args: &ScanArgs, file: &std::path::Path, snapshot: Snapshot) -> Result<()> {
    let snapshot = if args.anonymize { snapshot.anonymize()? } else { snapshot };
    let bytes = snapshot.save(file)?;
    drop(writeln!(stderr(), "saved {} ({bytes} bytes)", file.display()));
    Ok(())
}

/// Standard output gets all of it or nothing: it is made before anything is written.
fn print(args: &ScanArgs, scanned: &Scanned) -> Result<()> {
    let (out, beside) = render(args, scanned)?;
    stdout().write_all(out.as_bytes()).and_then(|()| stdout().flush()).or_else(|error| {
        // The reader, `head` for example, has had enough.
        if error.kind() == std::io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
    })?;
    drop(stderr().write_all(beside.as_bytes()));
    Ok(())
}

/// What goes to standard output, and what to standard error.
fn render(args: &ScanArgs, scanned: &Scanned) -> Result<(String, String)> {
    let Scanned { report, context } = scanned;
    let unread = |context: &Context| {
        let lines = context.unread.iter().map(|line| format!("could not be read: {line}\n"));
        lines.collect::<String>()
    };
    Ok(match args.output {
        Output::Json => (format!("{}\n", serde_json::to_string_pretty(report)?), unread(context)),
        Output::Yaml => {
            let text = serde_saphyr::to_string(report).context("the report cannot be written as YAML")?;
            (text, unread(context))
        }
        Output::Table | Output::Wide => {
            let style = Style {
                wide: args.output == Output::Wide,
                headers: !args.no_headers,
                colour: stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty()),
            };
            let (rows, summary) = (rows(report, style), summary(report, context));
            if args.no_headers {
                (rows, summary)
            } else if rows.is_empty() {
                (summary, String::new())
            } else {
                (format!("{rows}\n{summary}"), String::new())
            }
        }
    })
}

/// Scans until Ctrl-C. A scan that fails is told; the next one may work.
async fn watch(args: &ScanArgs, reader: &Reader, client: &Client, called: &str) -> Result<ExitCode> {
    let mut last: Option<Scanned> = None;
    let mut failed: Option<String> = None;
    loop {
        let scanned = tokio::select! {
            scanned = once(args, reader, client) => scanned,
            stopped = tokio::signal::ctrl_c() => { stopped?; break; }
        };
        match scanned {
            Ok(scanned) => {
                failed = None;
                if last.as_ref().is_none_or(|last| last.has_changed(&scanned)) {
                    let at = scanned.report.taken_at.strftime("%Y-%m-%dT%H:%M:%SZ");
                    if matches!(args.output, Output::Table | Output::Wide) {
                        drop(writeln!(stderr(), "--- {called} scan, {at}"));
                    }
                    print(args, &scanned)?;
                }
                last = Some(scanned);
            }
            Err(error) => {
                let said = format!("{error:#}");
                if failed.as_ref() != Some(&said) {
                    drop(writeln!(stderr(), "error: {said}"));
                }
                failed = Some(said);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(args.interval) => {}
            stopped = tokio::signal::ctrl_c() => { stopped?; break; }
        }
    }
    if failed.is_some() {
        return Ok(ExitCode::FAILURE);
    }
    Ok(last.map_or(ExitCode::SUCCESS, |last| exit(args, &last)))
}

impl Scanned {
    /// Whether a person would want to see it: evidence tells times, which always change.
    fn has_changed(&self, next: &Self) -> bool {
        let told = |scanned: &Self| {
            let lines = scanned.report.findings.iter().map(crate::snapshot::ReportFinding::line);
            (lines.collect::<Vec<String>>(), scanned.context.unread.clone())
        };
        told(self) != told(next)
    }
}
