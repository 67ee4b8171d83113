//! The simulated API server: a handle to change its objects, read its request log, break it, stop and start it.
//!
//! What it answers over HTTP is in `routes`. Must not know: agents, kubelets.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::clock::{Clock, lock};
use super::faults::{Fault, FaultPlan, Injected};
use super::http::{Answer, Call, Listener, Reset, Server, Service};
use super::lifecycle::{Author, DeleteOptions, Deletion, Lifecycle};
use super::patch::{self, Style};
use super::resource::{CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS, Resource, key, text};
use super::selector::Selector;
use super::status::Status;
use super::{garbage, routes};

/// What somebody wants to do, as an authorizer sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The user, from the bearer token; `system:anonymous` without one.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the method.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Plural resource name, empty for other paths.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace, empty for all.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// The path, where no resource is meant.
    pub path: String,
}

/// Decides whether somebody may do something.
pub type Authorizer = Arc<dyn Fn(&Attributes) -> bool + Send + Sync>;

/// How the API server behaves.
#[derive(Clone)]
pub struct ApiOptions {
    /// `gitVersion` of `/version`.
    pub kubernetes_version: String,
    /// Serve CiliumEndpoints; not so in Cilium's slim mode.
    pub serve_cilium_endpoints: bool,
    /// Serve CiliumEndpointSlices.
    pub serve_cilium_endpoint_slices: bool,
    /// How often a watch that allows them gets a bookmark.
    pub bookmark_interval: Duration,
    /// How many changes the history holds; an older watch or list gets a 410.
    pub history: usize,
    /// Bearer tokens and their users. A token that is not here gets a 401.
    pub tokens: BTreeMap<String, String>,
    /// Whether a request without a token is let in, as `system:anonymous`.
    pub anonymous: bool,
    /// Decides on every request; `None` allows all.
    pub authorizer: Option<Authorizer>,
    /// How long the garbage collector takes.
    pub garbage_collection_delay: Duration,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            kubernetes_version: "v1.36.3".to_owned(),
            serve_cilium_endpoints: true,
            serve_cilium_endpoint_slices: true,
            bookmark_interval: Duration::from_secs(60),
            history: 10_000,
            tokens: BTreeMap::from([("sim-token".to_owned(), "system:admin".to_owned())]),
            anonymous: true,
            authorizer: None,
            garbage_collection_delay: Duration::from_millis(20),
        }
    }
}

impl std::fmt::Debug for ApiOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiOptions")
            .field("kubernetes_version", &self.kubernetes_version)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

/// One request that the server got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// When it came.
    pub at: Timestamp,
    /// Method.
    pub method: String,
    /// Path, as sent.
    pub path: String,
    /// Query, as sent.
    pub query: String,
    /// `User-Agent`.
    pub user_agent: String,
    /// The body of the request.
    pub body: String,
    /// Status of the answer; 0 if there is none yet, or none came.
    pub status: u16,
    /// Bytes of the answer's body so far.
    pub bytes: u64,
}

/// The log of a server's requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestLog(Arc<Mutex<Vec<Entry>>>);

#[derive(Debug, Clone)]
struct Entry {
    record: RequestRecord,
    status: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl RequestLog {
    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        lock(&self.0).iter().map(Entry::record).collect()
    }

    pub(crate) fn take(&self) -> Vec<RequestRecord> {
        std::mem::take(&mut *lock(&self.0)).iter().map(Entry::record).collect()
    }

    /// Logs a call, and its answer once it is there.
    pub(crate) async fn logged(
        &self,
        at: Timestamp,
        call: Call,
        serve: impl AsyncFnOnce(Call) -> Answer,
    ) -> Answer {
        let record = RequestRecord {
            at,
            method: call.method.to_string(),
            path: call.path.clone(),
            query: call.query.clone(),
            user_agent: call.header("user-agent").to_owned(),
            body: String::from_utf8_lossy(&call.body).into_owned(),
            status: 0,
            bytes: 0,
        };
        let entry = Entry { record, status: Arc::default(), bytes: Arc::default() };
        let (status, bytes) = (entry.status.clone(), entry.bytes.clone());
        lock(&self.0).push(entry);
        let response = serve(call).await?;
        status.store(u64::from(response.status().as_u16()), Ordering::SeqCst);
        let (parts, body) = response.into_parts();
        // A body of known length must keep it, so that its length is sent and not chunks.
        if let Some(length) = hyper::body::Body::size_hint(&body).exact() {
            bytes.store(length, Ordering::SeqCst);
            return Ok(hyper::Response::from_parts(parts, body));
        }
        let counted = body.map_frame(move |frame| {
            bytes.fetch_add(frame.data_ref().map_or(0, |data| data.len() as u64), Ordering::SeqCst);
            frame
        });
        Ok(hyper::Response::from_parts(parts, counted.boxed_unsync()))
    }
}

