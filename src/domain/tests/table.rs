//! The verdict table, row by row: the situation in the name, the change against a plain leak, the verdict.

use rstest::rstest;

use super::fixtures::{
    HOLDER, IP, SANDBOX, ago, failure, finding, held_by, holder, ip, message, name, nameless, own, pod,
    reserved, running, stale, unread, verdict,
};
use crate::domain::{
    Containers, EndpointState, Event, Holder, IpamMode, Limits, LogEntry, Lookup, Observation, Phase, Pod,
    Proof, Remedy, Verdict, Withheld, judge,
};

fn no_finding(obs: &Observation) -> bool {
    judge(obs, &Limits::default()).finding().is_none()
}

#[test]
fn a_plain_leak_is_disconnected_by_the_id_that_the_agent_shows() {
    let finding = finding(&stale());
    let Remedy::DisconnectEndpoint(target) = finding.remedy else { panic!("{finding:?}") };
    assert_eq!(target.as_str(), format!("cni-attachment-id:{HOLDER}:eth0"));
    assert_eq!(
        (finding.proof, finding.ip, finding.owner),
        (Some(Proof::OwnerGone), Some(ip(IP)), Some(name("backup/agent-0")))
    );
}

#[rstest]
#[case::has_an_address(|pod: &mut Pod| pod.ips = vec![ip("10.244.1.99")])]
#[case::is_being_deleted(|pod: &mut Pod| pod.deleting = true)]
#[case::has_succeeded(|pod: &mut Pod| pod.phase = Phase::Succeeded)]
#[case::has_failed(|pod: &mut Pod| pod.phase = Phase::Failed)]
#[case::sandbox_is_ready(|pod: &mut Pod| pod.sandbox_ready = Some(true))]
#[case::runs_an_init_container(|pod: &mut Pod| pod.containers.running = true)]
#[case::ended_a_container(|pod: &mut Pod| { pod.containers.ended = true; pod.sandbox_ready = None; })]
#[case::uses_the_host_network(|pod: &mut Pod| pod.host_network = true)]
#[case::is_on_another_node(|pod: &mut Pod| pod.node = Some("worker-2".parse().unwrap()))]
fn a_pod_that_does_not_wait_is_no_wedge(#[case] change: fn(&mut Pod)) {
    let mut obs = stale();
    change(&mut obs.pod);
    assert!(no_finding(&obs));
}

#[test]
fn a_pod_that_lost_its_sandbox_is_a_wedge() {
    let mut obs = stale();
    obs.pod.phase = Phase::Running;
    obs.pod.containers = Containers { running: false, ended: true, ever_ran: true };
    assert_eq!(verdict(&obs), (Verdict::StaleEndpoint, "disconnect-endpoint"));
}

#[rstest]
#[case::of_another_uid(|event: &mut Event| event.object_uid = "former".to_owned())]
#[case::of_another_node(|event: &mut Event| event.node = Some("worker-2".parse().unwrap()))]
#[case::of_another_reason(|event: &mut Event| event.reason = "FailedMount".to_owned())]
#[case::of_another_content(|event: &mut Event| event.message = "bind: address already in use".to_owned())]
fn events_that_are_not_the_refusal_are_no_finding(#[case] change: fn(&mut Event)) {
    let mut obs = stale();
    change(&mut obs.events.known[0]);
    assert!(no_finding(&obs));
}

#[test]
fn an_event_that_tells_no_node_counts() {
    let mut obs = stale();
    obs.events.known[0].node = None;
    assert_eq!(verdict(&obs).0, Verdict::StaleEndpoint);
}

#[test]
fn the_uid_of_a_static_pods_events_is_its_mirror_annotation() {
    let mut obs = stale();
    obs.pod.mirror = Some("hash".to_owned());
    assert!(no_finding(&obs));
    obs.events.known[0].object_uid = "hash".to_owned();
    assert_eq!(verdict(&obs).0, Verdict::StaleEndpoint);
}

