//! The API server, as far as the watchdog and kube's watcher ask it.

use std::{collections::BTreeMap, sync::Arc};

use cilium_leak_healer::sim::{ApiOptions, Cluster, ClusterOptions};
use hyper::Method;
use serde_json::json;

use super::{Seen, assert_alike, requests::Requests};
use crate::harness::{ApiServer, Node, Rights, client_of, eventually};

const PODS: &str = "/api/v1/namespaces/parity/pods";
const MERGE: &str = "application/merge-patch+json";

#[tokio::test]
async fn the_api_servers_answers() {
    // Registers Cilium's resources.
    let node = Node::new().await;
    let mut real = Requests::of(node.client.clone());
    script(&mut real).await;
    let cluster = Cluster::start(ClusterOptions::default()).await.expect("a simulated cluster");
    let mut simulated = Requests::of(client_of(&cluster.kubeconfig()).await);
    script(&mut simulated).await;
    assert_alike(&real.seen, &simulated.seen);
}

#[tokio::test]
async fn the_api_servers_refusals() {
    let node = Node::new().await;
    let without_rights = node.kubeconfig(Rights::Nothing).await;
    let user = format!("system:serviceaccount:cilium-leak-healer:{}", Rights::Nothing.account());
    let api = ApiOptions {
        tokens: BTreeMap::from([("known".to_owned(), user)]),
        authorizer: Some(Arc::new(|_| false)),
        ..ApiOptions::default()
    };
    let options = ClusterOptions { api, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.expect("a simulated cluster");
    let mut both = Vec::new();
    for kubeconfig in [without_rights, cluster.kubeconfig_for("known")] {
        let mut requests = Requests::of(client_of(&kubeconfig).await);
        for path in
            ["/api/v1/pods", PODS, "/api/v1/namespaces/parity/pods/a", "/apis/cilium.io/v2/ciliumnodes/n"]
        {
            requests.text(path).await;
        }
        let answer = requests.call(Method::DELETE, &format!("{PODS}/a"), None).await;
        requests.seen.push(Seen::text("DELETE", &answer));
        let unknown = kubeconfig.replace("known", "unknown").replace("\"token\":\"", "\"token\":\"x");
        let mut requests_of_nobody = Requests::of(client_of(&unknown).await);
        requests_of_nobody.text(PODS).await;
        requests.seen.append(&mut requests_of_nobody.seen);
        both.push(requests.seen);
    }
    assert_alike(&both[0], &both[1]);
}

#[tokio::test]
async fn a_watch_since_what_the_server_has_forgotten() {
    let mut server = ApiServer::start("forgets");
    // A restarted one knows nothing of the time before.
    server.stop();
    server.launch();
    let mut real = Requests::of(server.admin().await);
    let cluster = Cluster::start(ClusterOptions::default()).await.expect("a simulated cluster");
    cluster.api().compact();
    let mut simulated = Requests::of(client_of(&cluster.kubeconfig()).await);
    for api in [&mut real, &mut simulated] {
        api.watch("since the first version", "resourceVersion=1").await;
    }
    assert_alike(&real.seen, &simulated.seen);
    assert!(
        real.seen[0].body.iter().any(|event| event.contains("too old resource version")),
        "{real:?}",
        real = real.seen
    );
}

async fn script(api: &mut Requests) {
    api.call(Method::POST, "/api/v1/namespaces", Some(json!({"metadata": {"name": "parity"}}))).await;
    for (name, node) in [("a", "parity-1"), ("b", "parity-1"), ("c", "parity-2"), ("d", "")] {
        let mut spec = json!({"containers": [{"name": "app", "image": "app"}]});
        if !node.is_empty() {
            spec["nodeName"] = node.into();
        }
        let pod = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
        eventually("a pod to be made", async || {
            (api.call(Method::POST, PODS, Some(pod.clone())).await.status == 201).then_some(())
        })
        .await;
    }
    lists(api).await;
    changes(api).await;
    events(api).await;
    watches(api).await;
    custom_resources(api).await;
    deletions(api).await;
}

async fn lists(api: &mut Requests) {
    for query in [
        "",
        "?limit=2&resourceVersion=0",
        "?fieldSelector=spec.nodeName%3Dparity-1",
        "?fieldSelector=spec.nodeName%3D",
        "?fieldSelector=spec.nodeName%3Dparity-1&limit=1",
        "?fieldSelector=spec.nodeName!%3Dparity-1",
        "?fieldSelector=metadata.name%3Db",
        "?fieldSelector=status.phase%3DPending",
        "?fieldSelector=spec.nonsense%3D1",
        "?fieldSelector=nonsense",
        "?labelSelector=app%3Da",
        "?labelSelector=app+in+(a,c)",
        "?labelSelector=app!%3Da",
        "?labelSelector=!app",
        "?limit=x",
        "?resourceVersion=x",
        "?resourceVersion=0&resourceVersionMatch=NotOlderThan",
    ] {
        api.list(&format!("{PODS}{query}")).await;
    }
    let page = api.list(&format!("{PODS}?limit=3")).await;
    let token = page["metadata"]["continue"].as_str().expect("a token").to_owned();
    for (step, more) in [("the second page", ""), ("a page of a version", "&resourceVersion=5")] {
        api.list_as(step, &format!("{PODS}?limit=3&continue={token}{more}")).await;
    }
    // What it says of these is nobody's business.
    for query in ["labelSelector=a+b", "continue=nonsense", "continue=e30"] {
        let answer = api.call(Method::GET, &format!("{PODS}?{query}"), None).await;
        api.seen.push(Seen::status(query, &answer));
    }
    for path in [
        "/api/v1/namespaces/parity/pods/none",
        "/api/v1/namespaces/none/pods",
        "/api/v1/namespaces/none/pods/none",
        "/api/v1/nonsense",
        "/apis/nonsense.io/v1/things",
        "/apis/cilium.io/v2/nonsense",
    ] {
        api.text(path).await;
    }
}

async fn changes(api: &mut Requests) {
    let addresses = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
    let status = json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": addresses}});
    let answer = api.patch(&format!("{PODS}/a/status"), MERGE, status).await;
    api.seen.push(Seen::part("PATCH of a status", &answer, &["/status/podIPs", "/status/phase"]));
    let answer = api.patch(&format!("{PODS}/none/status"), MERGE, json!({})).await;
    api.seen.push(Seen::text("PATCH of nothing", &answer));
    let answer = api.call(Method::GET, &format!("{PODS}/a"), None).await;
    api.seen.push(Seen::part("GET", &answer, &["/kind", "/apiVersion", "/status/podIP"]));
    for selector in ["10.0.0.1", "fd00::1", "10.0.0.2"] {
        api.list(&format!("/api/v1/pods?fieldSelector=status.podIP%3D{selector}&limit=5")).await;
    }
}

async fn events(api: &mut Requests) {
    let pod = api.call(Method::GET, &format!("{PODS}/a"), None).await.json();
    let uid = pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
    let about = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "parity", "name": "a", "uid": uid});
    let old = json!({
        "metadata": {"name": "a.1", "namespace": "parity"}, "type": "Warning", "reason": "FailedCreatePodSandBox",
        "message": "m", "involvedObject": about, "count": 2, "source": {"component": "kubelet", "host": "parity-1"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:10Z",
    });
    let new = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a.2", "namespace": "parity"},
        "type": "Warning", "reason": "FailedCreatePodSandBox", "note": "n", "action": "Create", "regarding": about,
        "eventTime": "2026-01-01T00:00:20.123456Z", "reportingController": "kubelet", "reportingInstance": "parity-1",
    });
    let old_path = "/api/v1/namespaces/parity/events";
    let new_path = "/apis/events.k8s.io/v1/namespaces/parity/events";
    for (path, event) in [(old_path, old), (new_path, new)] {
        assert_eq!(api.call(Method::POST, path, Some(event)).await.status, 201);
    }
    for name in ["a.1", "a.2"] {
        let answer = api.call(Method::GET, &format!("{old_path}/{name}"), None).await;
        let fields = [
            "/involvedObject",
            "/message",
            "/reason",
            "/type",
            "/count",
            "/source",
            "/series",
            "/firstTimestamp",
            "/lastTimestamp",
            "/eventTime",
            "/reportingComponent",
            "/apiVersion",
        ];
        api.seen.push(Seen::part(name, &answer, &fields));
    }
    for (step, selector) in [
        ("by UID", format!("involvedObject.uid%3D{uid}")),
        (
            "by UID and more",
            format!("involvedObject.uid%3D{uid},reason%3DFailedCreatePodSandBox,type%3DWarning"),
        ),
        ("by another UID", "involvedObject.uid%3Dnone".to_owned()),
        ("by source", "source%3Dkubelet".to_owned()),
        ("by nonsense", "nonsense%3D1".to_owned()),
    ] {
        api.list_as(&format!("Events {step}"), &format!("{old_path}?fieldSelector={selector}")).await;
    }
}

