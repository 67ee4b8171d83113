//! The refusal in all its wrappings, and what only looks like it.

use rstest::rstest;

use super::fixtures::{HOLDER, SANDBOX, ip, message};
use crate::domain::{Refusal, refusal, sandbox_ids};

#[rstest]
#[case::containerd(&message("ipv4:10.244.1.12", SANDBOX), "10.244.1.12")]
#[case::ipv6(&message("ipv6:fd00:10:244:1::b41", SANDBOX), "fd00:10:244:1::b41")]
#[case::old_client_without_quotes(
    "unable to create endpoint: [PUT /endpoint/{id}][400] putEndpointIdInvalid  IP ipv4:10.17.4.32 is already in use",
    "10.17.4.32"
)]
#[case::escaped_quotes(r#"putEndpointIdInvalid \"IP ipv4:10.244.1.73 is already in use\""#, "10.244.1.73")]
#[case::twice_escaped(
    r#"putEndpointIdInvalid \\\"IP ipv4:10.244.1.73 is already in use\\\"""#,
    "10.244.1.73"
)]
#[case::multus(r#"[a/b/u:cilium]: error adding container to network "cilium": plugin type="cilium-cni" failed (add): Unable to create endpoint: [PUT /endpoint/{id}][400] putEndpointIdInvalid "IP ipv4:10.16.0.75 is already in use""#, "10.16.0.75")]
#[case::combined(&format!("(combined from similar events): {}", message("ipv4:10.244.1.71", SANDBOX)), "10.244.1.71")]
#[case::said_twice(&message("ipv4:10.0.0.1", SANDBOX).repeat(2), "10.0.0.1")]
#[case::a_cut_clause_behind_a_whole_one(&format!("{} putEndpointIdInvalid \"IP ipv4:10.0.0.2 is al", message("ipv4:10.0.0.1", SANDBOX)), "10.0.0.1")]
#[case::quote_cut_off("putEndpointIdInvalid \"IP ipv4:10.0.0.1 is already in use", "10.0.0.1")]
fn a_refusal_is_found_in_any_wrapping(#[case] text: &str, #[case] address: &str) {
    assert_eq!(refusal(text), Refusal::Of(ip(address)));
}

#[rstest]
#[case::nothing("")]
#[case::rate_limited("[PUT /endpoint/{id}][429] putEndpointIdTooManyRequests")]
#[case::another_400("putEndpointIdInvalid \"endpoint ID 5 already exists\"")]
#[case::attachment("putEndpointIdInvalid \"endpoint for CNI attachment ID aa:eth0 already exists\"")]
#[case::bind("bind: address already in use")]
#[case::another_operation("putEndpointIdFailed \"IP ipv4:10.0.0.1 is already in use\"")]
#[case::no_operation("IP ipv4:10.0.0.1 is already in use")]
#[case::glued("putEndpointIdInvalidIP ipv4:10.0.0.1 is already in use")]
#[case::cut_in_the_address("putEndpointIdInvalid \"IP ipv4:10.244.1.5")]
#[case::cut_behind_the_address("putEndpointIdInvalid \"IP ipv4:10.244.1.57 is alre")]
#[case::cut_before_the_last_letter("putEndpointIdInvalid \"IP ipv4:10.244.1.57 is already in us")]
#[case::goes_on("putEndpointIdInvalid \"IP ipv4:10.244.1.57 is already in used")]
#[case::goes_on_behind_a_line("putEndpointIdInvalid \"IP ipv4:10.244.1.57 is already in use_by")]
#[case::goes_on_behind_a_dash("putEndpointIdInvalid \"IP ipv4:10.244.1.57 is already in use-by")]
#[case::garbage("putEndpointIdInvalid \"IP ipv4:10.244.1 is already in use\"")]
#[case::leading_zeros("putEndpointIdInvalid \"IP ipv4:010.244.001.005 is already in use\"")]
#[case::prefix_length("putEndpointIdInvalid \"IP ipv4:10.0.0.1/32 is already in use\"")]
#[case::zone("putEndpointIdInvalid \"IP ipv6:fe80::1%eth0 is already in use\"")]
#[case::brackets("putEndpointIdInvalid \"IP ipv6:[fd00::1] is already in use\"")]
#[case::mapped("putEndpointIdInvalid \"IP ipv6:::ffff:10.0.0.1 is already in use\"")]
#[case::wrong_family("putEndpointIdInvalid \"IP ipv4:fd00::1 is already in use\"")]
#[case::the_other_wrong_family("putEndpointIdInvalid \"IP ipv6:10.0.0.1 is already in use\"")]
#[case::empty_address("putEndpointIdInvalid \"IP ipv4: is already in use\"")]
fn anything_else_is_none(#[case] text: &str) {
    assert_eq!(refusal(text), Refusal::None);
}

#[test]
fn two_addresses_are_told_apart() {
    let text = format!("{}; {}", message("ipv4:10.0.0.1", SANDBOX), message("ipv6:fd00::1", SANDBOX));
    assert_eq!(refusal(&text), Refusal::Several(vec![ip("10.0.0.1"), ip("fd00::1")]));
}

#[test]
fn a_long_message_takes_no_longer_than_its_length() {
    let text = "putEndpointIdInvalid \"IP ipv4:".repeat(64 * 1024 / 30);
    assert_eq!(refusal(&text), Refusal::None);
}

#[rstest]
#[case::containerd(&message("ipv4:10.0.0.1", SANDBOX), &[SANDBOX])]
#[case::crio(&format!("failed to create pod network sandbox k8s_web-1_tenant-a_43b3592e-6c5f-4476-be78-0f135b71dd67_0({SANDBOX}): error adding pod"), &[SANDBOX])]
#[case::escaped(&format!(r#"for sandbox \"{SANDBOX}\": plugin"#), &[SANDBOX])]
#[case::short_id_in_quotes("for sandbox \"5f0c\": plugin", &["5f0c"])]
#[case::dockershim("failed to set up sandbox container \"5f0c\" network", &["5f0c"])]
#[case::two(&format!("{SANDBOX} {HOLDER}"), &[SANDBOX, HOLDER])]
#[case::none("failed to setup network for sandbox", &[])]
fn sandboxes_are_found(#[case] text: &str, #[case] want: &[&str]) {
    let ids: Vec<String> = sandbox_ids(text).iter().map(ToString::to_string).collect();
    assert_eq!(ids, want);
}