impl Entry {
    fn record(&self) -> RequestRecord {
        let status = u16::try_from(self.status.load(Ordering::SeqCst)).unwrap_or_default();
        RequestRecord { status, bytes: self.bytes.load(Ordering::SeqCst), ..self.record.clone() }
    }
}

/// Tells that something in the cluster changed: an object, an endpoint, a request.
#[derive(Debug, Clone)]
pub(crate) struct Pulse(watch::Sender<u64>);

impl Default for Pulse {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Pulse {
    pub(crate) fn beat(&self) {
        self.0.send_modify(|beats| *beats += 1);
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// The simulated API server. Clones are the same server.
#[derive(Debug, Clone)]
pub struct ApiServer(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub lifecycle: Lifecycle,
    pub options: ApiOptions,
    pub address: SocketAddr,
    pub cut: watch::Sender<u64>,
    pub pulse: Pulse,
    faults: FaultPlan,
    log: RequestLog,
    server: Mutex<Option<Server>>,
    tasks: Mutex<tokio::task::JoinSet<()>>,
}

impl ApiServer {
    pub(crate) async fn start(options: ApiOptions, lifecycle: Lifecycle, pulse: Pulse) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let delay = options.garbage_collection_delay;
        let shared = Arc::new(Shared {
            lifecycle,
            options,
            address,
            cut: watch::Sender::new(0),
            pulse,
            faults: FaultPlan::default(),
            log: RequestLog::default(),
            server: Mutex::default(),
            tasks: Mutex::default(),
        });
        {
            let mut tasks = lock(&shared.tasks);
            tasks.spawn(garbage::collect(shared.lifecycle.store.clone(), delay));
            let (mut changed, pulse) = (shared.lifecycle.store.subscribe(), shared.pulse.clone());
            tasks.spawn(async move {
                while changed.changed().await.is_ok() {
                    pulse.beat();
                }
            });
        }
        let api = Self(shared);
        api.listen(listener);
        Ok(api)
    }

    fn listen(&self, listener: TcpListener) {
        // Weak: the server task must not keep its own handle alive.
        let shared = Arc::downgrade(&self.0);
        let service: Service = Arc::new(move |call| Box::pin(serve(shared.clone(), call)));
        *lock(&self.0.server) = Some(Server::start(Listener::Tcp(listener), service));
    }

    /// The address that it listens on, also while it is paused.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// Stops listening and breaks all connections; the objects stay.
    pub async fn pause(&self) {
        let server = lock(&self.0.server).take();
        if let Some(server) = server {
            server.stop().await;
        }
    }

    /// Listens again, on the same port.
    ///
    /// # Errors
    /// Fails if somebody else took the port meanwhile.
    pub async fn resume(&self) -> io::Result<()> {
        if lock(&self.0.server).is_none() {
            self.listen(TcpListener::bind(self.0.address).await?);
        }
        Ok(())
    }

    /// Ends all running watches, as a restarted API server does; the clients may start new ones.
    pub fn cut_watches(&self) {
        self.0.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Forgets the history: watches and lists from an older version get a 410 from now on.
    pub fn compact(&self) {
        self.0.lifecycle.store.compact();
    }

    /// Injects a fault.
    pub fn inject(&self, fault: Fault) -> Injected {
        self.0.faults.inject(fault)
    }

    /// Takes all faults out.
    pub fn clear_faults(&self) {
        self.0.faults.clear();
    }

    /// The requests over HTTP so far.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.0.log.records()
    }

    /// The requests over HTTP since the last call.
    #[must_use]
    pub fn take_requests(&self) -> Vec<RequestRecord> {
        self.0.log.take()
    }

    /// Waits for the next change in the cluster: an object, an endpoint of an agent, or a request.
    pub async fn changed(&self) {
        let mut beats = self.0.pulse.subscribe();
        // The sender lives in `self`.
        let _ = beats.changed().await;
    }

    /// The latest resource version.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.0.lifecycle.store.revision()
    }

    /// The cluster's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.0.lifecycle.clock
    }

