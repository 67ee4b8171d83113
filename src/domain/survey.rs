//! Findings without a wedge: what is wrong in the cluster although nothing hangs on it yet. Pure, as the rest.
//!
//! They only tell, except for an orphaned CiliumEndpoint, which may be deleted. Deleting one never frees an address.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};

use super::evidence::{Check, Evidence, Outcome};
use super::holder::{Holder, OwnerName};
use super::ids::{ContainerId, EndpointId, NodeName, PodName, is_link_local};
use super::objects::{CiliumEndpoint, CiliumNode, ReservedUse};
use super::observation::Read;
use super::pod::Pod;

/// A CiliumEndpoint younger than this may still wait for its pod to be seen.
const ORPHAN_AGE: SignedDuration = SignedDuration::from_mins(10);
/// A pod whose container runs for less than this may still get its CiliumEndpoint.
const MISSING_AGE: SignedDuration = SignedDuration::from_mins(5);

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnomalyKind {
    /// Two IPAMs hand out one range.
    OverlappingIpam,
    /// A CiliumEndpoint whose pod is gone.
    OrphanCep,
    /// A CiliumEndpoint that is not that of the pod of its name.
    CepMismatch,
    /// A pod without its CiliumEndpoint.
    CepMissing,
}

impl AnomalyKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OverlappingIpam, Self::OrphanCep, Self::CepMismatch, Self::CepMissing];

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OverlappingIpam => "overlapping-ipam",
            Self::OrphanCep => "orphan-cep",
            Self::CepMismatch => "cep-mismatch",
            Self::CepMissing => "cep-missing",
        }
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A pod, with its UID.
    Pod(PodName, String),
    /// A CiliumEndpoint, with its UID.
    CiliumEndpoint(PodName, String),
    /// A CiliumNode.
    CiliumNode(NodeName),
}

/// A finding without a wedge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// What it is about.
    pub subject: Subject,
    /// The node, where one is known.
    pub node: Option<NodeName>,
    /// The address, where one is meant.
    pub ip: Option<IpAddr>,
    /// What was found.
    pub kind: AnomalyKind,
    /// The remedy `delete-cep` (with a UID precondition) may be used.
    pub may_delete: bool,
    /// One sentence that a person understands.
    pub reason: String,
    /// What was looked at.
    pub evidence: Vec<Evidence>,
}

/// A CiliumEndpoint with what only a survey looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyedEndpoint {
    /// The object.
    pub object: CiliumEndpoint,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `status.networking.addressing[]`.
    pub addresses: Vec<IpAddr>,
    /// `status.networking.node`.
    pub node: Option<IpAddr>,
    /// It has owner references, and none of them is a pod.
    pub foreign_owner: bool,
}

/// A CiliumNode with what only a survey looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyedNode {
    /// Its name.
    pub name: NodeName,
    /// Its addresses.
    pub object: CiliumNode,
    /// Its pod CIDRs.
    pub cidrs: Vec<IpNet>,
}

/// A holder that a wedge was judged over: its CiliumEndpoint is told there already.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Disputed {
    /// The disputed address.
    pub ip: Option<IpAddr>,
    /// Number and container of the holder.
    pub holder: Option<(EndpointId, Option<ContainerId>)>,
}

/// A whole cluster at one instant.
#[derive(Debug)]
pub struct Survey<'a> {
    /// The instant that all rules call now.
    pub now: Timestamp,
    /// All pods.
    pub pods: &'a [Pod],
    /// All pods could be listed.
    pub pods_read: bool,
    /// Pods that could not be read one by one.
    pub unread_pods: &'a HashSet<PodName>,
    /// All CiliumNodes that could be read.
    pub nodes: &'a [SurveyedNode],
    /// All CiliumEndpoints; `None`: the cluster does not serve them.
    pub endpoints: &'a Read<Option<Vec<SurveyedEndpoint>>>,
    /// A CiliumEndpointSlice has entries, or nobody knows.
    pub slices_in_use: bool,
    /// Each agent's endpoints, by node; an agent that is not here could not be asked.
    pub agents: &'a BTreeMap<NodeName, Read<Vec<Holder>>>,
    /// What the wedges tell already.
    pub disputed: &'a [Disputed],
}

