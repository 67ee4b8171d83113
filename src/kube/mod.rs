//! The Kubernetes API as the healer uses it: slim typed reads, one watch of this node's pods, deletes with preconditions.
//!
//! Reads end in values of [`crate::domain`]; a read that fails is an [`Unreadable`](crate::domain::Unreadable), never
//! "not there". Nothing here knows the agent (`crate::cilium`) or decides (`crate::engine`).

mod access;
mod agent_pod;
mod client;
mod count;
mod event;
mod exec;
mod fence;
mod guard;
mod labels;
mod lease;
mod lister;
mod namespace;
mod pod;
mod reader;
mod recorder;
mod self_test;
mod store;
mod token_review;
mod watch;

pub use access::{
    AccessWish, UNWANTED, WANTED_AUTH, WANTED_EVENTS, WANTED_HEAL, WANTED_RESTART, WhoAmI, wanted_leases,
};
#[cfg(feature = "sim")]
pub use client::connect_to;
pub use client::{ClientOptions, ConnectError, WatchOpened, connect};
pub use event::EventObject;
pub use exec::{ExecError, ExecOutcome, exec};
pub use fence::{FENCE, FenceAnswer};
pub use labels::{LabelError, LabelMatch};
pub use lease::{Held, Leases, NoLease};
pub use lister::{ListScope, MalformedPod};
pub(crate) use namespace::paused;
pub use namespace::{NamespaceFacts, PAUSED};
pub use pod::{OPT_OUT, PodObject};
pub(crate) use reader::chain;
pub use reader::{DeleteOutcome, Reader};
pub use recorder::{
    NOTE_LIMIT, Note, NoteType, REPORTER, Recorder, controller_reference, named_pod_reference,
    node_reference, pod_reference,
};
pub use self_test::{Protection, SelfTest, self_test};
pub use store::{AgentStart, PodStore, Tracked};
pub use token_review::{Bearer, TokenReviews};
pub use watch::{WatchOptions, watch_pods};

#[cfg(test)]
mod tests;
