//! The agent's endpoints in memory, found as the real endpoint manager finds them, and refused as it refuses.
//!
//! Must not know: HTTP, JSON models, rate limits.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use jiff::Timestamp;

use super::clock::Random;
use super::endpoint::{AgentVersion, Endpoint, EndpointSpec, REGENERATION_EVERY, Reserved, identity};

/// Why an id was not looked up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidId(String);

/// The endpoints of one agent.
#[derive(Debug)]
pub(crate) struct Registry {
    pub version: AgentVersion,
    pub by_id: BTreeMap<u16, Endpoint>,
    /// `ipv4:10.0.0.1` and all other ids with a prefix.
    references: HashMap<String, u16>,
}

impl Registry {
    pub(crate) fn new(version: AgentVersion) -> Self {
        Self { version, by_id: BTreeMap::new(), references: HashMap::new() }
    }

    /// Finds an endpoint by the id of a request.
    pub(crate) fn lookup(&self, id: &str) -> Result<Option<u16>, InvalidId> {
        let (prefix, rest) = id.split_once(':').unwrap_or(("cilium-local", id));
        let old = self.version < AgentVersion::V1_20;
        let known = match prefix {
            "cilium-local" => return self.lookup_number(rest),
            "cilium-global" => return Err(InvalidId("unsupported IP address format".to_owned())),
            "ipv4" | "ipv6" => true,
            "cni-attachment-id" | "cep-name" => self.version > AgentVersion::V1_14,
            "container-id" | "container-name" | "docker-endpoint" | "pod-name" => old,
            _ => false,
        };
        if !known {
            return Err(InvalidId(format!("unknown endpoint ID prefix \"{prefix}\"")));
        }
        Ok(self.references.get(&format!("{prefix}:{rest}")).copied())
    }

