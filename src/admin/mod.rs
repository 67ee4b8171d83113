//! The HTTP server for probes, metrics and people.
//!
//! It shows what it is given and changes nothing; it must not know the Kubernetes API, the agent or the engine.
//! More pages are added by merging their routes into [`router`]'s.

mod health;
mod routes;
mod server;
mod stall;

pub use health::{Check, Health};
pub use routes::router;
pub use server::{Server, ServerLimits};

#[cfg(test)]
mod tests;
