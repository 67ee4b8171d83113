//! One pod of a live cluster, for `explain`: found by name or address, and observed as the watchdog of its node would.
//!
//! It decides nothing. Must not know: how a story is told.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Client;

use super::AgentArgs;
use super::agents::{AgentOptions, Agents};
use super::live::{Live, LiveNode};
use crate::cli::connection::ConnectionArgs;
use crate::domain::{Events, IpamMode, NodeName, Observation, Pod, PodName, Read, Refusal, refusal};
use crate::engine::{Sources as _, observe};
use crate::kube::{ListScope, PodStore, Reader, connect};
use crate::metrics::Metrics;

/// A cluster that is asked about one pod.
pub(in crate::cli) struct OneByOne {
    reader: Reader,
    client: Client,
    agents: AgentOptions,
}

/// One pod as it was seen.
pub(in crate::cli) struct Seen {
    pub(in crate::cli) obs: Observation,
    /// All its Events, also where no rule needs them.
    pub(in crate::cli) events: Events,
    /// The namespace of its agent's pod, where that was found.
    pub(in crate::cli) agent_namespace: Option<String>,
    /// What could not be read.
    pub(in crate::cli) unread: Vec<String>,
}

impl OneByOne {
    /// Connects with the first read.
    pub(in crate::cli) async fn new(connection: &ConnectionArgs, agent: &AgentArgs) -> Result<Self> {
        let options = connection.options();
        let (client, _) = connect(&options, &Arc::new(Metrics::new())).await?;
        let reader = Reader::new(client.clone(), options.timeout, PodStore::default());
        Ok(Self { reader, client, agents: agent.options() })
    }

    /// A pod by name; `None`: there is none.
    pub(in crate::cli) async fn pod(&self, name: &PodName) -> Read<Option<Pod>> {
        self.reader.pod(name).await
    }

    /// The pods of a scope that can be decoded.
    async fn pods(&self, scope: &ListScope) -> Read<Vec<Pod>> {
        let mut pods = Vec::new();
        let each = |object: Result<crate::kube::PodObject, _>| {
            pods.extend(object.ok().and_then(|object| object.to_domain().ok()));
        };
        self.reader.list_pods(scope, each).await?;
        Ok(pods)
    }

    /// The pods of a name, in all namespaces.
    pub(in crate::cli) async fn named(&self, name: &str) -> Read<Vec<Pod>> {
        self.pods(&ListScope { fields: format!("metadata.name={name}"), ..ListScope::default() }).await
    }

    /// The pods of a namespace.
    pub(in crate::cli) async fn neighbours(&self, namespace: &str) -> Read<Vec<Pod>> {
        self.pods(&ListScope { namespace: Some(namespace.to_owned()), ..ListScope::default() }).await
    }

    /// The pods whose first address this is.
    pub(in crate::cli) async fn with_address(&self, ip: IpAddr) -> Read<Vec<Pod>> {
        self.pods(&ListScope { fields: format!("status.podIP={ip}"), ..ListScope::default() }).await
    }

    /// The pods that an Event says are refused an address; with `ip`, this one.
    pub(in crate::cli) async fn refused(
        &self,
        namespace: Option<&str>,
        ip: Option<IpAddr>,
    ) -> Read<Vec<Pod>> {
        let mut names = BTreeSet::new();
        let scope = ListScope {
            namespace: namespace.map(str::to_owned),
            fields: "reason=FailedCreatePodSandBox".to_owned(),
            ..ListScope::default()
        };
        let each = |event: Event| {
            let of = &event.involved_object;
            let addresses = match refusal(event.message.as_deref().unwrap_or_default()) {
                Refusal::None => Vec::new(),
                Refusal::Of(ip) => vec![ip],
                Refusal::Several(all) => all,
            };
            let meant = ip.map_or(!addresses.is_empty(), |ip| addresses.contains(&ip));
            if let (true, Some(namespace), Some(name)) = (meant, &of.namespace, &of.name) {
                names.extend(PodName::new(namespace, name));
            }
        };
        self.reader.list(&scope, each).await?;
        let mut pods = Vec::new();
        for name in names {
            pods.extend(self.reader.pod(&name).await?);
        }
        Ok(pods)
    }

    /// A pod's Events.
    pub(in crate::cli) async fn events(&self, pod: &Pod) -> Events {
        self.reader.events(pod).await
    }

    /// Observes one pod.
    pub(in crate::cli) async fn observe(&self, node: &NodeName, pod: Pod) -> Seen {
        let live = Live::new(&self.reader, Agents::new(&self.reader, self.client.clone(), &self.agents));
        let sources = LiveNode { live: &live, node };
        let now = Timestamp::now();
        let obs = observe(&sources, node, pod, now, |_, _| None).await;
        let events =
            if obs.events == Events::default() { sources.events(&obs.pod).await } else { obs.events.clone() };
        let agent = if obs.pod.node.is_some() { live.agents.pod(node).await.ok() } else { None };
        let unread = live.record.into_inner().notes.lines().collect();
        Seen { obs, events, agent_namespace: agent.map(|pod| pod.namespace().to_owned()), unread }
    }

    /// The IPAM mode, as the agent of a node says.
    pub(in crate::cli) async fn ipam_mode(&self, node: &NodeName) -> Read<IpamMode> {
        let live = Live::new(&self.reader, Agents::new(&self.reader, self.client.clone(), &self.agents));
        LiveNode { live: &live, node }.ipam_mode().await
    }
}