async fn watches(api: &mut Requests) {
    let list = api.call(Method::GET, PODS, None).await.json();
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let labels = json!({"metadata": {"labels": {"changed": "yes"}}});
    for name in ["a", "c"] {
        let changed = api.patch(&format!("{PODS}/{name}"), MERGE, labels.clone()).await;
        assert_eq!(changed.status, 200);
    }
    let since = format!("resourceVersion={version}");
    for (step, query) in [
        ("since a version", since.clone()),
        ("of a node", format!("{since}&fieldSelector=spec.nodeName%3Dparity-1")),
        ("of another node", format!("{since}&fieldSelector=spec.nodeName%3Dnone")),
        ("of what is there", "resourceVersion=0".to_owned()),
        ("without a version", String::new()),
        (
            "instead of a list",
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".to_owned(),
        ),
        ("instead of a list, wrongly", "sendInitialEvents=true".to_owned()),
        ("since nonsense", "resourceVersion=x".to_owned()),
        ("of nonsense", "fieldSelector=nonsense%3D1".to_owned()),
    ] {
        api.watch(step, &query).await;
    }
}

async fn custom_resources(api: &mut Requests) {
    let path = "/apis/cilium.io/v2/namespaces/parity/ciliumendpoints";
    let endpoint = json!({
        "apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint", "metadata": {"name": "a", "namespace": "parity"},
        "status": {"id": 7, "external-identifiers": {"cni-attachment-id": "c:eth0"}},
    });
    let made = api.call(Method::POST, path, Some(endpoint)).await;
    api.seen.push(Seen::part("POST of a CiliumEndpoint", &made, &["/status"]));
    api.text(&format!("{path}/none")).await;
    api.list(&format!("{path}?limit=1")).await;
    let answer = api.patch(&format!("{path}/a"), "application/strategic-merge-patch+json", json!({})).await;
    api.seen.push(Seen::text("a patch of the wrong kind", &answer));
    let answer = api.patch(&format!("{path}/a/status"), MERGE, json!({})).await;
    api.seen.push(Seen::text("a status that is no subresource", &answer));
    api.list("/apis/cilium.io/v2alpha1/ciliumendpointslices?limit=5").await;
    api.text("/apis/cilium.io/v2/ciliumnodes/none").await;
    let wrong = json!({"preconditions": {"uid": "43b3592e-6c5f-4476-be78-0f135b71dd67"}});
    for (step, options) in [("of another CiliumEndpoint", Some(wrong)), ("of a CiliumEndpoint", None)] {
        let answer = api.call(Method::DELETE, &format!("{path}/a"), options).await;
        api.seen.push(Seen::text(format!("DELETE {step}"), &answer));
    }
}

