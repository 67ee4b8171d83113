//! Lists in pages: `limit` and `continue`, from one revision.
//!
//! Must not know: HTTP.

use serde_json::{Value, json};

use super::resource::Resource;
use super::selector::Selector;
use super::status::Status;
use super::store::{Objects, Store};

/// What a list asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    pub limit: usize,
    pub token: String,
    /// `resourceVersion` of the request.
    pub version: String,
    /// `resourceVersionMatch` of the request.
    pub version_match: String,
}

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Answers a list.
pub(crate) fn list(
    store: &Store,
    resource: &Resource,
    selector: &Selector,
    page: &Page,
) -> Result<Value, Status> {
    let (objects, revision, start) = if page.token.is_empty() {
        let (objects, revision) = first_page(store, resource, page)?;
        (objects, revision, None)
    } else {
        if !page.version.is_empty() && page.version != "0" {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (revision, start) = decode(&page.token)?;
        let (objects, revision) = match revision {
            // The server's own token for a list that may be inconsistent.
            None => store.snapshot(resource.storage),
            Some(revision) => {
                let objects = store.snapshot_at(resource.storage, revision).map_err(|_| Status {
                    continue_token: Some(encode(None, &start)),
                    ..Status::expired(EXPIRED)
                })?;
                (objects, revision)
            }
        };
        (objects, revision, Some(start))
    };
    let namespace_prefix =
        if selector.namespace.is_empty() { String::new() } else { format!("{}/", selector.namespace) };
    let mut matching = objects
        .range(start.unwrap_or_default()..)
        .filter(|(key, object)| key.starts_with(&namespace_prefix) && selector.matches(object));
    // A limit is not heeded with resource version 0: the list comes from the watch cache.
    let limit = if page.limit == 0 || (page.version == "0" && page.token.is_empty()) {
        usize::MAX
    } else {
        page.limit
    };
    let mut items = Vec::new();
    let mut last = "";
    for (key, object) in matching.by_ref().take(limit) {
        items.push(without_type(object));
        last = key;
    }
    let remaining = matching.count();
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if resource.is_custom() {
        metadata["continue"] = "".into();
    }
    if remaining > 0 {
        metadata["continue"] = encode(Some(revision), &format!("{last}\0")).into();
        if selector.is_empty() {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    Ok(
        json!({"kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(), "metadata": metadata, "items": items}),
    )
}

/// A resource version of a list, which may be empty.
fn read_version(version: &str) -> Result<u64, Status> {
    if version.is_empty() {
        return Ok(0);
    }
    let why = format!(
        "resourceVersion: Invalid value: \"{version}\": strconv.ParseUint: parsing \"{version}\": invalid syntax"
    );
    version.parse().map_err(|_| Status::bad_request(format!("invalid resource version: {why}")))
}

fn first_page(store: &Store, resource: &Resource, page: &Page) -> Result<(Objects, u64), Status> {
    let revision = read_version(&page.version)?;
    if page.version_match == "Exact" {
        let objects = store
            .snapshot_at(resource.storage, revision)
            .map_err(|_| Status::expired("The resourceVersion for the provided list is too old."))?;
        return Ok((objects, revision));
    }
    let (objects, current) = store.snapshot(resource.storage);
    if revision > current {
        return Err(Status::too_large_version(revision, current));
    }
    Ok((objects, current))
}

/// The items of a core list carry no kind and apiVersion of their own; those of custom resources do.
pub(crate) fn without_type(object: &Value) -> Value {
    let mut object = object.clone();
    let core = object
        .get("apiVersion")
        .and_then(Value::as_str)
        .is_some_and(|version| !version.starts_with("cilium.io/"));
    if let (true, Some(fields)) = (core, object.as_object_mut()) {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}

fn encode(revision: Option<u64>, start: &str) -> String {
    let revision = revision.map_or_else(|| json!(-1), |revision| json!(revision));
    base64_encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string().as_bytes())
}

fn decode(token: &str) -> Result<(Option<u64>, String), Status> {
    let invalid =
        |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid{why}"));
    let bytes = base64_decode(token).ok_or_else(|| invalid(""))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| invalid(&format!(": {error}")))?;
    if value["v"] != "meta.k8s.io/v1" {
        return Err(invalid(": server does not recognize this encoded version"));
    }
    let start = value["start"].as_str().filter(|start| !start.is_empty());
    let start =
        start.ok_or_else(|| invalid(": encoded start key empty (version meta.k8s.io/v1)"))?.to_owned();
    match value["rv"].as_i64() {
        Some(0) | None => Err(invalid(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
        Some(revision) => Ok((u64::try_from(revision).ok(), start)),
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64 for URLs without padding, as the server's tokens.
fn base64_encode(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word = (0..3)
            .fold(0_u32, |word, at| (word << 8) | u32::from(chunk.get(at).copied().unwrap_or_default()));
        for at in 0..=chunk.len() {
            let index = (word >> (18 - 6 * at)) & 63;
            out.push(char::from(ALPHABET[usize::try_from(index).unwrap_or_default()]));
        }
    }
    out
}

fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for chunk in text.as_bytes().chunks(4) {
        let mut word = 0_u32;
        for at in 0..4 {
            let six = match chunk.get(at) {
                Some(byte) => u32::try_from(ALPHABET.iter().position(|letter| letter == byte)?).ok()?,
                None => 0,
            };
            word = (word << 6) | six;
        }
        let [_, bytes @ ..] = word.to_be_bytes();
        out.extend(bytes.iter().take(chunk.len().checked_sub(1)?));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_garbage_is_a_400() {
        for start in ["a", "ab\0", "abc", "ns/name\0"] {
            assert_eq!(decode(&encode(Some(7), start)).unwrap(), (Some(7), start.to_owned()));
            assert_eq!(decode(&encode(None, start)).unwrap(), (None, start.to_owned()));
        }
        for token in ["x", "!!!!", "e30", "eyJ2IjoxfQ", "é"] {
            assert_eq!(decode(token).unwrap_err().code, 400, "{token}");
        }
    }
}
