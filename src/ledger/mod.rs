//! What was meant, what came of it, and the bounds that follow: written down before each act, kept across restarts.
//!
//! It must not know who acts, how, or whether an act is right: only [`crate::domain`]'s words. No tokio, no clock: each
//! call is given the time. [`State`] is pure; [`Ledger`] keeps one in a file.
//!
//! # The bounds
//!
//! - **Budget.** Each remedy has a token bucket. [`State::begin`] takes a token and nothing gives one back: in any time
//!   `t`, at most `burst + t / refill` acts of a remedy begin. A clock that goes back refills nothing.
//! - **Breaker.** Right after each act that begins, the acts of the window that did not help or are not yet known to
//!   have helped are at most `max(floor, share of the window's acts whose outcome says whether they helped)`; or it is
//!   the only act without an outcome, begun after a cool-down. So a watchdog that is wrong every time does `floor` acts,
//!   and then one in a cool-down.
//! - **Futility.** A cause that was used up is not used again for `keep_futile`. To delete a pod or restart the agent
//!   uses the cause up as soon as it is meant, unless surely nothing was done; to disconnect, if it did not heal.
//! - **One at a time.** While an act on a pod has no outcome, no second one on the same pod begins.
//!
//! An act begins only once its intent is on the disk. One that has no outcome when the file is opened again stays open
//! and counts as not known to have helped, until whoever acts has looked what came of it.
//!
//! The bounds trust the clock not to jump ahead, and the directory not to lose the file: without one they begin full.

mod act;
mod bound;
mod breaker;
mod bucket;
mod disk;
mod document;
mod file;
mod form;
mod futile;
mod options;
mod state;
mod text;

pub use act::{Act, ActId, End, Ending, Intent, Note, Refusal, Refused};
pub use bound::Bound;
pub use breaker::BreakerView;
pub use document::{ReadError, Snapshot, schema};
pub use file::{Ledger, LedgerError, RecordError, SetAside};
pub use futile::Futile;
pub use options::{BoundOptions, BreakerOptions, BucketOptions};
pub use state::{NoSuchAct, State};

#[cfg(test)]
mod tests;
