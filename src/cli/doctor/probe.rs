//! Reads what `doctor` judges, each read bounded in time. Read-only, but for access reviews, which store nothing.
//!
//! Must not know: what is well and what is not.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;

use super::seen::{AgentPod, CiliumConfig, Cluster, Purpose, RIGHTS, Right, Seen, Served, Watchdog};
use crate::cilium::CiliumEndpointSliceObject;
use crate::cli::scan::OneByOne;

const PAGE: u32 = 500;
const CONFIG: &str = "cilium-config";
const WATCHDOG_LABEL: &str = "app.kubernetes.io/name=cilium-leak-healer";
const MODE: &str = "CILIUM_LEAK_HEALER_MODE";

/// What is asked, and of whom.
pub(super) struct Probe {
    pub(super) client: Client,
    pub(super) timeout: Duration,
    /// For a command in an agent's container.
    pub(super) exec: OneByOne,
    /// Namespace and name of a service account; `None`: the caller.
    pub(super) account: Option<(String, String)>,
    /// Namespace of the agents' pods; `None`: any.
    pub(super) agent_namespace: Option<String>,
    pub(super) selector: String,
    pub(super) container: String,
    pub(super) watchdog_namespace: String,
}

impl Probe {
    /// `gitVersion` of the API server.
    pub(super) async fn version(&self) -> Seen<String> {
        Ok(self.bounded(self.client.apiserver_version()).await?.git_version)
    }

    /// Everything else.
    pub(super) async fn look(&self, version: String) -> Cluster {
        let agents = self.agents().await;
        let namespace =
            agents.as_ref().ok().and_then(|agents| agents.first()).map(|agent| agent.namespace.clone());
        Cluster {
            version,
            account: self.account.as_ref().map(|(namespace, name)| format!("{namespace}/{name}")),
            rights: self.rights().await,
            served: self.served().await,
            nodes: self.nodes().await,
            told: self.told(&agents).await,
            selector: self.selector.clone(),
            config: self.config(namespace.as_deref().unwrap_or("kube-system")).await,
            agents,
            watchdog_namespace: self.watchdog_namespace.clone(),
            watchdog: self.watchdog().await,
        }
    }

    async fn rights(&self) -> Vec<(Right, Seen<bool>)> {
        let mut rights = Vec::new();
        for right in RIGHTS {
            if self.account.is_none() || right.purpose != Purpose::Scan {
                rights.push((right, self.has(&right).await));
            }
        }
        rights
    }