/// Finds what is wrong without a wedge.
pub fn survey(survey: &Survey<'_>) -> Vec<Anomaly> {
    let mut found = overlapping_addresses(survey);
    found.extend(overlapping_cidrs(survey.nodes));
    if let Ok(Some(endpoints)) = survey.endpoints {
        let pods: HashMap<&PodName, &Pod> = survey.pods.iter().map(|pod| (&pod.name, pod)).collect();
        let hosts: HashMap<IpAddr, &NodeName> = survey
            .nodes
            .iter()
            .flat_map(|node| node.object.addresses.iter().map(|ip| (*ip, &node.name)))
            .collect();
        for endpoint in endpoints {
            let node = endpoint.node.and_then(|ip| hosts.get(&ip)).copied();
            found.extend(orphan(survey, &pods, endpoint, node));
            found.extend(mismatch(survey, &pods, endpoint, node));
        }
        if !survey.slices_in_use {
            found.extend(missing(survey, endpoints));
        }
    }
    found
}

fn evidence(check: Check, outcome: Outcome, observed: impl Into<String>) -> Evidence {
    Evidence { check, outcome, observed: observed.into() }
}

/// A live pod has an address that Cilium uses itself, on any node.
fn overlapping_addresses(survey: &Survey<'_>) -> Vec<Anomaly> {
    let mut reserved: HashMap<IpAddr, (ReservedUse, &NodeName)> = HashMap::new();
    for node in survey.nodes {
        for (used, ip) in &node.object.reserved {
            reserved.entry(*ip).or_insert((*used, &node.name));
        }
    }
    let pods = survey.pods.iter().filter(|pod| pod.is_live() && !pod.host_network);
    let listed = pods.flat_map(|pod| pod.ips.iter().map(move |ip| (pod, *ip)));
    let hits = listed.filter_map(|(pod, ip)| Some((pod, ip, *reserved.get(&ip)?)));
    hits.map(|(pod, ip, (used, node))| {
        let what = format!("{ip} is the {} address of node {node}", used.as_str());
        Anomaly {
            subject: Subject::Pod(pod.name.clone(), pod.uid.to_string()),
            node: pod.node.clone(),
            ip: Some(ip),
            kind: AnomalyKind::OverlappingIpam,
            may_delete: false,
            reason: format!(
                "the live pod {} has an address of Cilium's own: {what}; two IPAMs hand out one range",
                pod.name
            ),
            evidence: vec![evidence(Check::CiliumNode, Outcome::Fail, what)],
        }
    })
    .collect()
}

/// The pod CIDRs of two nodes overlap: one finding a pair. A sweep over the sorted ranges keeps it near linear.
fn overlapping_cidrs(nodes: &[SurveyedNode]) -> Vec<Anomaly> {
    let mut ranges: Vec<(IpAddr, IpAddr, IpNet, &NodeName)> = nodes
        .iter()
        .flat_map(|node| node.cidrs.iter().map(|cidr| (cidr.network(), cidr.broadcast(), *cidr, &node.name)))
        .collect();
    ranges.sort();
    let mut open: Vec<(IpAddr, IpNet, &NodeName)> = Vec::new();
    let mut pairs: BTreeMap<(&NodeName, &NodeName), (IpNet, IpNet)> = BTreeMap::new();
    for (start, end, cidr, name) in ranges {
        open.retain(|(open_end, ..)| *open_end >= start && open_end.is_ipv4() == start.is_ipv4());
        for (_, other_cidr, other) in open.iter().filter(|(.., other)| *other != name) {
            let pair = if *other < name {
                ((*other, name), (*other_cidr, cidr))
            } else {
                ((name, *other), (cidr, *other_cidr))
            };
            pairs.entry(pair.0).or_insert(pair.1);
        }
        open.push((end, cidr, name));
    }
    let anomaly = |((first, second), (ours, theirs)): ((&NodeName, &NodeName), (IpNet, IpNet))| Anomaly {
        subject: Subject::CiliumNode(first.clone()),
        node: Some(first.clone()),
        ip: None,
        kind: AnomalyKind::OverlappingIpam,
        may_delete: false,
        reason: format!("the pod CIDRs of two nodes overlap: {ours} of {first} and {theirs} of {second}"),
        evidence: vec![evidence(
            Check::CiliumNode,
            Outcome::Fail,
            format!("{first}: {ours}; {second}: {theirs}"),
        )],
    };
    pairs.into_iter().map(anomaly).collect()
}

