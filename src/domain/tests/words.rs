//! Words and names: those of others, and where they end; our own, which stay as they are.

use rstest::rstest;

use super::fixtures::{IP, holder, ip, name, pod};
use crate::domain::{
    ActOutcome, AnomalyKind, AttachmentId, Cause, Controller, EndpointState, Holder, IpamMode, PodName,
    RemedyKind, ReservedUse, RestartKind, Verdict, Withheld, canonical_ip, parse_ip,
};

#[rstest]
#[case("ready", EndpointState::Ready)]
#[case("regenerating", EndpointState::Regenerating)]
#[case("restoring", EndpointState::Restoring)]
#[case("disconnecting", EndpointState::Disconnecting)]
#[case("waiting-for-identity", EndpointState::WaitingForIdentity)]
#[case("waiting-to-regenerate", EndpointState::WaitingToRegenerate)]
fn a_state_of_the_agent_is_read_and_told_by_one_word(#[case] word: &str, #[case] state: EndpointState) {
    assert_eq!(EndpointState::from_api(word), state);
    assert_eq!(state.as_str(), word);
}

#[test]
fn a_state_that_no_rule_knows_is_another() {
    assert_eq!(EndpointState::from_api("invalid"), EndpointState::Other);
}

/// The agent names the CiliumEndpoint of a second interface after it.
#[rstest]
#[case::no_interface("0123456789abcdef", &["shop/a"])]
#[case::an_empty_one("0123456789abcdef:", &["shop/a"])]
#[case::the_first("0123456789abcdef:eth0", &["shop/a"])]
#[case::a_second("0123456789abcdef:net1", &["shop/a", "shop/a-net1"])]
fn names_of_a_ciliumendpoint(#[case] attachment: &str, #[case] names: &[&str]) {
    let holder = Holder { attachment: Some(attachment.parse().unwrap()), ..holder() };
    let names: Vec<PodName> = names.iter().copied().map(name).collect();
    assert_eq!(holder.endpoint_names(&[name("shop/a")]), names);
}

#[rstest]
#[case::longest(64, "a", true)]
#[case::too_long(65, "a", false)]
#[case::a_path(3, "/", false)]
#[case::a_space(3, " ", false)]
fn the_interface_of_an_attachment(#[case] length: usize, #[case] byte: &str, #[case] good: bool) {
    let text = format!("0123456789abcdef:{}", byte.repeat(length));
    assert_eq!(text.parse::<AttachmentId>().is_ok(), good);
}

#[rstest]
#[case::longest("a".repeat(253), true)]
#[case::too_long("a".repeat(254), false)]
#[case::empty(String::new(), false)]
#[case::the_directory_above("..".to_owned(), false)]
#[case::a_path("a/b".to_owned(), false)]
fn a_part_of_a_pods_name(#[case] part: String, #[case] good: bool) {
    assert_eq!(PodName::new(&part, "a").is_ok(), good);
    assert_eq!(PodName::new("a", &part).is_ok(), good);
}

#[rstest]
#[case::with_an_interface("0123456789abcdef:net1", Some("net1"))]
#[case::with_an_empty_one("0123456789abcdef:", Some(""))]
#[case::without("0123456789abcdef", None)]
fn the_parts_of_an_attachment(#[case] text: &str, #[case] interface: Option<&str>) {
    let id: AttachmentId = text.parse().unwrap();
    assert_eq!((id.as_str(), id.to_string(), id.interface()), (text, text.to_owned(), interface));
    assert_eq!(id.container().as_str(), "0123456789abcdef");
}

#[rstest]
#[case::no_label(&["k8s:app=agent"], true)]
#[case::its_namespace(&["k8s:io.kubernetes.pod.namespace=backup"], true)]
#[case::another_namespace(&["k8s:io.kubernetes.pod.namespace=shop"], false)]
#[case::two_namespaces(&["k8s:io.kubernetes.pod.namespace=backup", "k8s:io.kubernetes.pod.namespace=shop"], false)]
#[case::an_empty_namespace(&["k8s:io.kubernetes.pod.namespace="], false)]
fn a_controller_names_the_owner_if_the_label_fits(#[case] labels: &[&str], #[case] named: bool) {
    let holder = Holder { labels: labels.iter().map(ToString::to_string).collect(), ..holder() };
    assert_eq!(holder.owner_by_agent().pod().cloned(), named.then(|| name("backup/agent-0")));
}

#[rstest]
#[case::ipv4("10.244.1.12", Some("10.244.1.12"))]
#[case::ipv6_at_length("FD00:0:0:0::0001", Some("fd00::1"))]
#[case::leading_zeros("010.0.0.1", None)]
#[case::prefix_length("10.0.0.1/32", None)]
#[case::brackets("[fd00::1]", None)]
#[case::zone("fe80::1%eth0", None)]
#[case::a_space(" 10.0.0.1", None)]
#[case::nothing("", None)]
fn an_address_is_read_strictly_and_written_in_one_way(#[case] text: &str, #[case] written: Option<&str>) {
    assert_eq!(parse_ip(text).map(canonical_ip).as_deref(), written);
}