#[rstest]
#[case::newer("FailedCreatePodSandBox", Some(10), true)]
#[case::on_a_tie("FailedCreatePodSandBox", Some(20), true)]
#[case::older("FailedCreatePodSandBox", Some(30), false)]
#[case::image_pulled_since("Pulled", Some(10), true)]
#[case::image_pulled_at_the_same_second("Pulling", Some(20), true)]
#[case::network_attached_before("AddedInterface", Some(21), false)]
#[case::image_pulled_nobody_knows_when("Pulled", None, true)]
#[case::failed_nobody_knows_when("FailedCreatePodSandBox", None, true)]
fn the_newest_event_decides(#[case] reason: &str, #[case] seconds_ago: Option<i64>, #[case] ends_it: bool) {
    let mut obs = stale();
    let other = Event {
        reason: reason.to_owned(),
        message: "something else".to_owned(),
        at: seconds_ago.map(ago),
        ..failure(&obs.pod, 0)
    };
    obs.events.known.push(other);
    assert_eq!(no_finding(&obs), ends_it);
}

#[test]
fn an_undated_failure_may_be_the_newest() {
    let mut obs = stale();
    obs.events.known[0].at = None;
    assert_eq!(verdict(&obs), (Verdict::InsufficientEvidence, "none"));
    obs.events.known.push(failure(&obs.pod, 20));
    assert_eq!(verdict(&obs), (Verdict::InsufficientEvidence, "none"), "nor does another give it a time");
    obs.events.known[1].reason = "Pulled".to_owned();
    assert!(no_finding(&obs), "so its sandbox may have come up since");
}

#[test]
fn one_refusal_in_two_events_disputes_one_address() {
    let mut obs = own();
    let again = obs.events.known[0].clone();
    obs.events.known.push(again);
    let found = finding(&obs);
    assert_eq!((found.ip, found.proof), (Some(ip(IP)), Some(Proof::EarlierSandbox)), "and names one sandbox");
}

#[test]
fn two_addresses_on_a_tie_dispute_none() {
    let mut obs = stale();
    let mut other = failure(&obs.pod, 20);
    other.message = message("ipv4:10.244.1.13", SANDBOX);
    obs.events.known.push(other);
    let finding = finding(&obs);
    assert_eq!((finding.verdict, finding.ip), (Verdict::InsufficientEvidence, None));
    obs.agent_started = Some(ago(60));
    assert_eq!(verdict(&obs), (Verdict::Settling, "none"));
}

#[test]
fn unread_events_are_insufficient_evidence_with_and_without_a_known_refusal() {
    let mut obs = stale();
    obs.events.unreadable = Some(unread());
    assert_eq!(verdict(&obs), (Verdict::InsufficientEvidence, "none"));
    obs.events.known.clear();
    assert_eq!(verdict(&obs), (Verdict::InsufficientEvidence, "none"));
}

#[test]
fn an_agent_that_does_not_answer_is_unknown() {
    let obs = Observation { lookup: Lookup::Unknown(unread()), ..stale() };
    assert_eq!(verdict(&obs), (Verdict::AgentUnknown, "none"));
}

#[test]
fn an_empty_404_is_not_held() {
    let obs = Observation { lookup: Lookup::NotHeld, ..stale() };
    assert_eq!(verdict(&obs), (Verdict::NotHeld, "none"));
}

