//! What is read of one pod and in which order, and what is left out because it could not change the verdict any more.

use std::cell::RefCell;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;

use super::fixtures::{no_answer, unanswered, waiting_pod};
use super::node;
use super::telling::ip;
use crate::domain::{
    AttachmentId, CiliumEndpoint, CiliumNode, Containers, EndpointId, EndpointState, Event, Events, Holder,
    IpamMode, Lookup, Observation, Phase, Pod, PodName, Read, ReservedUse, SliceEntry,
};
use crate::engine::{Sources, observe};

/// One answer to each read, and the reads as they were asked for.
struct Script {
    asked: RefCell<Vec<String>>,
    pod: Pod,
    events: Events,
    lookup: Lookup,
    cilium_node: Read<Option<CiliumNode>>,
    node_pods: Read<Vec<Pod>>,
    endpoints: Read<Option<Vec<CiliumEndpoint>>>,
    owner: Read<Option<Pod>>,
}

impl Script {
    fn asks(&self, what: impl Into<String>) {
        self.asked.borrow_mut().push(what.into());
    }

    /// What an observation holds where these reads were made and no other.
    fn observation(&self, asked: &str) -> Observation {
        let events = if asked.is_empty() { Events::default() } else { self.events.clone() };
        let mut obs = Observation::new(now(), node(), self.pod.clone(), events);
        for read in asked.split_terminator(' ') {
            match read.split('(').next().unwrap() {
                "events" => {}
                "lookup" => obs.lookup = self.lookup.clone(),
                "start" => obs.agent_started = Some(started()),
                "node" => obs.cilium_node = self.cilium_node.clone(),
                "first-seen" => obs.holder_first_seen = Some(first_seen()),
                "ipam" => obs.ipam_mode = Ok(mode()),
                "node-pods" => obs.node_pods = self.node_pods.clone(),
                "endpoints" => obs.endpoints = self.endpoints.clone(),
                "owner" => obs.owner = self.owner.clone(),
                "slices" => obs.slices = Ok(None),
                "users" => obs.address_users = Ok(users()),
                other => panic!("{other}"),
            }
        }
        obs
    }
}

impl Sources for Script {
    async fn events(&self, _: &Pod) -> Events {
        self.asks("events");
        self.events.clone()
    }

    async fn lookup(&self, ip: IpAddr) -> Lookup {
        self.asks(format!("lookup({ip})"));
        self.lookup.clone()
    }

    async fn agent_started(&self) -> Option<Timestamp> {
        self.asks("start");
        Some(started())
    }

    async fn ipam_mode(&self) -> Read<IpamMode> {
        self.asks("ipam");
        Ok(mode())
    }

    async fn cilium_node(&self) -> Read<Option<CiliumNode>> {
        self.asks("node");
        self.cilium_node.clone()
    }

    async fn pod(&self, name: &PodName) -> Read<Option<Pod>> {
        self.asks(format!("owner({name})"));
        self.owner.clone()
    }

    async fn pods_with_address(&self, ip: IpAddr) -> Read<Vec<Pod>> {
        self.asks(format!("users({ip})"));
        Ok(users())
    }

    async fn pods_of_node(&self, namespace: &str) -> Read<Vec<Pod>> {
        self.asks(format!("node-pods({namespace})"));
        self.node_pods.clone()
    }

    async fn endpoints(&self, holder: &Holder, pods: &[PodName]) -> Read<Option<Vec<CiliumEndpoint>>> {
        let pods: Vec<_> = pods.iter().map(ToString::to_string).collect();
        self.asks(format!("endpoints({}:{})", holder.id, pods.join("+")));
        self.endpoints.clone()
    }

    async fn slices(&self, pod: &PodName) -> Read<Option<Vec<SliceEntry>>> {
        self.asks(format!("slices({pod})"));
        Ok(None)
    }
}

fn now() -> Timestamp {
    "2026-06-18T10:05:00Z".parse().unwrap()
}

fn first_seen() -> Timestamp {
    now() - SignedDuration::from_mins(7)
}

fn started() -> Timestamp {
    now() - SignedDuration::from_hours(9)
}

fn mode() -> IpamMode {
    IpamMode("cluster-pool".to_owned())
}

fn users() -> Vec<Pod> {
    vec![pod("bank/user")]
}

fn pod(name: &str) -> Pod {
    Pod { name: name.parse().unwrap(), uid: name.replace('/', "-").parse().unwrap(), ..waiting_pod() }
}

fn owner() -> Pod {
    pod("shop/owner")
}

/// The only failure of the pod, with these words behind the sandbox.
fn failure(words: &str) -> Events {
    let message = format!(
        "Failed to create pod sandbox: failed to setup network for sandbox \"{}\": plugin type=\"cilium-cni\" failed \
         (add): unable to create endpoint: [PUT /endpoint/{{id}}]{words}",
        "b".repeat(64)
    );
    let event = Event {
        object_uid: waiting_pod().uid.to_string(),
        node: Some(node()),
        reason: "FailedCreatePodSandBox".to_owned(),
        message,
        at: Some(now()),
        count: 3,
    };
    Events { known: vec![event], unreadable: None }
}

