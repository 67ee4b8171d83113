use rstest::rstest;

use super::*;
use crate::domain::compatibility_document;
use crate::stored::{Made, is_stored};

fn agent(image: &str) -> AgentPod {
    let (namespace, node) = ("kube-system".to_owned(), "n1".to_owned());
    AgentPod { namespace, node, ready: true, image: image.to_owned() }
}

#[rstest]
#[case::known("quay.io/cilium/cilium:v1.20.2@sha256:00", Level::Ok)]
#[case::vendors("registry.example.org:5000/cilium:1.17.3-ee", Level::Ok)]
#[case::newer("cilium:v1.21.0", Level::Warn)]
#[case::older("cilium:v1.13.9", Level::Warn)]
#[case::no_version("cilium:latest", Level::Warn)]
#[case::no_tag("cilium@sha256:00", Level::Warn)]
fn versions_by_the_table(#[case] image: &str, #[case] level: Level) {
    assert_eq!(cilium_version(&[agent(image)]).level, level);
}

/// `UPDATE_DOCS=1` writes it anew.
#[test]
fn the_page_on_compatibility_is_that_of_the_table() {
    is_stored("compatibility.md", &compatibility_document(), Made::Page);
}
