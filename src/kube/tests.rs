//! Decoding, and the store; what heal mode asks of the API server is in the modules.

mod fake;
mod lease;
mod objects;
mod recorder;
mod self_test;
mod token_review;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::{AgentStart, EventObject, LabelMatch, PodObject, PodStore};
use crate::domain::{Phase, Pod};

fn pod(change: impl FnOnce(&mut Value)) -> Pod {
    let mut value = json!({
        "metadata": {"namespace": "a", "name": "b", "uid": "u", "resourceVersion": "7"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Pending"},
    });
    change(&mut value);
    serde_json::from_value::<PodObject>(value).unwrap().to_domain().unwrap()
}

#[test]
fn a_pod_with_nothing_but_its_name_is_decoded_and_alive() {
    let pod = pod(|value| {
        value["spec"] = Value::Null;
        value["status"] = Value::Null;
    });
    assert_eq!((pod.phase, pod.node.is_none(), pod.is_live()), (Phase::Unknown, true, true));
}

#[rstest]
#[case::waiting(json!({"state": {"waiting": {"reason": "ContainerCreating"}}}), (false, false, false))]
#[case::running(json!({"state": {"running": {}}}), (true, false, true))]
#[case::ended(json!({"state": {"terminated": {"exitCode": 0}}}), (false, true, true))]
#[case::ran_before(json!({"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}), (false, true, true))]
#[case::restarted(json!({"state": {"waiting": {}}, "restartCount": 1}), (false, false, true))]
#[case::started(json!({"state": {"waiting": {}}, "started": true}), (false, false, true))]
fn container_states_are_read_from_each_kind_of_container(
    #[case] status: Value,
    #[case] want: (bool, bool, bool),
) {
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        let containers = pod(|value| value["status"][list] = json!([status])).containers;
        assert_eq!((containers.running, containers.ended, containers.ever_ran), want, "{list}");
    }
}

#[test]
fn addresses_are_each_listed_once_and_a_text_that_is_none_is_remembered() {
    let listed = pod(|value| {
        value["status"]["podIP"] = json!("10.0.0.1");
        value["status"]["podIPs"] = json!([{"ip": "10.0.0.1"}, {"ip": "FD00::1"}, {}]);
    });
    assert_eq!(listed.ips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.1", "fd00::1"]);
    let garbage = pod(|value| value["status"]["podIP"] = json!("10.0.0"));
    assert!(
        garbage.unparsed_ips
            && garbage.not_waiting().is_some()
            && !garbage.lists_others("10.0.0.9".parse().unwrap())
    );
}

#[rstest]
#[case::no_name("/metadata/name", json!(""))]
#[case::no_uid("/metadata/uid", Value::Null)]
#[case::impossible_node("/spec/nodeName", json!("a/b"))]
fn a_pod_that_nothing_can_be_said_about_is_an_error(#[case] pointer: &str, #[case] with: Value) {
    let mut value =
        json!({"metadata": {"namespace": "a", "name": "b", "uid": "u"}, "spec": {"nodeName": "n1"}});
    *value.pointer_mut(pointer).unwrap() = with;
    assert!(serde_json::from_value::<PodObject>(value).unwrap().to_domain().is_err());
}

#[rstest]
#[case::classic(json!({"lastTimestamp": "2026-06-18T10:04:50Z", "count": 7, "source": {"component": "kubelet", "host": "n1"}}), Some("2026-06-18T10:04:50Z"), 7, Some("n1"))]
#[case::series(json!({"eventTime": "2026-06-18T10:04:00.123456Z", "series": {"count": 5, "lastObservedTime": "2026-06-18T10:04:50Z"}, "lastTimestamp": null, "reportingComponent": "kubelet", "reportingInstance": "n1"}), Some("2026-06-18T10:04:50Z"), 5, Some("n1"))]
#[case::event_time_only(json!({"eventTime": "2026-06-18T10:04:00Z"}), Some("2026-06-18T10:04:00Z"), 1, None)]
#[case::creation_only(json!({"metadata": {"creationTimestamp": "2026-06-18T10:03:00Z"}}), Some("2026-06-18T10:03:00Z"), 1, None)]
#[case::creation_counts_only_without_any_other(json!({"metadata": {"creationTimestamp": "2026-06-18T10:05:00Z"}, "lastTimestamp": "2026-06-18T10:04:00Z"}), Some("2026-06-18T10:04:00Z"), 1, None)]
#[case::instance_without_component(json!({"lastTimestamp": "2026-06-18T10:04:00Z", "reportingInstance": "n2"}), Some("2026-06-18T10:04:00Z"), 1, Some("n2"))]
#[case::another_reporter(json!({"lastTimestamp": "2026-06-18T10:04:00Z", "reportingComponent": "multus", "reportingInstance": "multus-x7"}), Some("2026-06-18T10:04:00Z"), 1, None)]
#[case::undated(json!({}), None, 1, None)]
fn both_forms_of_an_event_are_read(
    #[case] fields: Value,
    #[case] at: Option<&str>,
    #[case] count: u32,
    #[case] node: Option<&str>,
) {
    let mut value = json!({"metadata": {}, "involvedObject": {"uid": "u"}, "reason": "R", "message": "M"});
    value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let event = serde_json::from_value::<EventObject>(value).unwrap().to_domain().unwrap();
    assert_eq!(event.at, at.map(|at| at.parse::<Timestamp>().unwrap()));
    assert_eq!((event.count, event.node.as_ref().map(ToString::to_string).as_deref()), (count, node));
}

#[test]
fn an_event_of_no_object_is_none() {
    let event = serde_json::from_value::<EventObject>(json!({"involvedObject": {"uid": ""}})).unwrap();
    assert!(event.to_domain().is_none());
}

#[rstest]
#[case("k8s-app=cilium", true)]
#[case("k8s-app=cilium,tier=agent", false)]
#[case("k8s-app=other", false)]
fn labels_are_matched(#[case] selector: &str, #[case] matches: bool) {
    let labels = [("k8s-app".to_owned(), "cilium".to_owned())].into();
    assert_eq!(selector.parse::<LabelMatch>().unwrap().matches(&labels), matches);
}

#[rstest]
#[case("")]
#[case("cilium")]
#[case("=x")]
#[case("a==b")]
#[case("a=b,,c=d")]
fn other_selectors_are_refused(#[case] selector: &str) {
    assert!(selector.parse::<LabelMatch>().is_err());
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_780_000_000 + seconds).unwrap()
}

