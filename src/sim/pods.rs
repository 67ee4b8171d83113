//! What is special about pods: their defaults, and that a bound one waits for its kubelet when it is deleted.
//!
//! The rules are `podStrategy.CheckGracefulDelete` and `rest.BeforeDelete`. Must not know: the store, HTTP.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::clock::seconds;
use super::lifecycle::{Author, DeleteOptions};
use super::resource::{PODS, text};
use super::status::Status;

/// Fills in what the API server fills in, and refuses a pod without containers.
pub(crate) fn default(pod: &mut Value, author: Author) -> Result<(), Status> {
    if !pod.get("spec").is_some_and(Value::is_object) {
        pod["spec"] = json!({});
    }
    let no_containers = pod.pointer("/spec/containers").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if no_containers {
        if author == Author::Client {
            let name = text(pod, "/metadata/name").to_owned();
            return Err(Status::invalid(
                &PODS,
                &name,
                "spec.containers",
                "FieldValueRequired",
                "Required value",
            ));
        }
        pod["spec"]["containers"] = json!([{"name": "app", "image": "registry.k8s.io/pause:3.10"}]);
    }
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("serviceAccountName", json!("default")),
        ("serviceAccount", json!("default")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
    ] {
        if pod["spec"].get(field).is_none() {
            pod["spec"][field] = value;
        }
    }
    if pod["metadata"].get("generation").is_none() {
        pod["metadata"]["generation"] = 1.into();
    }
    if author == Author::Client || !pod.get("status").is_some_and(Value::is_object) {
        pod["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
    }
    Ok(())
}

/// The grace period of a delete as admission sees it: of a pod that is not terminating yet the server has settled it by then.
pub(crate) fn grace_period(pod: &Value, options: &DeleteOptions) -> Option<i64> {
    let asked = asked(options);
    if pod["metadata"].get("deletionTimestamp").is_some() { asked } else { Some(settled(pod, asked)) }
}

fn asked(options: &DeleteOptions) -> Option<i64> {
    options.grace_period_seconds.map(|asked| if asked < 0 { 1 } else { asked })
}

/// The pod's own period where none is asked for; 0 where there is nobody to wait for.
fn settled(pod: &Value, asked: Option<i64>) -> i64 {
    let default =
        pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    let finished = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    let unbound = text(pod, "/spec/nodeName").is_empty();
    if finished || unbound { 0 } else { asked.unwrap_or(default) }
}

/// The terminating form of a pod that has to wait for its kubelet; `None` if it goes at once.
pub(crate) fn terminating(pod: &Value, options: &DeleteOptions, now: Timestamp) -> Option<Value> {
    let asked = asked(options);
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return shortened(pod, asked, now);
    }
    let period = settled(pod, asked);
    if period == 0 {
        return None;
    }
    let mut terminating = mark(pod, after(now, period), period);
    let generation = pod["metadata"].get("generation").and_then(Value::as_i64).unwrap_or_default();
    terminating["metadata"]["generation"] = (generation + 1).into();
    Some(terminating)
}

/// A pod that is terminating already: only a shorter grace period may be asked for.
fn shortened(pod: &Value, asked: Option<i64>, now: Timestamp) -> Option<Value> {
    let pending =
        pod["metadata"].get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    if pending == 0 {
        return None;
    }
    let Some(period) = asked.filter(|asked| *asked < pending) else {
        return Some(pod.clone());
    };
    if period == 0 {
        return None;
    }
    let deletion: Option<Timestamp> = text(pod, "/metadata/deletionTimestamp").parse().ok();
    let at = deletion.map_or(now, |at| after(after(at, -pending), period));
    Some(if at < now { mark(pod, now, 1) } else { mark(pod, at, period) })
}

/// The last state of a pod that goes at once, as the delete answers it.
pub(crate) fn farewell(pod: &Value, now: Timestamp) -> Value {
    let mut last = mark(pod, now, 0);
    if let Some(deletion) = pod["metadata"].get("deletionTimestamp") {
        last["metadata"]["deletionTimestamp"] = deletion.clone();
    } else if let Some(generation) = pod["metadata"].get("generation").and_then(Value::as_i64) {
        last["metadata"]["generation"] = (generation + 1).into();
    }
    last
}

fn mark(pod: &Value, at: Timestamp, period: i64) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["deletionTimestamp"] = seconds(at).into();
    pod["metadata"]["deletionGracePeriodSeconds"] = period.into();
    pod
}

fn after(from: Timestamp, seconds: i64) -> Timestamp {
    from.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::its_own_period(json!({}), None, Some(("2026-12-01T00:00:30Z", 30)))]
    #[case::a_shorter_one(json!({}), Some(5), Some(("2026-12-01T00:00:05Z", 5)))]
    #[case::negative_is_one(json!({}), Some(-1), Some(("2026-12-01T00:00:01Z", 1)))]
    #[case::at_once(json!({}), Some(0), None)]
    #[case::unbound(json!({"/spec/nodeName": ""}), None, None)]
    #[case::finished(json!({"/status/phase": "Failed"}), None, None)]
    fn a_pod_waits_for_its_kubelet(
        #[case] change: Value,
        #[case] asked: Option<i64>,
        #[case] expected: Option<(&str, i64)>,
    ) {
        let mut pod = json!({"metadata": {"name": "p", "generation": 1}, "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}});
        for (pointer, value) in change.as_object().unwrap() {
            *pod.pointer_mut(pointer).unwrap() = value.clone();
        }
        let options = DeleteOptions { grace_period_seconds: asked, ..DeleteOptions::default() };
        let terminating = terminating(&pod, &options, "2026-12-01T00:00:00Z".parse().unwrap());
        let seen = terminating.as_ref().map(|pod| {
            (
                text(pod, "/metadata/deletionTimestamp"),
                pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap(),
            )
        });
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_grace_period_only_shrinks() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let grace =
            |seconds| DeleteOptions { grace_period_seconds: Some(seconds), ..DeleteOptions::default() };
        let pod = json!({"metadata": {"name": "p", "generation": 1}, "spec": {"nodeName": "n1"}});
        let first = terminating(&pod, &grace(30), now).unwrap();
        assert_eq!(terminating(&first, &grace(60), now).unwrap(), first);
        let second = terminating(&first, &grace(5), now).unwrap();
        assert_eq!(text(&second, "/metadata/deletionTimestamp"), "2026-12-01T00:00:05Z");
        assert_eq!(second["metadata"]["generation"], 2);
    }
}
