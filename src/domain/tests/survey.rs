//! Findings without a wedge, row by row.

use std::collections::{BTreeMap, HashSet};

use rstest::rstest;

use super::fixtures::{HOLDER, IP, SANDBOX, ago, holder, ip, name, nameless, node, now, pod, running};
use crate::domain::{
    Anomaly, AnomalyKind, CiliumEndpoint, CiliumNode, Containers, Disputed, EndpointId, Holder, NodeName,
    Phase, Pod, Read, ReadFailure, ReservedUse, Subject, Survey, SurveyedEndpoint, SurveyedNode, Unreadable,
    survey,
};

/// A healthy cluster: one node, one running pod, its CiliumEndpoint, its endpoint in the agent.
struct World {
    pods: Vec<Pod>,
    pods_read: bool,
    unread: HashSet<crate::domain::PodName>,
    nodes: Vec<SurveyedNode>,
    endpoints: Read<Option<Vec<SurveyedEndpoint>>>,
    slices_in_use: bool,
    agents: BTreeMap<NodeName, Read<Vec<Holder>>>,
    disputed: Vec<Disputed>,
}

fn unread<T>() -> Read<T> {
    Err(Unreadable { what: "LIST".to_owned(), why: ReadFailure::Timeout })
}

fn surveyed_node(name: &str, cidrs: &[&str], reserved: &[(ReservedUse, &str)]) -> SurveyedNode {
    let reserved = reserved.iter().map(|(used, text)| (*used, ip(text))).collect();
    let addresses = vec![ip(if name == "worker-1" { "192.0.2.11" } else { "192.0.2.12" })];
    SurveyedNode {
        name: name.parse().unwrap(),
        object: CiliumNode { reserved, addresses },
        cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
    }
}

fn agent() -> Pod {
    Pod {
        running_since: Some(ago(7000)),
        started: Some(ago(7300)),
        ..running("backup/agent-0", "owner", &[IP])
    }
}

fn object() -> SurveyedEndpoint {
    SurveyedEndpoint {
        object: CiliumEndpoint {
            name: name("backup/agent-0"),
            id: Some(holder().id),
            attachment: holder().attachment,
            container: None,
            owners: vec![("agent-0".to_owned(), "owner".parse().unwrap())],
        },
        uid: "cep".to_owned(),
        created: Some(ago(7000)),
        addresses: vec![ip(IP)],
        node: Some(ip("192.0.2.11")),
        foreign_owner: false,
    }
}

impl World {
    fn healthy() -> Self {
        Self {
            pods: vec![agent()],
            pods_read: true,
            unread: HashSet::new(),
            nodes: vec![
                surveyed_node("worker-1", &["10.244.1.0/24"], &[(ReservedUse::Health, "10.244.1.180")]),
                surveyed_node("worker-2", &["10.244.2.0/24"], &[(ReservedUse::Router, "10.244.2.1")]),
            ],
            endpoints: Ok(Some(vec![object()])),
            slices_in_use: false,
            agents: [(node(), Ok(vec![holder()]))].into(),
            disputed: Vec::new(),
        }
    }

    fn object(&mut self) -> &mut SurveyedEndpoint {
        &mut self.endpoints.as_mut().unwrap().as_mut().unwrap()[0]
    }

    fn anomalies(&self) -> Vec<Anomaly> {
        survey(&Survey {
            now: now(),
            pods: &self.pods,
            pods_read: self.pods_read,
            unread_pods: &self.unread,
            nodes: &self.nodes,
            endpoints: &self.endpoints,
            slices_in_use: self.slices_in_use,
            agents: &self.agents,
            disputed: &self.disputed,
        })
    }

    fn found(&self) -> Vec<(AnomalyKind, bool)> {
        let found = self.anomalies();
        assert!(found.iter().all(|it| !it.reason.is_empty() && !it.evidence.is_empty()));
        found.into_iter().map(|it| (it.kind, it.may_delete)).collect()
    }
}

