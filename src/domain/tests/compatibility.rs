//! The table of versions and IPAM modes, and the gate that it is.

use rstest::rstest;

use crate::domain::{
    CiliumVersion, Fix, Gate, IPAM_MODES, IpamMode, Read, ReadFailure, Unreadable, VERSIONS, VersionRow, fix,
    gate, known_versions,
};

fn mode(word: &str) -> IpamMode {
    IpamMode(word.to_owned())
}

fn version(text: &str) -> Read<CiliumVersion> {
    text.parse().map_err(|_| Unreadable {
        what: "GET healthz".to_owned(),
        why: ReadFailure::Undecodable(text.to_owned()),
    })
}

#[rstest]
#[case("1.20.2 (v1.20.2-abcdef)", "1.20.2")]
#[case("1.14.19 (v1.14.19-ca9c7e2c)", "1.14.19")]
#[case("1.20.0-rc.1 (v1.20.0-rc.1-1234)", "1.20.0")]
#[case("1.17.3-ee", "1.17.3")]
#[case("1.17.3+build.4", "1.17.3")]
#[case("1.21.0-dev", "1.21.0")]
#[case("v1.18.2", "1.18.2")]
#[case("v1.19", "1.19.0")]
#[case("  1.16.0\n", "1.16.0")]
#[case("2.0.0", "2.0.0")]
fn versions_are_read(#[case] text: &str, #[case] parsed: &str) {
    assert_eq!(text.parse::<CiliumVersion>().unwrap().to_string(), parsed);
}

#[rstest]
#[case("")]
#[case("  ")]
#[case("latest")]
#[case("1")]
#[case("1.")]
#[case(".20.2")]
#[case("1.20.x")]
#[case("1.20.2.1")]
#[case("1.+20.2")]
#[case("1.-20.2")]
#[case("vv1.20.2")]
#[case("1.99999999999.0")]
#[case("Not all probes executed at least once")]
fn other_words_are_no_version(#[case] text: &str) {
    assert!(text.parse::<CiliumVersion>().is_err());
}

#[rstest]
#[case::oldest("1.14.0", true)]
#[case::newest("1.20.99", true)]
#[case::candidate_of_a_known_one("1.20.0-rc.1", true)]
#[case::too_old("1.13.18", false)]
#[case::too_new("1.21.0", false)]
#[case::next_candidate("1.21.0-rc.1", false)]
#[case::another_major("2.14.0", false)]
#[case::unreadable("latest", false)]
fn only_known_versions_heal(#[case] text: &str, #[case] heals: bool) {
    let gate = gate(&version(text), &mode("cluster-pool"));
    assert_eq!(gate == Gate::Heal, heals, "{gate:?}");
    assert_eq!(matches!(gate, Gate::Observe(_)), !heals, "{gate:?}");
}

#[rstest]
#[case("cluster-pool")]
#[case("kubernetes")]
#[case("multi-pool")]
#[case("crd")]
#[case("delegated-plugin")]
fn modes_that_heal(#[case] word: &str) {
    assert_eq!(gate(&version("1.20.2"), &mode(word)), Gate::Heal);
    assert!(!mode(word).forbids_disconnect());
}

#[rstest]
#[case("eni")]
#[case("azure")]
#[case("alibabacloud")]
fn modes_without_disconnect(#[case] word: &str) {
    assert!(matches!(gate(&version("1.20.2"), &mode(word)), Gate::NoDisconnect(_)));
    assert!(mode(word).forbids_disconnect());
    assert!(matches!(gate(&version("1.21.0"), &mode(word)), Gate::Observe(_)), "the version decides first");
}

#[rstest]
#[case("")]
#[case("ENI")]
#[case("cluster-pool-v2beta")]
fn unknown_modes_observe(#[case] word: &str) {
    let Gate::Observe(why) = gate(&version("1.20.2"), &mode(word)) else { panic!("acts on {word:?}") };
    assert!(why.contains("IPAM mode"), "{why}");
    assert!(!mode(word).forbids_disconnect(), "the verdict's own rule knows three modes");
}

#[test]
fn the_table_has_no_gap_and_no_row_twice() {
    assert!(VERSIONS.windows(2).all(|pair| pair[1].minor == pair[0].minor + 1));
    assert_eq!(known_versions(), "1.14 to 1.20");
    let mut words: Vec<&str> = IPAM_MODES.iter().map(|row| row.mode).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), IPAM_MODES.len());
    assert!(IPAM_MODES.iter().all(|row| !row.reason.is_empty() && !row.source.is_empty()));
}

/// The table, with a fix in 1.19.6 and 1.20.3.
fn with_a_fix() -> Vec<VersionRow> {
    let fixed = |row: &VersionRow| match row.minor {
        19 => VersionRow { fixed: Some(6), ..*row },
        20 => VersionRow { fixed: Some(3), ..*row },
        _ => *row,
    };
    VERSIONS.iter().map(fixed).collect()
}

fn from(text: &str) -> Fix {
    Fix::From(text.parse().unwrap())
}

#[rstest]
#[case::older_line("1.18.9", from("1.19.6"))]
#[case::right_before("1.19.5", from("1.19.6"))]
#[case::the_first("1.19.6", Fix::Here)]
#[case::newer_line_without_it("1.20.2", from("1.20.3"))]
#[case::newer_line_with_it("1.20.30", Fix::Here)]
#[case::too_new("1.21.0", Fix::Unknown)]
#[case::too_old("1.13.18", Fix::Unknown)]
#[case::another_major("2.19.6", Fix::Unknown)]
fn who_has_the_fix(#[case] version: &str, #[case] known: Fix) {
    assert_eq!(fix(version.parse().unwrap(), &with_a_fix()), known);
}

#[test]
fn a_line_after_the_last_fix_is_not_told_to_go_back() {
    let mut rows = with_a_fix();
    rows.last_mut().unwrap().fixed = None;
    assert_eq!(fix("1.20.2".parse().unwrap(), &rows), Fix::Unknown);
}

#[test]
fn no_release_is_known_to_have_a_fix() {
    // With the first one, `doctor` says so, docs/compatibility.md is written anew, and docs/faq.md wants other words.
    assert_eq!(fix("1.20.2".parse().unwrap(), &VERSIONS), Fix::Nowhere);
}
