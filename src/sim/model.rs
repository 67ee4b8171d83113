//! How an agent shows its endpoints and itself: JSON per version, as the transcripts of real agents have it.
//!
//! Must not know: HTTP, how endpoints are found.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::clock::millis;
use super::endpoint::{AgentVersion, Endpoint, Reserved, log_model};

/// When in its life an endpoint is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// In the answer to the PUT that made it, while it is still being built.
    Creation,
    /// Later.
    Later,
}

/// The body of `GET /endpoint/{id}`.
pub(crate) fn endpoint(version: AgentVersion, endpoint: &Endpoint, moment: Moment) -> Value {
    let fresh = moment == Moment::Creation;
    let health = if fresh { "Pending" } else { "OK" };
    let state = if fresh { "regenerating" } else { endpoint.state.as_str() };
    let newest = if fresh {
        endpoint.log.iter().rfind(|entry| entry.state == "regenerating")
    } else {
        endpoint.log.last()
    };
    let newest: Vec<_> = newest.cloned().into_iter().collect();
    let mut labels = json!({"realized": {}, "security-relevant": endpoint.labels});
    if matches!(endpoint.reserved, Some(Reserved::Host | Reserved::Ingress)) {
        labels["derived"] = json!(endpoint.labels);
    }
    let options = json!({
        "Debug": "Disabled", "DebugLB": "Disabled", "DebugPolicy": "Disabled", "DropNotification": "Enabled",
        "MonitorAggregationLevel": "None", "PolicyAuditMode": "Disabled", "PolicyVerdictNotification": "Enabled",
        "SourceIPVerification": "Disabled", "TraceNotification": "Enabled",
    });
    let policy = json!({
        "allowed-egress-identities": [0, 11, 12, 13, 14], "allowed-ingress-identities": [0, 11, 12, 13, 14], "build": 1, "denied-egress-identities": null,
        "denied-ingress-identities": null, "id": endpoint.identity, "l4": {"egress": [], "ingress": []}, "policy-enabled": "none", "policy-revision": 1,
    });
    json!({
        "id": endpoint.id,
        "spec": {"label-configuration": {}, "options": options},
        "status": {
            "controllers": controllers(version, endpoint),
            "external-identifiers": external_identifiers(version, endpoint),
            "health": {"bpf": health, "connected": true, "overallHealth": health, "policy": health},
            "identity": {"id": endpoint.identity, "labels": endpoint.labels},
            "labels": labels,
            "log": log_model(&newest),
            "networking": networking(endpoint),
            "policy": {"proxy-policy-revision": 1, "proxy-statistics": [], "realized": policy, "spec": policy},
            "realized": {"label-configuration": {}, "options": options},
            "state": state,
        }
    })
}

/// `external-identifiers`: from 1.20 on only the attachment, before that the pod's and the container's names too.
pub(crate) fn external_identifiers(version: AgentVersion, endpoint: &Endpoint) -> Value {
    let spec = &endpoint.spec;
    let mut ids = Map::new();
    let mut put = |key: &str, value: &str| {
        if !value.is_empty() {
            ids.insert(key.to_owned(), value.into());
        }
    };
    if version > AgentVersion::V1_14 {
        put("cni-attachment-id", &spec.attachment_id());
    }
    if version < AgentVersion::V1_20 && spec.legacy_identifiers {
        put("container-id", &spec.container_id);
        put("k8s-namespace", &spec.namespace);
        put("k8s-pod-name", &spec.pod);
        put("pod-name", &format!("{}/{}", spec.namespace, spec.pod));
    }
    Value::Object(ids)
}

/// `networking.addressing`: one entry, empty for the host.
pub(crate) fn addressing(endpoint: &Endpoint) -> Value {
    let mut pair = Map::new();
    if let Some(address) = endpoint.spec.ipv4 {
        pair.insert("ipv4".to_owned(), address.to_string().into());
    }
    if let Some(address) = endpoint.spec.ipv6 {
        pair.insert("ipv6".to_owned(), address.to_string().into());
    }
    json!([pair])
}

fn networking(endpoint: &Endpoint) -> Value {
    let mut networking = json!({"addressing": addressing(endpoint)});
    let mut put = |key: &str, value: &str| {
        if !value.is_empty() {
            networking[key] = value.into();
        }
    };
    if endpoint.reserved != Some(Reserved::Ingress) {
        put(
            "container-interface-name",
            if endpoint.reserved.is_some() { "" } else { &endpoint.spec.container_interface },
        );
        put("interface-name", &endpoint.spec.interface);
        put("host-mac", &endpoint.mac.replacen("0a:", "5e:", 1));
        put("mac", &endpoint.mac);
    }
    networking
}

