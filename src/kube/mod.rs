//! The Kubernetes API as the healer uses it: slim typed reads, one watch of this node's pods, deletes with preconditions.
//!
//! Reads end in values of [`crate::domain`]; a read that fails is an [`Unreadable`](crate::domain::Unreadable), never
//! "not there". Nothing here knows the agent (`crate::cilium`) or decides (`crate::engine`).

mod client;
mod count;
mod event;
mod exec;
mod guard;
mod labels;
mod lister;
mod pod;
mod reader;
mod store;
mod watch;

pub use client::{ClientOptions, ConnectError, WatchOpened, connect};
pub use event::EventObject;
pub use exec::{ExecError, ExecOutcome, exec};
pub use labels::{LabelError, LabelMatch};
pub use lister::{ListScope, MalformedPod};
pub use pod::PodObject;
pub(crate) use reader::chain;
pub use reader::{DeleteOutcome, Reader};
pub use store::{AgentStart, PodStore, Tracked};
pub use watch::{WatchOptions, watch_pods};

#[cfg(test)]
mod tests;