    fn lookup_number(&self, text: &str) -> Result<Option<u16>, InvalidId> {
        let invalid = || {
            InvalidId(format!(
                "invalid numeric cilium id: strconv.ParseInt: parsing \"{text}\": invalid syntax"
            ))
        };
        let number: i64 = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => i64::from_str_radix(hex, 16).map_err(|_| invalid())?,
            None => text.parse().map_err(|_| invalid())?,
        };
        if number < 0 {
            return Err(InvalidId("invalid numeric cilium id: %!w(<nil>)".to_owned()));
        }
        let id = u16::try_from(number).map_err(|_| InvalidId(format!("endpoint id too large: {number}")))?;
        Ok(self.by_id.contains_key(&id).then_some(id))
    }

    pub(crate) fn by_address(&self, address: IpAddr) -> Option<&Endpoint> {
        let reference = match address {
            IpAddr::V4(address) => format!("ipv4:{address}"),
            IpAddr::V6(address) => format!("ipv6:{address}"),
        };
        self.by_id.get(self.references.get(&reference)?)
    }

    /// Refuses as the agent's `CreateEndpoint` does, in its order.
    pub(crate) fn check(&self, spec: &EndpointSpec) -> Result<(), String> {
        if let Some(id) = spec.id.filter(|id| self.by_id.contains_key(id)) {
            return Err(format!("endpoint ID {id} already exists"));
        }
        let attachment = spec.attachment_id();
        let (prefix, what) = match self.version {
            AgentVersion::V1_14 => {
                ("container-id", format!("endpoint for container {attachment} already exists"))
            }
            _ => ("cni-attachment-id", format!("endpoint for CNI attachment ID {attachment} already exists")),
        };
        let reference = if self.version == AgentVersion::V1_14 { &spec.container_id } else { &attachment };
        if !attachment.is_empty() && self.references.contains_key(&format!("{prefix}:{reference}")) {
            return Err(what);
        }
        for id in addresses(spec) {
            if self.references.contains_key(&id) {
                return Err(format!("IP {id} is already in use"));
            }
        }
        if let Some(label) = spec.labels.iter().find(|label| label.starts_with("reserved:")) {
            return Err(format!("not allowed to add reserved labels: [{label}]"));
        }
        Ok(())
    }

    /// Adds an endpoint, unchecked. `pod` is its pod as the API server shows it.
    pub(crate) fn add(
        &mut self,
        spec: EndpointSpec,
        reserved: Option<Reserved>,
        pod: Option<&serde_json::Value>,
        now: Timestamp,
        random: &Random,
    ) -> u16 {
        let id = spec.id.unwrap_or_else(|| self.free_id(random));
        let (identity, labels) = identity(&spec, reserved, pod);
        let created = spec.created.unwrap_or(now);
        let mac = random.hex(10);
        let mac = format!("0a:{}:{}:{}:{}:{}", &mac[..2], &mac[2..4], &mac[4..6], &mac[6..8], &mac[8..]);
        let mut endpoint = Endpoint {
            id,
            reserved,
            identity,
            labels,
            state: String::new(),
            log: Vec::new(),
            created,
            restored: false,
            pod_unknown: pod.is_none() && !spec.pod.is_empty(),
            cep_uid: None,
            cep_failures: 0,
            mac,
            controller_uuids: std::array::from_fn(|_| random.uuid()),
            next_regeneration: created.checked_add(REGENERATION_EVERY).unwrap_or(created),
            spec,
        };
        endpoint.write_log(created, "waiting-for-identity", "Endpoint creation");
        endpoint.write_log(created, "ready", "Set identity for this endpoint");
        endpoint.regenerate(created, "LabelsUpdate", "LabelsUpdate: updated security labels");
        self.insert(endpoint);
        id
    }

    /// Puts an endpoint and its references; the newest of a pod's name has the alias.
    pub(crate) fn insert(&mut self, endpoint: Endpoint) {
        for reference in self.references_of(&endpoint) {
            self.references.insert(reference, endpoint.id);
        }
        self.by_id.insert(endpoint.id, endpoint);
    }

    /// Removes an endpoint and its references, also an alias that another endpoint of the pod's name had taken.
    pub(crate) fn remove(&mut self, id: u16) -> Option<Endpoint> {
        let endpoint = self.by_id.remove(&id)?;
        for reference in self.references_of(&endpoint) {
            self.references.remove(&reference);
        }
        Some(endpoint)
    }

    fn references_of(&self, endpoint: &Endpoint) -> Vec<String> {
        let spec = &endpoint.spec;
        let mut references = addresses(spec);
        let mut add = |prefix: &str, value: &str| {
            if !value.is_empty() {
                references.push(format!("{prefix}:{value}"));
            }
        };
        if self.version > AgentVersion::V1_14 {
            add("cni-attachment-id", &spec.attachment_id());
            add("cep-name", &spec.pod_key());
        }
        if self.version < AgentVersion::V1_20 && spec.legacy_identifiers {
            add("container-id", &spec.container_id);
            add("pod-name", &spec.pod_key());
        }
        references
    }

    fn free_id(&self, random: &Random) -> u16 {
        // Cilium's pool is 1 to 4095.
        let mut id = u16::try_from(1 + random.below(4095)).unwrap_or(1);
        while self.by_id.contains_key(&id) {
            id = if id >= 4095 { 1 } else { id + 1 };
        }
        id
    }
}

