//! A snapshot that can be shown to strangers: every name, id and address is replaced, and every rule still says the same.
//!
//! Two equal things stay equal, wherever they stand; names keep their order; a CIDR keeps its members. What replaces
//! what follows from the whole content, so that the same file always gives the same, and nobody without it can turn it
//! back.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::address::AddressMap;
use super::fields::{
    ENDPOINT, EVENT, FAILURE, Kind, METADATA, MODEL, NODE, POD, SLICE, Table, UNREAD_NODE, UNREAD_OTHER, walk,
};
use super::file::{Problem, SnapshotError};
use super::format::{Agent, Snapshot};
use super::text::{Replacements, scrub};
use super::whole::is_interface;
use crate::domain::{AttachmentId, ContainerId, NodeName, PodName, PodUid, parse_ip, sandbox_ids};

const RESOLVE_LABELS: &str = "resolve-labels-";
const NAMESPACE_LABEL: &str = "k8s:io.kubernetes.pod.namespace=";

impl Snapshot {
    /// The same cluster under other names, ids and addresses; what people wrote about it is left out.
    pub fn anonymize(mut self) -> Result<Self, SnapshotError> {
        self.description = None;
        self.source = None;
        self.expect = None;
        let mut census = Census::default();
        self.each(&mut |kind, text| census.count(kind, text))?;
        let names = Names::of(census);
        self.each(&mut |kind, text| *text = names.replace(kind, text))?;
        Ok(self)
    }

    /// Shows every text that is no word of an API.
    fn each(&mut self, f: &mut dyn FnMut(Kind, &mut String)) -> Result<(), SnapshotError> {
        let cluster = &mut self.cluster;
        edit(&mut cluster.pods, |_| vec![METADATA, POD], f)?;
        edit(&mut cluster.events, |_| vec![METADATA, EVENT], f)?;
        edit(&mut cluster.nodes, |_| vec![NODE], f)?;
        edit(&mut cluster.cilium_nodes, |_| vec![METADATA, NODE], f)?;
        if let Some(endpoints) = &mut cluster.cilium_endpoints {
            edit(endpoints, |_| vec![METADATA, ENDPOINT], f)?;
        }
        if let Some(slices) = &mut cluster.cilium_endpoint_slices {
            edit(slices, |_| vec![METADATA, SLICE], f)?;
        }
        let of_node = |value: &Value| {
            let resource = value.get("resource").and_then(Value::as_str);
            vec![if matches!(resource, Some("nodes" | "ciliumnodes")) { UNREAD_NODE } else { UNREAD_OTHER }]
        };
        edit(&mut cluster.unreadable, of_node, f)?;
        let agents = std::mem::take(&mut self.agents);
        for (mut node, mut agent) in agents {
            f(Kind::Node, &mut node);
            edit(&mut agent.endpoints, |_| vec![MODEL], f)?;
            edit(&mut agent.failures, |_| vec![FAILURE], f)?;
            self.agents.insert(node, Agent { config: agent.config, ..agent });
        }
        Ok(())
    }
}

/// Edits one object after the other: the whole as JSON would need a multiple of the memory.
fn edit<T: Serialize + DeserializeOwned>(
    objects: &mut [T],
    tables: impl Fn(&Value) -> Vec<Table>,
    f: &mut dyn FnMut(Kind, &mut String),
) -> Result<(), SnapshotError> {
    for object in objects {
        let mut value = serde_json::to_value(&*object).map_err(Problem::Anonymize)?;
        // The rules read only what a failure says.
        let is_read = value.get("reason").is_none_or(|reason| reason == "FailedCreatePodSandBox");
        if !is_read && let Some(map) = value.as_object_mut() {
            map.remove("message");
        }
        for (path, kind) in tables(&value).into_iter().flatten() {
            walk(&mut value, path, &mut |text| f(*kind, text));
        }
        *object = serde_json::from_value(value).map_err(Problem::Anonymize)?;
    }
    Ok(())
}

/// All that is there, by what it is.
#[derive(Default)]
struct Census {
    texts: BTreeMap<Kind, BTreeSet<String>>,
    interfaces: BTreeSet<String>,
}

impl Census {
    fn add(&mut self, kind: Kind, text: &str) {
        let texts = self.texts.entry(kind).or_default();
        if !text.is_empty() && !texts.contains(text) {
            texts.insert(text.to_owned());
        }
    }

