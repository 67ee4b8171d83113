//! The log: to standard error, as text or as one JSON object a line.

use std::io::{IsTerminal, stderr};

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, fmt, reload};

use crate::admin::LogFilter;

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

/// The filter with what is always quiet; more of that is heard only where the text names it.
fn parsed(text: &str) -> Result<EnvFilter, ParseError> {
    format!("{QUIET},{text}").parse()
}

impl LogArgs {
    /// Begins to log; the filter can be changed later. Without effect when a log is there already.
    pub(super) fn init(&self) -> anyhow::Result<LogHandle> {
        let (filter, handle) = reload::Layer::new(parsed(&self.log_level)?);
        let lines = fmt::layer().with_writer(stderr).with_target(false);
        let lines = match self.log_format {
            LogFormat::Text => {
                lines.with_ansi(stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()).boxed()
            }
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        drop(tracing_subscriber::registry().with(filter).with(lines).try_init());
        Ok(LogHandle(handle))
    }

    /// The filter of the start.
    pub(super) fn level(&self) -> &str {
        &self.log_level
    }
}

/// Changes the filter of the log.
pub(super) struct LogHandle(reload::Handle<EnvFilter, Registry>);

impl LogFilter for LogHandle {
    fn check(&self, text: &str) -> Result<(), String> {
        filter(text).map(drop)
    }

    fn set(&self, text: &str) -> Result<(), String> {
        let filter = parsed(text).map_err(|error| format!("{text:?} is no log filter: {error}"))?;
        self.0.reload(filter).map_err(|error| format!("the log cannot be changed: {error}"))
    }
}