#[rstest]
#[case::may_be_moved(|_: &mut Observation| {}, "delete-pod")]
#[case::is_not_in_the_registry(|obs: &mut Observation| obs.lookup = Lookup::NotHeld, "delete-pod")]
#[case::without_controller(|obs: &mut Observation| obs.pod.controller = None, "none")]
#[case::mirror_pod(|obs: &mut Observation| { obs.pod.mirror = Some("wedged".to_owned()); }, "none")]
#[case::phase_is_not_pending(|obs: &mut Observation| obs.pod.phase = Phase::Unknown, "none")]
#[case::a_container_ran_once(|obs: &mut Observation| obs.pod.containers.ever_ran = true, "none")]
#[case::sticky_statefulset(|obs: &mut Observation| { obs.pod.ovn.allocated = true; obs.pod.controller.as_mut().unwrap().kind = "StatefulSet".to_owned(); }, "none")]
#[case::kube_ovn_without_stickiness(|obs: &mut Observation| obs.pod.ovn.allocated = true, "delete-pod")]
#[case::agent_started_just_now(|obs: &mut Observation| obs.agent_started = Some(ago(60)), "none")]
#[case::agent_start_unknown(|obs: &mut Observation| obs.agent_started = None, "none")]
#[case::agent_started_after_the_failure(|obs: &mut Observation| { obs.agent_started = Some(ago(130)); obs.events.known[0].at = Some(ago(140)); }, "none")]
#[case::failure_too_old(|obs: &mut Observation| obs.events.known[0].at = Some(ago(601)), "none")]
#[case::failure_lone_and_young(|obs: &mut Observation| { obs.events.known[0].at = Some(ago(3)); obs.events.known[0].count = 1; }, "none")]
fn a_reserved_address_moves_the_pod_or_nothing(#[case] change: fn(&mut Observation), #[case] remedy: &str) {
    let mut obs = reserved();
    change(&mut obs);
    assert_eq!(verdict(&obs), (Verdict::ReservedHolder, remedy));
}

#[rstest]
#[case::health("reserved:health", true)]
#[case::one_we_do_not_know("reserved:new-thing", true)]
#[case::init("reserved:init", false)]
fn a_reserved_label_tells_too(#[case] label: &str, #[case] reserved: bool) {
    let obs = held_by(Holder { labels: vec![label.to_owned()], ..holder() }, stale());
    assert_eq!(verdict(&obs).0 == Verdict::ReservedHolder, reserved);
}

#[rstest]
#[case::agent_started_119_s_ago(|obs: &mut Observation| obs.agent_started = Some(ago(119)), true)]
#[case::agent_started_120_s_ago(|obs: &mut Observation| obs.agent_started = Some(ago(120)), false)]
#[case::agent_start_unknown(|obs: &mut Observation| obs.agent_started = None, true)]
#[case::agent_started_in_the_future(|obs: &mut Observation| obs.agent_started = Some(ago(-5)), true)]
#[case::agent_started_after_the_failure(|obs: &mut Observation| { obs.agent_started = Some(ago(150)); obs.events.known[0].at = Some(ago(151)); }, true)]
#[case::agent_started_with_the_failure(|obs: &mut Observation| { obs.agent_started = Some(ago(150)); obs.events.known[0].at = Some(ago(150)); }, false)]
#[case::lone_4_s(|obs: &mut Observation| { obs.events.known[0].at = Some(ago(4)); obs.events.known[0].count = 1; }, true)]
#[case::lone_5_s(|obs: &mut Observation| { obs.events.known[0].at = Some(ago(5)); obs.events.known[0].count = 1; }, false)]
#[case::counted_twice_4_s(|obs: &mut Observation| { obs.events.known[0].at = Some(ago(4)); obs.events.known[0].count = 2; }, false)]
#[case::two_events_4_s(|obs: &mut Observation| { let pod = obs.pod.clone(); obs.events.known = vec![Event { count: 1, ..failure(&pod, 4) }, Event { count: 1, ..failure(&pod, 16) }]; }, false)]
fn time_settles(#[case] change: fn(&mut Observation), #[case] settling: bool) {
    let mut obs = stale();
    change(&mut obs);
    assert_eq!(verdict(&obs).0 == Verdict::Settling, settling, "{:?}", finding(&obs));
}

