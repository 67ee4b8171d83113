//! Patches: JSON merge patch, and the little of strategic merge and apply that clients of this simulation send.
//!
//! Must not know: the store, HTTP.

use serde_json::Value;

/// How a patch is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json` and `application/apply-patch+yaml`: known lists merge by their key.
    Strategic,
}

/// The style for a content type, without its parameters.
pub(crate) fn style(content_type: &str) -> Option<Style> {
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/merge-patch+json" => Some(Style::Merge),
        "application/strategic-merge-patch+json"
        | "application/apply-patch+yaml"
        | "application/apply-patch+cbor" => Some(Style::Strategic),
        _ => None,
    }
}

/// Lists that strategic merge joins by a key: `patchMergeKey` in the types of core/v1.
const KEYED_LISTS: [(&str, &str); 5] = [
    ("conditions", "type"),
    ("podIPs", "ip"),
    ("containers", "name"),
    ("ownerReferences", "uid"),
    ("addresses", "type"),
];

/// Applies a patch.
pub(crate) fn apply(target: &mut Value, patch: &Value, style: Style) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
            continue;
        }
        let merge_key = KEYED_LISTS.iter().find(|(list, _)| list == name).map(|(_, key)| *key);
        let slot = target.entry(name.clone()).or_insert(Value::Null);
        match (style, merge_key, slot.as_array_mut(), value.as_array()) {
            (Style::Strategic, Some(key), Some(old), Some(new)) => merge_lists(old, new, key),
            _ => apply(slot, value, style),
        }
    }
}

fn merge_lists(old: &mut Vec<Value>, new: &[Value], key: &str) {
    for item in new {
        match old.iter_mut().find(|present| present.get(key).is_some() && present.get(key) == item.get(key)) {
            Some(present) => apply(present, item, Style::Strategic),
            None => old.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_replaces_lists_and_strategic_joins_conditions() {
        let old = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}], "podIP": "x"}});
        let patch = json!({"status": {"conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}], "podIP": null}});
        let mut merged = old.clone();
        apply(&mut merged, &patch, Style::Strategic);
        assert_eq!(
            merged,
            json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}]}})
        );
        let mut replaced = old;
        apply(&mut replaced, &json!({"status": {"conditions": []}}), Style::Merge);
        assert_eq!(replaced["status"]["conditions"], json!([]));
    }
}
