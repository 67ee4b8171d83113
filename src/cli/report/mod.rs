//! `report`: what the watchdogs healed, refused and left, with evidence. Read-only. The last step of an end-to-end job.

mod ending;
mod fold;
mod form;
mod gather;
mod junit;
mod markdown;
mod notes;

#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;

use self::form::{Ending, FailOn, HealReport, Summary};
use self::gather::{Gathered, gather};
use super::watchdogs::{Since, WatchdogArgs, aside};
use crate::kube::connect;
use crate::metrics::Metrics;

/// The exit status of an incomplete report.
const INCOMPLETE: u8 = 3;
/// The exit status where a condition of `--fail-on` is met.
const MET: u8 = 2;

const MORE: &str = "\
Several --format and --output can be given: the first file is for the first format, and so on. A format without a file is printed.
--format junit --output junit.xml --format markdown >> \"$GITHUB_STEP_SUMMARY\" gives both.

Exit status: 0 the report is made; 1 it could not be made, or the command line is wrong; 2 a condition of --fail-on is met; 3 the report \
is incomplete, and no condition is met by what is known: a node could not be read and there are no Kubernetes Events of it, or neither \
watchdogs nor their Events were found. The report is printed with 2 and 3 as well.

It needs the rights to list pods, and to get and create pods/portforward (--via proxy: to get pods/proxy), in the watchdog's namespace; to \
list Events in all namespaces; and to list nodes, to notice one without a watchdog.";

#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(super) struct ReportArgs {
    /// Form of the report; several can be given.
    #[arg(short, long, value_enum, value_name = "FORM", default_value = "markdown")]
    format: Vec<Format>,

    /// File for the format at the same place in the order; - is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,

    /// Exit with 2 if there is a finding with one of these endings.
    #[arg(long, value_enum, value_name = "ENDING,…", value_delimiter = ',')]
    fail_on: Vec<FailOn>,

    /// Leave out what was over before: a duration before now, or an instant (RFC 3339).
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    since: Option<Since>,

    #[command(flatten)]
    watchdogs: WatchdogArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Markdown,
    Json,
    Junit,
}

impl Format {
    fn text(self, report: &HealReport) -> Result<String> {
        Ok(match self {
            Self::Markdown => markdown::text(report),
            Self::Json => serde_json::to_string_pretty(report)? + "\n",
            Self::Junit => junit::text(report)?,
        })
    }
}

/// Makes the report.
pub(super) async fn report(args: ReportArgs) -> Result<ExitCode> {
    let targets = targets(&args.format, &args.output)?;
    let (client, _) = connect(&args.watchdogs.options(), &Arc::new(Metrics::new())).await?;
    let now = Timestamp::now();
    let since = args.since.map(|since| since.instant(now));
    let search = args.watchdogs.search(client.clone());
    let gathered = gather(&search, &args.watchdogs.wire(client), since).await?;
    let report = HealReport::of(gathered, &args.fail_on, since, now);
    for (format, file) in targets {
        write(&format.text(&report)?, file)?;
    }
    Ok(report.end())
}

/// Where each format goes; `None`: to standard output.
fn targets<'a>(formats: &[Format], files: &'a [PathBuf]) -> Result<Vec<(Format, Option<&'a Path>)>> {
    if files.len() > formats.len() {
        bail!("there are more --output than --format: the first file is for the first format, and so on");
    }
    let files = files.iter().map(|file| Some(file.as_path()).filter(|file| *file != Path::new("-")));
    let targets: Vec<_> = formats.iter().copied().zip(files.chain(std::iter::repeat(None))).collect();
    if targets.iter().filter(|(_, file)| file.is_none()).count() > 1 {
        bail!("only one format can go to standard output: give --output for the others");
    }
    Ok(targets)
}

fn write(text: &str, file: Option<&Path>) -> Result<()> {
    if let Some(file) = file {
        return std::fs::write(file, text).with_context(|| format!("write {}", file.display()));
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("write the report")
}

impl HealReport {
    fn of(gathered: Gathered, fail_on: &[FailOn], since: Option<Timestamp>, now: Timestamp) -> Self {
        let Gathered { fold, nodes, events, remarks, complete } = gathered;
        let drafts = fold.into_drafts().filter(|draft| draft.standing || Some(draft.last_seen) >= since);
        let mut findings: Vec<_> = drafts.map(|draft| draft.finding(fail_on)).collect();
        findings.sort_by(|a, b| {
            let key = |it: &form::HealFinding| (it.ending, it.node.clone(), it.pod.clone(), it.ip.clone());
            key(a).cmp(&key(b))
        });
        let count = |ending| findings.iter().filter(|finding| finding.ending == ending).count();
        let summary = Summary {
            findings: findings.len(),
            unhealed: count(Ending::Unhealed),
            refused: count(Ending::Refused),
            open: count(Ending::Open),
            healed: count(Ending::Healed),
            passed: count(Ending::Passed),
            failed: findings.iter().filter(|finding| !finding.fails.is_empty()).count(),
        };
        Self {
            kind: "HealReport",
            schema_version: 1,
            time: now,
            since,
            complete,
            remarks,
            fail_on: fail_on.to_vec(),
            summary,
            nodes,
            kubernetes_events: events,
            findings,
        }
    }

    /// How many findings have each ending, in words.
    fn counts(&self) -> String {
        let Summary { unhealed, refused, open, healed, passed, .. } = self.summary;
        let counts = [unhealed, refused, open, healed, passed].into_iter().zip(Ending::ALL);
        let counts = counts.filter(|(count, ending)| {
            *count > 0 || matches!(ending, Ending::Unhealed | Ending::Refused | Ending::Healed)
        });
        counts.map(|(count, ending)| format!("{count} {}", ending.as_str())).collect::<Vec<_>>().join(", ")
    }

    /// What is missing, and what else a reader must know of the sources: the remarks, then each node that was not read whole.
    fn missing(&self) -> impl Iterator<Item = String> {
        let nodes =
            self.nodes.iter().filter_map(|read| Some(format!("{}: {}", read.node, read.why.as_ref()?)));
        self.remarks.iter().cloned().chain(nodes)
    }

    /// The exit status, and why it is that one.
    fn end(&self) -> ExitCode {
        if !self.complete {
            aside("incomplete: more may have happened than the report says");
            self.missing().for_each(|why| aside(&format!("incomplete: {why}")));
        }
        if self.summary.failed > 0 {
            let words: Vec<_> = self.fail_on.iter().map(|on| on.as_str()).collect();
            aside(&format!("--fail-on={}: {} findings", words.join(","), self.summary.failed));
            return ExitCode::from(MET);
        }
        if self.complete { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) }
    }
}
