//! The command line: one file a verb, and what they share.
//!
//! Exit status: 0 done, 1 it could not be done, 2 the command line is wrong.

mod connection;
#[cfg(feature = "sim")]
mod demo;
mod duration;
mod log;
mod run;

use clap::{Parser, Subcommand};

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
    /// Show a leak being healed on a simulated cluster; needs nothing but this program.
    #[cfg(feature = "sim")]
    Demo(demo::DemoArgs),
}

impl Cli {
    /// Runs the verb to its end.
    pub fn execute(self) -> anyhow::Result<()> {
        // One thread is enough for a node, and each further one costs memory on every node.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            match self.verb {
                Verb::Run(args) => run::run(*args).await,
                #[cfg(feature = "sim")]
                Verb::Demo(args) => demo::demo(args).await,
            }
        })
    }
}