#[rstest]
#[case::owner_unread(|obs: &mut Observation| obs.owner = Err(unread()))]
#[case::cilium_node_unread(|obs: &mut Observation| obs.cilium_node = Err(unread()))]
#[case::no_cilium_node(|obs: &mut Observation| obs.cilium_node = Ok(None))]
#[case::users_of_the_address_unread(|obs: &mut Observation| obs.address_users = Err(unread()))]
#[case::failure_too_old(|obs: &mut Observation| obs.events.known[0].at = Some(ago(601)))]
#[case::failure_in_the_future(|obs: &mut Observation| obs.events.known[0].at = Some(ago(-61)))]
#[case::another_address_in_the_answer(|obs: &mut Observation| obs.lookup = Lookup::Held(Box::new(Holder { addresses: vec![ip("10.244.1.13")], ..holder() })))]
#[case::nameless_and_ceps_unread(|obs: &mut Observation| { obs.lookup = Lookup::Held(Box::new(nameless())); obs.endpoints = Err(unread()); })]
#[case::nameless_and_node_pods_unread(|obs: &mut Observation| { obs.lookup = Lookup::Held(Box::new(nameless())); obs.node_pods = Err(unread()); })]
#[case::nameless_and_a_pod_may_own_it(|obs: &mut Observation| { obs.lookup = Lookup::Held(Box::new(nameless())); obs.node_pods = Ok(vec![Pod { started: Some(ago(7300)), ..pod("backup/other", "other") }]); })]
#[case::failed_owner_with_a_running_container(|obs: &mut Observation| obs.owner = Ok(Some(Pod { phase: Phase::Failed, ips: Vec::new(), ..running("backup/agent-0", "owner", &[]) })))]
fn what_has_to_be_known_and_is_not_refuses(#[case] change: fn(&mut Observation)) {
    let mut obs = stale();
    change(&mut obs);
    assert_eq!(verdict(&obs), (Verdict::InsufficientEvidence, "none"));
}

#[rstest]
#[case::no_namespace_label(Holder { labels: vec!["k8s:app=agent".to_owned()], ..nameless() }, Verdict::UnmanagedHolder)]
#[case::two_namespace_labels(Holder { labels: vec!["k8s:io.kubernetes.pod.namespace=a".to_owned(), "k8s:io.kubernetes.pod.namespace=b".to_owned()], ..nameless() }, Verdict::UnmanagedHolder)]
#[case::no_attachment_at_all(Holder { attachment: None, container_field: Some(HOLDER.parse().unwrap()), ..nameless() }, Verdict::StaleEndpoint)]
#[case::another_interface(Holder { attachment: Some(format!("{HOLDER}:net1").parse().unwrap()), ..nameless() }, Verdict::UnmanagedHolder)]
#[case::no_interface(Holder { attachment: Some(HOLDER.parse().unwrap()), ..nameless() }, Verdict::UnmanagedHolder)]
#[case::of_a_namespace_without_pods_here(nameless(), Verdict::StaleEndpoint)]
#[case::controllers_of_two_pods(Holder { controllers: vec!["resolve-labels-backup/a".to_owned(), "resolve-labels-backup/b".to_owned()], ..holder() }, Verdict::StaleEndpoint)]
#[case::controller_of_another_namespace(Holder { controllers: vec!["resolve-labels-other/a".to_owned()], ..holder() }, Verdict::StaleEndpoint)]
fn a_nameless_holder_needs_a_namespace_and_eth0(#[case] holder: Holder, #[case] want: Verdict) {
    let obs = held_by(holder, stale());
    let finding = finding(&obs);
    assert_eq!(finding.verdict, want);
    assert_eq!(finding.owner, None);
}

fn vm(name: &str, uid: &str, value: &str) -> Pod {
    Pod { vm_labels: vec![("kubevirt.io/vm", value.to_owned())], ..running(name, uid, &[IP]) }
}

