//! Whether the watchdog is needed any longer: what is known of a fix in Cilium itself. Pure.
//!
//! Must not know: which versions have one. The table of the domain does.

use std::collections::BTreeSet;

use super::super::seen::{AgentPod, Seen};
use super::{Line, ok, tag};
use crate::domain::{CiliumVersion, Fix, VersionRow, fix};

/// A note, never a fault: nothing works less well without it.
pub(super) fn retirement(agents: &Seen<Vec<AgentPod>>, rows: &[VersionRow]) -> Line {
    if rows.iter().all(|row| row.fixed.is_none()) {
        return ok("retirement", "no release of Cilium is known to have fixed this");
    }
    let mut here = BTreeSet::new();
    let mut from = BTreeSet::new();
    for agent in agents.iter().flatten() {
        match release(&agent.image).map(|version| (version, fix(version, rows))) {
            Some((version, Fix::Here)) => drop(here.insert(version)),
            Some((_, Fix::From(first))) => drop(from.insert(first)),
            Some((_, Fix::Nowhere | Fix::Unknown)) | None => {
                let image = &agent.image;
                return ok(
                    "retirement",
                    format!("not known: {image} is not in the table of what has the fix"),
                );
            }
        }
    }
    // The newest of what is missing: an update to it does for all.
    if let Some(first) = from.last() {
        return ok("retirement", format!("not yet: Cilium {first} is the first to have the fix"));
    }
    if here.is_empty() {
        return ok("retirement", "not known: no agent could be looked at");
    }
    let versions: Vec<String> = here.iter().map(ToString::to_string).collect();
    ok(
        "retirement",
        format!(
            "Cilium {} has the fix, on every agent: the watchdog can go once it finds no new wedges in the mode observe",
            versions.join(", ")
        ),
    )
}

/// The version of an image, if its tag is that of a release and nothing else: a candidate came before the release, and
/// a vendor's build may have another set of fixes.
fn release(image: &str) -> Option<CiliumVersion> {
    let tag = tag(image)?;
    let version: CiliumVersion = tag.parse().ok()?;
    (tag.strip_prefix('v').unwrap_or(tag) == version.to_string()).then_some(version)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::Level;
    use super::*;
    use crate::domain::VERSIONS;

    fn agents(tags: &[&str]) -> Vec<AgentPod> {
        let agent = |tag: &&str| AgentPod {
            namespace: "kube-system".to_owned(),
            node: "n1".to_owned(),
            ready: true,
            image: format!("quay.io/cilium/cilium:{tag}"),
        };
        tags.iter().map(agent).collect()
    }

    fn with_a_fix() -> Vec<VersionRow> {
        let fixed = |row: &VersionRow| VersionRow { fixed: (row.minor == 20).then_some(3), ..*row };
        VERSIONS.iter().map(fixed).collect()
    }

    #[rstest]
    #[case::all(&["v1.20.3", "v1.20.4"], "Cilium 1.20.3, 1.20.4 has the fix, on every agent: the watchdog can go")]
    #[case::some(&["v1.20.3", "v1.20.2"], "not yet: Cilium 1.20.3 is the first")]
    #[case::an_older_line(&["1.18.9"], "not yet: Cilium 1.20.3 is the first")]
    #[case::a_newer_line(&["v1.21.0"], "not known: quay.io/cilium/cilium:v1.21.0 is not in the table")]
    #[case::a_candidate(&["v1.20.3-rc.1"], "not known")]
    #[case::a_vendors_build(&["v1.20.4", "v1.20.4-ee"], "not known")]
    #[case::no_version(&["latest"], "not known")]
    #[case::no_agent(&[], "not known: no agent could be looked at")]
    fn what_the_agents_run_decides(#[case] tags: &[&str], #[case] said: &str) {
        let line = retirement(&Ok(agents(tags)), &with_a_fix());
        assert!(line.seen.starts_with(said), "{}", line.seen);
        assert_eq!((line.level, line.mend), (Level::Ok, None), "a note");
    }

    #[test]
    fn agents_that_cannot_be_listed_are_not_known() {
        let line = retirement(&Err("403".to_owned()), &with_a_fix());
        assert!(line.seen.starts_with("not known"), "{}", line.seen);
    }

    #[test]
    fn without_a_known_fix_it_says_so_whatever_runs() {
        for agents in
            [Ok(agents(&["v1.20.2"])), Ok(agents(&["latest"])), Ok(agents(&[])), Err("403".to_owned())]
        {
            let line = retirement(&agents, &VERSIONS);
            assert_eq!(line.seen, "no release of Cilium is known to have fixed this");
        }
    }
}
