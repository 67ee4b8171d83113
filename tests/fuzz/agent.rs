//! Rules of the decoders of the agent's answers: nothing comes out that is not in the body, and no holder from what is
//! no endpoint.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cilium_leak_healer::cilium::{
    AgentConfig, Allocations, ConfigModel, DbgOutput, EndpointModel, dbg_endpoint, dbg_endpoint_log,
    dbg_endpoints, dbg_ipam_mode, log_entries,
};
use cilium_leak_healer::domain::{AttachmentId, ContainerId, Holder, parse_ip};
use serde_json::Value;

use super::reader::Checked;

pub(crate) const WORDS: &[&str] = &[
    "id",
    "status",
    "external-identifiers",
    "cni-attachment-id",
    "container-id",
    "k8s-namespace",
    "k8s-pod-name",
    "controllers",
    "resolve-labels-tenant-a/pod-a",
    "security-relevant",
    "reserved:ingress",
    "reserved:init",
    "k8s:io.kubernetes.pod.namespace=tenant-b",
    "10.244.1.50",
    "fd00::1",
    "::ffff:10.244.1.50",
    "null",
    "[]",
    "{}",
    "\"",
    ",",
    "ipam",
    "allocations",
    "ipam-mode",
    "IPAM",
    "eni",
    "installUplinkRoutesForDelegatedIPAM",
    "true",
    "0001-01-01T00:00:00Z",
    "yesterday",
    "Using config file: x\n",
    "Error: Cannot get endpoint ipv4:10.244.1.50: [GET /endpoint/{id}][404] getEndpointIdNotFound",
    "Cannot get endpoint ipv4:10.244.1.51",
    "[503]",
];

/// What the look-ups through the command line ask for.
const ASKED: &str = "10.244.1.50";
const NOT_FOUND: &str =
    "Error: Cannot get endpoint ipv4:10.244.1.50: [GET /endpoint/{id}][404] getEndpointIdNotFound";

fn rule(holds: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken()) }
}

pub(crate) fn check(body: &[u8]) -> Checked {
    // What no rule reads is skipped unseen, so it may hold what is no text and no number.
    let value = serde_json::from_str::<Value>(&String::from_utf8_lossy(body)).ok();
    let value = value.as_ref();
    if value.is_none() {
        return command_line(body, value).map(|()| false);
    }
    let taken = [endpoint(body, value)?, log(body, value)?, config(body, value)?, allocations(body, value)?];
    command_line(body, value)?;
    Ok(taken.contains(&true))
}

/// All texts of a document, keys as well.
fn texts<'a>(value: &'a Value, all: &mut BTreeSet<&'a str>) {
    match value {
        Value::String(text) => drop(all.insert(text)),
        Value::Array(items) => items.iter().for_each(|item| texts(item, all)),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            all.insert(key);
            texts(value, all);
        }),
        _ => {}
    }
}

fn texts_of(value: &Value) -> BTreeSet<&str> {
    let mut all = BTreeSet::new();
    texts(value, &mut all);
    all
}

fn endpoint(body: &[u8], value: Option<&Value>) -> Checked {
    let Ok(model) = EndpointModel::from_slice(body) else {
        return Ok(false);
    };
    let value = value.ok_or("an endpoint from what is no JSON")?;
    let holder = model.to_holder(model.log_entries());
    let id = value.get("id").and_then(Value::as_i64);
    rule(holder.is_ok() == id.is_some(), || format!("{holder:?} from the id {id:?}"))?;
    let Ok(holder) = holder else {
        return Ok(false);
    };
    rule(id == Some(holder.id.0), || format!("the id is {id:?}, not {:?}", holder.id))?;
    is_in(&holder, &texts_of(value))?;
    // What a snapshot keeps of it says the same to each rule.
    let kept = serde_json::to_value(&model).map_err(|error| error.to_string())?;
    let again = EndpointModel::from_value(kept).map_err(|error| format!("what was kept: {error}"))?;
    let again = again.to_holder(again.log_entries()).map_err(|error| format!("what was kept: {error}"))?;
    let says = |it: &Holder| {
        let telling = (it.reserved_label().map(str::to_owned), it.namespace_label().map(str::to_owned));
        let bare = Holder { labels: Vec::new(), controllers: Vec::new(), ..it.clone() };
        (telling, it.owner_by_agent(), bare)
    };
    rule(says(&holder) == says(&again), || format!("kept, {holder:?} is {again:?}"))?;
    Ok(true)
}

/// Each fact of a holder is a text of the answer.
fn is_in(holder: &Holder, texts: &BTreeSet<&str>) -> Result<(), String> {
    let told: BTreeSet<IpAddr> = texts.iter().filter_map(|text| parse_ip(text)).collect();
    for ip in &holder.addresses {
        rule(told.contains(ip), || format!("{ip} is not in the answer"))?;
    }
    let attachment = holder.attachment.as_ref().map(AttachmentId::as_str);
    let container = holder.container_field.as_ref().map(ContainerId::as_str);
    let parts = holder.named.as_ref().map(|name| [name.namespace(), name.name()]);
    let labels = holder.labels.iter().chain(&holder.controllers).map(String::as_str);
    for text in attachment.into_iter().chain(container).chain(parts.into_iter().flatten()).chain(labels) {
        rule(texts.contains(text), || format!("{text:?} is not in the answer"))?;
    }
    Ok(())
}

