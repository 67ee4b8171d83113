use rstest::rstest;

use super::super::call_error::decode_message;
use super::super::model::log_from_slice;
use super::super::{AgentConfig, Allocations, EndpointModel};
use crate::domain::{EndpointId, EndpointState, Holder, IpamMode, OwnerName, PodName};

const LEAKED: &str = include_str!("../testdata/endpoint-leaked.json");
const LOG: &str = include_str!("../testdata/endpoint-log.json");
const INGRESS: &str = include_str!("../testdata/endpoint-ingress.json");
const INIT: &str = include_str!("../testdata/endpoint-init.json");
const CONFIG: &str = include_str!("../testdata/config.json");
const HEALTHZ: &str = include_str!("../testdata/healthz.json");
/// As an agent up to 1.14 writes it.
const LEGACY: &str = r#"{"id": 7, "status": {"external-identifiers": {"container-id": "c0ffee",
    "k8s-namespace": "tenant-a", "k8s-pod-name": "db-0", "pod-name": "tenant-a/db-0"}, "state": "waiting-for-identity"}}"#;

fn holder(body: &str) -> Holder {
    let model = EndpointModel::from_slice(body.as_bytes()).unwrap();
    model.to_holder(model.log_entries()).unwrap()
}

fn pod(text: &str) -> PodName {
    text.parse().unwrap()
}

#[test]
fn a_leaked_endpoint_of_1_20_is_named_by_its_controller() {
    let holder = holder(LEAKED);
    assert_eq!(holder.id, EndpointId(684));
    assert_eq!(holder.attachment.as_ref().unwrap().interface(), Some("eth0"));
    assert_eq!(holder.container_field, None);
    assert_eq!(holder.named, None);
    assert_eq!(holder.owner_by_agent(), OwnerName::ByController(pod("tenant-a/pod-a")));
    assert_eq!(holder.namespace_label(), Some("tenant-a"));
    assert_eq!(holder.labels.len(), 5, "labels that are in both lists appear once");
    assert_eq!(holder.addresses, ["10.244.1.50".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(holder.state, EndpointState::Ready);
    assert_eq!(holder.log.unwrap().len(), 1);
}

#[test]
fn an_endpoint_of_1_14_is_named_by_its_identifiers() {
    let holder = holder(LEGACY);
    assert_eq!(holder.attachment, None);
    assert_eq!(holder.container().unwrap().as_str(), "c0ffee");
    assert_eq!(holder.named, Some(pod("tenant-a/db-0")));
    assert_eq!(holder.state, EndpointState::WaitingForIdentity);
    assert_eq!(holder.log, None);
}

#[rstest]
#[case::ingress(INGRESS, Some("reserved:ingress"))]
#[case::init(INIT, None)]
#[case::leaked(LEAKED, None)]
fn reserved_labels(#[case] body: &str, #[case] reserved: Option<&str>) {
    assert_eq!(holder(body).reserved_label(), reserved);
}

#[test]
fn the_whole_log_reaches_back_to_the_creation() {
    let log = log_from_slice(LOG.as_bytes()).unwrap();
    assert_eq!(log.len(), 7);
    assert_eq!(log.last().unwrap().state, EndpointState::WaitingForIdentity);
}

#[rstest]
#[case::empty("[]", Some(0))]
#[case::zero_time(r#"[{"state": "ready", "timestamp": "0001-01-01T00:00:00.000Z"}]"#, Some(0))]
#[case::null_entry_and_time(r#"[null, {"state": null, "timestamp": null}]"#, Some(0))]
#[case::new_state_with_offset(
    r#"[{"state": "new", "timestamp": "2026-12-01T06:43:03+02:00", "x": []}]"#,
    Some(1)
)]
#[case::bad_time(r#"[{"state": "ready", "timestamp": "yesterday"}]"#, None)]
#[case::null("null", None)]
#[case::nothing("", None)]
#[case::object("{}", None)]
#[case::entries_as_lists(r#"[["ready", "2026-12-01T06:43:03Z"]]"#, None)]
fn logs(#[case] body: &str, #[case] entries: Option<usize>) {
    assert_eq!(log_from_slice(body.as_bytes()).map(|log| log.len()), entries);
}

