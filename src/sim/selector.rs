//! Field and label selectors, with the API server's wordings for what it cannot read.
//!
//! Must not know: the store, HTTP.

use serde_json::Value;

use super::resource::{Resource, text};
use super::status::Status;

/// What a list or a watch asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    pub namespace: String,
    fields: Vec<FieldTerm>,
    labels: Vec<LabelTerm>,
}

#[derive(Debug, Clone)]
struct FieldTerm {
    field: String,
    value: String,
    equal: bool,
}

#[derive(Debug, Clone)]
struct LabelTerm {
    key: String,
    rule: LabelRule,
}

#[derive(Debug, Clone)]
enum LabelRule {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Selector {
    /// Reads both selectors for a resource. An unknown field label is a 400, as is a selector that cannot be read.
    pub(crate) fn parse(
        resource: &Resource,
        namespace: &str,
        fields: &str,
        labels: &str,
    ) -> Result<Self, Status> {
        Ok(Self {
            namespace: namespace.to_owned(),
            fields: parse_fields(resource, fields)?,
            labels: parse_labels(labels)?,
        })
    }

    /// Whether the object belongs to the answer.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        (self.namespace.is_empty() || text(object, "/metadata/namespace") == self.namespace)
            && self.fields.iter().all(|term| (field_value(object, &term.field) == term.value) == term.equal)
            && self.labels.iter().all(|term| term.matches(object))
    }

    /// Whether neither fields nor labels narrow the answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.labels.is_empty()
    }
}

fn parse_fields(resource: &Resource, selector: &str) -> Result<Vec<FieldTerm>, Status> {
    let mut terms = Vec::new();
    for part in selector.split(',').filter(|part| !part.is_empty()) {
        let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
            (field, value, false)
        } else if let Some((field, value)) = part.split_once("==") {
            (field, value, true)
        } else if let Some((field, value)) = part.split_once('=') {
            (field, value, true)
        } else {
            return Err(Status::bad_request(format!(
                "invalid selector: '{selector}'; can't understand '{part}'"
            )));
        };
        if !field_known(resource, field) {
            return Err(Status::bad_request(format!("field label not supported: {field}")));
        }
        terms.push(FieldTerm { field: field.to_owned(), value: value.to_owned(), equal });
    }
    Ok(terms)
}

fn field_known(resource: &Resource, field: &str) -> bool {
    let own: &[&str] = match resource.kind {
        "Pod" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        "Event" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "Node" => &["spec.unschedulable"],
        "Namespace" => &["status.phase"],
        _ => &[],
    };
    field == "metadata.name" || (field == "metadata.namespace" && resource.namespaced) || own.contains(&field)
}

/// The value that the API server compares, which is not always the field's own.
fn field_value(object: &Value, field: &str) -> String {
    match field {
        // Only the first of podIPs, and never podIP itself.
        "status.podIP" => text(object, "/status/podIPs/0/ip").to_owned(),
        // Convertible, but in nobody's set of fields.
        "status.podIPs" => String::new(),
        "spec.hostNetwork" | "spec.unschedulable" => {
            let pointer = format!("/{}", field.replace('.', "/"));
            object.pointer(&pointer).and_then(Value::as_bool).unwrap_or_default().to_string()
        }
        "source" => {
            let component = text(object, "/source/component");
            if component.is_empty() { text(object, "/reportingComponent") } else { component }.to_owned()
        }
        _ => text(object, &format!("/{}", field.replace('.', "/"))).to_owned(),
    }
}

