//! `ledger`: what the watchdog of this node meant, did and refused, and what it may still do. Reads one file.
//!
//! Must not know how the bounds are reckoned.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use jiff::Timestamp;

use super::Output;
use super::wrap::wrap;
use crate::domain::RemedyKind;
use crate::ledger::{Act, BreakerView, Ledger, ReadError, Refused, Snapshot, State};

/// Where the watchdog keeps it.
pub(super) const STATE_DIR: &str = "/var/run/cilium-leak-healer";

#[derive(Debug, Args)]
pub(super) struct LedgerArgs {
    /// Directory in which the watchdog of this node keeps its ledger.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR, env = "CILIUM_LEAK_HEALER_STATE_DIR")]
    state_dir: PathBuf,

    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub(super) fn ledger(args: &LedgerArgs) -> Result<()> {
    let dir = &args.state_dir;
    let snapshot = Ledger::read(dir).map_err(|error| {
        let mend = mend(&error);
        anyhow::Error::from(error).context(format!("--state-dir {}: {mend}", dir.display()))
    })?;
    let text = match args.output {
        Output::Text => text(&snapshot, dir, Timestamp::now()),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&snapshot)?),
    };
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader, `head` for example, has had enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("standard output"),
        _ => Ok(()),
    }
}

/// What a person can do about it.
fn mend(error: &ReadError) -> &'static str {
    match error {
        ReadError::Missing { .. } => {
            "no watchdog has written here; run this on the node, or in the watchdog's pod, with the directory that it uses"
        }
        ReadError::Unreadable { .. } => "run this as the user of the watchdog, which is root on most nodes",
        ReadError::Bad { .. } => {
            "this is no ledger that this version reads; a watchdog that starts here sets it aside and begins nothing at first"
        }
    }
}

fn text(snapshot: &Snapshot, dir: &Path, now: Timestamp) -> String {
    let (state, bounds) = (snapshot.state(), snapshot.bounds());
    let mut out = wrap(
        "",
        &format!("Ledger of {} in {}, written {}", snapshot.node(), dir.display(), time(snapshot.written())),
    );
    out.push("\nBudgets".to_owned());
    for remedy in RemedyKind::ALL {
        let next = state.next_token(remedy, now, bounds);
        let next = next.map(|next| format!("; one more at {}", time(next))).unwrap_or_default();
        let left = state.tokens(remedy, now, bounds);
        out.push(format!("  {:<19}  {left} of {}{next}", remedy.as_str(), bounds.bucket(remedy).burst));
    }
    out.push(String::new());
    out.extend(wrap("Breaker  ", &breaker(&state.breaker(now))));
    if !state.futile().is_empty() {
        out.push(format!("Used up  {} (-o json names them)", causes(state)));
    }
    section(&mut out, "Acts without an outcome", state.open_acts().map(act_lines));
    section(&mut out, "Acts that ended, newest last", ended(state).map(act_lines));
    section(&mut out, "Refused, newest last", state.refusals().iter().map(refused_lines));
    out.iter().fold(String::new(), |text, line| text + line + "\n")
}

fn ended(state: &State) -> impl Iterator<Item = &Act> {
    state.acts().iter().filter(|act| !act.is_open())
}

fn causes(state: &State) -> String {
    match state.futile().len() {
        1 => "1 cause, which is not tried again".to_owned(),
        count => format!("{count} causes, which are not tried again"),
    }
}

fn breaker(view: &BreakerView) -> String {
    match view {
        BreakerView::Closed => "closed".to_owned(),
        BreakerView::Open { until, why } => format!("open until {}: {why}", time(*until)),
        BreakerView::HalfOpen => "half-open: one act may try, until one has helped".to_owned(),
    }
}

fn section(out: &mut Vec<String>, title: &str, rows: impl Iterator<Item = Vec<String>>) {
    let mut rows = rows.flatten().peekable();
    if rows.peek().is_none() {
        out.push(format!("\n{title}: none"));
    } else {
        out.push(format!("\n{title}"));
        out.extend(rows);
    }
}

/// When, what, how it came out, for whom; below it the last note.
fn act_lines(act: &Act) -> Vec<String> {
    let intent = act.intent();
    let (outcome, note) = match (act.ended(), act.sent()) {
        (Some(end), _) => (end.outcome.as_str(), &end.note),
        (None, Some(sent)) => ("sent", &sent.note),
        (None, None) => ("meant", &intent.reason),
    };
    let mut lines = vec![format!(
        "  {}  {:<19}  {outcome:<12}  {:<15}  {}",
        time(act.began()),
        intent.remedy.as_str(),
        intent.cause.ip.to_string(),
        intent.pod
    )];
    lines.extend(wrap("      ", note));
    lines
}

fn refused_lines(refused: &Refused) -> Vec<String> {
    let refusal = refused.refusal();
    let ip = refusal.ip.map_or_else(|| "-".to_owned(), |ip| ip.to_string());
    let row = format!(
        "  {}  {:<19}  {:>5} x  {ip:<15}  {}",
        time(refused.last()),
        refusal.remedy.map_or("none", RemedyKind::as_str),
        refused.count(),
        refusal.pod
    );
    let mut lines = vec![row];
    lines.extend(wrap("      ", &format!("{}: {}", refusal.word, refusal.why)));
    lines
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
