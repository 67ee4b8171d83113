//! Live reads, each bounded in time and paged, and the one write: delete with preconditions.

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::core::Status;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::event::EventObject;
use super::pod::PodObject;
use super::store::PodStore;
use crate::domain::{Events, NodeName, Pod, PodName, PodUid, Read, ReadFailure, Unreadable};

const PAGE: u32 = 50;
/// Objects a list is read up to: beyond this it counts as unreadable, so that no answer can exhaust the memory.
pub(super) const MOST: usize = 200_000;
/// Events of one pod are read up to here: whoever may write Events must not exhaust the memory.
const MOST_EVENTS: usize = 500;
/// How long it is remembered which resources the cluster serves.
const SERVED_FOR: Duration = Duration::from_mins(5);

/// Reads the API server.
pub struct Reader {
    client: Client,
    timeout: Duration,
    store: PodStore,
    served: Mutex<Vec<(String, Instant, Vec<String>)>>,
}

/// What a delete came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The API server took it.
    Accepted,
    /// 404: it was gone.
    Gone,
    /// 409: it is another object by now, or has changed.
    Changed(String),
    /// Anything else.
    Failed(ReadFailure),
}

impl Reader {
    /// `timeout` bounds each request; `store` tells which address family this cluster lists first.
    pub fn new(client: Client, timeout: Duration, store: PodStore) -> Self {
        Self { client, timeout, store, served: Mutex::default() }
    }

    /// The client beneath, for lists of other scopes.
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// One object; `None`: the API server says that there is none of this name. Any other 404 (a proxy's, or that of a
    /// resource which is not served) says nothing about the object.
    async fn get<K>(&self, api: &Api<K>, what: &str, name: &str) -> Read<Option<K>>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let call = async {
            match api.get(name).await {
                Ok(object) => Ok(Some(object)),
                Err(kube::Error::Api(status)) if says_not_found(&status, name) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.bounded(what, call).await
    }

    /// One cluster-scoped object; `None`: 404.
    pub async fn get_cluster<K>(&self, name: &str) -> Read<Option<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        self.get(&Api::all(self.client.clone()), &format!("GET {}/{name}", K::plural(&())), name).await
    }

