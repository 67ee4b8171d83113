//! The command line: one file a verb, and what they share.
//!
//! Exit status: 0 done, 1 it could not be done, 2 the command line is wrong. A scan is different: 0 nothing found, 1 it
//! could not be done (a wrong command line too), 2 there are findings. A report's 2 says that a condition of `--fail-on` is
//! met, 3 that it is incomplete.

mod called;
mod completions;
mod connection;
#[cfg(feature = "sim")]
mod demo;
mod doctor;
mod duration;
mod events;
mod explain;
mod ledger;
mod log;
#[cfg(test)]
mod reference;
mod report;
mod run;
mod scan;
mod watchdogs;
mod wrap;

#[cfg(feature = "sim")]
pub use run::{Around, InProcess};
use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

/// Watches one node for Cilium endpoints that outlived their pods, and heals only what is provably stale.
#[derive(Debug, Parser)]
#[command(name = "cilium-leak-healer", version, max_term_width = 110, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Watch this node's pods, judge those that hang, and heal (mode heal) or only tell (mode observe).
    Run(Box<run::RunArgs>),
    /// Judge a whole cluster, or a saved one, once. Read-only. Exit status: 0 nothing found, 1 not done, 2 findings.
    Scan(Box<scan::ScanArgs>),
    /// Explain one wedge: who holds the address, each check, the verdict, what to do. Read-only.
    Explain(Box<explain::ExplainArgs>),
    /// Look at rights, versions, agents and the watchdog: what works, what is missing, how to mend it. Read-only.
    Doctor(Box<doctor::DoctorArgs>),
    /// Follow what the watchdogs of all nodes tell, merged by time. Read-only.
    Events(Box<events::EventsArgs>),
    /// Report what all watchdogs healed, refused and left, for people, programs and CI. Read-only.
    Report(Box<report::ReportArgs>),
    /// Show what the watchdog of this node meant, did and refused, and what it may still do. Read-only.
    Ledger(ledger::LedgerArgs),
    /// Show a leak being healed on a simulated cluster; needs nothing but this program.
    #[cfg(feature = "sim")]
    Demo(demo::DemoArgs),
    /// Print the completions for a shell.
    #[command(hide = true)]
    Completions(completions::CompletionsArgs),
    /// Write the man pages.
    #[command(hide = true)]
    Man(completions::ManArgs),
}

/// The words that a person typed before the verb.
fn called() -> String {
    called::called(std::env::args_os().next().as_deref())
}

/// The definition of the command line, with the name by which it was called.
fn command() -> Command {
    Cli::command().bin_name(called())
}

/// Form of an output that is a text for people or JSON for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Cli {
    /// Parses the command line of this process; what is wrong with it ends the process.
    pub fn of_process() -> Self {
        let matches = command().try_get_matches();
        matches.and_then(|matches| Self::from_arg_matches(&matches)).unwrap_or_else(|error| {
            // The exit status 2 of these says something else.
            let verb = std::env::args().nth(1);
            if error.use_stderr() && matches!(verb.as_deref(), Some("scan" | "report")) {
                drop(error.print());
                std::process::exit(1)
            }
            error.exit()
        })
    }

    /// Runs the verb to its end.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        // One thread is enough for a node, and each further one costs memory on every node.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            match self.verb {
                Verb::Run(args) => run::run(*args).await?,
                Verb::Scan(args) => return scan::scan(*args, &called()).await,
                Verb::Explain(args) => explain::explain(*args, &called()).await?,
                Verb::Doctor(args) => {
                    if !doctor::doctor(*args).await? {
                        return Ok(ExitCode::FAILURE);
                    }
                }
                Verb::Events(args) => return events::events(*args).await,
                Verb::Report(args) => return report::report(*args).await,
                Verb::Ledger(args) => ledger::ledger(&args)?,
                #[cfg(feature = "sim")]
                Verb::Demo(args) => demo::demo(args).await?,
                Verb::Completions(args) => completions::completions(&args, command())?,
                Verb::Man(args) => completions::man(&args, command())?,
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}
