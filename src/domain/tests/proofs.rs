//! The proofs of staleness, each with what comes near to it.

use rstest::rstest;

use super::fixtures::{
    HOLDER, IP, SANDBOX, ago, endpoint, failure, finding, held_by, holder, ip, message, name, nameless, own,
    pod, running, set_holder, set_log, stale, unread, verdict,
};
use crate::domain::{
    CiliumEndpoint, CiliumNode, EndpointId, Event, Holder, Observation, Phase, Pod, Proof, Read, SliceEntry,
    Verdict,
};

#[test]
fn a_successor_on_another_node_with_the_address_is_a_duplicate() {
    let owner = Pod { node: Some("worker-2".parse().unwrap()), ..running("backup/agent-0", "owner", &[IP]) };
    assert_eq!(verdict(&Observation { owner: Ok(Some(owner)), ..stale() }), (Verdict::LiveDuplicate, "none"));
}

#[rstest]
#[case::other_uid_and_other_address(&["former"], &["10.244.1.99"], true)]
#[case::other_uid_and_no_address(&["former"], &[], false)]
#[case::its_own_uid(&["owner"], &["10.244.1.99"], false)]
#[case::one_of_two_is_its_own(&["former", "owner"], &["10.244.1.99"], false)]
#[case::no_uid(&[], &["10.244.1.99"], false)]
fn proof_3_for_another_pod_needs_a_foreign_uid_and_another_address(
    #[case] uids: &[&str],
    #[case] ips: &[&str],
    #[case] holds: bool,
) {
    let owner = running("backup/agent-0", "owner", ips);
    let endpoints = uids.iter().map(|uid| endpoint(uid)).collect();
    let obs = Observation { owner: Ok(Some(owner)), endpoints: Ok(Some(endpoints)), ..stale() };
    assert_eq!(finding(&obs).proof, holds.then_some(Proof::FormerIncarnation));
}

#[test]
fn proof_3_never_holds_for_a_mirror_pod() {
    let mut obs = moved_on();
    obs.owner.iter_mut().flatten().for_each(|owner| owner.mirror = Some("m".to_owned()));
    assert_eq!(verdict(&obs).0, Verdict::LiveDuplicate);
}

#[rstest]
#[case::the_holders(endpoint("former"), holder(), true)]
#[case::of_another_container(CiliumEndpoint { attachment: format!("{SANDBOX}:eth0").parse().ok(), ..endpoint("former") }, holder(), false)]
#[case::of_another_number(CiliumEndpoint { id: Some(EndpointId(7)), ..endpoint("former") }, holder(), false)]
#[case::of_no_number(CiliumEndpoint { id: None, ..endpoint("former") }, holder(), false)]
#[case::of_no_container_as_the_holder(CiliumEndpoint { attachment: None, ..endpoint("former") }, Holder { attachment: None, ..holder() }, false)]
#[case::of_the_containers_older_id(CiliumEndpoint { attachment: None, container: HOLDER.parse().ok(), ..endpoint("former") }, holder(), true)]
fn an_endpoint_gives_the_uid_if_number_and_container_match(
    #[case] object: CiliumEndpoint,
    #[case] holder: Holder,
    #[case] holds: bool,
) {
    let obs = Observation { endpoints: Ok(Some(vec![object])), ..held_by(holder, moved_on()) };
    assert_eq!(finding(&obs).proof, holds.then_some(Proof::FormerIncarnation));
}

#[rstest]
#[case::all_match("backup/agent-0", IP, "192.0.2.11", true)]
#[case::another_name("backup/agent-1", IP, "192.0.2.11", false)]
#[case::another_address("backup/agent-0", "10.244.1.13", "192.0.2.11", false)]
#[case::another_node("backup/agent-0", IP, "192.0.2.12", false)]
fn a_slice_entry_gives_the_uid_if_all_of_it_matches(
    #[case] pod_name: &str,
    #[case] address: &str,
    #[case] host: &str,
    #[case] holds: bool,
) {
    let entry = SliceEntry {
        name: name(pod_name),
        ips: vec![ip(address)],
        node: Some(ip(host)),
        uid: Some("former".parse().unwrap()),
    };
    let obs = Observation {
        owner: Ok(Some(running("backup/agent-0", "owner", &["10.244.1.99"]))),
        cilium_node: Ok(Some(CiliumNode { addresses: vec![ip("192.0.2.11")], ..CiliumNode::default() })),
        slices: Ok(Some(vec![entry])),
        ..stale()
    };
    assert_eq!(finding(&obs).proof, holds.then_some(Proof::FormerIncarnation));
}

