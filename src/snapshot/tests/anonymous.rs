//! A snapshot under other names: the same verdicts, and nothing that tells whose it is.

use rstest::rstest;

use super::{case, cases, judged, load};
use crate::snapshot::Snapshot;
use crate::snapshot::text::{Replacements, scrub};

/// A finding without names.
type Bare = (String, String, String, bool, bool, Vec<(String, String)>);

fn bare(snapshot: &Snapshot) -> Vec<Bare> {
    let findings = judged(snapshot).findings.into_iter();
    let mut bare: Vec<Bare> = findings
        .map(|it| {
            let checks = it.evidence.into_iter().map(|line| (line.check, line.outcome)).collect();
            (it.subject.kind, it.verdict, it.remedy, it.target.is_some(), it.ip.is_some(), checks)
        })
        .collect();
    bare.sort();
    bare
}

#[test]
fn the_verdicts_stay_the_same() {
    for path in cases() {
        let snapshot = load(&path);
        let anonymous = snapshot.clone().anonymize().unwrap();
        assert_eq!(bare(&anonymous), bare(&snapshot), "{}", path.display());
        let text = serde_json::to_string(&anonymous).unwrap();
        let again = Snapshot::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(judged(&again), judged(&anonymous), "{}", path.display());
        let second = serde_json::to_string(&snapshot.anonymize().unwrap()).unwrap();
        assert_eq!(text, second, "the same file gives the same");
    }
}

#[test]
fn nothing_of_the_old_names_is_left() {
    // Words of the APIs as well.
    const COMMON: [&str; 3] = ["batch", "cilium", "kubelet"];
    for path in cases() {
        let snapshot = load(&path);
        let mut names = Vec::new();
        for pod in snapshot.cluster.pods.iter().map(|pod| pod.to_domain().unwrap()) {
            names.extend([pod.name.namespace().to_owned(), pod.name.name().to_owned(), pod.uid.to_string()]);
            names.extend(pod.node.iter().map(ToString::to_string));
            names.extend(pod.ips.iter().filter(|ip| !ip.is_loopback()).map(ToString::to_string));
            names.extend(pod.mirror);
            names.extend(pod.controller.map(|controller| controller.name));
        }
        for endpoint in snapshot.agents.values().flat_map(|agent| &agent.endpoints) {
            let Ok(holder) = endpoint.to_holder(None) else { continue };
            names.extend(holder.container().map(ToString::to_string));
            names.extend(holder.addresses.iter().map(ToString::to_string));
        }
        let text = serde_json::to_string(&snapshot.anonymize().unwrap()).unwrap();
        let words: std::collections::HashSet<&str> =
            text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '.' | '_'))).collect();
        for name in names.iter().filter(|name| !COMMON.contains(&name.as_str())) {
            assert!(!words.contains(name.as_str()), "{}: {name} is left", path.display());
        }
    }
}

#[test]
fn equal_things_stay_equal() {
    let snapshot = case("several-wedges-on-two-nodes.yaml").anonymize().unwrap();
    let pods: Vec<_> = snapshot.cluster.pods.iter().map(|pod| pod.to_domain().unwrap()).collect();
    assert!(
        pods.iter()
            .all(|pod| { pod.node.as_ref().is_none_or(|node| snapshot.agents.contains_key(node.as_str())) })
    );
    let events = snapshot.cluster.events.iter().filter_map(crate::kube::EventObject::to_domain);
    for event in events {
        assert!(pods.iter().any(|pod| pod.uid.as_str() == event.object_uid), "an Event lost its pod");
    }
    assert!(snapshot.description.is_none() && snapshot.source.is_none() && snapshot.expect.is_none());
}

struct Fixed;

impl Replacements for Fixed {
    fn address(&self, ip: std::net::IpAddr) -> String {
        if ip.is_ipv4() { "10.9.9.9" } else { "fd99::9" }.to_owned()
    }

    fn sandbox(&self, _: &str) -> String {
        "f".repeat(64)
    }

    fn known(&self, word: &str) -> Option<String> {
        match word {
            "shop" | "in" | "Failed" => Some("namespace-1".to_owned()),
            "db-0" => Some("name-1".to_owned()),
            _ => None,
        }
    }
}

#[rstest]
#[case::refusal(
    r#"[400] putEndpointIdInvalid "IP ipv4:10.244.1.12 is already in use""#,
    r#"[400] putEndpointIdInvalid "IP ipv4:10.9.9.9 is already in use""#
)]
#[case::ipv6(
    r#"putEndpointIdInvalid "IP ipv6:fd00::1 is already in use""#,
    r#"putEndpointIdInvalid "IP ipv6:fd99::9 is already in use""#
)]
#[case::garbage(
    r#"putEndpointIdInvalid "IP ipv4:1262000012e1 is already in use""#,
    r#"putEndpointIdInvalid "IP ipv4:no-address is already in use""#
)]
#[case::names(
    "k8s_db-0_shop_9_0 of shop/db-0, web-1",
    "redacted_name-1_namespace-1_9_0 of namespace-1/name-1, redacted"
)]
#[case::hosts("dial https://vault.corp.example:8443: timeout.", "dial https://redacted:redacted: timeout.")]
#[case::address_and_port(
    "dial tcp 192.0.2.7:6443, [fd00::7]:443, 10.0.0.0/8",
    "dial tcp 10.9.9.9:6443, [fd99::9]:443, 10.9.9.9/8"
)]
fn messages(#[case] message: &str, #[case] scrubbed: &str) {
    assert_eq!(scrub(message, &Fixed), scrubbed);
}

#[test]
fn ids_stay_where_they_are_read() {
    let id = "0123456789abcdef".repeat(4);
    let new = "f".repeat(64);
    let text = scrub(&format!(r#"sandbox "{id}": cri-containerd-{id}.scope"#), &Fixed);
    assert_eq!(text, format!(r#"sandbox "{new}": redacted-{new}.scope"#));
}