    /// Makes an object in the namespace that it names. Other than over HTTP, a `status`, a `uid` and a
    /// `creationTimestamp` that are there stay, and a pod without containers gets one.
    ///
    /// # Errors
    /// As the API server refuses.
    pub fn create(&self, resource: &'static Resource, object: Value) -> Result<Value, Status> {
        let namespace = text(&object, "/metadata/namespace").to_owned();
        let namespace =
            if resource.namespaced && namespace.is_empty() { "default" } else { namespace.as_str() };
        self.0.lifecycle.create(
            resource,
            namespace,
            super::watch::stored(resource, object),
            Author::Setup,
            false,
        )
    }

    /// Puts an object as it is, however malformed; it needs no metadata.
    pub fn insert_raw(&self, resource: &'static Resource, namespace: &str, name: &str, object: Value) {
        self.0.lifecycle.create_raw(resource, &key(namespace, name), object);
    }

    /// Reads an object.
    ///
    /// # Errors
    /// 404 if it is not there.
    pub fn get(&self, resource: &'static Resource, namespace: &str, name: &str) -> Result<Value, Status> {
        let object = self.0.lifecycle.store.get(resource.storage, &key(namespace, name));
        object
            .map(|object| super::watch::shown(resource, &object))
            .ok_or_else(|| Status::not_found(resource, name))
    }

    /// The objects of a namespace (empty: all) that both selectors match.
    ///
    /// # Errors
    /// 400 for a selector that cannot be read.
    pub fn list(
        &self,
        resource: &'static Resource,
        namespace: &str,
        fields: &str,
        labels: &str,
    ) -> Result<Vec<Value>, Status> {
        let selector = Selector::parse(resource, namespace, fields, labels)?;
        let (objects, _) = self.0.lifecycle.store.snapshot(resource.storage);
        Ok(objects
            .values()
            .filter(|object| selector.matches(object))
            .map(|object| super::watch::shown(resource, object))
            .collect())
    }

    /// Replaces an object (not its status, where that is a subresource). A resource version in it is a precondition.
    ///
    /// # Errors
    /// 404, or 409 for another version.
    pub fn update(&self, resource: &'static Resource, object: &Value) -> Result<Value, Status> {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        self.0.lifecycle.change(resource, namespace, name, false, false, |old| {
            *old = object.clone();
            Ok(())
        })
    }

    /// Merges into an object outside its status.
    ///
    /// # Errors
    /// 404, or 409 for another version.
    pub fn patch_merge(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, Status> {
        self.merge(resource, namespace, name, patch, false)
    }

    /// Merges into an object's status: `{"phase": "Running"}`.
    ///
    /// # Errors
    /// 404.
    pub fn patch_status_merge(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        status: &Value,
    ) -> Result<Value, Status> {
        self.merge(resource, namespace, name, &serde_json::json!({ "status": status }), resource.status)
    }

    fn merge(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
        status: bool,
    ) -> Result<Value, Status> {
        self.0.lifecycle.change(resource, namespace, name, status, false, |old| {
            patch::apply(old, patch, Style::Merge);
            Ok(())
        })
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// 404, or 409 for a precondition.
    pub fn delete(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deletion, Status> {
        self.0.lifecycle.delete(resource, namespace, name, options)
    }

    pub(crate) fn shutdown(&self) {
        lock(&self.0.server).take();
        lock(&self.0.tasks).abort_all();
    }
}

impl Shared {
    /// Whether a resource is served; two may be left out.
    pub(crate) fn serves(&self, resource: &Resource) -> bool {
        (self.options.serve_cilium_endpoints || resource != &CILIUM_ENDPOINTS)
            && (self.options.serve_cilium_endpoint_slices || resource != &CILIUM_ENDPOINT_SLICES)
    }
}

async fn serve(shared: Weak<Shared>, call: Call) -> Answer {
    let shared = shared.upgrade().ok_or(Reset)?;
    let log = shared.log.clone();
    let at = shared.lifecycle.clock.now();
    let pulse = shared.pulse.clone();
    pulse.beat();
    let answer = log
        .logged(at, call, async move |call| {
            let faults = shared.faults.clone();
            faults
                .serve(
                    call,
                    |call| Box::pin(async move { Ok(routes::route(&shared, &call)) }),
                    |code| Ok(routes::refuse(&Status::for_code(code))),
                )
                .await
        })
        .await;
    pulse.beat();
    answer
}