impl SurveyedEndpoint {
    /// The interface of its attachment, where it is not the pod's first one.
    fn second_interface(&self) -> Option<&str> {
        let interface = self.object.attachment.as_ref()?.interface()?;
        (!matches!(interface, "" | "eth0")).then_some(interface)
    }

    /// The pods that it may stand for: its owners, or by its own name where it has none.
    fn pods(&self) -> Vec<PodName> {
        let namespace = self.object.name.namespace();
        if !self.object.owners.is_empty() {
            return self
                .object
                .owners
                .iter()
                .filter_map(|(name, _)| PodName::new(namespace, name).ok())
                .collect();
        }
        let name = self.object.name.name();
        let of_interface =
            self.second_interface().and_then(|interface| name.strip_suffix(&format!("-{interface}")));
        PodName::new(namespace, of_interface.unwrap_or(name)).into_iter().collect()
    }

    fn anomaly(
        &self,
        node: Option<&NodeName>,
        kind: AnomalyKind,
        reason: String,
        evidence: Vec<Evidence>,
    ) -> Anomaly {
        let subject = Subject::CiliumEndpoint(self.object.name.clone(), self.uid.clone());
        Anomaly { subject, node: node.cloned(), ip: None, kind, may_delete: false, reason, evidence }
    }
}

/// A CiliumEndpoint of whose name no pod exists.
fn orphan(
    survey: &Survey<'_>,
    pods: &HashMap<&PodName, &Pod>,
    endpoint: &SurveyedEndpoint,
    node: Option<&NodeName>,
) -> Option<Anomaly> {
    let names = endpoint.pods();
    let old = endpoint.created.is_some_and(|at| survey.now.duration_since(at) > ORPHAN_AGE);
    let unknown = |name: &PodName| pods.contains_key(name) || survey.unread_pods.contains(name);
    if !survey.pods_read || !old || endpoint.foreign_owner || names.is_empty() || names.iter().any(unknown) {
        return None;
    }
    let agent = node.and_then(|node| survey.agents.get(node)).and_then(|list| list.as_ref().ok());
    let (may_delete, agent_says) = match agent {
        None => (
            false,
            evidence(Check::AgentLookup, Outcome::Unknown, "the agent of its node could not be asked"),
        ),
        Some(holders) if holders.iter().any(|holder| stands_for(holder, endpoint, &names)) => (
            false,
            evidence(
                Check::AgentLookup,
                Outcome::Fail,
                "the agent still holds the endpoint and would write it again",
            ),
        ),
        Some(_) => (true, evidence(Check::AgentLookup, Outcome::Pass, "the agent has no such endpoint")),
    };
    let what = format!("no pod {} exists", names[0]);
    let reason = format!("the CiliumEndpoint {} is left over: {what}", endpoint.object.name);
    let checks = vec![evidence(Check::OwnerPod, Outcome::Pass, what), agent_says];
    Some(Anomaly { may_delete, ..endpoint.anomaly(node, AnomalyKind::OrphanCep, reason, checks) })
}

/// Whether the agent's endpoint is the one of this object, or would be written under its name.
fn stands_for(holder: &Holder, endpoint: &SurveyedEndpoint, names: &[PodName]) -> bool {
    let same_name = holder.owner_by_agent().pod().is_some_and(|name| names.contains(name));
    match (holder.container(), endpoint.object.container()) {
        (Some(ours), Some(theirs)) if ours == theirs => true,
        (Some(_), Some(_)) => same_name,
        _ => same_name || endpoint.object.id == Some(holder.id),
    }
}

