//! `events`: follows the event streams of all nodes' watchdogs, merged by time. Read-only.

mod board;
mod follow;
mod merge;
mod session;
mod text;
mod until;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use self::follow::Wish;
use self::session::Session;
use self::until::Until;
use super::duration;
use super::watchdogs::{OPENING, Since, WatchdogArgs, kind};
use crate::kube::connect;
use crate::metrics::Metrics;
use crate::stream::EventKind;

/// Reports that wait to be merged.
const REPORTS: usize = 1024;

const EXIT_STATUS: &str = "\
Exit status: 0 it came to the end that was asked for, 1 it could not be done, 2 the command line is wrong. With --no-follow or --for, 1 \
also says that some node could not be read to the end: what could be read is printed, and standard error names the nodes that are missing. \
With --until, 1 also says that the event did not come.

It needs the rights to list pods, and to get and create pods/portforward (--via proxy: to get pods/proxy), in the watchdog's namespace.";

#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(super) struct EventsArgs {
    /// Only these types, such as judged,acted. A gap is always told, a heartbeat only where it is named.
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',', value_parser = kind)]
    types: Vec<EventKind>,

    /// Only what happened since: a duration before now, or an instant (RFC 3339). Without it all that is kept.
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    since: Option<Since>,

    /// End after what is kept.
    #[arg(long)]
    no_follow: bool,

    /// End after this time.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::positive, conflicts_with = "no_follow")]
    limit: Option<Duration>,

    /// End with the first event of this type, acted:OUTCOME or judged:VERDICT. Old ones count: --since 0s leaves them out.
    #[arg(long, value_name = "TYPE", value_parser = Until::parse)]
    until: Option<Until>,

    /// Form of the output; times are in UTC. ndjson: one CloudEvent a line, as the watchdog sent it.
    #[arg(short, long, value_enum, default_value_t = Output::Text, value_name = "FORM")]
    output: Output,

    #[command(flatten)]
    watchdogs: WatchdogArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Ndjson,
}

/// Follows until the end that was asked for.
pub(super) async fn events(args: EventsArgs) -> Result<ExitCode> {
    let (client, _) = connect(&args.watchdogs.options(), &Arc::new(Metrics::new())).await?;
    let search = args.watchdogs.search(client.clone());
    let directory =
        search.list().await.map_err(|why| anyhow!("the watchdogs' pods cannot be listed: {why}"))?;
    if directory.is_empty() {
        let (selector, namespace) = (&search.selector, &search.namespace);
        bail!(
            "no pod with the labels {selector} in namespace {namespace}: look at --watchdog-namespace and --selector"
        );
    }
    let wish = Arc::new(Wish {
        wire: args.watchdogs.wire(client),
        since: args.since.map(|since| since.instant(Timestamp::now())),
        types: types(&args),
        follow: !args.no_follow,
        gate: Semaphore::new(OPENING),
        relist: Notify::new(),
    });
    let (sender, directory) = watch::channel(Arc::new(directory));
    let (out, reports) = mpsc::channel(REPORTS);
    let mut session = Session::new(&args, Arc::clone(&wish), directory, out);
    let mut followers = JoinSet::new();
    tokio::select! {
        ended = session.run(reports, &mut followers) => ended?,
        () = search.keep(&sender, &wish.relist) => {}
    }
    Ok(session.end())
}

/// What is read: the event that ends it as well.
fn types(args: &EventsArgs) -> Vec<EventKind> {
    let mut types = args.types.clone();
    if let (false, Some(until)) = (types.is_empty(), &args.until) {
        types.push(until.kind());
    }
    types
}