fn parse_labels(selector: &str) -> Result<Vec<LabelTerm>, Status> {
    let unreadable =
        || Status::bad_request(format!("unable to parse requirement: invalid label selector '{selector}'"));
    let mut terms = Vec::new();
    for part in split_outside_parentheses(selector) {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        let (key, rule) = if let Some(list) = part.strip_suffix(')') {
            let (head, values) = list.split_once('(').ok_or_else(unreadable)?;
            let values = values.split(',').map(|value| value.trim().to_owned()).collect();
            let head = head.trim();
            if let Some(key) = head.strip_suffix(" notin") {
                (key, LabelRule::NotIn(values))
            } else {
                (head.strip_suffix(" in").ok_or_else(unreadable)?, LabelRule::In(values))
            }
        } else if let Some((key, value)) = part.split_once("!=") {
            (key, LabelRule::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (key, LabelRule::In(vec![value.trim().to_owned()]))
        } else if let Some(key) = part.strip_prefix('!') {
            (key, LabelRule::Absent)
        } else {
            (part, LabelRule::Exists)
        };
        let key = key.trim();
        if key.is_empty() && part.starts_with('=') {
            return Err(Status::bad_request("found '=', expected: !, identifier, or 'end of string'"));
        }
        if let (Some((_, operand)), LabelRule::Exists) = (key.split_once(" in "), &rule) {
            let why = format!("unable to parse requirement: found '{operand}' expected: '('");
            return Err(Status::bad_request(why));
        }
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c)) {
            return Err(unreadable());
        }
        terms.push(LabelTerm { key: key.to_owned(), rule });
    }
    Ok(terms)
}

fn split_outside_parentheses(selector: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_u32);
    for (at, c) in selector.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&selector[start..]);
    parts
}

impl LabelTerm {
    fn matches(&self, object: &Value) -> bool {
        let value = object
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(&self.key))
            .and_then(Value::as_str);
        match (&self.rule, value) {
            (LabelRule::In(values), Some(value)) => values.iter().any(|v| v == value),
            (LabelRule::In(_) | LabelRule::Exists, None) | (LabelRule::Absent, Some(_)) => false,
            (LabelRule::NotIn(values), Some(value)) => !values.iter().any(|v| v == value),
            (LabelRule::NotIn(_) | LabelRule::Absent, None) | (LabelRule::Exists, Some(_)) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::resource::{CILIUM_NODES, EVENTS, PODS};
    use super::*;

    #[rstest]
    #[case::node("spec.nodeName=n1", "", true)]
    #[case::other_node("spec.nodeName=n2", "", false)]
    #[case::not("spec.nodeName!=n2,metadata.name==p", "", true)]
    #[case::first_pod_ip("status.podIP=10.0.0.1", "", true)]
    #[case::second_pod_ip("status.podIP=fd00::1", "", false)]
    #[case::host_network_absent_is_false("spec.hostNetwork=false", "", true)]
    #[case::equal("", "app=db", true)]
    #[case::set("", "app in (web, db),!gone", true)]
    #[case::not_in("", "app notin (db)", false)]
    #[case::exists("", "app,tier", false)]
    fn pods(#[case] fields: &str, #[case] labels: &str, #[case] expected: bool) {
        let pod = json!({"metadata": {"name": "p", "namespace": "a", "labels": {"app": "db"}}, "spec": {"nodeName": "n1"},
            "status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}});
        assert_eq!(Selector::parse(&PODS, "a", fields, labels).unwrap().matches(&pod), expected);
    }

    #[test]
    fn what_cannot_be_read_is_a_400_in_the_servers_words() {
        let status = Selector::parse(&PODS, "", "spec.nodename=n1", "").unwrap_err();
        assert_eq!((status.code, status.message.as_str()), (400, "field label not supported: spec.nodename"));
        let status = Selector::parse(&CILIUM_NODES, "", "spec.x=1", "").unwrap_err();
        assert_eq!(status.message, "field label not supported: spec.x");
        let status = Selector::parse(&EVENTS, "", "reason", "").unwrap_err();
        assert_eq!(status.message, "invalid selector: 'reason'; can't understand 'reason'");
        assert_eq!(Selector::parse(&PODS, "", "", "a in b)").unwrap_err().code, 400);
        assert_eq!(Selector::parse(&PODS, "", "", "=x").unwrap_err().code, 400);
    }
}
