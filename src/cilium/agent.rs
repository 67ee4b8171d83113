//! The client of the agent's REST API: the few calls that the healer makes, paced and bounded.
//!
//! It must not know when a call is due or what follows from its answer. The API's rate limits are shared with the CNI
//! plugin, so look-ups are paced here, where no caller can forget it; nothing is tried again here.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::call_error::CallError;
use super::health::version_from_slice;
use super::model::{AgentConfig, Allocations, EndpointModel, NoModel, log_from_slice};
use super::transport::{Bounds, Extra, Place, Reply, Wire, connect_only, exchange};
use crate::domain::{CiliumVersion, DisconnectTarget, LogEntry, Lookup, Read, canonical_ip};
use crate::metrics::{AgentCall, Metrics};

/// The socket's name in the agent's run directory.
const SOCKET: &str = "cilium.sock";
/// Answers are read up to here: the long `healthz` of a full node has some hundred kilobytes.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// The short `healthz` has some hundred bytes; of controllers only a failing one is in it.
const BRIEF_LIMIT: usize = 1024 * 1024;
/// Asks for the short `healthz`.
const BRIEF: (&str, &str) = ("brief", "true");

/// How to reach the agent, and how hard it may be asked.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The directory of `cilium.sock`, usually `/var/run/cilium`: the file itself is made anew at each agent start.
    pub socket_dir: PathBuf,
    /// How a connection is made.
    pub wire: Wire,
    /// The limit of one call, from connect to the last byte.
    pub timeout: Duration,
    /// Look-ups by address start at least this far apart (1 s).
    pub lookup_interval: Duration,
}

/// What a disconnect did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disconnected {
    /// 200: the endpoint is gone.
    Removed,
    /// 206: the endpoint is gone, with this many errors while its parts were cleaned up.
    RemovedWithErrors(u32),
    /// An empty 404: there was none of this id.
    NotFound,
}

/// A client of one agent. Each call makes its own connection.
#[derive(Debug)]
pub struct AgentClient {
    place: Place,
    timeout: Duration,
    lookup_interval: Duration,
    /// No look-up may start before this.
    next_lookup: Mutex<Option<Instant>>,
    metrics: Arc<Metrics>,
}

impl AgentClient {
    /// Makes a client; connects to nothing yet.
    pub fn new(options: AgentOptions, metrics: Arc<Metrics>) -> Self {
        let AgentOptions { socket_dir, wire, timeout, lookup_interval } = options;
        let place = Place { socket: socket_dir.join(SOCKET), wire };
        Self { place, timeout, lookup_interval, next_lookup: Mutex::new(None), metrics }
    }

    /// Who holds the address, with the whole log of the holder. Waits for its turn: callers queue in order.
    pub async fn lookup(&self, ip: IpAddr) -> Lookup {
        let path = endpoint_path(&ip_id(ip));
        let what = format!("GET {path}");
        self.turn().await;
        let answer = self.call(AgentCall::GetEndpoint, &path, |reply| match status(reply, true)? {
            Some(body) => EndpointModel::from_slice(body)
                .and_then(|model| model.to_holder(None))
                .map(Some)
                .map_err(undecodable),
            None => Ok(None),
        });
        match answer.await {
            Ok(Some(mut holder)) => {
                holder.log = self.log(&path).await;
                Lookup::Held(Box::new(holder))
            }
            Ok(None) => Lookup::NotHeld,
            Err(error) => Lookup::Unknown(error.to_unreadable(&what)),
        }
    }

    /// The whole log; `None` where it could not be read, the endpoint's own end in between included.
    async fn log(&self, endpoint_path: &str) -> Option<Vec<LogEntry>> {
        let decode = |reply: &Reply| {
            let body = status(reply, false)?.unwrap_or_default();
            log_from_slice(body).ok_or_else(|| CallError::Undecodable("no endpoint log".to_owned()))
        };
        self.call(AgentCall::GetEndpointLog, &format!("{endpoint_path}/log"), decode).await.ok()
    }

    /// The agent's configuration.
    pub async fn config(&self) -> Read<AgentConfig> {
        let decode = |reply: &Reply| {
            AgentConfig::from_slice(status(reply, false)?.unwrap_or_default()).map_err(undecodable)
        };
        self.call(AgentCall::GetConfig, "config", decode)
            .await
            .map_err(|error| error.to_unreadable("GET config"))
    }

    /// Which addresses the agent's IPAM has given to whom.
    pub async fn allocations(&self) -> Read<Allocations> {
        let decode = |reply: &Reply| {
            Allocations::from_slice(status(reply, false)?.unwrap_or_default()).map_err(undecodable)
        };
        self.call(AgentCall::GetHealthz, "healthz", decode)
            .await
            .map_err(|error| error.to_unreadable("GET healthz"))
    }