#[rstest]
#[case::older_by_its_log(|_: &mut Observation| {}, true)]
#[case::two_seconds_older(|obs: &mut Observation| set_log(obs, 22), true)]
#[case::one_second_older(|obs: &mut Observation| set_log(obs, 21), false)]
#[case::younger(|obs: &mut Observation| set_log(obs, 10), false)]
#[case::no_log(|obs: &mut Observation| set_holder(obs, Holder { log: None, ..holder() }), false)]
#[case::no_log_but_seen_before(|obs: &mut Observation| { set_holder(obs, Holder { log: None, ..holder() }); obs.holder_first_seen = Some(ago(21)); }, true)]
#[case::no_log_but_seen_since(|obs: &mut Observation| { set_holder(obs, Holder { log: None, ..holder() }); obs.holder_first_seen = Some(ago(20)); }, false)]
#[case::no_log_but_the_sandbox_of_an_older_failure(|obs: &mut Observation| { set_holder(obs, Holder { log: None, ..holder() }); let older = Event { message: message("ipv4:10.244.1.12", HOLDER), ..failure(&obs.pod, 40) }; obs.events.known.push(older); }, true)]
#[case::the_refused_sandbox_itself(|obs: &mut Observation| obs.events.known[0].message = message("ipv4:10.244.1.12", HOLDER), false)]
#[case::refused_sandbox_unknown(|obs: &mut Observation| obs.events.known[0].message = "putEndpointIdInvalid \"IP ipv4:10.244.1.12 is already in use\"".to_owned(), false)]
#[case::two_sandboxes_named(|obs: &mut Observation| obs.events.known[0].message.push_str(&"c".repeat(64).replacen('c', " c", 1)), false)]
fn proof_5_needs_another_and_older_sandbox(#[case] change: fn(&mut Observation), #[case] holds: bool) {
    let mut obs = own();
    change(&mut obs);
    let found = finding(&obs);
    let want = if holds {
        (Verdict::StaleEndpoint, Some(Proof::EarlierSandbox))
    } else {
        (Verdict::InsufficientEvidence, None)
    };
    assert_eq!((found.verdict, found.proof), want);
}

#[rstest]
#[case::older(|obs: &mut Observation| set_log(obs, 7200), true)]
#[case::younger(|obs: &mut Observation| set_log(obs, 10), false)]
#[case::the_refused_sandbox_itself(|obs: &mut Observation| { set_holder(obs, Holder { log: None, ..holder() }); obs.events.known[0].message = message("ipv4:10.244.1.12", HOLDER); }, false)]
fn proof_3_for_the_wedged_pod_itself_needs_an_older_holder(
    #[case] change: fn(&mut Observation),
    #[case] holds: bool,
) {
    let mut obs = own();
    // The refused sandbox is not told, so proof 5 cannot hold.
    obs.events.known[0].message = "putEndpointIdInvalid \"IP ipv4:10.244.1.12 is already in use\"".to_owned();
    obs.endpoints = Ok(Some(vec![endpoint("former")]));
    change(&mut obs);
    assert_eq!(finding(&obs).proof, holds.then_some(Proof::FormerIncarnation));
}

#[test]
fn a_holder_that_names_its_pod_needs_neither_label_nor_eth0() {
    let named = Holder {
        named: Some(name("backup/agent-0")),
        labels: Vec::new(),
        attachment: format!("{HOLDER}:net1").parse().ok(),
        ..holder()
    };
    let found = finding(&held_by(named, stale()));
    assert_eq!((found.verdict, found.proof), (Verdict::StaleEndpoint, Some(Proof::OwnerGone)));
}

