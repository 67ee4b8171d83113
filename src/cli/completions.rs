//! Hidden verbs for packagers: shell completions and man pages, made from the command line's own definition.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Directory for one page a verb; without it the page of the program goes to standard output.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The name of the file that is called, with which a shell looks for completions.
fn file_name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).replace(' ', "-")
}

/// Writes the completions to standard output.
pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<()> {
    let name = file_name(&command);
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut out);
    io::stdout().write_all(&out).context("standard output")
}

/// Writes the man pages.
pub(super) fn man(args: &ManArgs, command: Command) -> Result<()> {
    let command = command.disable_help_subcommand(true);
    let Some(dir) = &args.dir else {
        let mut out = Vec::new();
        Man::new(command).render(&mut out)?;
        return io::stdout().write_all(&out).context("standard output");
    };
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    clap_mangen::generate_to(command, dir).with_context(|| dir.display().to_string())
}
