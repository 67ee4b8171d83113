//! What could not be read, in words for a person: each thing once, with the right that is missing.

use std::collections::BTreeMap;

use crate::domain::{ReadFailure, Unreadable};
use crate::snapshot::Snapshot;

/// Nodes that are named in one line.
const NAMED: usize = 3;

/// Lines for the footer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// By what happened, where it happened.
    lines: BTreeMap<String, Vec<String>>,
}

impl Notes {
    /// A read that failed.
    pub(super) fn unread(&mut self, unread: &Unreadable) {
        let right = missing_right(&unread.why).map(|right| format!("; missing right: {right}"));
        let line = format!("{}: {}{}", unread.what, unread.why, right.unwrap_or_default());
        self.lines.entry(line).or_default();
    }

    /// Something that failed on one node, and may fail alike on many.
    pub(super) fn on_node(&mut self, node: &str, what: &str) {
        let nodes = self.lines.entry(what.to_owned()).or_default();
        if !nodes.iter().any(|known| known == node) {
            nodes.push(node.to_owned());
        }
    }

    /// Anything else.
    pub(super) fn say(&mut self, line: &str) {
        self.lines.entry(line.to_owned()).or_default();
    }

    /// All that a snapshot says of itself.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut notes = Self::default();
        for unread in &snapshot.cluster.unreadable {
            let place = [unread.namespace.as_deref(), unread.name.as_deref()];
            let place: Vec<&str> = place.into_iter().flatten().collect();
            let what = match (unread.resource.as_str(), place.as_slice()) {
                (resource, []) => format!("LIST {resource}"),
                (resource, place) if unread.name.is_none() => {
                    format!("LIST {resource} in {}", place.join("/"))
                }
                (resource, place) => format!("GET {resource}/{}", place.join("/")),
            };
            notes.say(&format!("{what}: {}", unread.why()));
        }
        for (node, agent) in &snapshot.agents {
            for failure in &agent.failures {
                let id = failure.id.as_deref().map(|id| format!(" {id}")).unwrap_or_default();
                let call = serde_json::to_value(failure.call).ok();
                let call = call.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
                notes.on_node(node, &format!("agent call {call}{id}: {}", failure.why()));
            }
        }
        notes
    }

    /// One line each.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.lines.iter().map(|(what, nodes)| {
            let named = nodes.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            match nodes.len() {
                0 => what.clone(),
                1..=NAMED => format!("{named}: {what}"),
                more => format!("{named} and {} more nodes: {what}", more - NAMED),
            }
        })
    }
}

/// The right in the API server's own words: `User "x" cannot list resource "events" in API group "" at the cluster scope`.
fn missing_right(why: &ReadFailure) -> Option<String> {
    let ReadFailure::Status { status: 403, message } = why else {
        return None;
    };
    let (verb, rest) = message.split_once(" cannot ")?.1.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once('"')?;
    let (group, scope) = rest.split_once("in API group \"")?.1.split_once('"')?;
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    let scope = match scope.trim().strip_prefix("in the namespace ") {
        Some(namespace) => {
            format!("in namespace {}", namespace.trim_matches(|c: char| c == '"' || !c.is_ascii_graphic()))
        }
        None => "at the cluster scope".to_owned(),
    };
    Some(format!("{verb} {resource}{group} {scope}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(
        "events is forbidden: User \"x\" cannot list resource \"events\" in API group \"\" at the cluster scope",
        Some("list events at the cluster scope")
    )]
    #[case(
        "ciliumnodes.cilium.io \"a\" is forbidden: User \"x\" cannot get resource \"ciliumnodes\" in API group \"cilium.io\" at the cluster scope",
        Some("get ciliumnodes.cilium.io at the cluster scope")
    )]
    #[case(
        "pods \"a\" is forbidden: User \"x\" cannot get resource \"pods/exec\" in API group \"\" in the namespace \"kube-system\"",
        Some("get pods/exec in namespace kube-system")
    )]
    #[case("no", None)]
    fn the_missing_right_is_named(#[case] message: &str, #[case] right: Option<&str>) {
        let why = ReadFailure::Status { status: 403, message: message.to_owned() };
        assert_eq!(missing_right(&why).as_deref(), right);
    }

    #[test]
    fn nodes_with_the_same_trouble_share_a_line() {
        let mut notes = Notes::default();
        for node in ["a", "b", "c", "d", "d", "e"] {
            notes.on_node(node, "no agent pod");
        }
        assert_eq!(notes.lines().collect::<Vec<_>>(), ["a, b, c and 2 more nodes: no agent pod"]);
    }
}
