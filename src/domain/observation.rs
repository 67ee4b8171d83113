//! One wedge as it was seen at one instant: everything that the rules look at, and what could not be read.

use jiff::Timestamp;

use super::failure::Event;
use super::holder::Holder;
use super::ids::NodeName;
use super::objects::{CiliumEndpoint, CiliumNode, IpamMode, SliceEntry};
use super::pod::Pod;

/// What a read gave: a value (an object that is not there is a value too), or the reason why nobody knows.
pub type Read<T> = Result<T, Unreadable>;

/// A read that failed: unknown, never "not there".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Unreadable {
    /// What was read, as a request a person knows: `GET pods/tenant-a/db-0`.
    pub what: String,
    /// What came back.
    pub why: ReadFailure,
}

/// Why a read failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// The server answered with a status that is no answer.
    #[error("{status} {message}")]
    Status {
        /// HTTP status.
        status: u16,
        /// The server's words.
        message: String,
    },
    /// No answer in time.
    #[error("timed out")]
    Timeout,
    /// No connection, or it broke.
    #[error("no connection: {0}")]
    Connection(String),
    /// An answer that could not be understood.
    #[error("unreadable answer: {0}")]
    Undecodable(String),
    /// Nobody asked: the rules decided before, or the reader has no such source.
    #[error("not asked")]
    NotAsked,
}

impl Unreadable {
    /// A read that nobody made.
    pub fn not_asked(what: &str) -> Self {
        Self { what: what.to_owned(), why: ReadFailure::NotAsked }
    }
}

/// What the look-up by the disputed address gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// 200: this endpoint has it.
    Held(Box<Holder>),
    /// An empty 404: nobody has it.
    NotHeld,
    /// Anything else: nobody knows.
    Unknown(Unreadable),
}

/// The pod's Events: those that are known, and whether that is all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Events {
    /// Those that could be read.
    pub known: Vec<Event>,
    /// Set where the read failed, as a whole or in part.
    pub unreadable: Option<Unreadable>,
}

/// Everything about one pod that waits for its sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The instant that all rules call now.
    pub now: Timestamp,
    /// The node whose agent was asked.
    pub node: NodeName,
    /// The pod.
    pub pod: Pod,
    /// Its Events.
    pub events: Events,
    /// When the agent started; `None` counts as just now.
    pub agent_started: Option<Timestamp>,
    /// The look-up by the disputed address.
    pub lookup: Lookup,
    /// When the watchdog itself first saw this holder (same number and container) on this address.
    pub holder_first_seen: Option<Timestamp>,
    /// The agent's IPAM mode.
    pub ipam_mode: Read<IpamMode>,
    /// The CiliumNode of this node; `None`: there is none.
    pub cilium_node: Read<Option<CiliumNode>>,
    /// CiliumEndpoints that may be the holder's; `None`: the cluster does not serve them.
    pub endpoints: Read<Option<Vec<CiliumEndpoint>>>,
    /// Entries of CiliumEndpointSlices that may be the holder's; `None`: the cluster does not serve them.
    pub slices: Read<Option<Vec<SliceEntry>>>,
    /// The pod that has the owner's name now; `None`: 404 from the API server.
    pub owner: Read<Option<Pod>>,
    /// The pods that list the address.
    pub address_users: Read<Vec<Pod>>,
    /// A fresh list of this node's pods; read for a nameless holder only.
    pub node_pods: Read<Vec<Pod>>,
}

impl Observation {
    /// An observation in which only the pod and its Events were read: everything else is unknown, so it refuses.
    pub fn new(now: Timestamp, node: NodeName, pod: Pod, events: Events) -> Self {
        Self {
            now,
            node,
            pod,
            events,
            agent_started: None,
            lookup: Lookup::Unknown(Unreadable::not_asked("look-up by address")),
            holder_first_seen: None,
            ipam_mode: Err(Unreadable::not_asked("the agent's configuration")),
            cilium_node: Err(Unreadable::not_asked("CiliumNode")),
            endpoints: Err(Unreadable::not_asked("CiliumEndpoints")),
            slices: Err(Unreadable::not_asked("CiliumEndpointSlices")),
            owner: Err(Unreadable::not_asked("owner pod")),
            address_users: Err(Unreadable::not_asked("pods with the address")),
            node_pods: Err(Unreadable::not_asked("pods of the node")),
        }
    }
}