fn controllers(version: AgentVersion, endpoint: &Endpoint) -> Vec<Value> {
    const NEVER: &str = "0001-01-01T00:00:00.000Z";
    let id = endpoint.id;
    let created = millis(endpoint.created);
    let controller = |name: String, configuration: Value, status: Value, uuid: usize| {
        let mut status = status;
        for field in ["last-failure-timestamp", "last-success-timestamp"] {
            if status.get(field).is_none() {
                status[field] = NEVER.into();
            }
        }
        json!({"configuration": configuration, "name": name, "status": status, "uuid": endpoint.controller_uuids[uuid]})
    };
    let success = || json!({"last-success-timestamp": created, "success-count": 1});
    let regeneration = json!({"error-retry": true, "error-retry-base": "2s", "interval": "1s"});
    let mut list =
        vec![controller(format!("endpoint-{id}-regeneration-recovery"), regeneration, json!({}), 0)];
    if endpoint.reserved != Some(Reserved::Host) && !endpoint.restored {
        list.push(controller(
            format!("resolve-identity-{id}"),
            json!({"error-retry": true, "interval": "5m0s"}),
            success(),
            1,
        ));
    }
    let pod = &endpoint.spec;
    if version > AgentVersion::V1_14 && (!pod.pod.is_empty() || endpoint.reserved == Some(Reserved::Host)) {
        let status = if endpoint.pod_unknown {
            json!({"consecutive-failure-count": 2, "failure-count": 2, "last-failure-msg": format!("pod.core \"{}\" not found", pod.pod), "last-failure-timestamp": created})
        } else {
            success()
        };
        list.push(controller(
            format!("resolve-labels-{}/{}", pod.namespace, pod.pod),
            json!({"error-retry": true}),
            status,
            2,
        ));
    }
    if endpoint.restored {
        list.push(controller(
            format!("restoring-ep-identity ({id})"),
            json!({"error-retry": true}),
            success(),
            1,
        ));
    }
    if endpoint.reserved.is_none() {
        let mut status =
            json!({"last-success-timestamp": created, "success-count": 2 + endpoint.cep_failures});
        if endpoint.cep_failures > 0 {
            status["failure-count"] = endpoint.cep_failures.into();
            status["last-failure-timestamp"] = created.as_str().into();
        }
        list.push(controller(
            format!("sync-to-k8s-ciliumendpoint ({id})"),
            json!({"error-retry": true, "interval": "10s"}),
            status,
            3,
        ));
    }
    list
}

/// What an agent says about itself.
#[derive(Debug, Clone)]
pub(crate) struct About<'a> {
    pub version: AgentVersion,
    pub node: &'a str,
    pub pod_cidr: &'a str,
    pub router: IpAddr,
    pub ipam_mode: &'a str,
    pub datapath_mode: &'a str,
    pub chaining_mode: &'a str,
    pub allocations: &'a BTreeMap<IpAddr, String>,
    pub started: Timestamp,
    pub kubernetes: &'a str,
}

fn release(version: AgentVersion) -> &'static str {
    match version {
        AgentVersion::V1_14 => "1.14.19",
        AgentVersion::V1_18 => "1.18.2",
        AgentVersion::V1_20 => "1.20.2",
    }
}

/// `GET /healthz`, the short form.
pub(crate) fn healthz_brief(about: &About<'_>) -> Value {
    json!({"cilium": cilium_state(about), "cluster": {"nodes": null}})
}

fn cilium_state(about: &About<'_>) -> Value {
    let release = release(about.version);
    json!({"msg": format!("{release} (v{release}-sim)"), "state": "Ok"})
}

/// `GET /healthz`, the long form.
pub(crate) fn healthz(about: &About<'_>) -> Value {
    let allocations: Map<String, Value> =
        about.allocations.iter().map(|(ip, owner)| (ip.to_string(), owner.as_str().into())).collect();
    let v4: Vec<String> =
        about.allocations.keys().filter(|ip| ip.is_ipv4()).map(ToString::to_string).collect();
    let v6: Vec<String> =
        about.allocations.keys().filter(|ip| ip.is_ipv6()).map(ToString::to_string).collect();
    json!({
        "attach-mode": "tcx",
        "bandwidth-manager": {"devices": null},
        "cilium": cilium_state(about),
        "cluster": {"nodes": null, "self": about.node},
        "cni-chaining": {"mode": about.chaining_mode},
        "configured-datapath-mode": about.datapath_mode,
        "controllers": [],
        "datapath-mode": about.datapath_mode,
        "encryption": {"mode": "Disabled"},
        "hubble": {"state": "Disabled"},
        "identity-range": {"max-identity": 65535, "min-identity": 256},
        "ipam": {
            "allocations": allocations, "ipv4": v4, "ipv6": if v6.is_empty() { Value::Null } else { json!(v6) },
            "status": format!("IPv4: {}/254 allocated from {}, ", v4.len(), about.pod_cidr),
        },
        "kubernetes": {"msg": about.kubernetes, "state": "Ok", "k8s-api-versions": ["cilium/v2::CiliumNode", "core/v1::Pods", "cilium/v2::CiliumEndpoint"]},
        "kvstore": {"state": "Disabled"},
        "proxy": {"envoy-deployment-mode": "embedded", "ip": about.router.to_string(), "port-range": "10000-20000", "redirects": null},
        "routing": {"inter-host-routing-mode": "Tunnel", "intra-host-routing-mode": "Legacy", "tunnel-protocol": "vxlan"},
    })
}

