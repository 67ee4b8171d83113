//! Reads what `doctor` judges, each read bounded in time. Read-only, but for access reviews, which store nothing.
//!
//! Must not know: what is well and what is not.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::seen::{
    AgentPod, CiliumConfig, Cluster, Fence, LeaseSeen, Paused, Places, Policy, Purpose, Right, Seen, Served,
    Watchdog, rights,
};
use crate::cilium::CiliumEndpointSliceObject;
use crate::cli::run::{RESTART_LEASE, delete_leases};
use crate::cli::scan::OneByOne;
use crate::kube::{AccessWish, FENCE, PAUSED, paused};

const PAGE: u32 = 500;
const CONFIG: &str = "cilium-config";
const WATCHDOG_LABEL: &str = "app.kubernetes.io/name=cilium-leak-healer";
const POLICIES: &str = "admissionregistration.k8s.io/v1";
/// The Leases that the manifests make.
const DELETE_LEASES: u32 = 3;

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
        let namespace = namespace.as_deref().unwrap_or("kube-system");
        let watchdog = self.watchdog().await;
        let installed = watchdog.as_ref().ok().and_then(Option::as_ref);
        let restarts = installed.is_some_and(|it| it.uses("restart-agent"));
        let slots = installed.and_then(|it| it.delete_in_flight).unwrap_or(DELETE_LEASES);
        let places = Places {
            own: &self.watchdog_namespace,
            agents: namespace,
            delete_leases: &delete_leases(slots),
            restart_leases: &[RESTART_LEASE.to_owned()],
        };
        Cluster {
            version,
            account: self.account.as_ref().map(|(namespace, name)| format!("{namespace}/{name}")),
            rights: self.rights(places, installed).await,
            served: self.served().await,
            nodes: self.nodes().await,
            told: self.told(&agents).await,
            selector: self.selector.clone(),
            config: self.config(namespace).await,
            agents,
            watchdog_namespace: self.watchdog_namespace.clone(),
            fenced_user: self.fenced_user(installed),
            watchdog,
            fence: self.fence().await,
            leases: self.leases(places, restarts).await,
            paused: self.paused().await,
        }
    }

    async fn rights(&self, places: Places<'_>, installed: Option<&Watchdog>) -> Vec<(Right, Seen<bool>)> {
        let named = self.account.is_some();
        let mut answers = Vec::new();
        let purposes = [
            Purpose::Observe,
            Purpose::Heal,
            Purpose::RestartAgent,
            Purpose::Auth,
            Purpose::Scan,
            Purpose::Excess,
        ];
        for purpose in purposes {
            let asked = match purpose {
                Purpose::Observe | Purpose::Heal => true,
                Purpose::RestartAgent => installed.is_some_and(|it| it.uses("restart-agent")),
                Purpose::Auth => installed.is_some_and(|it| it.reviews_tokens),
                // Scan is for people, who may have whatever they have.
                Purpose::Scan => !named,
                Purpose::Excess => named,
            };
            for wish in rights(purpose, places).into_iter().filter(|_| asked) {
                let answer = self.has(&wish).await;
                answers.push((Right { purpose, wish }, answer));
            }
        }
        answers
    }

    async fn has(&self, wish: &AccessWish) -> Seen<bool> {
        let named = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
        let attributes = ResourceAttributes {
            verb: Some(wish.verb.to_owned()),
            group: Some(wish.group.to_owned()),
            resource: Some(wish.resource.to_owned()),
            subresource: named(wish.subresource),
            namespace: named(&wish.namespace),
            name: named(&wish.name),
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
            mode: setting(set, "--mode"),
            remedies: setting(set, "--remedies").map(|all| {
                all.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect()
            }),
            delete_in_flight: setting(set, "--delete-in-flight").and_then(|count| count.parse().ok()),
            reviews_tokens: setting(set, "--auth").as_deref() == Some("token"),
            account: set
                .spec
                .template
                .spec
                .as_ref()
                .and_then(|spec| spec.service_account_name.clone())
                .filter(|name| !name.is_empty()),
        }))
    }

    /// Who deletes pods: the account that is asked about, else that of the DaemonSet, else that of the manifests.
    fn fenced_user(&self, installed: Option<&Watchdog>) -> String {
        let own = installed.and_then(|it| it.account.as_deref()).unwrap_or("cilium-leak-healer");
        let (namespace, name) = self
            .account
            .as_ref()
            .map_or((self.watchdog_namespace.as_str(), own), |(namespace, name)| (namespace, name));
        format!("system:serviceaccount:{namespace}:{name}")
    }

    async fn fence(&self) -> Seen<Option<Fence>> {
        let list = match self.bounded_raw(self.client.list_api_group_resources(POLICIES)).await? {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(said(&error)),
        };
        if !list.resources.iter().any(|it| it.name == "validatingadmissionpolicies") {
            return Ok(None);
        }
        let agents = format!("{FENCE}-restart-agent");
        Ok(Some(Fence { all: self.policy(FENCE).await?, agents: self.policy(&agents).await? }))
    }

    async fn policy(&self, name: &str) -> Seen<Policy> {
        let policies = Api::<ValidatingAdmissionPolicy>::all(self.client.clone());
        let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(self.client.clone());
        Ok(Policy {
            policy: self.bounded(policies.get_opt(name)).await?,
            binding: self.bounded(bindings.get_opt(name)).await?,
        })
    }

    async fn leases(&self, places: Places<'_>, restarts: bool) -> Seen<Vec<LeaseSeen>> {
        let api = Api::<Lease>::namespaced(self.client.clone(), places.own);
        let restart = places.restart_leases.iter().filter(|_| restarts);
        let mut seen = Vec::new();
        for name in places.delete_leases.iter().chain(restart) {
            let lease = self.bounded(api.get_opt(name)).await?;
            seen.push(LeaseSeen {
                name: name.clone(),
                there: lease.is_some(),
                holder: lease
                    .and_then(|lease| lease.spec?.holder_identity)
                    .filter(|holder| !holder.is_empty()),
            });
        }
        Ok(seen)
    }

    async fn paused(&self) -> Seen<Option<Paused>> {
        let api = Api::<Namespace>::all(self.client.clone());
        let namespace = self.bounded(api.get_opt(&self.watchdog_namespace)).await?;
        let meta = namespace.map(|namespace| namespace.metadata).unwrap_or_default();
        Ok(paused(&meta).map(|why| Paused { why, since: paused_since(&meta) }))
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
        self.bounded_raw(call).await?.map_err(|error| said(&error))
    }

    /// The client's own word, if it comes in time.
    async fn bounded_raw<T>(
        &self,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Seen<Result<T, kube::Error>> {
        let answer = tokio::time::timeout(self.timeout, call).await;
        answer.map_err(|_| format!("no answer within {} s", self.timeout.as_secs()))
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

/// When somebody last wrote the pause annotation, if the server remembers.
fn paused_since(meta: &ObjectMeta) -> Option<String> {
    let annotation = format!("f:{PAUSED}");
    let wrote = |fields: &Value| fields["f:metadata"]["f:annotations"].get(&annotation).is_some();
    let entries = meta.managed_fields.iter().flatten();
    let times = entries
        .filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| wrote(&fields.0)))
        .filter_map(|entry| entry.time.as_ref());
    times.map(|time| time.0).max().map(|time| time.to_string())
}

/// A setting, from the arguments or the environment of the DaemonSet's containers. The flag wins, as it does there.
fn setting(set: &DaemonSet, flag: &str) -> Option<String> {
    let containers = &set.spec.template.spec.as_ref()?.containers;
    let variable =
        format!("CILIUM_LEAK_HEALER_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase());
    let by_env = containers.iter().flat_map(|it| it.env.iter().flatten()).find(|var| var.name == variable);
    let args: Vec<&String> = containers
        .iter()
        .flat_map(|it| it.command.iter().flatten().chain(it.args.iter().flatten()))
        .collect();
    let by_flag = args.iter().enumerate().find_map(|(at, arg)| match arg.split_once('=') {
        Some((name, value)) if name == flag => Some(value.to_owned()),
        _ if *arg == flag => args.get(at + 1).map(ToString::to_string),
        _ => None,
    });
    by_flag.or_else(|| by_env.and_then(|var| var.value.clone()))
}
