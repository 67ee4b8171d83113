use kube::Resource;
use rstest::rstest;
use serde_json::{Value, json};

use super::super::{CiliumEndpointObject, CiliumEndpointSliceObject, CiliumNodeObject};
use crate::domain::{EndpointId, ReservedUse};

fn ip(text: &str) -> std::net::IpAddr {
    text.parse().unwrap()
}

fn node(value: Value) -> CiliumNodeObject {
    serde_json::from_value(value).unwrap()
}

fn endpoint(value: Value) -> CiliumEndpointObject {
    serde_json::from_value(value).unwrap()
}

#[test]
fn where_the_objects_are_served() {
    assert_eq!(CiliumNodeObject::url_path(&(), None), "/apis/cilium.io/v2/ciliumnodes");
    let path = CiliumEndpointObject::url_path(&(), Some("tenant-a"));
    assert_eq!(path, "/apis/cilium.io/v2/namespaces/tenant-a/ciliumendpoints");
    assert_eq!(
        CiliumEndpointSliceObject::url_path(&(), None),
        "/apis/cilium.io/v2alpha1/ciliumendpointslices"
    );
}

#[test]
fn a_real_node() {
    let object = node(serde_json::from_str(include_str!("../testdata/ciliumnode.json")).unwrap());
    assert_eq!(object.meta().name.as_deref(), Some("n1"));
    let node = object.to_domain().unwrap();
    assert_eq!(node.reserved_use(ip("10.244.1.69")), Some(ReservedUse::Ingress));
    assert_eq!(node.reserved_use(ip("10.244.1.68")), Some(ReservedUse::Router));
    assert_eq!(node.reserved_use(ip("192.168.77.10")), None);
    assert_eq!(node.addresses, [ip("192.168.77.10"), ip("10.244.1.68")]);
    assert_eq!(object.pod_cidrs().collect::<Vec<_>>(), ["10.244.1.0/24"]);
}

#[test]
fn a_node_with_nulls_and_addresses_of_other_types() {
    let object = node(json!({"metadata": {"name": "n1"}, "spec": {
        "addresses": [null, {"type": "Hostname", "ip": "n1"}, {"type": "CiliumInternalIP", "ip": "fd00::1"}],
        "health": null, "ingress": {"ipv4": null, "ipv6": "fd00::2"},
        "ipam": {"podCIDRs": null, "pools": {"allocated": [{"pool": "blue", "cidrs": ["10.1.0.0/27"]}]}},
    }}));
    let domain = object.to_domain().unwrap();
    assert_eq!(
        domain.reserved,
        [(ReservedUse::Ingress, ip("fd00::2")), (ReservedUse::Router, ip("fd00::1"))]
    );
    assert_eq!(domain.addresses, [ip("fd00::1")]);
    assert_eq!(object.pod_cidrs().collect::<Vec<_>>(), ["10.1.0.0/27"]);
}

/// What is not understood of a node could be the disputed address: the whole is unreadable.
#[rstest]
#[case::health_is_no_pair(json!({"health": "x"}))]
#[case::ingress_is_a_number(json!({"ingress": {"ipv4": 7}}))]
#[case::ingress_is_no_address(json!({"ingress": {"ipv4": "10.244.1"}}))]
#[case::router_is_no_address(json!({"addresses": [{"type": "CiliumInternalIP", "ip": "n1"}]}))]
#[case::addresses_are_no_list(json!({"addresses": "10.0.0.1"}))]
fn a_node_with_malformed_reserved_addresses_is_unreadable(#[case] spec: Value) {
    let decoded =
        serde_json::from_value::<CiliumNodeObject>(json!({"metadata": {"name": "n1"}, "spec": spec}));
    assert!(decoded.map_or(true, |node| node.to_domain().is_err()));
}

#[rstest]
#[case::nothing(json!({}))]
#[case::null_spec(json!({"spec": null}))]
fn a_node_without_spec_reserves_nothing(#[case] value: Value) {
    assert_eq!(node(value).to_domain(), Ok(crate::domain::CiliumNode::default()));
}

#[test]
fn a_real_endpoint() {
    let object = endpoint(serde_json::from_str(include_str!("../testdata/ciliumendpoint.json")).unwrap());
    assert_eq!(object.addresses(), [ip("10.244.1.50")]);
    assert_eq!(object.node(), Some(ip("192.168.77.10")));
    let endpoint = object.to_domain().unwrap();
    assert_eq!(endpoint.name.to_string(), "tenant-a/pod-a");
    assert_eq!(endpoint.id, Some(EndpointId(684)));
    assert_eq!(endpoint.attachment.unwrap().interface(), Some("eth0"));
    assert_eq!(endpoint.owners[0].1.as_str(), "43b3592e-6c5f-4476-be78-0f135b71dd67");
}

#[rstest]
#[case::second_reference(json!([{"kind": "CiliumNode", "name": "n1"}, {"kind": "Pod", "name": "a", "uid": "u"}]), true)]
#[case::of_a_node(json!([{"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "name": "n1", "uid": "u"}]), false)]
#[case::without_uid(json!([{"kind": "Pod", "name": "a"}]), false)]
#[case::none(json!(null), false)]
fn owners_of_endpoints(#[case] owners: Value, #[case] owned: bool) {
    let object = endpoint(json!({"metadata": {"name": "a", "namespace": "b", "ownerReferences": owners}}));
    assert_eq!(!object.to_domain().unwrap().owners.is_empty(), owned);
}

#[rstest]
#[case::no_status(json!({}))]
#[case::null_parts(json!({"status": {"id": null, "external-identifiers": null, "networking": {"addressing": null}}}))]
#[case::malformed_parts(json!({"status": {"id": "x", "external-identifiers": [], "networking": 1}}))]
fn an_endpoint_of_missing_parts(#[case] mut value: Value) {
    value["metadata"] = json!({"name": "a", "namespace": "b"});
    let object = endpoint(value);
    let domain = object.to_domain().unwrap();
    assert_eq!(
        (domain.id, domain.attachment, domain.container, domain.owners),
        (None, None, None, Vec::new())
    );
    assert!(object.addresses().is_empty());
    assert_eq!(endpoint(json!({})).to_domain(), None);
}

#[test]
fn slices() {
    let slice: CiliumEndpointSliceObject = serde_json::from_value(json!({
        "metadata": {"name": "ces-1"}, "namespace": "tenant-a", "endpoints": [
            {"name": "a", "id": 5, "pod-uid": "u1", "networking": {"addressing": [{"ipv4": "10.0.0.1", "ipv6": "fd00::1"}], "node": "192.0.2.1"}},
            {"name": "b", "networking": null},
            {"networking": {}},
            "junk",
        ],
    }))
    .unwrap();
    let entries = slice.to_domain();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].name.to_string(), "tenant-a/a");
    assert_eq!(entries[0].ips, [ip("10.0.0.1"), ip("fd00::1")]);
    assert_eq!(entries[0].node, Some(ip("192.0.2.1")));
    assert_eq!(entries[0].uid.as_ref().unwrap().as_str(), "u1");
    assert_eq!((&entries[1].ips, entries[1].node, &entries[1].uid), (&vec![], None, &None));
    let empty: CiliumEndpointSliceObject =
        serde_json::from_value(json!({"namespace": null, "endpoints": null})).unwrap();
    assert!(empty.to_domain().is_empty());
}