#[test]
fn waiting_is_counted_from_the_first_sight_until_it_ends() {
    let store = PodStore::default();
    store.apply(pod(|_| {}), None, at(0));
    store.apply(pod(|value| value["metadata"]["resourceVersion"] = json!("8")), None, at(9));
    assert_eq!(store.waiting()[0].waiting_since, Some(at(0)));
    store.apply(pod(|value| value["status"]["podIP"] = json!("10.0.0.1")), None, at(10));
    assert!(store.waiting().is_empty());
}

#[test]
fn a_new_list_replaces_what_was_known_and_keeps_since_when_a_pod_waits() {
    let store = PodStore::default();
    store.apply(pod(|_| {}), None, at(0));
    store.apply(pod(|value| value["metadata"]["uid"] = json!("gone")), None, at(0));
    store.begin_list();
    store.apply(pod(|_| {}), None, at(60));
    assert_eq!(store.len(), 2, "the old state serves until the list is complete");
    store.end_list();
    assert_eq!((store.len(), store.waiting()[0].waiting_since), (1, Some(at(0))));
}

#[test]
fn pods_that_go_or_end_are_counted() {
    let store = PodStore::default();
    store.apply(pod(|_| {}), None, at(0));
    store.apply(pod(|value| value["status"]["podIP"] = json!("10.0.0.1")), None, at(1));
    assert_eq!(store.ended(), 0);
    store.apply(pod(|value| value["status"]["phase"] = json!("Failed")), None, at(2));
    store.apply(pod(|value| value["status"]["phase"] = json!("Failed")), None, at(3));
    assert_eq!(store.ended(), 1);
    store.remove(&"u".parse().unwrap());
    assert_eq!(store.ended(), 2);
}

#[rstest]
#[case::no_agent_pod(&[], None)]
#[case::one(&[AgentStart::Since(at(5))], Some(AgentStart::Since(at(5))))]
#[case::the_later_of_two(&[AgentStart::Since(at(5)), AgentStart::Since(at(9))], Some(AgentStart::Since(at(9))))]
#[case::one_does_not_run(&[AgentStart::Since(at(5)), AgentStart::Stopped], Some(AgentStart::Stopped))]
fn the_agents_start_is_the_latest_of_its_pods(#[case] pods: &[AgentStart], #[case] want: Option<AgentStart>) {
    let store = PodStore::default();
    store.apply(pod(|value| value["metadata"]["uid"] = json!("no-agent")), None, at(0));
    for (number, start) in pods.iter().enumerate() {
        let pod = pod(|value| value["metadata"]["uid"] = json!(format!("u{number}")));
        store.apply(pod, Some(*start), at(0));
    }
    assert_eq!(store.agent_start(), want);
}

#[rstest]
#[case::no_pod(&[], false)]
#[case::all_of_it(&[&["10.0.0.1", "fd00::1"], &["10.0.0.2", "fd00::2"]], true)]
#[case::one_of_the_other(&[&["10.0.0.1", "fd00::1"], &["fd00::2", "10.0.0.2"]], false)]
fn the_first_family_is_known_only_if_all_pods_agree(#[case] pods: &[&[&str; 2]], #[case] want: bool) {
    let store = PodStore::default();
    for (number, ips) in pods.iter().enumerate() {
        let listed: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        let pod = pod(|value| {
            value["metadata"]["uid"] = json!(format!("u{number}"));
            value["status"]["podIPs"] = json!(listed);
        });
        store.apply(pod, None, at(0));
    }
    assert_eq!(store.is_first_family("10.0.0.9".parse().unwrap()), want);
}
