//! Words and names of others, and where they end.

use rstest::rstest;

use super::fixtures::{holder, name};
use crate::domain::{AttachmentId, EndpointState, Holder, IpamMode, PodName};

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

#[test]
fn only_one_mode_leaves_the_addresses_to_another_plugin() {
    assert!(IpamMode("delegated-plugin".to_owned()).is_delegated());
    assert!(!IpamMode("kubernetes".to_owned()).is_delegated());
}
