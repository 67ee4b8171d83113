//! The simulated API server: a handle to change its objects, read its request log, break it, stop and start it.
//!
//! What it answers over HTTP is in `routes`. Must not know: agents, kubelets.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};

use serde_json::Value;
use tokio::net::TcpListener;

use super::access::{User, issue_token};
use super::api_options::ApiOptions;
use super::beacon::Beacon;
use super::clock::{Clock, lock};
use super::exec::Executor;
use super::faults::{Fault, FaultPlan, Injected};
use super::http::{Answer, Call, Listener, Reset, Server, Service};
use super::lifecycle::{Author, DeleteOptions, Deletion, Lifecycle};
use super::local::Local;
use super::patch::{self, Style};
use super::port_forward::Forwards;
use super::request_log::{Pulse, RequestLog, RequestRecord};
use super::resource::{CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS, PODS, Resource, key, text};
use super::selector::Selector;
use super::status::Status;
use super::witness::Witness;
use super::{garbage, pod_proxy, routes};

/// The simulated API server. Clones are the same server.
#[derive(Debug, Clone)]
pub struct ApiServer(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub lifecycle: Lifecycle,
    pub options: ApiOptions,
    pub address: SocketAddr,
    pub cut: Beacon,
    /// Counts how often all connections broke.
    pub broken: Beacon,
    pub witness: Witness<Value>,
    pub pulse: Pulse,
    pub executor: Mutex<Option<Executor>>,
    pub forwards: Forwards,
    /// Tokens of service accounts, besides those of the options.
    pub issued: Mutex<BTreeMap<String, User>>,
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
            cut: Beacon::default(),
            broken: Beacon::default(),
            witness: Witness::default(),
            pulse,
            executor: Mutex::default(),
            forwards: Forwards::default(),
            issued: Mutex::default(),
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
        self.0.broken.tell();
        if let Some(server) = server {
            server.stop().await;
        }
    }

    /// Whether it listens.
    pub(crate) fn is_up(&self) -> bool {
        lock(&self.0.server).is_some()
    }

    /// The server without a socket, for a client in this process with this token.
    #[must_use]
    pub fn local(&self, token: &str) -> Local {
        Local::new(self, token)
    }

    /// Has somebody look on, at that very instant, when a request deletes a pod: gets the pod as it is before.
    pub fn witness(&self, look: impl Fn(&Value) + Send + Sync + 'static) {
        self.0.witness.set(look);
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
        self.0.cut.tell();
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

    /// Says what runs in containers from now on; until then `pods/exec` answers 500.
    pub fn run_in_containers(&self, executor: Executor) {
        *lock(&self.0.executor) = Some(executor);
    }

    /// A token of a pod's service account that is bound to the pod, as the kubelet mounts one. It ends with the pod.
    ///
    /// # Errors
    /// 404 if the pod is not there.
    pub fn token_of_pod(&self, namespace: &str, name: &str) -> Result<String, Status> {
        let pod = self.get(&PODS, namespace, name)?;
        Ok(issue_token(&self.0, namespace, text(&pod, "/spec/serviceAccountName"), Some(&pod)))
    }

    /// A token of a service account that is bound to nothing, and so names no node.
    #[must_use]
    pub fn token_of_account(&self, namespace: &str, name: &str) -> String {
        issue_token(&self.0, namespace, name, None)
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

pub(crate) async fn serve(shared: Weak<Shared>, call: Call) -> Answer {
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
                    |call| {
                        Box::pin(async move {
                            match pod_proxy::answer_proxy(&shared, &call).await {
                                Some(response) => Ok(response),
                                None => Ok(routes::route(&shared, &call)),
                            }
                        })
                    },
                    |code| Ok(routes::refuse(&Status::for_code(code))),
                )
                .await
        })
        .await;
    pulse.beat();
    answer
}