    /// Which version of Cilium the agent is, from the short `healthz`. In the first seconds of its start it does not say.
    pub async fn version(&self) -> Read<CiliumVersion> {
        let bounds = Bounds { timeout: self.timeout, body: BRIEF_LIMIT };
        let decode = |reply: &Reply| {
            version_from_slice(status(reply, false)?.unwrap_or_default()).map_err(undecodable)
        };
        self.call_with(AgentCall::GetHealthz, "healthz", Some(BRIEF), bounds, decode)
            .await
            .map_err(|error| error.to_unreadable("GET healthz"))
    }

    /// Disconnects one endpoint. A time-out does not mean that it failed: look again.
    pub async fn disconnect(&self, target: &DisconnectTarget) -> Result<Disconnected, CallError> {
        self.call(AgentCall::DeleteEndpoint, &endpoint_path(target.as_str()), |reply| {
            match (reply.status, reply.body.as_ref()) {
                (200, _) => Ok(Disconnected::Removed),
                // Whatever the body says, there were errors.
                (206, body) => Ok(Disconnected::RemovedWithErrors(serde_json::from_slice(body).unwrap_or(1))),
                (404, []) => Ok(Disconnected::NotFound),
                (status, body) => Err(CallError::of_status(status, body)),
            }
        })
        .await
    }

    /// When the agent started: it makes its socket anew at each start. An error where no socket is there.
    pub fn started(&self) -> io::Result<Timestamp> {
        let metadata = std::fs::metadata(&self.place.socket)?;
        if !metadata.file_type().is_socket() {
            return Err(io::Error::other(format!("{} is no socket", self.place.socket.display())));
        }
        Timestamp::try_from(metadata.modified()?).map_err(io::Error::other)
    }

    /// Whether the agent accepts connections; sends no request, so it costs nothing of the rate limits.
    pub async fn reachable(&self) -> Result<(), CallError> {
        connect_only(&self.place, self.timeout).await
    }

    /// Waits until the next look-up may start. Who gives up while waiting uses up no turn.
    async fn turn(&self) {
        let mut next = self.next_lookup.lock().await;
        if let Some(next) = *next {
            tokio::time::sleep_until(next).await;
        }
        *next = Some(Instant::now() + self.lookup_interval);
    }

    /// Makes one call, decodes its answer and counts it. `path` is relative to the API's base path.
    async fn call<T>(
        &self,
        call: AgentCall,
        path: &str,
        decode: impl FnOnce(&Reply) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let bounds = Bounds { timeout: self.timeout, body: BODY_LIMIT };
        self.call_with(call, path, None, bounds, decode).await
    }

    /// The same, with a further header and other bounds.
    async fn call_with<T>(
        &self,
        call: AgentCall,
        path: &str,
        extra: Extra,
        bounds: Bounds,
        decode: impl FnOnce(&Reply) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let method = if call == AgentCall::DeleteEndpoint { Method::DELETE } else { Method::GET };
        let start = Instant::now();
        let reply = exchange(&self.place, method, &format!("/v1/{path}"), extra, bounds).await;
        let status = reply.as_ref().map(|reply| reply.status).ok();
        let result = reply.and_then(|reply| decode(&reply));
        let outcome = match (&result, status) {
            (Err(error), _) => error.outcome(),
            (Ok(_), Some(404)) => "not-found",
            (Ok(_), Some(206)) => "partial",
            (Ok(_), _) => "ok",
        };
        self.metrics.agent_request(call, outcome, start.elapsed());
        if let Err(error) = &result {
            tracing::debug!(call = call.as_str(), path, %error, "call of the agent failed");
        }
        result
    }
}

/// The body of a 200; `None` for an empty 404 where that is an answer.
fn status(reply: &Reply, may_be_absent: bool) -> Result<Option<&[u8]>, CallError> {
    match (reply.status, reply.body.as_ref()) {
        (200, body) => Ok(Some(body)),
        (404, []) if may_be_absent => Ok(None),
        (status, body) => Err(CallError::of_status(status, body)),
    }
}

fn undecodable(error: NoModel) -> CallError {
    CallError::Undecodable(error.0)
}

/// The id of the registry for an address: exact only with Go's canonical text.
fn ip_id(ip: IpAddr) -> String {
    let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
    format!("{family}:{}", canonical_ip(ip))
}

/// `endpoint/<id>`, the id as one path segment. Ids here begin with their prefix: `endpoint/` alone is the whole list.
fn endpoint_path(id: &str) -> String {
    let mut path = "endpoint/".to_owned();
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':') {
            path.push(char::from(byte));
        } else {
            path.push('%');
            path.extend(
                [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])),
            );
        }
    }
    path
}