async fn deletions(api: &mut Requests) {
    let pod = api.call(Method::GET, &format!("{PODS}/a"), None).await.json();
    let own = &pod["metadata"];
    let right = json!({"preconditions": {"uid": own["uid"], "resourceVersion": own["resourceVersion"]}});
    for (step, name, options) in [
        ("another UID", "a", json!({"preconditions": {"uid": "43b3592e-6c5f-4476-be78-0f135b71dd67"}})),
        ("another version", "a", json!({"preconditions": {"resourceVersion": "1"}})),
        ("the right pod, which is bound to a node", "a", right.clone()),
        ("the same again, whose version is old now", "a", right),
        ("at once", "a", json!({"gracePeriodSeconds": 0})),
        ("what is gone", "a", json!({})),
        ("a pod that is bound to no node", "d", json!({})),
    ] {
        let answer = api.call(Method::DELETE, &format!("{PODS}/{name}"), Some(options)).await;
        let fields = ["/kind", "/metadata/deletionGracePeriodSeconds", "/code", "/reason", "/message"];
        api.seen.push(Seen::part(step, &answer, &fields));
        let after = api.call(Method::GET, &format!("{PODS}/{name}"), None).await;
        api.seen.push(Seen::part(format!("{step}, afterwards"), &after, &fields));
    }
}
