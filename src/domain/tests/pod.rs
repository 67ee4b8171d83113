//! What a pod lists, by itself.

use rstest::rstest;

use super::fixtures::{IP, ip, running};
use crate::domain::Pod;

#[rstest]
#[case::another(IP, &["10.244.1.77"], true)]
#[case::another_beside_a_link_local_one(IP, &["169.254.1.1", "10.244.1.77"], true)]
#[case::none(IP, &[], false)]
#[case::this_one(IP, &[IP], false)]
#[case::another_beside_this_one(IP, &["10.244.1.77", IP], false)]
#[case::only_the_other_family(IP, &["fd00::7"], false)]
#[case::only_a_link_local_one(IP, &["169.254.1.1"], false)]
#[case::for_a_link_local_one("169.254.9.9", &["10.244.1.77"], false)]
#[case::for_one_of_the_other_family("fd00::1", &["fd00::7"], true)]
#[case::for_a_link_local_one_of_the_other_family("fe80::1", &["fd00::7"], false)]
fn a_pod_lists_others(#[case] disputed: &str, #[case] ips: &[&str], #[case] others: bool) {
    let pod = running("backup/x", "x", ips);
    assert_eq!(pod.lists_others(ip(disputed)), others);
    let unread = Pod { unparsed_ips: true, ..pod };
    assert!(!unread.lists_others(ip(disputed)), "a list with an address that is none proves nothing");
}