/// A live pod of the owner's name that lists another address, and a CiliumEndpoint of a former pod's UID.
fn moved_on() -> Observation {
    let owner = running("backup/agent-0", "owner", &["10.244.1.99"]);
    let node = CiliumNode { addresses: vec![ip("192.0.2.11")], ..CiliumNode::default() };
    Observation {
        owner: Ok(Some(owner)),
        endpoints: Ok(Some(vec![endpoint("former")])),
        cilium_node: Ok(Some(node)),
        ..stale()
    }
}

#[rstest]
#[case::slices_know_nothing(Ok(Some(Vec::new())), true)]
#[case::slices_are_not_served(Ok(None), true)]
#[case::a_slice_gives_the_live_pods_uid(Ok(Some(vec![SliceEntry { name: name("backup/agent-0"), ips: vec![ip(IP)], node: Some(ip("192.0.2.11")), uid: Some("owner".parse().unwrap()) }])), false)]
#[case::slices_are_unread(Err(unread()), false)]
fn an_adopted_endpoint_proves_nothing_against_a_slice(
    #[case] slices: Read<Option<Vec<SliceEntry>>>,
    #[case] holds: bool,
) {
    let obs = Observation { slices, ..moved_on() };
    assert_eq!(finding(&obs).proof, holds.then_some(Proof::FormerIncarnation));
}

#[test]
fn each_pod_reference_of_an_endpoint_counts() {
    let mut both = endpoint("former");
    both.owners.push(("agent-0".to_owned(), "owner".parse().unwrap()));
    let obs = Observation { endpoints: Ok(Some(vec![both.clone()])), ..moved_on() };
    assert_eq!(verdict(&obs).0, Verdict::LiveDuplicate);
    both.owners[1].0 = "agent-1".to_owned();
    let obs = Observation { endpoints: Ok(Some(vec![both])), ..held_by(nameless(), stale()) };
    assert_eq!(finding(&obs).owner, None, "two names are none");
}

#[rstest]
#[case::host_network(Pod { host_network: true, ..pod("backup/x", "x") }, true)]
#[case::lists_another_address(Pod { started: Some(ago(7300)), ..running("backup/x", "x", &["10.244.1.77"]) }, true)]
#[case::lists_only_the_other_family(Pod { started: Some(ago(7300)), ..running("backup/x", "x", &["fd00::7"]) }, false)]
#[case::lists_only_a_link_local_address(Pod { started: Some(ago(7300)), ..running("backup/x", "x", &["169.254.1.1"]) }, false)]
#[case::started_61_s_after_the_log_began(Pod { started: Some(ago(7139)), ..pod("backup/x", "x") }, true)]
#[case::started_60_s_after_the_log_began(Pod { started: Some(ago(7140)), ..pod("backup/x", "x") }, false)]
#[case::mirror_pod_that_started_later(Pod { mirror: Some("m".to_owned()), ..pod("backup/x", "x") }, false)]
#[case::without_start(Pod { started: None, ..pod("backup/x", "x") }, false)]
#[case::ended(Pod { phase: Phase::Failed, started: None, ..pod("backup/x", "x") }, true)]
#[case::of_another_namespace(Pod { started: None, ..pod("other/x", "x") }, true)]
fn proof_6_needs_every_live_pod_of_the_namespace_ruled_out(#[case] neighbour: Pod, #[case] ruled_out: bool) {
    let obs = Observation { node_pods: Ok(vec![neighbour]), ..held_by(nameless(), stale()) };
    let want = if ruled_out {
        (Verdict::StaleEndpoint, "disconnect-endpoint")
    } else {
        (Verdict::InsufficientEvidence, "none")
    };
    assert_eq!(verdict(&obs), want);
}

#[test]
fn the_owner_is_named_by_the_first_source_that_names_one() {
    let named = Holder { named: Some(name("first/one")), ..holder() };
    assert_eq!(finding(&held_by(named, stale())).owner, Some(name("first/one")));
    let obs = Observation { endpoints: Ok(Some(vec![endpoint("x")])), ..held_by(nameless(), stale()) };
    assert_eq!(finding(&obs).owner, Some(name("backup/agent-0")));
    let without_attachment =
        CiliumEndpoint { attachment: None, container: Some(HOLDER.parse().unwrap()), ..endpoint("x") };
    let obs = Observation { endpoints: Ok(Some(vec![without_attachment])), ..held_by(nameless(), stale()) };
    assert_eq!(finding(&obs).owner, None);
}