#[rstest]
#[case::id_alone(r#"{"id": 1}"#, true)]
#[case::nulls_everywhere(
    r#"{"id": 1, "status": {"external-identifiers": null, "controllers": null, "identity": {"labels": null}, "labels": null,
        "networking": {"addressing": [null, {"ipv4": null}]}, "state": null, "log": null}}"#,
    true
)]
#[case::unknown_fields(r#"{"id": 1, "status": {"new": {"a": 1}}, "more": []}"#, true)]
#[case::no_id("{}", false)]
#[case::null_id(r#"{"id": null}"#, false)]
#[case::null("null", false)]
#[case::list("[]", false)]
#[case::empty("", false)]
#[case::half(r#"{"id": 1, "status""#, false)]
#[case::labels_of_another_type(r#"{"id": 1, "status": {"identity": {"labels": "reserved:host"}}}"#, false)]
#[case::id_of_another_type(r#"{"id": "1"}"#, false)]
#[case::a_list_of_the_values(r#"[1, {"state": "ready"}]"#, false)]
#[case::a_list_for_the_status(r#"{"id": 1, "status": []}"#, false)]
#[case::a_list_for_the_identifiers(r#"{"id": 1, "status": {"external-identifiers": ["c0ffee"]}}"#, false)]
#[case::a_list_for_the_identity(r#"{"id": 1, "status": {"identity": [["k8s:a=b"]]}}"#, false)]
#[case::a_list_for_an_address(
    r#"{"id": 1, "status": {"networking": {"addressing": [["10.0.0.1"]]}}}"#,
    false
)]
#[case::a_list_for_a_log_entry(r#"{"id": 1, "status": {"log": [["ready"]]}}"#, false)]
fn models(#[case] body: &str, #[case] is_one: bool) {
    let holder = EndpointModel::from_slice(body.as_bytes()).and_then(|model| model.to_holder(None));
    assert_eq!(holder.is_ok(), is_one, "{holder:?}");
}

#[rstest]
#[case::attachment_wins(r#""cni-attachment-id": "abc:eth0", "container-id": "def""#, Some("abc"))]
#[case::empty_attachment(r#""cni-attachment-id": "", "container-id": "def""#, Some("def"))]
#[case::odd_attachment_hides_the_container(r#""cni-attachment-id": "a/b:eth0", "container-id": "def""#, None)]
#[case::none("", None)]
fn containers(#[case] identifiers: &str, #[case] container: Option<&str>) {
    let holder = holder(&format!(r#"{{"id": 1, "status": {{"external-identifiers": {{{identifiers}}}}}}}"#));
    assert_eq!(holder.container().map(ToString::to_string).as_deref(), container);
}

#[rstest]
#[case::both(r#""k8s-namespace": "a", "k8s-pod-name": "b""#, Some("a/b"))]
#[case::empty_name(r#""k8s-namespace": "a", "k8s-pod-name": """#, None)]
#[case::empty_namespace(r#""k8s-namespace": "", "k8s-pod-name": "b""#, None)]
#[case::pod_name_alone(r#""pod-name": "a/b""#, None)]
fn names(#[case] identifiers: &str, #[case] name: Option<&str>) {
    let holder = holder(&format!(r#"{{"id": 1, "status": {{"external-identifiers": {{{identifiers}}}}}}}"#));
    assert_eq!(holder.named.map(|name| name.to_string()).as_deref(), name);
}

#[rstest]
#[case::real(CONFIG, Some("kubernetes"), None)]
#[case::chained(
    r#"{"status": {"ipam-mode": "delegated-plugin", "daemonConfigurationMap": {"CNIChainingMode": "aws-cni"}}}"#,
    Some("delegated-plugin"),
    Some("aws-cni")
)]
#[case::empty_mode(r#"{"status": {"ipam-mode": "", "daemonConfigurationMap": null}}"#, None, None)]
#[case::no_status("{}", None, None)]
fn configs(#[case] body: &str, #[case] ipam_mode: Option<&str>, #[case] chaining: Option<&str>) {
    let config = AgentConfig::from_slice(body.as_bytes()).unwrap();
    assert_eq!(config.ipam_mode, ipam_mode.map(|mode| IpamMode(mode.to_owned())));
    assert_eq!(config.chaining_mode.as_deref(), chaining);
}

#[rstest]
#[case::the_whole("[]")]
#[case::the_status(r#"{"status": ["eni"]}"#)]
#[case::the_map(r#"{"status": {"daemonConfigurationMap": []}}"#)]
fn a_configuration_with_a_list_for_an_object_is_none(#[case] body: &str) {
    assert!(AgentConfig::from_slice(body.as_bytes()).is_err());
}

#[rstest]
#[case::real(CONFIG, false)]
#[case::absent("{}", false)]
#[case::off(r#"{"status": {"installUplinkRoutesForDelegatedIPAM": false}}"#, false)]
#[case::on(r#"{"status": {"installUplinkRoutesForDelegatedIPAM": true}}"#, true)]
#[case::on_in_the_map(
    r#"{"status": {"daemonConfigurationMap": {"InstallUplinkRoutesForDelegatedIPAM": true}}}"#,
    true
)]
#[case::odd(r#"{"status": {"installUplinkRoutesForDelegatedIPAM": "maybe"}}"#, true)]
fn uplink_routes_are_off_only_where_it_says_so_or_nothing(#[case] body: &str, #[case] on: bool) {
    assert_eq!(AgentConfig::from_slice(body.as_bytes()).unwrap().uplink_routes, on);
}

