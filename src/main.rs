//! Parses the command line and runs one verb.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cilium_leak_healer::cli::Cli::parse().execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("error: {error:#}\n")));
            ExitCode::FAILURE
        }
    }
}
