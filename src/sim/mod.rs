//! A simulated Kubernetes cluster with Cilium on its nodes, for the verb `demo`, the tests and the benchmarks.
//!
//! It speaks what the real parts speak: the API server's HTTP, the agent's REST on a unix socket, the kubelet's Events.
//! Must not know: the program under test. Objects are plain JSON, so that both sides cannot share a mistake.

mod access;
mod agent;
mod agent_routes;
mod agent_state;
mod api_options;
mod apiserver;
mod beacon;
mod cilium_objects;
mod clock;
mod cluster;
mod cni;
mod dbg;
mod discovery;
mod endpoint;
mod exec;
mod faults;
mod fence;
mod garbage;
mod http;
mod ipam;
mod kubelet;
mod lifecycle;
mod limiter;
mod local;
mod model;
mod paging;
mod patch;
mod pod_proxy;
mod pod_status;
mod pods;
mod port_forward;
mod recorder;
mod registry;
mod request_log;
mod resource;
mod rights;
mod route_writes;
mod routes;
mod selector;
mod status;
mod store;
mod watch;
mod witness;
mod workload;

pub use agent::Agent;
pub use agent_state::{AgentOptions, RemovedEndpoint};
pub use api_options::{ApiOptions, Attributes, Authorizer};
pub use apiserver::ApiServer;
pub use clock::Clock;
pub use cluster::{Cluster, ClusterOptions, Node, NodeOptions, WaitTimedOut};
pub use cni::IP_ANNOTATION;
pub use endpoint::{AgentVersion, EndpointSpec, LogEntry, Reserved};
pub use exec::{ExecReply, ExecRequest, Executor};
pub use faults::{Fault, Injected};
pub use fence::Fence;
pub use ipam::{Cidr, InvalidCidr};
pub use kubelet::{Kubelet, KubeletOptions};
pub use lifecycle::{DeleteOptions, Deletion};
pub use limiter::{Limits, RateLimits};
pub use local::Local;
pub use request_log::RequestRecord;
pub use resource::{
    ADMISSION_BINDINGS, ADMISSION_POLICIES, CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS, CILIUM_NODES,
    DAEMON_SETS, EVENTS, LEASES, NAMESPACES, NEW_EVENTS, NODES, PODS, REPLICA_SETS, Resource, STATEFUL_SETS,
};
pub use rights::{Right, WATCHDOG_RIGHTS};
pub use status::Status;
pub use workload::{Workload, WorkloadKind};

#[cfg(test)]
mod tests;