/// `GET /config`.
pub(crate) fn config(about: &About<'_>) -> Value {
    let map = json!({
        "ClusterHealthPort": 4240, "ClusterID": 0, "ClusterName": "default", "DatapathMode": about.datapath_mode,
        "CreationTime": about.started.to_string(), "DisableCiliumEndpointCRD": false, "EnableCiliumEndpointSlice": false,
        "EnableEndpointRoutes": false, "EnableIPv4": true, "EnableIPv6": false, "IPAM": about.ipam_mode,
        "IPAMDefaultIPPool": "default", "IdentityAllocationMode": "crd", "RoutingMode": "tunnel",
    });
    json!({
        "spec": {"policy-enforcement": "default"},
        "status": {
            "addressing": {"ipv4": {"alloc-range": about.pod_cidr, "enabled": true, "ip": about.router.to_string()}},
            "configuredDatapathMode": about.datapath_mode,
            "daemonConfigurationMap": map,
            "datapathMode": about.datapath_mode,
            "deviceMTU": 1500,
            "ipam-mode": about.ipam_mode,
            "kvstoreConfiguration": {},
            "masquerade": true,
            "masqueradeProtocols": {"ipv4": true},
            "realized": {"policy-enforcement": "default"},
            "routeMTU": 1500,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rstest::rstest;

    use super::super::clock::Random;
    use super::super::endpoint::EndpointSpec;
    use super::super::registry::Registry;
    use super::*;

    fn shown(version: AgentVersion, reserved: Option<Reserved>) -> Value {
        let mut registry = Registry::new(version);
        let spec = match reserved {
            None => EndpointSpec::new("tenant-a", "pod-a", "aaaa1111", Ipv4Addr::new(10, 244, 1, 50)),
            Some(_) => EndpointSpec {
                interface: "lxc_health".to_owned(),
                container_interface: String::new(),
                ..EndpointSpec::new("", "", "", Ipv4Addr::new(10, 244, 1, 234))
            },
        };
        let pod = json!({"metadata": {"labels": {"app": "db"}}, "spec": {}});
        let id = registry.add(
            spec,
            reserved,
            Some(&pod),
            "2026-12-01T04:43:03Z".parse().unwrap(),
            &Random::new(Some(1)),
        );
        endpoint(version, &registry.by_id[&id], Moment::Later)
    }

    #[rstest]
    #[case::v1_14(AgentVersion::V1_14, json!({"container-id": "aaaa1111", "k8s-namespace": "tenant-a", "k8s-pod-name": "pod-a", "pod-name": "tenant-a/pod-a"}), false)]
    #[case::v1_18(AgentVersion::V1_18, json!({"cni-attachment-id": "aaaa1111:eth0", "container-id": "aaaa1111", "k8s-namespace": "tenant-a", "k8s-pod-name": "pod-a", "pod-name": "tenant-a/pod-a"}), true)]
    #[case::v1_20(AgentVersion::V1_20, json!({"cni-attachment-id": "aaaa1111:eth0"}), true)]
    fn what_names_the_pod_differs_by_version(
        #[case] version: AgentVersion,
        #[case] ids: Value,
        #[case] controller: bool,
    ) {
        let model = shown(version, None);
        assert_eq!(model["status"]["external-identifiers"], ids);
        let names: Vec<&str> = model["status"]["controllers"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|c| c["name"].as_str())
            .collect();
        assert_eq!(names.contains(&"resolve-labels-tenant-a/pod-a"), controller, "{names:?}");
        // As transcript leak-03.
        assert_eq!(
            model["status"]["identity"]["labels"],
            json!([
                "k8s:app=db",
                "k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=tenant-a",
                "k8s:io.cilium.k8s.policy.cluster=default",
                "k8s:io.cilium.k8s.policy.serviceaccount=default",
                "k8s:io.kubernetes.pod.namespace=tenant-a"
            ])
        );
        assert_eq!(model["status"]["log"].as_array().unwrap().len(), 1);
        assert_eq!(
            model["status"]["log"][0],
            json!({"code": "OK", "message": "Successfully regenerated endpoint program (Reason: LabelsUpdate)", "state": "ready", "timestamp": "2026-12-01T04:43:03Z"})
        );
    }

    #[rstest]
    #[case::v1_14(AgentVersion::V1_14, json!({"pod-name": "/"}))]
    #[case::v1_20(AgentVersion::V1_20, json!({}))]
    fn reserved_endpoints_name_nobody(#[case] version: AgentVersion, #[case] ids: Value) {
        let model = shown(version, Some(Reserved::Health));
        assert_eq!(model["status"]["external-identifiers"], ids);
        assert_eq!(model["status"]["identity"], json!({"id": 4, "labels": ["reserved:health"]}));
        assert_eq!(model["status"]["networking"]["interface-name"], "lxc_health");
    }
}
