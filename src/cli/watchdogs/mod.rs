//! The watchdogs of all nodes as a verb reaches them: which pod is which node's, the way there, and how it is asked.
//!
//! Must not know: what a verb makes of the answers.

mod args;
mod ask;
mod directory;
mod line;
mod lines;
mod trouble;
mod wire;

pub(super) use self::args::WatchdogArgs;
pub(super) use self::ask::{Ask, Place, Since, kind};
pub(super) use self::directory::{Directory, Found, NO_POD, Search, directory};
pub(super) use self::line::Line;
#[cfg(test)]
pub(super) use self::line::tests::event;
pub(super) use self::trouble::Trouble;
pub(super) use self::wire::Wire;

use std::io::Write as _;

use super::wrap::clean;

/// So many connections are being opened at one time.
pub(super) const OPENING: usize = 50;
/// Bytes that are taken of what a watchdog has kept: many times what it keeps.
pub(super) const KEPT: usize = 8 * 1024 * 1024;

/// A line on standard error. Who closed it does not want it.
pub(super) fn aside(text: &str) {
    drop(writeln!(std::io::stderr(), "{}", clean(text)));
}