#[test]
fn an_empty_namespace_is_none() {
    let label = "k8s:io.kubernetes.pod.namespace=".to_owned();
    assert_eq!(Holder { labels: vec![label], ..holder() }.namespace_label(), None);
}

/// The words are part of the output formats and of the ledger.
#[test]
fn words_of_verdicts_and_acts_stay_as_they_are() {
    let verdicts = "agent-unknown reserved-holder not-held settling insufficient-evidence unmanaged-holder \
        shared-by-design live-duplicate stale-endpoint";
    assert_eq!(Verdict::ALL.map(Verdict::as_str).join(" "), verdicts);
    assert_eq!(Verdict::ALL.map(|it| Verdict::of_word(it.as_str())), Verdict::ALL.map(Some));
    let remedies = "disconnect-endpoint delete-pod restart-agent";
    assert_eq!(RemedyKind::ALL.map(RemedyKind::as_str).join(" "), remedies);
    assert_eq!(RemedyKind::ALL.map(|it| RemedyKind::of_word(it.as_str())), RemedyKind::ALL.map(Some));
    let outcomes = "healed disconnected deleted aborted failed not-healed interrupted";
    assert_eq!(ActOutcome::ALL.map(ActOutcome::as_str).join(" "), outcomes);
    assert_eq!(ActOutcome::ALL.map(|it| ActOutcome::of_word(it.as_str())), ActOutcome::ALL.map(Some));
    for word in ["", "Healed", "none"] {
        assert_eq!(
            (Verdict::of_word(word), RemedyKind::of_word(word), ActOutcome::of_word(word)),
            (None, None, None)
        );
    }
    let withheld = "ipam-mode ipam-mode-unknown no-identifier not-movable timing";
    assert_eq!(Withheld::ALL.map(Withheld::as_str).join(" "), withheld);
    let anomalies = "overlapping-ipam orphan-cep cep-mismatch cep-missing";
    assert_eq!(AnomalyKind::ALL.map(AnomalyKind::as_str).join(" "), anomalies);
    assert_eq!(RestartKind::ALL.map(RestartKind::as_str).join(" "), "phantom-holder hidden-holder");
    let uses = [ReservedUse::Ingress, ReservedUse::Health, ReservedUse::Router].map(ReservedUse::as_str);
    assert_eq!(uses, ["ingress", "health", "router (CiliumInternalIP)"]);
}

#[rstest]
#[case(ActOutcome::Healed, Some(true))]
#[case(ActOutcome::Deleted, Some(true))]
#[case(ActOutcome::Failed, Some(false))]
#[case(ActOutcome::NotHealed, Some(false))]
#[case(ActOutcome::Interrupted, Some(false))]
#[case(ActOutcome::Disconnected, None)]
#[case(ActOutcome::Aborted, None)]
fn whether_an_act_helped(#[case] outcome: ActOutcome, #[case] helped: Option<bool>) {
    assert_eq!(outcome.helped(), helped);
}

#[rstest]
#[case(Verdict::AgentUnknown, true)]
#[case(Verdict::NotHeld, true)]
#[case(Verdict::Settling, true)]
#[case(Verdict::InsufficientEvidence, true)]
#[case(Verdict::ReservedHolder, false)]
#[case(Verdict::UnmanagedHolder, false)]
#[case(Verdict::SharedByDesign, false)]
#[case(Verdict::LiveDuplicate, false)]
#[case(Verdict::StaleEndpoint, false)]
fn a_verdict_that_mostly_passes(#[case] verdict: Verdict, #[case] passes: bool) {
    assert_eq!(verdict.mostly_passes(), passes);
}

#[test]
fn a_cause_is_the_controllers_or_the_pods_own() {
    let mut wedged = pod("tenant-a/web-1", "wedged");
    let cause = Cause::of(&wedged, ip(IP));
    assert_eq!((cause.of.as_str(), cause.ip), ("ReplicaSet/tenant-a/web/rs-1", ip(IP)));
    assert_eq!(cause.controller(), wedged.controller);
    wedged.controller = None;
    let cause = Cause::of(&wedged, ip(IP));
    assert_eq!((cause.of.as_str(), cause.controller()), ("Pod/tenant-a/web-1/wedged", None));
    let cut = Cause { of: "ReplicaSet/tenant-a/web".to_owned(), ip: ip(IP) };
    assert_eq!(cut.controller(), None::<Controller>);
}

#[test]
fn only_one_mode_leaves_the_addresses_to_another_plugin() {
    assert!(IpamMode("delegated-plugin".to_owned()).is_delegated());
    assert!(!IpamMode("kubernetes".to_owned()).is_delegated());
}