fn refusal(ip: &str) -> String {
    format!("[400] putEndpointIdInvalid \"IP ipv4:{ip} is already in use\"")
}

const CONTAINER: char = 'a';

/// Of a container whose id is made of that digit.
pub(super) fn attachment(of: char, interface: &str) -> Option<AttachmentId> {
    format!("{}:{interface}", of.to_string().repeat(64)).parse().ok()
}

/// Named by the agent.
pub(super) fn holder() -> Holder {
    Holder {
        id: EndpointId(482),
        attachment: attachment(CONTAINER, "eth0"),
        container_field: None,
        named: Some(owner().name),
        controllers: Vec::new(),
        labels: vec!["k8s:io.kubernetes.pod.namespace=shop".to_owned(), "reserved:init".to_owned()],
        addresses: vec![ip()],
        state: EndpointState::Ready,
        log: Some(Vec::new()),
    }
}

fn nameless() -> Holder {
    Holder { named: None, ..holder() }
}

fn held(holder: Holder) -> Lookup {
    Lookup::Held(Box::new(holder))
}

/// The holder's own, of the owner.
fn endpoint() -> CiliumEndpoint {
    CiliumEndpoint {
        name: owner().name,
        id: Some(EndpointId(482)),
        attachment: attachment(CONTAINER, "eth0"),
        container: None,
        owners: vec![("owner".to_owned(), owner().uid)],
    }
}

/// Cilium uses that address itself.
fn its_own(ip: IpAddr) -> CiliumNode {
    CiliumNode { reserved: vec![(ReservedUse::Ingress, ip)], addresses: Vec::new() }
}

/// A holder that the agent names, whose pod is gone.
fn leak() -> Script {
    Script {
        asked: RefCell::default(),
        pod: waiting_pod(),
        events: failure(&refusal("10.0.2.7")),
        lookup: held(holder()),
        cilium_node: Ok(Some(CiliumNode::default())),
        node_pods: Ok(vec![owner(), pod("bank/other"), pod("shop/web")]),
        endpoints: Ok(Some(Vec::new())),
        owner: Ok(None),
    }
}

/// The same, and a pod of the owner's name lives here.
fn live() -> Script {
    Script { owner: Ok(Some(owner())), endpoints: Ok(Some(vec![endpoint()])), ..leak() }
}

async fn reads(script: Script, want: &str) {
    let seen = |ip: IpAddr, holder: &Holder| {
        script.asks(format!("first-seen({ip},{})", holder.id));
        Some(first_seen())
    };
    let obs = observe(&script, &node(), script.pod.clone(), now(), seen).await;
    assert_eq!(script.asked.borrow().join(" "), want);
    assert_eq!(obs, script.observation(want));
}

/// Where a read can still change the verdict it is made; the table of verdicts is followed from its top.
#[rstest]
#[case::no_wedge_any_more(Script { pod: Pod { ips: vec![ip()], ..waiting_pod() }, ..leak() }, "")]
#[case::no_failure(Script { events: Events::default(), ..leak() }, "events")]
#[case::another_failure(Script { events: failure("[429] putEndpointIdTooManyRequests"), ..leak() }, "events")]
#[case::two_addresses(
    Script { events: failure(&format!("{} {}", refusal("10.0.2.7"), refusal("10.0.2.8"))), ..leak() },
    "events start"
)]
#[case::the_agent_is_silent(Script { lookup: unanswered(), ..leak() }, "events lookup(10.0.2.7) start")]
#[case::nobody_holds_it(Script { lookup: Lookup::NotHeld, ..leak() }, "events lookup(10.0.2.7) start node")]
#[case::the_address_is_cilium_s_own(
    Script { cilium_node: Ok(Some(its_own(ip()))), ..leak() },
    "events lookup(10.0.2.7) start node"
)]
#[case::the_endpoint_is_cilium_s_own(
    Script { lookup: held(Holder { labels: vec!["reserved:ingress".to_owned()], ..nameless() }), ..leak() },
    "events lookup(10.0.2.7) start node"
)]
#[tokio::test]
async fn reading_ends_early(#[case] script: Script, #[case] want: &str) {
    reads(script, want).await;
}