fn addresses(spec: &EndpointSpec) -> Vec<String> {
    let v4 = spec.ipv4.map(|address| format!("ipv4:{address}"));
    v4.into_iter().chain(spec.ipv6.map(|address| format!("ipv6:{address}"))).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rstest::rstest;

    use super::super::endpoint::MAX_LOGS;

    use super::*;

    fn registry(version: AgentVersion) -> Registry {
        let mut registry = Registry::new(version);
        let spec = EndpointSpec {
            id: Some(684),
            ipv6: Some("fd00:10:244:1::50".parse().unwrap()),
            ..EndpointSpec::new("tenant-a", "pod-a", "aaaa1111", Ipv4Addr::new(10, 244, 1, 50))
        };
        registry.add(spec, None, None, Timestamp::UNIX_EPOCH, &Random::new(Some(1)));
        registry
    }

    #[rstest]
    #[case::ipv4("ipv4:10.244.1.50", Ok(true))]
    #[case::leading_zero("ipv4:010.244.1.50", Ok(false))]
    #[case::ipv6("ipv6:fd00:10:244:1::50", Ok(true))]
    #[case::upper_case("ipv6:FD00:10:244:1::50", Ok(false))]
    #[case::attachment("cni-attachment-id:aaaa1111:eth0", Ok(true))]
    #[case::attachment_without_interface("cni-attachment-id:aaaa1111", Ok(false))]
    #[case::alias("cep-name:tenant-a/pod-a", Ok(true))]
    #[case::number("684", Ok(true))]
    #[case::other_number("cilium-local:685", Ok(false))]
    #[case::too_large("70000", Err("endpoint id too large: 70000"))]
    #[case::no_number("x", Err("invalid numeric cilium id: strconv.ParseInt: parsing \"x\": invalid syntax"))]
    #[case::container("container-id:aaaa1111", Err("unknown endpoint ID prefix \"container-id\""))]
    #[case::pod_name("pod-name:tenant-a/pod-a", Err("unknown endpoint ID prefix \"pod-name\""))]
    #[case::nonsense("a:b:c", Err("unknown endpoint ID prefix \"a\""))]
    fn ids_on_1_20(#[case] id: &str, #[case] expected: Result<bool, &str>) {
        let found = registry(AgentVersion::V1_20).lookup(id).map(|id| id.is_some());
        assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case::v1_14("container-id:aaaa1111", AgentVersion::V1_14, true)]
    #[case::v1_18("container-id:aaaa1111", AgentVersion::V1_18, true)]
    #[case::v1_18_pod("pod-name:tenant-a/pod-a", AgentVersion::V1_18, true)]
    fn older_ids(#[case] id: &str, #[case] version: AgentVersion, #[case] found: bool) {
        assert_eq!(registry(version).lookup(id).unwrap().is_some(), found);
    }

    #[test]
    fn attachment_ids_are_unknown_to_1_14() {
        let error = registry(AgentVersion::V1_14).lookup("cni-attachment-id:aaaa1111:eth0").unwrap_err();
        assert_eq!(error.to_string(), "unknown endpoint ID prefix \"cni-attachment-id\"");
    }

    #[test]
    fn refusals_come_in_the_agents_order() {
        let registry = registry(AgentVersion::V1_20);
        let mut spec = EndpointSpec {
            id: Some(684),
            ipv6: Some("fd00:10:244:1::50".parse().unwrap()),
            ..EndpointSpec::new("a", "b", "aaaa1111", Ipv4Addr::new(10, 244, 1, 50))
        };
        assert_eq!(registry.check(&spec).unwrap_err(), "endpoint ID 684 already exists");
        spec.id = None;
        assert_eq!(
            registry.check(&spec).unwrap_err(),
            "endpoint for CNI attachment ID aaaa1111:eth0 already exists"
        );
        spec.container_id = "b".to_owned();
        assert_eq!(registry.check(&spec).unwrap_err(), "IP ipv4:10.244.1.50 is already in use");
        spec.ipv4 = Some(Ipv4Addr::new(10, 244, 1, 51));
        assert_eq!(registry.check(&spec).unwrap_err(), "IP ipv6:fd00:10:244:1::50 is already in use");
    }

    #[test]
    fn removing_one_of_two_takes_the_alias_but_not_the_address() {
        let mut registry = registry(AgentVersion::V1_20);
        let spec = EndpointSpec::new("tenant-a", "pod-a", "bbbb", Ipv4Addr::new(10, 244, 1, 51));
        let newer = registry.add(spec, None, None, Timestamp::UNIX_EPOCH, &Random::new(Some(2)));
        assert_eq!(registry.lookup("cep-name:tenant-a/pod-a"), Ok(Some(newer)));
        registry.remove(684);
        assert_eq!(registry.lookup("cep-name:tenant-a/pod-a"), Ok(None));
        assert_eq!(registry.lookup("ipv4:10.244.1.51"), Ok(Some(newer)));
    }

    #[test]
    fn the_log_is_bounded_and_catches_up_fast() {
        let mut registry = registry(AgentVersion::V1_20);
        let endpoint = registry.by_id.get_mut(&684).unwrap();
        endpoint.catch_up("2026-12-01T00:00:00Z".parse().unwrap());
        assert_eq!(endpoint.log.len(), MAX_LOGS);
    }
}