#[test]
fn allocations_of_a_real_agent() {
    let allocations = Allocations::from_slice(HEALTHZ.as_bytes()).unwrap();
    assert_eq!(allocations.chaining.as_deref(), Some("none"));
    assert_eq!(allocations.owners("10.244.1.165".parse().unwrap()), ["router"]);
    assert!(allocations.owners("10.244.1.50".parse().unwrap()).is_empty());
}

#[test]
fn allocations_of_pools_keep_each_owner() {
    let body = r#"{"ipam": {"allocations": {"10.0.0.1": "a/b", "blue/10.0.0.1": "c/d", "fd00::1": null, "junk": "x"}}}"#;
    let allocations = Allocations::from_slice(body.as_bytes()).unwrap();
    assert_eq!(allocations.owners("10.0.0.1".parse().unwrap()), ["a/b", "c/d"]);
    assert_eq!(allocations.owners("fd00::1".parse().unwrap()), [""]);
}

#[rstest]
#[case::short_form(r#"{"cilium": {"state": "Ok"}}"#, false)]
#[case::null_ipam(r#"{"ipam": null}"#, false)]
#[case::none_allocated(r#"{"ipam": {"status": ""}}"#, true)]
#[case::null_allocations(r#"{"ipam": {"allocations": null}}"#, true)]
#[case::a_list_of_objects(r#"[{"id": 1}, {"id": 2}]"#, false)]
#[case::a_list_for_ipam(r#"{"ipam": []}"#, false)]
#[case::empty("", false)]
fn allocations(#[case] body: &str, #[case] readable: bool) {
    assert_eq!(Allocations::from_slice(body.as_bytes()).is_ok(), readable);
}

#[rstest]
#[case::pod("tenant-a/db-0", Some("tenant-a/db-0"))]
#[case::restored("tenant-a/db-0 [restored]", Some("tenant-a/db-0"))]
#[case::router("router", None)]
#[case::restored_by_number("684 [restored]", None)]
#[case::empty("", None)]
fn owners(#[case] owner: &str, #[case] name: Option<&str>) {
    assert_eq!(Allocations::pod(owner).map(|name| name.to_string()).as_deref(), name);
}

#[rstest]
#[case::string("\"IP ipv4:10.0.0.1 is already in use\"\n", "IP ipv4:10.0.0.1 is already in use")]
#[case::number("1\n", "1")]
#[case::empty("", "")]
#[case::object(r#"{"code": 602, "message": "state in body is required"}"#, "state in body is required")]
#[case::object_without_message(r#"{"code": 602}"#, r#"{"code": 602}"#)]
#[case::text("This API is administratively disabled.", "This API is administratively disabled.")]
#[case::lines("a\nb\u{1b}[31m", "a b [31m")]
fn messages(#[case] body: &str, #[case] message: &str) {
    assert_eq!(decode_message(body.as_bytes()), message);
}

#[test]
fn messages_are_cut_and_never_fail() {
    assert_eq!(decode_message("ä".repeat(9000).as_bytes()).chars().count(), 512);
    assert_eq!(decode_message(&[0xff, b'a']), "\u{fffd}a");
}