#[rstest]
#[case::same_vm("host", vm("tenant-a/agent-0", "owner", "host"), Verdict::SharedByDesign)]
#[case::another_vm("host", vm("tenant-a/agent-0", "owner", "other"), Verdict::LiveDuplicate)]
#[case::same_vm_in_another_namespace("host", vm("backup/agent-0", "owner", "host"), Verdict::LiveDuplicate)]
#[case::same_vm_that_has_ended("host", Pod { phase: Phase::Succeeded, containers: Containers::default(), ..vm("tenant-a/agent-0", "owner", "host") }, Verdict::StaleEndpoint)]
fn launchers_of_one_vm_share_by_design(#[case] label: &str, #[case] owner: Pod, #[case] want: Verdict) {
    let full_name = owner.name.to_string();
    let holder = Holder {
        controllers: vec![format!("resolve-labels-{full_name}")],
        labels: vec![format!("k8s:io.kubernetes.pod.namespace={}", owner.name.namespace())],
        ..holder()
    };
    let mut obs = Observation { owner: Ok(Some(owner)), ..held_by(holder, stale()) };
    obs.pod.vm_labels = vec![("kubevirt.io/vm", label.to_owned())];
    assert_eq!(verdict(&obs).0, want);
}

#[rstest]
#[case::two_vpcs((IP, Some("blue")), (IP, Some("green")), true)]
#[case::one_vpc((IP, Some("blue")), (IP, Some("blue")), false)]
#[case::only_one_tells_its_vpc((IP, Some("blue")), (IP, None), false)]
#[case::only_the_owners_is_fixed(("10.244.1.13", Some("blue")), (IP, Some("green")), false)]
#[case::only_the_wedged_ones_is_fixed((IP, Some("blue")), ("10.244.1.13", Some("green")), false)]
fn kube_ovn_networks_share_by_design(
    #[case] ours: (&str, Option<&str>),
    #[case] theirs: (&str, Option<&str>),
    #[case] shared: bool,
) {
    let mut owner = running("backup/agent-0", "owner", &[IP]);
    let mut obs = stale();
    for (pod, (address, vpc)) in [(&mut obs.pod, ours), (&mut owner, theirs)] {
        pod.ovn.ip_address = vec![ip("fd00::1"), ip(address)];
        pod.ovn.vpc = vpc.map(str::to_owned);
    }
    obs.owner = Ok(Some(owner));
    assert_eq!(verdict(&obs).0, if shared { Verdict::SharedByDesign } else { Verdict::LiveDuplicate });
}

#[rstest]
#[case::running(running("backup/agent-0", "owner", &[IP]))]
#[case::pending_without_address(pod("backup/agent-0", "owner"))]
#[case::phase_unknown(Pod { phase: Phase::Unknown, ..pod("backup/agent-0", "owner") })]
#[case::terminating(Pod { deleting: true, ..running("backup/agent-0", "owner", &[IP]) })]
#[case::listing_another_address_and_no_uid_known(running("backup/agent-0", "owner", &["10.244.1.99"]))]
fn a_live_owner_is_left_alone(#[case] owner: Pod) {
    let obs = Observation { owner: Ok(Some(owner)), ..stale() };
    assert_eq!(verdict(&obs), (Verdict::LiveDuplicate, "none"));
}

#[rstest]
#[case::running_elsewhere(Pod { node: Some("worker-2".parse().unwrap()), ..running("x/y", "y", &[IP]) }, Verdict::LiveDuplicate)]
#[case::failed_with_a_container_running(Pod { phase: Phase::Failed, ..running("x/y", "y", &[IP]) }, Verdict::LiveDuplicate)]
#[case::ended(Pod { phase: Phase::Succeeded, containers: Containers::default(), ..running("x/y", "y", &[IP]) }, Verdict::StaleEndpoint)]
#[case::host_network(Pod { host_network: true, ..running("x/y", "y", &[IP]) }, Verdict::StaleEndpoint)]
#[case::the_wedged_pod_itself(running("tenant-a/web-1", "wedged", &[IP]), Verdict::StaleEndpoint)]
fn another_live_pod_with_the_address_counts(#[case] user: Pod, #[case] want: Verdict) {
    let obs = Observation { address_users: Ok(vec![user]), ..stale() };
    assert_eq!(verdict(&obs).0, want);
}

