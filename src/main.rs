//! Parses the command line and runs one verb.

use std::process::ExitCode;

fn main() -> ExitCode {
    match cilium_leak_healer::cli::Cli::of_process().execute() {
        Ok(status) => status,
        Err(error) => {
            drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("error: {error:#}\n")));
            ExitCode::FAILURE
        }
    }
}