/// All of them begin alike; then what names the owner, the owner, what gives the endpoint's UID, and the address's users.
#[rstest]
#[case::its_pod_is_gone(leak(), "owner(shop/owner)")]
#[case::another_address_is_cilium_s_own(Script { cilium_node: Ok(Some(its_own("10.0.2.8".parse().unwrap()))), ..leak() }, "owner(shop/owner)")]
#[case::no_cilium_node(Script { cilium_node: Ok(None), ..leak() }, "owner(shop/owner)")]
#[case::the_cilium_node_is_unread(Script { cilium_node: no_answer("GET ciliumnodes"), ..leak() }, "owner(shop/owner)")]
#[case::its_pod_is_unread(Script { owner: no_answer("GET pods"), ..leak() }, "owner(shop/owner)")]
#[case::its_pod_has_ended(Script { owner: Ok(Some(Pod { phase: Phase::Succeeded, ..owner() })), ..live() }, "owner(shop/owner)")]
#[case::its_pod_is_elsewhere(Script { owner: Ok(Some(Pod { node: Some("n2".parse().unwrap()), ..owner() })), ..live() }, "owner(shop/owner)")]
#[case::its_pod_is_on_no_node(Script { owner: Ok(Some(Pod { node: None, ..owner() })), ..live() }, "owner(shop/owner)")]
#[case::its_pod_lives_and_the_uid_is_the_pod_s(live(), "owner(shop/owner) endpoints(482:shop/owner)")]
#[case::its_pod_failed_and_a_container_runs(
    Script { owner: Ok(Some(Pod { phase: Phase::Failed, containers: Containers { running: true, ..Containers::default() }, ..owner() })), ..live() },
    "owner(shop/owner) endpoints(482:shop/owner)"
)]
#[tokio::test]
async fn a_holder_that_the_agent_names(#[case] script: Script, #[case] then: &str) {
    reads(script, &whole(then)).await;
}

/// The pod of the name lives here: slices are read unless an endpoint that is surely the holder's carries the pod's UID.
#[rstest]
#[case::not_served(Ok(None))]
#[case::unread(no_answer("GET ciliumendpoints"))]
#[case::none(Ok(Some(Vec::new())))]
#[case::another_uid(Ok(Some(vec![CiliumEndpoint { owners: vec![("owner".to_owned(), "former".parse().unwrap())], ..endpoint() }])))]
#[case::no_owner(Ok(Some(vec![CiliumEndpoint { owners: Vec::new(), ..endpoint() }])))]
#[case::another_number(Ok(Some(vec![CiliumEndpoint { id: Some(EndpointId(7)), ..endpoint() }])))]
#[case::no_number(Ok(Some(vec![CiliumEndpoint { id: None, ..endpoint() }])))]
#[case::another_container(Ok(Some(vec![CiliumEndpoint { attachment: attachment('c', "eth0"), ..endpoint() }])))]
#[case::no_container(Ok(Some(vec![CiliumEndpoint { attachment: None, ..endpoint() }])))]
#[tokio::test]
async fn an_endpoint_that_settles_nothing(#[case] endpoints: Read<Option<Vec<CiliumEndpoint>>>) {
    let then = "owner(shop/owner) endpoints(482:shop/owner) slices(shop/owner)";
    reads(Script { endpoints, ..live() }, &whole(then)).await;
}

/// Neither shows a container: that is no match.
#[tokio::test]
async fn two_endpoints_without_a_container_are_not_the_same() {
    let lookup = held(Holder { attachment: None, ..holder() });
    let endpoints = Ok(Some(vec![CiliumEndpoint { attachment: None, ..endpoint() }]));
    let then = "owner(shop/owner) endpoints(482:shop/owner) slices(shop/owner)";
    reads(Script { lookup, endpoints, ..live() }, &whole(then)).await;
}

/// The agent does not name its pod: the pods of its namespace on this node are candidates, and an endpoint may name it.
#[rstest]
#[case::nor_does_anything_else(nameless(), leak(), "node-pods(shop) endpoints(482:shop/owner+shop/web)")]
#[case::of_no_namespace(Holder { labels: Vec::new(), ..nameless() }, leak(), "endpoints(482:)")]
#[case::no_pods(nameless(), Script { node_pods: no_answer("LIST pods"), ..leak() }, "node-pods(shop) endpoints(482:)")]
#[case::no_endpoints(nameless(), Script { endpoints: no_answer("GET ciliumendpoints"), ..live() }, "node-pods(shop) endpoints(482:shop/owner+shop/web)")]
#[case::endpoints_are_not_served(nameless(), Script { endpoints: Ok(None), ..live() }, "node-pods(shop) endpoints(482:shop/owner+shop/web)")]
#[case::an_endpoint_does_and_the_pod_is_gone(
    nameless(),
    Script { owner: Ok(None), ..live() },
    "node-pods(shop) endpoints(482:shop/owner+shop/web) owner(shop/owner)"
)]
#[case::an_endpoint_does_and_the_uid_is_the_pod_s(
    nameless(),
    live(),
    "node-pods(shop) endpoints(482:shop/owner+shop/web) owner(shop/owner)"
)]
#[case::an_endpoint_does_and_the_uid_is_another(
    nameless(),
    Script { owner: Ok(Some(Pod { uid: "new".parse().unwrap(), ..owner() })), ..live() },
    "node-pods(shop) endpoints(482:shop/owner+shop/web) owner(shop/owner) slices(shop/owner)"
)]
#[tokio::test]
async fn a_holder_that_the_agent_does_not_name(
    #[case] holder: Holder,
    #[case] script: Script,
    #[case] then: &str,
) {
    reads(Script { lookup: held(holder), ..script }, &whole(then)).await;
}

fn whole(then: &str) -> String {
    let begin = "events lookup(10.0.2.7) start node first-seen(10.0.2.7,482) ipam";
    format!("{begin} {then} users(10.0.2.7)")
}
