//! One plain wedge over a leaked endpoint; each test changes what it is about.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use crate::domain::{
    CiliumEndpoint, CiliumNode, Containers, Controller, EndpointId, EndpointState, Event, Events, Finding,
    Holder, IpamMode, Limits, LogEntry, Lookup, NodeName, Observation, OvnAddress, Phase, Pod, PodName,
    ReadFailure, RemedyKind, ReservedUse, Unreadable, Verdict, judge,
};

pub(super) const IP: &str = "10.244.1.12";
pub(super) const HOLDER: &str = "aaaa1111bbbb2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888";
pub(super) const SANDBOX: &str = "bbbb9999cccc2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888";

pub(super) fn now() -> Timestamp {
    "2026-06-18T10:05:00Z".parse().unwrap()
}

pub(super) fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn node() -> NodeName {
    "worker-1".parse().unwrap()
}

pub(super) fn name(text: &str) -> PodName {
    text.parse().unwrap()
}

/// A pod that waits for its sandbox on this node.
pub(super) fn pod(full_name: &str, uid: &str) -> Pod {
    Pod {
        name: name(full_name),
        uid: uid.parse().unwrap(),
        resource_version: "1001".to_owned(),
        node: Some(node()),
        phase: Phase::Pending,
        host_network: false,
        deleting: false,
        created: Some(ago(130)),
        started: Some(ago(130)),
        ips: Vec::new(),
        unparsed_ips: false,
        sandbox_ready: Some(false),
        containers: Containers::default(),
        running_since: None,
        controller: Some(Controller {
            kind: "ReplicaSet".to_owned(),
            name: "web".to_owned(),
            uid: "rs-1".to_owned(),
        }),
        mirror: None,
        vm_labels: Vec::new(),
        opt_out: false,
        ovn: OvnAddress::default(),
    }
}

/// A pod that runs with these addresses.
pub(super) fn running(full_name: &str, uid: &str, ips: &[&str]) -> Pod {
    Pod {
        phase: Phase::Running,
        ips: ips.iter().map(|text| ip(text)).collect(),
        sandbox_ready: Some(true),
        containers: Containers { running: true, ended: false, ever_ran: true },
        ..pod(full_name, uid)
    }
}

pub(super) fn message(address: &str, sandbox: &str) -> String {
    format!(
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"{sandbox}\": plugin \
         type=\"cilium-cni\" failed (add): unable to create endpoint: [PUT /endpoint/{{id}}][400] putEndpointIdInvalid \"IP {address} is \
         already in use\""
    )
}

pub(super) fn failure(pod: &Pod, seconds_ago: i64) -> Event {
    Event {
        object_uid: pod.event_uid().to_owned(),
        node: Some(node()),
        reason: "FailedCreatePodSandBox".to_owned(),
        message: message(&format!("ipv4:{IP}"), SANDBOX),
        at: Some(ago(seconds_ago)),
        count: 3,
    }
}

/// The endpoint of `backup/agent-0`, named by its controller as on 1.20, made two hours ago.
pub(super) fn holder() -> Holder {
    Holder {
        id: EndpointId(482),
        attachment: Some(format!("{HOLDER}:eth0").parse().unwrap()),
        container_field: None,
        named: None,
        controllers: vec!["resolve-identity-482".to_owned(), "resolve-labels-backup/agent-0".to_owned()],
        labels: vec!["k8s:app=agent".to_owned(), "k8s:io.kubernetes.pod.namespace=backup".to_owned()],
        addresses: vec![ip(IP)],
        state: EndpointState::Ready,
        log: Some(vec![
            LogEntry { at: ago(7190), state: EndpointState::Ready },
            LogEntry { at: ago(7200), state: EndpointState::WaitingForIdentity },
        ]),
    }
}

/// A wedge whose holder's pod is gone: `stale-endpoint`, to be disconnected.
pub(super) fn stale() -> Observation {
    let wedged = pod("tenant-a/web-1", "wedged");
    let events = Events { known: vec![failure(&wedged, 20)], unreadable: None };
    Observation {
        agent_started: Some(ago(86_400)),
        lookup: Lookup::Held(Box::new(holder())),
        ipam_mode: Ok(IpamMode("cluster-pool".to_owned())),
        cilium_node: Ok(Some(CiliumNode::default())),
        endpoints: Ok(Some(Vec::new())),
        slices: Ok(None),
        owner: Ok(None),
        address_users: Ok(Vec::new()),
        node_pods: Ok(Vec::new()),
        ..Observation::new(now(), node(), wedged, events)
    }
}

/// The same observation with another holder.
pub(super) fn held_by(holder: Holder, obs: Observation) -> Observation {
    Observation { lookup: Lookup::Held(Box::new(holder)), ..obs }
}

pub(super) fn unread() -> Unreadable {
    Unreadable { what: "GET it".to_owned(), why: ReadFailure::Timeout }
}

pub(super) fn finding(obs: &Observation) -> Finding {
    judge(obs, &Limits::default()).finding().expect("a finding").clone()
}

pub(super) fn verdict(obs: &Observation) -> (Verdict, &'static str) {
    let finding = finding(obs);
    assert!(!finding.reason.is_empty() && !finding.evidence.is_empty());
    assert_eq!(finding.remedy.kind().map_or("none", RemedyKind::as_str), finding.remedy.as_str());
    (finding.verdict, finding.remedy.as_str())
}

pub(super) fn log(state: EndpointState, seconds_ago: i64) -> Vec<LogEntry> {
    vec![LogEntry { at: ago(seconds_ago), state }]
}

pub(super) fn nameless() -> Holder {
    Holder { controllers: Vec::new(), ..holder() }
}

pub(super) fn endpoint(uid: &str) -> CiliumEndpoint {
    CiliumEndpoint {
        name: name("backup/agent-0"),
        id: Some(holder().id),
        attachment: holder().attachment,
        container: None,
        owners: vec![("agent-0".to_owned(), uid.parse().unwrap())],
    }
}

/// The holder is of the wedged pod's name.
pub(super) fn own() -> Observation {
    let mut obs = stale();
    obs.pod = pod("backup/agent-0", "wedged");
    obs.events.known = vec![failure(&obs.pod, 20)];
    obs.owner = Ok(Some(obs.pod.clone()));
    obs
}

pub(super) fn set_holder(obs: &mut Observation, holder: Holder) {
    obs.lookup = Lookup::Held(Box::new(holder));
}

pub(super) fn set_log(obs: &mut Observation, seconds_ago: i64) {
    set_holder(obs, Holder { log: Some(log(EndpointState::Ready, seconds_ago)), ..holder() });
}

/// The address is the node's ingress address.
pub(super) fn reserved() -> Observation {
    let cilium_node = CiliumNode { reserved: vec![(ReservedUse::Ingress, ip(IP))], ..CiliumNode::default() };
    Observation { cilium_node: Ok(Some(cilium_node)), ..stale() }
}
