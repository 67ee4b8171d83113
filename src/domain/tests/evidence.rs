//! The evidence: what a person can check of a judgement, line by line.

use rstest::rstest;

use super::fixtures::{
    HOLDER, IP, ago, endpoint, failure, held_by, holder, ip, log, message, nameless, own, pod, reserved,
    running, set_holder, stale, unread,
};
use crate::domain::{
    CiliumNode, Containers, EndpointState, Event, Evidence, Holder, IpamMode, Judgement, Limits, Lookup,
    Observation, Phase, Pod, ReservedUse, judge,
};

fn lines(obs: &Observation) -> Vec<String> {
    let evidence = match judge(obs, &Limits::default()) {
        Judgement::NotWedged(it) => it.evidence,
        Judgement::Wedged(it) => it.evidence,
    };
    let line = |it: &Evidence| format!("{} {}: {}", it.check, it.outcome.as_str(), it.observed);
    evidence.iter().map(line).collect()
}

#[test]
fn of_a_leak_whose_pod_is_gone() {
    insta::assert_snapshot!(lines(&stale()).join("\n"), @"
    waiting-pod pass: phase Pending, no address, no container running
    newest-failure pass: IP 10.244.1.12 is already in use, counted 3 times
    agent-lookup pass: GET endpoint/ipv4:10.244.1.12: endpoint 482, ready, cni-attachment-id aaaa1111bbbb2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888:eth0
    agent-start pass: 2026-06-17T10:05:00Z, before the newest failure
    holder-state pass: ready, newest log entry 2026-06-18T08:05:10Z
    failure-age pass: 20 s old
    cilium-node pass: 10.244.1.12 is none of Cilium's own addresses on this node
    holder-address pass: 10.244.1.12
    owner-name pass: backup/agent-0, by its controller resolve-labels
    address-users pass: no other live pod has 10.244.1.12
    owner-pod pass: GET pods/backup/agent-0: 404
    staleness pass: proof 1: its pod is gone
    ipam-mode pass: cluster-pool
    disconnect-target pass: cni-attachment-id:aaaa1111bbbb2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888:eth0
    ");
}

#[test]
fn of_a_leak_that_nothing_names() {
    let mut obs =
        held_by(Holder { attachment: None, container_field: HOLDER.parse().ok(), ..nameless() }, stale());
    obs.events.known[0].count = 1;
    // Nobody asked for this pod.
    obs.owner = Ok(Some(running("x/y", "y", &[IP])));
    insta::assert_snapshot!(lines(&obs).join("\n"), @"
    waiting-pod pass: phase Pending, no address, no container running
    newest-failure pass: IP 10.244.1.12 is already in use, counted once
    agent-lookup pass: GET endpoint/ipv4:10.244.1.12: endpoint 482, ready, container-id aaaa1111bbbb2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888
    agent-start pass: 2026-06-17T10:05:00Z, before the newest failure
    holder-state pass: ready, newest log entry 2026-06-18T08:05:10Z
    failure-age pass: 20 s old
    cilium-node pass: 10.244.1.12 is none of Cilium's own addresses on this node
    holder-address pass: 10.244.1.12
    owner-name fail: nothing names the owner
    node-pods pass: no live pod of backup on this node can be the owner
    address-users pass: no other live pod has 10.244.1.12
    owner-pod pass: nothing names one
    staleness pass: proof 6: no pod of this node can be its owner
    ipam-mode pass: cluster-pool
    disconnect-target pass: container-id:aaaa1111bbbb2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888
    ");
}

#[test]
fn of_a_pod_that_may_be_moved() {
    let node = CiliumNode { reserved: vec![(ReservedUse::Router, ip(IP))], ..CiliumNode::default() };
    let mut obs = Observation { cilium_node: Ok(Some(node)), lookup: Lookup::NotHeld, ..stale() };
    obs.events.known.push(failure(&obs.pod, 35));
    insta::assert_snapshot!(lines(&obs).join("\n"), @"
    waiting-pod pass: phase Pending, no address, no container running
    newest-failure pass: IP 10.244.1.12 is already in use, counted 6 times
    agent-lookup fail: GET endpoint/ipv4:10.244.1.12: 404, nobody holds it
    reserved-holder fail: 10.244.1.12 is the router (CiliumInternalIP) address of this node's CiliumNode
    movable-pod pass: Pending, never ran, has a controller
    agent-start pass: 2026-06-17T10:05:00Z, before the newest failure
    failure-age pass: 20 s old
    ");
}

fn owned_by(owner: Pod) -> Observation {
    Observation { owner: Ok(Some(owner)), ..stale() }
}

fn with(change: fn(&mut Observation)) -> Observation {
    let mut obs = stale();
    change(&mut obs);
    obs
}

/// The wedged pod of this virtual machine, and its owner of the same one.
fn shared() -> Observation {
    let labels = vec![("kubevirt.io/vm", "host".to_owned())];
    let mut obs = owned_by(Pod { vm_labels: labels.clone(), ..running("tenant-a/agent-0", "owner", &[IP]) });
    obs.pod.vm_labels = labels;
    let named = Holder { named: "tenant-a/agent-0".parse().ok(), ..holder() };
    held_by(named, obs)
}

#[rstest]
#[case::is_being_deleted(with(|it| it.pod.deleting = true), "waiting-pod fail: it is being deleted")]
#[case::is_elsewhere(with(|it| it.pod.node = None), "waiting-pod fail: it is not bound to this node")]
#[case::events_unread(with(|it| { it.events.known.clear(); it.events.unreadable = Some(unread()); }), "pod-events unknown: GET it: timed out")]
#[case::no_failure(with(|it| it.events.known.clear()), "newest-failure fail: no FailedCreatePodSandBox Event of this pod on this node")]
#[case::another_failure(with(|it| it.events.known[0].message = "é".repeat(301)), &format!("newest-failure fail: {}", "é".repeat(300)))]
#[case::came_up(with(|it| { let up = Event { reason: "Pulled".to_owned(), ..failure(&it.pod, 10) }; it.events.known.push(up); }), "newest-failure fail: Event Pulled is not older than the newest failure")]
#[case::agent_silent(with(|it| it.lookup = Lookup::Unknown(unread())), "agent-lookup unknown: GET it: timed out")]
#[case::not_held(with(|it| it.lookup = Lookup::NotHeld), "agent-lookup fail: GET endpoint/ipv4:10.244.1.12: 404, nobody holds it")]
#[case::not_held_of_the_other_family(with(|it| { it.lookup = Lookup::NotHeld; it.events.known[0].message = message("ipv6:fd00::7", "f"); }), "agent-lookup fail: GET endpoint/ipv6:fd00::7: 404, nobody holds it")]
#[case::not_movable(Observation { pod: Pod { controller: None, ..stale().pod }, ..reserved() }, "movable-pod fail: it has no controller that would make it again")]
#[case::agent_start_unknown(with(|it| it.agent_started = None), "agent-start unknown: unknown, which counts as just now")]
#[case::agent_start_just_now(with(|it| it.agent_started = Some(ago(60))), "agent-start fail: 2026-06-18T10:04:00Z, 60 s ago")]
#[case::agent_start_since(with(|it| { it.agent_started = Some(ago(150)); it.events.known[0].at = Some(ago(151)); }), "agent-start fail: 2026-06-18T10:02:30Z, after the newest failure")]
#[case::lone_failure(with(|it| { it.events.known[0].at = Some(ago(3)); it.events.known[0].count = 1; }), "failure-age fail: the only failure, 3 s old")]
#[case::undated_failure(with(|it| it.events.known[0].at = None), "failure-age unknown: the Event carries no time")]
#[case::old_failure(with(|it| it.events.known[0].at = Some(ago(601))), "failure-age fail: 2026-06-18T09:54:59Z, 601 s old")]
#[case::holder_on_its_way(held_by(Holder { state: EndpointState::Restoring, log: Some(log(EndpointState::Restoring, 10)), ..holder() }, stale()), "holder-state fail: restoring, newest log entry 2026-06-18T10:04:50Z")]
#[case::holder_without_log(held_by(Holder { state: EndpointState::Disconnecting, log: None, ..holder() }, stale()), "holder-state fail: disconnecting, no log")]
#[case::no_cilium_node(with(|it| it.cilium_node = Ok(None)), "cilium-node fail: 404")]
#[case::cilium_node_unread(with(|it| it.cilium_node = Err(unread())), "cilium-node unknown: GET it: timed out")]
#[case::another_address(held_by(Holder { addresses: Vec::new(), ..holder() }, stale()), "holder-address fail: the endpoint does not carry the disputed address")]
#[case::users_unread(with(|it| it.address_users = Err(unread())), "address-users unknown: GET it: timed out")]
#[case::users_address_is_none(with(|it| it.address_users = Ok(vec![Pod { unparsed_ips: true, ..running("x/y", "y", &[]) }])), "address-users unknown: x/y lists an address that is none")]
#[case::owner_unread(with(|it| it.owner = Err(unread())), "owner-pod unknown: GET it: timed out")]
#[case::own_sandbox(Observation { holder_first_seen: None, ..held_by(Holder { log: None, ..holder() }, own()) }, "owner-pod fail: the wedged pod itself")]
#[case::endpoints_unread(Observation { endpoints: Err(unread()), ..held_by(nameless(), stale()) }, "cilium-endpoints unknown: GET it: timed out")]
#[case::node_pods_unread(Observation { node_pods: Err(unread()), ..held_by(nameless(), stale()) }, "node-pods unknown: GET it: timed out")]
#[case::possible_owner(Observation { node_pods: Ok(vec![Pod { started: None, ..pod("backup/x", "x") }]), ..held_by(nameless(), stale()) }, "node-pods fail: backup/x may be the owner")]
#[case::unmanaged(held_by(Holder { labels: Vec::new(), ..nameless() }, stale()), "owner-name fail: no namespace label")]
#[case::shared_by_design(shared(), "shared-by-design fail: both pods are of one virtual machine")]
#[case::owner_alive(owned_by(running("backup/agent-0", "o", &[IP, "fd00::1"])), "owner-pod fail: pod backup/agent-0 is Running, a container running, on worker-1, 10.244.1.12, fd00::1")]
#[case::owner_ending(owned_by(Pod { deleting: true, ..pod("backup/agent-0", "o") }), "owner-pod fail: pod backup/agent-0 is Pending, being deleted, on worker-1, no address")]
#[case::another_user(with(|it| it.address_users = Ok(vec![Pod { node: None, ..running("x/y", "y", &[IP]) }])), "address-users fail: pod x/y is Running, a container running, on no node, 10.244.1.12")]
#[case::ended_and_still_running(owned_by(Pod { phase: Phase::Failed, ..running("backup/agent-0", "o", &[]) }), "staleness fail: pod backup/agent-0 is Failed, a container running, on worker-1, no address")]
#[case::ipam_mode_unread(with(|it| it.ipam_mode = Err(unread())), "ipam-mode unknown: GET it: timed out")]
#[case::ipam_mode_forbids(with(|it| it.ipam_mode = Ok(IpamMode("eni".to_owned()))), "ipam-mode fail: eni")]
#[case::no_identifier(held_by(Holder { attachment: None, ..holder() }, stale()), "disconnect-target fail: neither cni-attachment-id nor container-id")]
fn the_last_line_decides(#[case] obs: Observation, #[case] line: &str) {
    let lines = lines(&obs);
    assert_eq!(lines.last().map(String::as_str), Some(line), "{lines:#?}");
}

/// Each rests on the owner as it was read.
#[rstest]
#[case::owner_gone(stale(), "proof 1: its pod is gone")]
#[case::owner_ended(owned_by(Pod { phase: Phase::Succeeded, containers: Containers::default(), ..running("backup/agent-0", "o", &[IP]) }), "proof 2: its pod has ended")]
#[case::former_pod(Observation { endpoints: Ok(Some(vec![endpoint("former")])), ..owned_by(running("backup/agent-0", "o", &["10.244.1.99"])) }, "proof 3: it is of a former pod of that name")]
#[case::bound_elsewhere(owned_by(Pod { node: None, ..pod("backup/agent-0", "o") }), "proof 4: the pod of that name is not on this node")]
#[case::earlier_sandbox(own(), "proof 5: it is an earlier sandbox of the wedged pod")]
#[case::no_possible_owner(held_by(nameless(), stale()), "proof 6: no pod of this node can be its owner")]
fn a_proof_is_told_by_its_number(#[case] obs: Observation, #[case] proof: &str) {
    let lines = lines(&obs);
    assert!(lines.contains(&format!("staleness pass: {proof}")), "{lines:#?}");
}

#[test]
fn a_holder_without_an_id_is_told_as_such() {
    let mut obs = stale();
    set_holder(&mut obs, Holder { attachment: None, ..holder() });
    let line = "agent-lookup pass: GET endpoint/ipv4:10.244.1.12: endpoint 482, ready, without an id";
    assert!(lines(&obs).contains(&line.to_owned()));
}
