//! A cluster at one instant as a file: what was read, what could not be read, and the judgement of all of it again.
//!
//! The decision is that of a live node ([`crate::engine::observe`] and [`crate::domain`]); nothing of it is written
//! twice. This module must not talk to a cluster: it reads and writes files, and answers from what they hold.

mod address;
mod anonymize;
mod expect;
mod field;
mod fields;
mod file;
mod format;
mod replay;
mod report;
mod schema;
mod text;
mod view;
mod whole;

pub use expect::{Expect, ExpectedFinding};
pub use field::{CallName, Fault, HttpStatus, Resource, SchemaVersion};
pub use file::{MAX_SIZE, Problem, SnapshotError};
pub use format::{Agent, AgentFailure, Cluster, NodeObject, Snapshot, Unread};
pub use replay::replay;
pub use report::{EvidenceLine, Mode, ReportFinding, ReportKind, ReportSubject, ScanReport, Summary};
pub use schema::{report_schema, snapshot_schema};
pub use view::{NodeView, View};

#[cfg(test)]
mod tests;
