//! What Cilium says: the agent's REST API on its unix socket, and Cilium's objects in the Kubernetes API.
//!
//! Everything here reads and decodes; the one thing it changes is a disconnect, for which the domain must have
//! made a target. It must not know the Kubernetes client's side (`kube`), nor why a call is made (`engine`).

mod agent;
mod call_error;
mod dbg;
mod health;
mod lenient;
mod model;
mod objects;
mod transport;

pub use agent::{AgentClient, AgentOptions, Disconnected};
pub use call_error::CallError;
pub use dbg::{
    DBG_PROGRAMS, DbgCall, DbgOutput, dbg_endpoint, dbg_endpoint_log, dbg_endpoints, dbg_ipam_mode,
};
pub(crate) use lenient::strictly;
pub use model::{AgentConfig, Allocations, ConfigModel, EndpointModel, LogModel, NoModel, log_entries};
pub use objects::{CiliumEndpointObject, CiliumEndpointSliceObject, CiliumNodeObject};

#[cfg(feature = "sim")]
pub use transport::Dial;
pub use transport::Wire;

#[cfg(test)]
mod tests;