    fn count(&mut self, kind: Kind, text: &str) {
        match kind {
            Kind::Attachment => {
                let (container, interface) = text.split_once(':').unwrap_or((text, ""));
                self.add(Kind::Container, container);
                self.interfaces.insert(interface.to_owned());
            }
            Kind::Controller => {
                if let Some((namespace, name)) =
                    text.strip_prefix(RESOLVE_LABELS).and_then(|it| it.split_once('/'))
                {
                    self.add(Kind::Namespace, namespace);
                    self.add(Kind::Name, name);
                }
            }
            Kind::Label => self.add(Kind::Namespace, text.strip_prefix(NAMESPACE_LABEL).unwrap_or_default()),
            Kind::Message => {
                for id in sandbox_ids(text) {
                    self.add(Kind::Container, id.as_str());
                }
            }
            Kind::CallId => match text.split_once(':') {
                Some(("cni-attachment-id", id)) => self.count(Kind::Attachment, id),
                Some(("container-id", id)) => self.add(Kind::Container, id),
                _ => {}
            },
            Kind::App => self.add(Kind::Name, text),
            kind => self.add(kind, text),
        }
    }
}

/// What replaces what.
struct Names {
    maps: BTreeMap<Kind, BTreeMap<String, String>>,
    addresses: AddressMap,
    key: u64,
}

impl Names {
    fn of(mut census: Census) -> Self {
        // The CiliumEndpoint of a pod is called as the pod, that of a further interface as both.
        let endpoints = census.texts.remove(&Kind::EndpointName).unwrap_or_default();
        let pods = census.texts.entry(Kind::Name).or_default();
        let mut composed = Vec::new();
        let mut own = Vec::new();
        for endpoint in endpoints {
            let split = endpoint
                .rsplit_once('-')
                .filter(|(_, interface)| is_interface(interface) || census.interfaces.contains(*interface));
            match split {
                Some((pod, interface)) if !pods.contains(&endpoint) => {
                    composed.push((endpoint.clone(), pod.to_owned(), interface.to_owned()));
                    own.push(pod.to_owned());
                }
                _ => own.push(endpoint),
            }
        }
        pods.extend(own);
        let mut hasher = DefaultHasher::new();
        census.texts.hash(&mut hasher);
        let key = hasher.finish();
        let mut maps: BTreeMap<Kind, BTreeMap<String, String>> = BTreeMap::new();
        for (kind, texts) in census.texts {
            let digits = texts.len().to_string().len();
            let number = |(at, text): (usize, String)| {
                let new = numbered(kind, &text, at, digits, key);
                (text, new)
            };
            maps.insert(kind, texts.into_iter().enumerate().map(number).collect());
        }
        let names = maps.get(&Kind::Name).cloned().unwrap_or_default();
        let composed = composed.into_iter().filter_map(|(endpoint, pod, interface)| {
            Some((endpoint, format!("{}-{interface}", names.get(&pod)?)))
        });
        maps.insert(Kind::EndpointName, composed.collect());
        Self { maps, addresses: AddressMap::new(key), key }
    }

    fn get(&self, kind: Kind, text: &str) -> Option<&String> {
        self.maps.get(&kind)?.get(text)
    }

    fn of_kind(&self, kind: Kind, text: &str) -> String {
        self.get(kind, text).cloned().unwrap_or_else(|| "?".to_owned())
    }

