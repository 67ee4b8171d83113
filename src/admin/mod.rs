//! The HTTP server for probes, metrics and people.
//!
//! It shows what it is given and changes the log level alone; it must not know the Kubernetes API, the agent or the
//! engine. More pages are added by merging their routes into [`router`]'s: those that name anything of the cluster behind
//! [`guard`].

mod access;
mod health;
mod log_level;
mod page;
mod routes;
mod server;
mod slots;
mod stall;
mod stream;

pub use access::{Access, Auth, Authorizer, Decision, StreamLimit, guard};
pub use health::{Check, Health};
pub use log_level::{LogFilter, log_level};
pub use routes::router;
pub use server::{Ends, Server, ServerLimits};
pub use stream::stream_router;

#[cfg(test)]
mod tests;