    /// One namespaced object; `None`: 404.
    pub async fn get_namespaced<K>(&self, name: &PodName) -> Read<Option<K>>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let api = Api::namespaced(self.client.clone(), name.namespace());
        self.get(&api, &format!("GET {}/{name}", K::plural(&())), name.name()).await
    }

    /// A pod by name, live; `None`: 404.
    pub async fn pod(&self, name: &PodName) -> Read<Option<Pod>> {
        let object = self.get_namespaced::<PodObject>(name).await?;
        object.map(|object| decode_pod(&object, &format!("GET pods/{name}"))).transpose()
    }

    /// All pods of a node, from a fresh list.
    pub async fn pods_of_node(&self, node: &NodeName) -> Read<Vec<Pod>> {
        self.pods(&format!("spec.nodeName={node}"), |_| true).await
    }

    /// All pods that list the address. The API server can select by a pod's first address only; where pods of this
    /// node list the other family first, all pods are read, in pages.
    pub async fn pods_with_address(&self, ip: IpAddr) -> Read<Vec<Pod>> {
        let fields =
            if self.store.is_first_family(ip) { format!("status.podIP={ip}") } else { String::new() };
        self.pods(&fields, |pod| pod.lists(ip) || pod.unparsed_ips).await
    }

    async fn pods(&self, fields: &str, keep: impl Fn(&Pod) -> bool) -> Read<Vec<Pod>> {
        let what = format!("LIST pods {fields}");
        let api: Api<PodObject> = Api::all(self.client.clone());
        let mut pods = Vec::new();
        let mut read = 0;
        self.pages(&api, &what, fields, |object| {
            read += 1;
            let pod = decode_pod(&object, &what)?;
            if keep(&pod) {
                pods.push(pod);
            }
            if read > MOST { Err(undecodable(&what, "too many objects")) } else { Ok(()) }
        })
        .await?;
        Ok(pods)
    }

    /// The Events of a pod, by the UID that its kubelet uses, in both forms. One that cannot be decoded makes the
    /// whole unreadable: it may be the newest.
    pub async fn events(&self, pod: &Pod) -> Events {
        let fields = format!("involvedObject.uid={}", pod.event_uid());
        let what = format!("LIST events in {} {fields}", pod.name.namespace());
        let api: Api<EventObject> = Api::namespaced(self.client.clone(), pod.name.namespace());
        let mut events = Events::default();
        let known = &mut events.known;
        let all = self.pages(&api, &what, &fields, |object| {
            known.extend(object.to_domain());
            if known.len() > MOST_EVENTS { Err(undecodable(&what, "too many Events")) } else { Ok(()) }
        });
        let unreadable = all.await.err();
        Events { unreadable, ..events }
    }

    /// All objects of a cluster-wide list, one by one.
    pub async fn list_cluster<K>(&self, each: impl FnMut(K) -> Read<()>) -> Read<()>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        self.pages(&Api::all(self.client.clone()), &format!("LIST {}", K::plural(&())), "", each).await
    }

    async fn pages<K>(
        &self,
        api: &Api<K>,
        what: &str,
        fields: &str,
        mut each: impl FnMut(K) -> Read<()>,
    ) -> Read<()>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        // Where the selector says little, larger pages make fewer requests.
        let page = if fields.is_empty() { 10 * PAGE } else { PAGE };
        let mut params = ListParams::default().fields(fields).limit(page);
        loop {
            let list = self.bounded(what, api.list(&params)).await?;
            list.items.into_iter().try_for_each(&mut each)?;
            match list.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                _ => return Ok(()),
            }
        }
    }

    /// Whether the cluster serves a resource of a group and version; remembered for some minutes.
    pub async fn serves(&self, group_version: &str, plural: &str) -> Read<bool> {
        let known = |served: &Vec<(String, Instant, Vec<String>)>| {
            let (_, _, plurals) =
                served.iter().find(|(gv, at, _)| gv == group_version && at.elapsed() < SERVED_FOR)?;
            Some(plurals.iter().any(|served| served == plural))
        };
        if let Some(known) = self.served.lock().ok().and_then(|served| known(&served)) {
            return Ok(known);
        }
        let plurals = self.resources(group_version).await?;
        let serves = plurals.iter().any(|served| served == plural);
        if let Ok(mut served) = self.served.lock() {
            served.retain(|(gv, ..)| gv != group_version);
            served.push((group_version.to_owned(), Instant::now(), plurals));
        }
        Ok(serves)
    }

    /// The plurals of a group and version, empty where it is not served: the API server's list of groups tells that, not a 404.
    async fn resources(&self, group_version: &str) -> Read<Vec<String>> {
        let groups = self.bounded("GET /apis", self.client.list_api_groups()).await?;
        let mut versions = groups.groups.iter().flat_map(|group| &group.versions);
        if !versions.any(|version| version.group_version == group_version) {
            return Ok(Vec::new());
        }
        let list = self.client.list_api_group_resources(group_version);
        let list = self.bounded(&format!("GET /apis/{group_version}"), list).await?;
        Ok(list.resources.into_iter().map(|resource| resource.name).collect())
    }

    /// Deletes a pod with its own grace period, if it is still this very object in this very version.
    pub async fn delete_pod(&self, name: &PodName, uid: &PodUid, resource_version: &str) -> DeleteOutcome {
        let api: Api<PodObject> = Api::namespaced(self.client.clone(), name.namespace());
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.as_str().to_owned()),
                resource_version: Some(resource_version.to_owned()),
            }),
            ..DeleteParams::default()
        };
        match self.bounded("DELETE pod", api.delete(name.name(), &params)).await {
            Ok(_) => DeleteOutcome::Accepted,
            Err(Unreadable { why: ReadFailure::Status { status: 404, .. }, .. }) => DeleteOutcome::Gone,
            Err(Unreadable { why: ReadFailure::Status { status: 409, message }, .. }) => {
                DeleteOutcome::Changed(message)
            }
            Err(Unreadable { why, .. }) => DeleteOutcome::Failed(why),
        }
    }

    pub(super) async fn bounded<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Read<T> {
        let why = match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => describe(&error),
            Err(_) => ReadFailure::Timeout,
        };
        Err(Unreadable { what: what.to_owned(), why })
    }
}

/// The API server's own 404 names the object.
fn says_not_found(status: &Status, name: &str) -> bool {
    let named = status.details.as_ref().is_some_and(|details| details.name == name);
    status.code == 404 && status.reason == "NotFound" && named
}

fn decode_pod(object: &PodObject, what: &str) -> Read<Pod> {
    object.to_domain().map_err(|error| undecodable(what, &error.to_string()))
}

pub(super) fn undecodable(what: &str, why: &str) -> Unreadable {
    Unreadable { what: what.to_owned(), why: ReadFailure::Undecodable(why.to_owned()) }
}

/// What a client error says, in words that name the status and the missing right.
pub(super) fn describe(error: &kube::Error) -> ReadFailure {
    match error {
        kube::Error::Api(status) => from_status(status),
        kube::Error::SerdeError(error) => ReadFailure::Undecodable(error.to_string()),
        kube::Error::FromUtf8(error) => ReadFailure::Undecodable(error.to_string()),
        other => ReadFailure::Connection(chain(other)),
    }
}

fn from_status(status: &Status) -> ReadFailure {
    ReadFailure::Status { status: status.code, message: status.message.chars().take(512).collect() }
}

/// An error with its causes, each once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
