//! The whole of a snapshot as the input of a survey: findings without a wedge.

use std::collections::{BTreeMap, HashSet};

use super::field::{CallName, Resource};
use super::view::{View, unreadable};
use crate::cilium::{CiliumEndpointObject, CiliumNodeObject};
use crate::domain::{
    Anomaly, AnomalyKind, Disputed, Holder, NodeName, PodName, Read, ReadFailure, Subject, Survey,
    SurveyedEndpoint, SurveyedNode, Unreadable, survey,
};

/// All findings without a wedge.
pub(super) fn anomalies(view: &View<'_>, disputed: &[Disputed]) -> Vec<Anomaly> {
    let endpoints = surveyed_endpoints(view);
    let nodes = view.snapshot.cluster.cilium_nodes.iter().filter_map(|node| surveyed_node(view, node));
    let (pods_read, unread_pods) = unread_pods(view, &endpoints);
    let slices = view.snapshot.cluster.cilium_endpoint_slices.iter().flatten();
    let mut found = survey(&Survey {
        now: view.snapshot.taken_at,
        pods: &view.pods,
        pods_read,
        unread_pods: &unread_pods,
        nodes: &nodes.collect::<Vec<_>>(),
        endpoints: &endpoints,
        slices_in_use: view.failed(Resource::CiliumEndpointSlices).next().is_some()
            || slices.into_iter().any(|slice| !slice.is_empty()),
        agents: &agents(view),
        disputed,
    });
    // A CiliumEndpoint that could not be read is not missing.
    found.retain(|anomaly| match &anomaly.subject {
        Subject::Pod(name, _) => anomaly.kind != AnomalyKind::CepMissing || !may_have_endpoint(view, name),
        Subject::CiliumEndpoint(..) | Subject::CiliumNode(_) => true,
    });
    found
}

fn surveyed_node(view: &View<'_>, object: &CiliumNodeObject) -> Option<SurveyedNode> {
    let name: NodeName = object.metadata.name.as_deref()?.parse().ok()?;
    let mut failed = view.failed(Resource::CiliumNodes);
    if failed.any(|unread| unread.name.as_deref() == Some(name.as_str())) {
        return None;
    }
    let cidrs = object.pod_cidrs().filter_map(|cidr| cidr.parse().ok()).collect();
    Some(SurveyedNode { name, object: object.to_domain().ok()?, cidrs })
}

fn surveyed_endpoints(view: &View<'_>) -> Read<Option<Vec<SurveyedEndpoint>>> {
    let mut failed = view.failed(Resource::CiliumEndpoints);
    if let Some(unread) = failed.find(|unread| unread.name.is_none() && unread.namespace.is_none()) {
        return Err(unreadable(unread));
    }
    let Some(all) = &view.snapshot.cluster.cilium_endpoints else {
        return Ok(None);
    };
    let surveyed = |object: &CiliumEndpointObject| {
        let domain = object.to_domain()?;
        let meta = &object.metadata;
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let unread = view.failed(Resource::CiliumEndpoints).any(|unread| {
            unread.name.as_deref() == Some(domain.name.name())
                && unread.namespace.as_deref().is_none_or(|namespace| namespace == domain.name.namespace())
        });
        (!unread).then(|| SurveyedEndpoint {
            uid: meta.uid.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            addresses: object.addresses(),
            node: object.node(),
            foreign_owner: !owners.is_empty() && owners.iter().all(|owner| owner.kind != "Pod"),
            object: domain,
        })
    };
    Ok(Some(all.iter().filter_map(surveyed).collect()))
}

/// Whether all pods could be listed, and which ones could not be read beyond that.
fn unread_pods(view: &View<'_>, endpoints: &Read<Option<Vec<SurveyedEndpoint>>>) -> (bool, HashSet<PodName>) {
    let mut unread = HashSet::new();
    let mut scopes = HashSet::new();
    let mut whole = view.malformed().is_none();
    for failed in view.failed(Resource::Pods) {
        match (&failed.namespace, &failed.name) {
            (Some(namespace), Some(name)) => unread.extend(PodName::new(namespace, name).ok()),
            (Some(namespace), None) => {
                scopes.insert(namespace.as_str());
            }
            (None, _) => whole = false,
        }
    }
    // In a namespace whose list failed, each pod that a CiliumEndpoint may stand for is unknown.
    for endpoint in endpoints.iter().flatten().flatten() {
        let name = &endpoint.object.name;
        if scopes.contains(name.namespace()) {
            unread.insert(name.clone());
            let owners = endpoint.object.owners.iter();
            unread.extend(owners.filter_map(|(owner, _)| PodName::new(name.namespace(), owner).ok()));
            let interface = endpoint.object.attachment.as_ref().and_then(|id| id.interface());
            let pod = interface.and_then(|it| name.name().strip_suffix(it)?.strip_suffix('-'));
            unread.extend(pod.and_then(|pod| PodName::new(name.namespace(), pod).ok()));
        }
    }
    (whole, unread)
}

/// Whether a CiliumEndpoint that could not be read may be this pod's.
fn may_have_endpoint(view: &View<'_>, pod: &PodName) -> bool {
    view.failed(Resource::CiliumEndpoints).any(|unread| {
        let in_scope = unread.namespace.as_deref().is_none_or(|namespace| namespace == pod.namespace());
        in_scope
            && unread.name.as_deref().is_none_or(|name| {
                let rest = name.strip_prefix(pod.name());
                rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-').is_some_and(is_interface))
            })
    })
}

/// Each agent's endpoints; one that is malformed makes the list unreadable.
fn agents(view: &View<'_>) -> BTreeMap<NodeName, Read<Vec<Holder>>> {
    let list = |node: &str| {
        let agent = view.call(node, CallName::ListEndpoints, None)?;
        let holders = agent.endpoints.iter().map(|endpoint| {
            endpoint.to_holder(None).map_err(|error| Unreadable {
                what: "GET endpoint".to_owned(),
                why: ReadFailure::Undecodable(error.to_string()),
            })
        });
        holders.collect::<Read<Vec<Holder>>>()
    };
    let nodes = view.snapshot.agents.keys();
    nodes.filter_map(|node| Some((node.parse().ok()?, list(node)))).collect()
}

/// The name of a pod's further interface, as `eth1` or `net1`.
pub(super) fn is_interface(text: &str) -> bool {
    let number = text.strip_prefix("eth").or_else(|| text.strip_prefix("net"));
    number.is_some_and(|number| (1..=3).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit()))
}