/// A CiliumEndpoint whose owner UID or address is not that of the live pod of its name.
fn mismatch(
    survey: &Survey<'_>,
    pods: &HashMap<&PodName, &Pod>,
    endpoint: &SurveyedEndpoint,
    node: Option<&NodeName>,
) -> Option<Anomaly> {
    let pod = pods.get(&endpoint.object.name).filter(|pod| pod.is_live())?;
    let told = survey.disputed.iter().any(|disputed| disputed.is_about(endpoint));
    if pod.mirror.is_some()
        || pod.ips.is_empty()
        || pod.unparsed_ips
        || endpoint.second_interface().is_some()
        || told
    {
        return None;
    }
    let owners = &endpoint.object.owners;
    let other_uid = !owners.is_empty() && owners.iter().all(|(_, uid)| *uid != pod.uid);
    let ordinary = |ip: &&IpAddr| !is_link_local(**ip);
    let comparable = endpoint.addresses.iter().any(|ip| !is_link_local(*ip))
        && pod.ips.iter().any(|ip| !is_link_local(*ip));
    let other_address = comparable && !endpoint.addresses.iter().filter(ordinary).any(|ip| pod.lists(*ip));
    let what = if other_uid {
        format!("its owner has another UID than the live pod ({})", pod.uid)
    } else if other_address {
        let listed: Vec<String> = endpoint.addresses.iter().map(IpAddr::to_string).collect();
        format!("it has {}, which is not the pod's", listed.join(", "))
    } else {
        return None;
    };
    let reason = format!(
        "the CiliumEndpoint {} is not that of the live pod of its name: {what}",
        endpoint.object.name
    );
    let checks = vec![evidence(Check::CiliumEndpoints, Outcome::Fail, what)];
    Some(endpoint.anomaly(node, AnomalyKind::CepMismatch, reason, checks))
}

impl Disputed {
    fn is_about(&self, endpoint: &SurveyedEndpoint) -> bool {
        let carries = self.ip.is_some_and(|ip| endpoint.addresses.contains(&ip));
        let is_holders = self.holder.as_ref().is_some_and(|(id, container)| {
            endpoint.object.id == Some(*id)
                && container.is_some()
                && endpoint.object.container() == container.as_ref()
        });
        carries || is_holders
    }
}

/// Pods that run with an endpoint in the agent and without a CiliumEndpoint.
fn missing(survey: &Survey<'_>, endpoints: &[SurveyedEndpoint]) -> Vec<Anomaly> {
    let named: HashSet<PodName> =
        endpoints.iter().flat_map(|it| it.pods().into_iter().chain([it.object.name.clone()])).collect();
    let held: HashMap<&NodeName, Held<'_>> =
        survey.agents.iter().filter_map(|(node, list)| Some((node, Held::of(list.as_ref().ok()?)))).collect();
    let lacks = |pod: &&Pod| {
        let settled = pod.running_since.is_some_and(|at| survey.now.duration_since(at) >= MISSING_AGE);
        let held = pod.node.as_ref().and_then(|node| held.get(node)).is_some_and(|held| held.has(pod));
        // Cilium itself removes the CiliumEndpoint of a pod that has ended, also while a container still runs.
        let ending = pod.deleting || pod.phase.is_terminal();
        pod.containers.running
            && settled
            && !pod.host_network
            && !ending
            && held
            && !named.contains(&pod.name)
    };
    let anomaly = |pod: &Pod| {
        let what = "the agent holds its endpoint, and no CiliumEndpoint has its name";
        Anomaly {
            subject: Subject::Pod(pod.name.clone(), pod.uid.to_string()),
            node: pod.node.clone(),
            ip: pod.ips.first().copied(),
            kind: AnomalyKind::CepMissing,
            may_delete: false,
            reason: format!(
                "the running pod {} has no CiliumEndpoint: other nodes may not know it",
                pod.name
            ),
            evidence: vec![evidence(Check::CiliumEndpoints, Outcome::Fail, what)],
        }
    };
    survey.pods.iter().filter(lacks).map(anomaly).collect()
}

/// One agent's endpoints, by what a pod can be found with.
struct Held<'a> {
    names: HashSet<PodName>,
    nameless: HashSet<&'a IpAddr>,
}

impl<'a> Held<'a> {
    fn of(holders: &'a [Holder]) -> Self {
        let mut held = Self { names: HashSet::new(), nameless: HashSet::new() };
        for holder in holders.iter().filter(|holder| holder.reserved_label().is_none()) {
            match holder.owner_by_agent() {
                OwnerName::Nameless => held.nameless.extend(&holder.addresses),
                named => held.names.extend(named.pod().cloned()),
            }
        }
        held
    }

    fn has(&self, pod: &Pod) -> bool {
        self.names.contains(&pod.name) || pod.ips.iter().any(|ip| self.nameless.contains(ip))
    }
}