/// A log is read whole or not at all.
fn log(body: &[u8], value: Option<&Value>) -> Checked {
    let Ok(models) = dbg_endpoint_log(&DbgOutput { code: 0, stdout: body, stderr: b"" }) else {
        return Ok(false);
    };
    // Behind the line about a configuration file.
    let Some(value) = value else {
        return Ok(true);
    };
    let times: Vec<&str> = value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("timestamp").and_then(Value::as_str))
        .filter(|time| !time.is_empty() && !time.starts_with("0001-01-01T"))
        .collect();
    let parsed: Option<Vec<jiff::Timestamp>> = times.iter().map(|time| time.parse().ok()).collect();
    let models: Vec<_> = models.into_iter().map(Some).collect();
    let entries = log_entries(&models);
    let read = entries.map(|entries| entries.iter().map(|entry| entry.at).collect::<Vec<_>>());
    rule(read == parsed, || format!("the times {times:?} were read as {read:?}"))?;
    Ok(read.is_some_and(|read| !read.is_empty()))
}

fn config(body: &[u8], value: Option<&Value>) -> Checked {
    let slim = serde_json::from_slice::<ConfigModel>(body).ok();
    let Ok(config) = AgentConfig::from_slice(body) else {
        return Ok(false);
    };
    let said = |path: &str| value.and_then(|value| value.pointer(path));
    let mode = said("/status/ipam-mode").and_then(Value::as_str).filter(|mode| !mode.is_empty());
    let read = config.ipam_mode.as_ref().map(|mode| mode.0.as_str());
    rule(read == mode, || format!("the IPAM mode {mode:?} was read as {read:?}"))?;
    rule(slim.and_then(|slim| slim.ipam_mode()) == config.ipam_mode, || {
        "two readers, two IPAM modes".to_owned()
    })?;
    let is_off =
        |path: &str| said(path).is_none_or(|value| matches!(value, Value::Null | Value::Bool(false)));
    let off = is_off("/status/installUplinkRoutesForDelegatedIPAM")
        && is_off("/status/daemonConfigurationMap/InstallUplinkRoutesForDelegatedIPAM");
    rule(config.uplink_routes != off, || "uplink routes count as off without a word of it".to_owned())?;
    Ok(config.ipam_mode.is_some())
}

fn allocations(body: &[u8], value: Option<&Value>) -> Checked {
    let Ok(allocations) = Allocations::from_slice(body) else {
        return Ok(false);
    };
    let ipam = value.and_then(|value| value.get("ipam"));
    rule(ipam.is_some_and(Value::is_object), || "allocations without ipam".to_owned())?;
    let map = ipam.and_then(|ipam| ipam.get("allocations")).and_then(Value::as_object);
    let mut any = false;
    for (key, owner) in map.into_iter().flatten() {
        let address = key.rsplit('/').next().unwrap_or_default();
        let owner = owner.as_str().unwrap_or_default();
        if let Some(ip) = parse_ip(address) {
            any = true;
            let owners = allocations.owners(ip);
            rule(owners.iter().any(|it| it == owner), || format!("{key} has {owners:?}, not {owner:?}"))?;
        }
    }
    rule(allocations.is_empty() != any, || "allocations that are not in the answer".to_owned())?;
    Ok(any)
}

/// The same body as what the agent's command line has written.
fn command_line(body: &[u8], value: Option<&Value>) -> Result<(), String> {
    let ip = parse_ip(ASKED).ok_or("an address")?;
    for (code, stdout, stderr) in [
        (0, body, &b""[..]),
        (1, b"", body),
        (1, body, NOT_FOUND.as_bytes()),
        (0, b"", body),
        (137, b"", body),
    ] {
        let output = DbgOutput { code, stdout, stderr };
        let told = || format!("exit status {code}");
        match dbg_endpoint(ip, &output) {
            Ok(None) => {
                let words = stderr.trim_ascii() == NOT_FOUND.as_bytes() && stdout.trim_ascii().is_empty();
                rule(code == 1 && words, || format!("{}: nobody holds it, by other words", told()))?;
            }
            Ok(Some(model)) => {
                rule(code == 0 && model.id().is_some(), || format!("{}: {model:?}", told()))?;
                let one = value.is_none_or(|value| value.as_array().is_some_and(|all| all.len() == 1));
                rule(one, || format!("{}: {model:?} from a list that is not of one", told()))?;
            }
            Err(_) => {}
        }
        if let Ok(models) = dbg_endpoints(&output) {
            let ids = models.iter().all(|model| model.id().is_some());
            rule(code == 0 && ids, || format!("{}: {models:?}", told()))?;
        }
        if let Ok(entries) = dbg_endpoint_log(&output) {
            let entries: Vec<_> = entries.into_iter().map(Some).collect();
            rule(code == 0 && log_entries(&entries).is_some(), || format!("{}: {entries:?}", told()))?;
        }
        if let Ok(mode) = dbg_ipam_mode(&output) {
            let said = value.is_none_or(|value| texts_of(value).contains(mode.0.as_str()));
            rule(code == 0 && !mode.0.is_empty() && said, || format!("{}: the mode {mode:?}", told()))?;
        }
    }
    Ok(())
}