#[test]
fn a_healthy_cluster_has_none() {
    assert_eq!(World::healthy().found(), []);
}

#[rstest]
#[case::health_address_of_its_node("10.244.1.180", 1)]
#[case::router_address_of_another_node("10.244.2.1", 1)]
#[case::an_ordinary_address("10.244.1.77", 0)]
fn a_live_pod_on_an_address_of_ciliums_own(#[case] address: &str, #[case] count: usize) {
    let mut world = World::healthy();
    world.pods.push(running("a/b", "b", &[address, "fd00::7"]));
    assert_eq!(world.found(), vec![(AnomalyKind::OverlappingIpam, false); count]);
    world.pods[1].host_network = true;
    assert_eq!(world.found(), []);
    world.pods[1] =
        Pod { phase: Phase::Failed, containers: Containers::default(), ..running("a/b", "b", &[address]) };
    assert_eq!(world.found(), []);
}

#[rstest]
#[case::equal(&["10.244.1.0/24"], 1)]
#[case::inside(&["10.244.1.128/25"], 1)]
#[case::around(&["10.244.0.0/16"], 1)]
#[case::its_last_address(&["10.244.1.255/32"], 1)]
#[case::its_first_address(&["10.244.1.0/32"], 1)]
#[case::right_before(&["10.244.0.0/24"], 0)]
#[case::right_behind(&["10.244.2.0/32"], 0)]
#[case::twice_on_one_node(&["10.244.2.0/24", "10.244.2.0/25"], 0)]
#[case::after_one_that_overlaps_nothing(&["10.0.0.0/24", "10.244.1.0/25"], 1)]
#[case::twice_is_one_pair(&["10.244.1.0/25", "10.244.1.128/25"], 1)]
#[case::beside(&["10.244.2.0/24"], 0)]
#[case::of_the_other_family(&["fd00::/64"], 0)]
fn pod_cidrs_of_two_nodes(#[case] cidrs: &[&str], #[case] pairs: usize) {
    let mut world = World::healthy();
    world.nodes[1] = surveyed_node("worker-2", cidrs, &[]);
    assert_eq!(world.found(), vec![(AnomalyKind::OverlappingIpam, false); pairs]);
}

#[rstest]
#[case::the_wider_one_is_the_seconds("10.244.0.0/16")]
#[case::the_wider_one_is_the_firsts("10.244.1.128/25")]
fn a_pair_of_nodes_is_told_by_the_first_by_name(#[case] other: &str) {
    let mut world = World::healthy();
    world.nodes =
        vec![surveyed_node("worker-2", &[other], &[]), surveyed_node("worker-1", &["10.244.1.0/24"], &[])];
    let [found] = world.anomalies().try_into().unwrap();
    assert_eq!((found.subject, found.node), (Subject::CiliumNode(node()), Some(node())));
    let ranges =
        format!("the pod CIDRs of two nodes overlap: 10.244.1.0/24 of worker-1 and {other} of worker-2");
    assert_eq!(found.reason, ranges);
}

/// The pod is gone, and the agent has let its endpoint go.
fn orphaned() -> World {
    let mut world = World::healthy();
    world.pods.clear();
    world.agents.insert(node(), Ok(Vec::new()));
    world
}