    fn replace(&self, kind: Kind, text: &str) -> String {
        match kind {
            Kind::Name | Kind::Namespace | Kind::Node | Kind::Uid | Kind::Container => {
                self.of_kind(kind, text)
            }
            Kind::EndpointName => {
                let composed = self.get(Kind::EndpointName, text);
                composed.cloned().unwrap_or_else(|| self.of_kind(Kind::Name, text))
            }
            Kind::Attachment => self.attachment(text),
            Kind::Address => parse_ip(text).map_or_else(|| "no-address".to_owned(), |ip| self.address(ip)),
            Kind::Addresses => {
                let each = text.split(',').map(|part| self.replace(Kind::Address, part.trim()));
                each.collect::<Vec<_>>().join(",")
            }
            Kind::Network => self.network(text).unwrap_or_else(|| "no-network".to_owned()),
            Kind::Message => scrub(text, self),
            Kind::Controller => {
                let named = text.strip_prefix(RESOLVE_LABELS).and_then(|it| it.split_once('/'));
                let (namespace, name) = named.unwrap_or_default();
                let (namespace, name) = (self.part(Kind::Namespace, namespace), self.part(Kind::Name, name));
                format!("{RESOLVE_LABELS}{namespace}/{name}")
            }
            Kind::Label => match text.strip_prefix(NAMESPACE_LABEL) {
                Some(namespace) => format!("{NAMESPACE_LABEL}{}", self.part(Kind::Namespace, namespace)),
                None => text.to_owned(),
            },
            Kind::CallId => self.call_id(text),
            Kind::App if matches!(text, "cilium" | "cilium-agent") => text.to_owned(),
            Kind::App => self.of_kind(Kind::Name, text),
            Kind::Component if text == "kubelet" => text.to_owned(),
            Kind::Component => "component".to_owned(),
            Kind::Dull => "x".to_owned(),
        }
    }

    fn part(&self, kind: Kind, text: &str) -> String {
        if text.is_empty() { String::new() } else { self.of_kind(kind, text) }
    }

    fn attachment(&self, text: &str) -> String {
        if text.parse::<AttachmentId>().is_err() {
            return format!("?{:x}", self.hash(text));
        }
        match text.split_once(':') {
            Some((container, interface)) => {
                format!("{}:{interface}", self.of_kind(Kind::Container, container))
            }
            None => self.of_kind(Kind::Container, text),
        }
    }

    fn network(&self, text: &str) -> Option<String> {
        let (ip, len) = text.split_once('/')?;
        let (ip, len) = (parse_ip(ip)?, len.parse::<u32>().ok()?);
        (len <= if ip.is_ipv4() { 32 } else { 128 })
            .then(|| format!("{}/{len}", self.addresses.map_network(ip, len)))
    }

    fn call_id(&self, text: &str) -> String {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text.to_owned();
        }
        match text.split_once(':') {
            Some((family @ ("ipv4" | "ipv6"), ip)) => format!("{family}:{}", self.replace(Kind::Address, ip)),
            Some(("cni-attachment-id", id)) => format!("cni-attachment-id:{}", self.attachment(id)),
            Some(("container-id", id)) => format!("container-id:{}", self.of_kind(Kind::Container, id)),
            _ => format!("?{:x}", self.hash(text)),
        }
    }

    fn hash(&self, text: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.key, text).hash(&mut hasher);
        hasher.finish()
    }
}

impl Replacements for Names {
    fn address(&self, ip: IpAddr) -> String {
        self.addresses.map(ip).to_string()
    }

    fn sandbox(&self, id: &str) -> String {
        self.of_kind(Kind::Container, id)
    }

    fn known(&self, word: &str) -> Option<String> {
        let kinds = [Kind::Container, Kind::Uid, Kind::Name, Kind::EndpointName, Kind::Namespace, Kind::Node];
        kinds.into_iter().find_map(|kind| self.get(kind, word)).cloned()
    }
}

/// The replacement of the text that stands at this place of its kind. What is no name, UID or id stays none.
fn numbered(kind: Kind, text: &str, at: usize, digits: usize, key: u64) -> String {
    let at = at + 1;
    let proper = match kind {
        Kind::Namespace | Kind::Name => PodName::new(text, text).is_ok(),
        Kind::Node => text.parse::<NodeName>().is_ok(),
        Kind::Uid => text.parse::<PodUid>().is_ok(),
        Kind::Container => text.parse::<ContainerId>().is_ok(),
        _ => true,
    };
    if !proper {
        return format!("?{at}");
    }
    match kind {
        Kind::Namespace => format!("namespace-{at:0digits$}"),
        Kind::Node => format!("node-{at:0digits$}"),
        Kind::Uid => format!("00000000-0000-4000-8000-{at:012}"),
        Kind::Container if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) => {
            let part = |salt: u8| {
                let mut hasher = DefaultHasher::new();
                (key, salt, text).hash(&mut hasher);
                hasher.finish()
            };
            format!("{:016x}{:016x}{:016x}{at:016x}", part(0), part(1), part(2))
        }
        Kind::Container => format!("container-{at:0digits$}"),
        _ => format!("name-{at:0digits$}"),
    }
}