    async fn has(&self, right: &Right) -> Seen<bool> {
        let attributes = ResourceAttributes {
            verb: Some(right.verb.to_owned()),
            group: Some(right.group.to_owned()),
            resource: Some(right.resource.to_owned()),
            subresource: Some(right.subresource.to_owned()).filter(|name| !name.is_empty()),
            ..ResourceAttributes::default()
        };
        let params = PostParams::default();
        let status = match &self.account {
            None => {
                let spec = SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(attributes),
                    ..Default::default()
                };
                let review = SelfSubjectAccessReview { spec, ..Default::default() };
                let api = Api::<SelfSubjectAccessReview>::all(self.client.clone());
                self.bounded(api.create(&params, &review)).await?.status
            }
            Some((namespace, name)) => {
                let groups = [
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{namespace}"),
                    "system:authenticated".to_owned(),
                ];
                let spec = SubjectAccessReviewSpec {
                    user: Some(format!("system:serviceaccount:{namespace}:{name}")),
                    groups: Some(groups.to_vec()),
                    resource_attributes: Some(attributes),
                    ..Default::default()
                };
                let review = SubjectAccessReview { spec, ..Default::default() };
                let api = Api::<SubjectAccessReview>::all(self.client.clone());
                self.bounded(api.create(&params, &review)).await?.status
            }
        };
        status.map(|status| status.allowed).ok_or_else(|| "a review without a status".to_owned())
    }

    async fn served(&self) -> Seen<Served> {
        let groups = self.bounded(self.client.list_api_groups()).await?;
        let versions: Vec<String> =
            groups.groups.into_iter().flat_map(|group| group.versions).map(|it| it.group_version).collect();
        let mut plurals = Vec::new();
        for version in ["cilium.io/v2", "cilium.io/v2alpha1"] {
            if versions.iter().any(|served| served == version) {
                let list = self.bounded(self.client.list_api_group_resources(version)).await?;
                plurals.extend(list.resources.into_iter().map(|resource| (version, resource.name)));
            }
        }
        let serves =
            |version: &str, plural: &str| plurals.iter().any(|(at, name)| *at == version && name == plural);
        let slices = serves("cilium.io/v2alpha1", "ciliumendpointslices");
        Ok(Served {
            nodes: serves("cilium.io/v2", "ciliumnodes"),
            endpoints: serves("cilium.io/v2", "ciliumendpoints"),
            slices,
            slices_in_use: if slices { self.slices_in_use().await.ok() } else { Some(false) },
        })
    }

    async fn slices_in_use(&self) -> Seen<bool> {
        let api = Api::<CiliumEndpointSliceObject>::all(self.client.clone());
        let list = self.bounded(api.list(&ListParams::default().limit(1))).await?;
        Ok(!list.items.is_empty())
    }

    async fn nodes(&self) -> Seen<BTreeSet<String>> {
        let api = Api::<Node>::all(self.client.clone());
        let mut names = BTreeSet::new();
        self.pages(&api, ListParams::default(), |node| {
            names.insert(node.name_any());
        })
        .await?;
        Ok(names)
    }

    async fn agents(&self) -> Seen<Vec<AgentPod>> {
        let api = match &self.agent_namespace {
            Some(namespace) => Api::<Pod>::namespaced(self.client.clone(), namespace),
            None => Api::<Pod>::all(self.client.clone()),
        };
        let mut agents = Vec::new();
        let params = ListParams::default().labels(&self.selector);
        self.pages(&api, params, |pod| agents.extend(agent(&pod, &self.container))).await?;
        Ok(agents)
    }

    /// Asks the agent of one node, as `scan` and `explain` would.
    async fn told(&self, agents: &Seen<Vec<AgentPod>>) -> Option<(String, Seen<String>)> {
        if self.account.is_some() {
            return None;
        }
        let agent = agents.as_ref().ok()?.iter().find(|agent| agent.ready)?;
        let mode = self.exec.ipam_mode(&agent.node.parse().ok()?).await;
        Some((agent.node.clone(), mode.map(|mode| mode.0).map_err(|why| why.to_string())))
    }

    async fn config(&self, namespace: &str) -> Seen<Option<CiliumConfig>> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        let map = self.bounded(api.get_opt(CONFIG)).await?;
        Ok(map.map(|map| {
            let get = |key: &str| {
                map.data.as_ref().and_then(|data| data.get(key)).filter(|value| !value.is_empty()).cloned()
            };
            CiliumConfig { ipam: get("ipam"), chaining: get("cni-chaining-mode") }
        }))
    }

    async fn watchdog(&self) -> Seen<Option<Watchdog>> {
        let api = Api::<DaemonSet>::namespaced(self.client.clone(), &self.watchdog_namespace);
        let list = self.bounded(api.list(&ListParams::default().labels(WATCHDOG_LABEL).limit(1))).await?;
        Ok(list.items.first().map(|set| Watchdog {
            desired: set.status.as_ref().map_or(0, |status| status.desired_number_scheduled),
            ready: set.status.as_ref().map_or(0, |status| status.number_ready),
            mode: mode(set),
        }))
    }

    async fn pages<K>(&self, api: &Api<K>, mut params: ListParams, mut each: impl FnMut(K)) -> Seen<()>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        params = params.limit(PAGE);
        loop {
            let list = self.bounded(api.list(&params)).await?;
            list.items.into_iter().for_each(&mut each);
            match list.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                _ => return Ok(()),
            }
        }
    }

    async fn bounded<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Seen<T> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer.map_err(|error| said(&error)),
            Err(_) => Err(format!("no answer within {} s", self.timeout.as_secs())),
        }
    }
}

/// What a client error says.
fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} {}", status.code, status.message),
        other => crate::kube::chain(other),
    }
}

/// An agent's pod; `None` where it has ended or is bound to no node.
fn agent(pod: &Pod, container: &str) -> Option<AgentPod> {
    let spec = pod.spec.as_ref()?;
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let ready = status
        .and_then(|status| status.conditions.as_ref())
        .is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"));
    let image = spec.containers.iter().find(|it| it.name == container).or(spec.containers.first());
    Some(AgentPod {
        namespace: pod.namespace().unwrap_or_default(),
        node: spec.node_name.clone()?,
        ready: ready && pod.metadata.deletion_timestamp.is_none(),
        image: image.and_then(|it| it.image.clone()).unwrap_or_default(),
    })
}

/// The mode, from the environment or the arguments of the DaemonSet's containers.
fn mode(set: &DaemonSet) -> Option<String> {
    let containers = &set.spec.template.spec.as_ref()?.containers;
    let by_env = containers.iter().flat_map(|it| it.env.iter().flatten()).find(|var| var.name == MODE);
    let args: Vec<&String> = containers
        .iter()
        .flat_map(|it| it.args.iter().flatten().chain(it.command.iter().flatten()))
        .collect();
    let by_flag = args.iter().enumerate().find_map(|(at, arg)| match arg.split_once('=') {
        Some(("--mode", mode)) => Some(mode.to_owned()),
        _ if *arg == "--mode" => args.get(at + 1).map(ToString::to_string),
        _ => None,
    });
    by_flag.or_else(|| by_env.and_then(|var| var.value.clone()))
}