#[rstest]
#[case::plain(|_: &mut World| {}, Some(true))]
#[case::without_owner_by_its_name(|world: &mut World| world.object().object.owners.clear(), Some(true))]
#[case::ten_minutes_old(|world: &mut World| world.object().created = Some(ago(600)), None)]
#[case::without_age(|world: &mut World| world.object().created = None, None)]
#[case::owned_by_something_else(|world: &mut World| { world.object().object.owners.clear(); world.object().foreign_owner = true; }, None)]
#[case::pod_list_unread(|world: &mut World| world.pods_read = false, None)]
#[case::that_pod_unread(|world: &mut World| { world.unread.insert(name("backup/agent-0")); }, None)]
#[case::pod_has_ended_but_exists(|world: &mut World| world.pods.push(Pod { phase: Phase::Succeeded, ..pod("backup/agent-0", "owner") }), None)]
#[case::agent_not_asked(|world: &mut World| world.agents.clear(), Some(false))]
#[case::agent_list_failed(|world: &mut World| { world.agents.insert(node(), unread()); }, Some(false))]
#[case::of_an_unknown_node(|world: &mut World| world.object().node = Some(ip("192.0.2.99")), Some(false))]
#[case::agent_still_holds_it(|world: &mut World| { world.agents.insert(node(), Ok(vec![holder()])); }, Some(false))]
#[case::agent_holds_another_of_its_name(|world: &mut World| { world.agents.insert(node(), Ok(vec![Holder { attachment: Some(SANDBOX.parse().unwrap()), id: EndpointId(9), ..holder() }])); }, Some(false))]
#[case::its_number_is_used_again(|world: &mut World| { world.agents.insert(node(), Ok(vec![Holder { attachment: Some(SANDBOX.parse().unwrap()), controllers: Vec::new(), ..holder() }])); }, Some(true))]
#[case::agent_holds_it_without_a_name(|world: &mut World| { world.agents.insert(node(), Ok(vec![nameless()])); }, Some(false))]
#[case::agent_holds_its_container_by_another_number(|world: &mut World| { world.agents.insert(node(), Ok(vec![Holder { id: EndpointId(9), ..nameless() }])); }, Some(false))]
#[case::without_container_and_agent_holds_its_number(|world: &mut World| { world.object().object.attachment = None; world.agents.insert(node(), Ok(vec![nameless()])); }, Some(false))]
#[case::without_container_and_agent_holds_its_name(|world: &mut World| { world.object().object.attachment = None; world.agents.insert(node(), Ok(vec![Holder { id: EndpointId(9), ..holder() }])); }, Some(false))]
#[case::without_container_and_agent_holds_another(|world: &mut World| { world.object().object.attachment = None; world.agents.insert(node(), Ok(vec![Holder { id: EndpointId(9), ..nameless() }])); }, Some(true))]
#[case::endpoints_not_served(|world: &mut World| world.endpoints = Ok(None), None)]
#[case::endpoints_unread(|world: &mut World| world.endpoints = unread(), None)]
fn orphans(#[case] change: fn(&mut World), #[case] may_delete: Option<bool>) {
    let mut world = orphaned();
    change(&mut world);
    assert_eq!(
        world.found(),
        may_delete.map(|it| (AnomalyKind::OrphanCep, it)).into_iter().collect::<Vec<_>>()
    );
}

#[test]
fn the_object_of_a_second_interface_belongs_to_its_pod() {
    let mut world = World::healthy();
    let mut second = object();
    second.object.name = name("backup/agent-0-net1");
    second.object.owners.clear();
    second.object.attachment = Some(format!("{HOLDER}:net1").parse().unwrap());
    second.addresses = vec![ip("192.168.1.1")];
    world.endpoints.as_mut().unwrap().as_mut().unwrap().push(second);
    assert_eq!(world.found(), []);
}

#[test]
fn an_object_of_another_name_belongs_to_the_pod_that_owns_it() {
    let mut world = World::healthy();
    world.object().object.name = name("backup/other");
    assert_eq!(world.found(), []);
}

