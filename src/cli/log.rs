//! The log: to standard error, as text or as one JSON object a line.

use std::io::{IsTerminal, stderr};

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub(super) struct LogArgs {
    /// Form of the log lines on standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "CILIUM_LEAK_HEALER_LOG_FORMAT")]
    log_format: LogFormat,

    /// What is logged: a level, or directives as in `info,kube=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = filter, env = "CILIUM_LEAK_HEALER_LOG_LEVEL")]
    log_level: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The crates below log each failed request; what matters of that is told by the engine.
const QUIET: &str = "kube=off,kube_client=off,kube_runtime=off,hyper=warn,tower=warn";

fn filter(text: &str) -> Result<String, String> {
    // A word that is no level would be taken for the name of a crate, and silence all others.
    let is_level = |word: &str| LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level));
    if let Some(word) = text.split(',').find(|part| !part.contains('=') && !is_level(part.trim())) {
        return Err(format!("{word:?} is no level: give one of {}, or CRATE=LEVEL", LEVELS.join(", ")));
    }
    let parsed: Result<EnvFilter, ParseError> = text.parse();
    parsed.map(|_| text.to_owned()).map_err(|error| format!("{text:?} is no log filter: {error}"))
}

impl LogArgs {
    /// Begins to log. Without effect when a log is there already.
    pub(super) fn init(&self) -> anyhow::Result<()> {
        let filter: EnvFilter = format!("{QUIET},{}", self.log_level).parse()?;
        let builder =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_target(false);
        let started = match self.log_format {
            LogFormat::Text => {
                builder.with_ansi(stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()).try_init()
            }
            LogFormat::Json => builder.json().flatten_event(true).try_init(),
        };
        drop(started);
        Ok(())
    }
}