#[rstest]
#[case::eni(Ok("eni"), Some(Withheld::IpamMode))]
#[case::azure(Ok("azure"), Some(Withheld::IpamMode))]
#[case::alibabacloud(Ok("alibabacloud"), Some(Withheld::IpamMode))]
#[case::unread(Err(()), Some(Withheld::IpamModeUnknown))]
#[case::kubernetes(Ok("kubernetes"), None)]
#[case::delegated(Ok("delegated-plugin"), None)]
fn the_ipam_mode_may_withhold(#[case] mode: Result<&str, ()>, #[case] withheld: Option<Withheld>) {
    let obs = Observation {
        ipam_mode: mode.map(|mode| IpamMode(mode.to_owned())).map_err(|()| unread()),
        ..stale()
    };
    let found = finding(&obs);
    assert_eq!(
        (found.verdict, found.withheld, found.remedy == Remedy::None),
        (Verdict::StaleEndpoint, withheld, withheld.is_some())
    );
}

#[test]
fn a_holder_without_any_id_is_not_disconnected_and_an_old_one_by_its_container() {
    let by_container =
        Holder { attachment: None, container_field: Some(HOLDER.parse().unwrap()), ..holder() };
    let Remedy::DisconnectEndpoint(target) = finding(&held_by(by_container, stale())).remedy else {
        panic!()
    };
    assert_eq!(target.as_str(), format!("container-id:{HOLDER}"));
    let without = Holder { attachment: None, ..holder() };
    let found = finding(&held_by(without, stale()));
    assert_eq!((found.verdict, found.withheld), (Verdict::StaleEndpoint, Some(Withheld::NoIdentifier)));
}

#[rstest]
#[case::live(Phase::Running, Verdict::InsufficientEvidence)]
#[case::ended(Phase::Succeeded, Verdict::StaleEndpoint)]
fn a_pod_with_an_address_that_is_none_may_have_this_one(#[case] phase: Phase, #[case] want: Verdict) {
    let containers = Containers::default();
    let user = Pod { phase, unparsed_ips: true, containers, ..running("x/y", "y", &[]) };
    assert_eq!(verdict(&Observation { address_users: Ok(vec![user]), ..stale() }).0, want);
}

#[rstest]
#[case::gone(None, Some(Proof::OwnerGone))]
#[case::succeeded(Some(Pod { phase: Phase::Succeeded, ..pod("backup/agent-0", "owner") }), Some(Proof::OwnerEnded))]
#[case::on_another_node(Some(Pod { node: Some("worker-2".parse().unwrap()), ..pod("backup/agent-0", "owner") }), Some(Proof::BoundElsewhere))]
#[case::on_no_node(Some(Pod { node: None, ..pod("backup/agent-0", "owner") }), Some(Proof::BoundElsewhere))]
fn proofs_of_a_named_owner(#[case] owner: Option<Pod>, #[case] proof: Option<Proof>) {
    let found = finding(&Observation { owner: Ok(owner), ..stale() });
    assert_eq!((found.verdict, found.proof), (Verdict::StaleEndpoint, proof));
}

#[test]
fn times_at_the_end_of_the_calendar_break_nothing() {
    for at in [jiff::Timestamp::MIN, jiff::Timestamp::MAX] {
        let log = Some(vec![LogEntry { at, state: EndpointState::Ready }]);
        let neighbour = Pod { started: Some(at), ..pod("backup/x", "x") };
        let mut obs =
            Observation { node_pods: Ok(vec![neighbour]), ..held_by(Holder { log, ..nameless() }, stale()) };
        judge(&obs, &Limits::default());
        obs.events.known[0].at = Some(at);
        obs.agent_started = Some(at);
        judge(&obs, &Limits::default());
    }
}