#[rstest]
#[case::another_uid(|world: &mut World| world.object().object.owners[0].1 = "former".parse().unwrap(), true)]
#[case::one_of_two_uids(|world: &mut World| world.object().object.owners.push(("agent-0".to_owned(), "former".parse().unwrap())), false)]
#[case::another_address(|world: &mut World| world.object().addresses = vec![ip("10.244.1.99")], true)]
#[case::one_of_two_addresses(|world: &mut World| world.object().addresses.push(ip("10.244.1.99")), false)]
#[case::no_address(|world: &mut World| world.object().addresses.clear(), false)]
#[case::link_local_address(|world: &mut World| world.object().addresses = vec![ip("169.254.1.1")], false)]
#[case::mirror_pod(|world: &mut World| { world.object().object.owners[0].1 = "former".parse().unwrap(); world.pods[0].mirror = Some("m".to_owned()); }, false)]
#[case::pod_without_address(|world: &mut World| { world.object().object.owners[0].1 = "former".parse().unwrap(); world.pods[0].ips.clear(); }, false)]
#[case::pod_has_ended(|world: &mut World| { world.object().addresses = vec![ip("10.244.1.99")]; world.pods[0].phase = Phase::Failed; world.pods[0].containers.running = false; }, false)]
fn mismatches(#[case] change: fn(&mut World), #[case] found: bool) {
    let mut world = World::healthy();
    change(&mut world);
    let want = if found { vec![(AnomalyKind::CepMismatch, false)] } else { Vec::new() };
    assert_eq!(world.found(), want);
}

fn of_holder(id: i64, container: Option<&str>) -> Disputed {
    Disputed { ip: None, holder: Some((EndpointId(id), container.map(|text| text.parse().unwrap()))) }
}

/// Of an object with its container, and of one without.
#[rstest]
#[case::over_its_holder(of_holder(482, Some(HOLDER)), [true, false])]
#[case::over_another_number(of_holder(9, Some(HOLDER)), [false, false])]
#[case::over_another_container(of_holder(482, Some(SANDBOX)), [false, false])]
#[case::over_no_container(of_holder(482, None), [false, false])]
#[case::over_its_address(Disputed { ip: Some(ip("10.244.1.99")), holder: None }, [true, true])]
#[case::over_another_address(Disputed { ip: Some(ip(IP)), holder: None }, [false, false])]
#[case::over_nothing(Disputed::default(), [false, false])]
fn a_mismatch_may_be_told_by_a_wedge(#[case] disputed: Disputed, #[case] told: [bool; 2]) {
    let mut world = World::healthy();
    world.object().addresses = vec![ip("10.244.1.99")];
    world.disputed = vec![disputed];
    let with_container = world.found().is_empty();
    world.object().object.attachment = None;
    assert_eq!([with_container, world.found().is_empty()], told);
}

#[rstest]
#[case::plain(|_: &mut World| {}, true)]
#[case::nameless_in_the_agent(|world: &mut World| { world.agents.insert(node(), Ok(vec![nameless()])); }, true)]
#[case::reserved_in_the_agent(|world: &mut World| { world.agents.insert(node(), Ok(vec![Holder { controllers: Vec::new(), labels: vec!["reserved:health".to_owned()], ..holder() }])); }, false)]
#[case::not_in_the_agent(|world: &mut World| { world.agents.insert(node(), Ok(Vec::new())); }, false)]
#[case::agent_not_asked(|world: &mut World| world.agents.clear(), false)]
#[case::agent_list_failed(|world: &mut World| { world.agents.insert(node(), unread()); }, false)]
#[case::slices_in_use(|world: &mut World| world.slices_in_use = true, false)]
#[case::five_minutes(|world: &mut World| world.pods[0].running_since = Some(ago(300)), true)]
#[case::less_than_five_minutes(|world: &mut World| world.pods[0].running_since = Some(ago(299)), false)]
#[case::unknown_start(|world: &mut World| world.pods[0].running_since = None, false)]
#[case::host_network(|world: &mut World| world.pods[0].host_network = true, false)]
#[case::terminating(|world: &mut World| world.pods[0].deleting = true, false)]
fn missing_endpoints(#[case] change: fn(&mut World), #[case] found: bool) {
    let mut world = World::healthy();
    world.endpoints = Ok(Some(Vec::new()));
    change(&mut world);
    let want = if found { vec![(AnomalyKind::CepMissing, false)] } else { Vec::new() };
    assert_eq!(world.found(), want);
}
