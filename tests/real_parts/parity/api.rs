//! The API server, as far as the watchdog and kube's watcher ask it.

use cilium_leak_healer::sim::{Cluster, ClusterOptions};
use http_body_util::BodyExt;
use hyper::{Method, header::CONTENT_TYPE};
use kube::Client;
use serde_json::{Value, json};

use super::{Seen, assert_alike, masked};
use crate::harness::{Answer, Node, client_of, eventually};

const PODS: &str = "/api/v1/namespaces/parity/pods";

#[tokio::test]
async fn the_api_servers_answers() {
    // Registers Cilium's resources.
    let node = Node::new().await;
    let real = Script { client: node.client.clone(), seen: Vec::new() }.run().await;
    let cluster = Cluster::start(ClusterOptions::default()).await.expect("a simulated cluster");
    let client = client_of(&cluster.kubeconfig()).await;
    let simulated = Script { client, seen: Vec::new() }.run().await;
    assert_alike(&real, &simulated);
}

struct Script {
    client: Client,
    seen: Vec<Seen>,
}

impl Script {
    async fn run(mut self) -> Vec<Seen> {
        self.call(Method::POST, "/api/v1/namespaces", Some(json!({"metadata": {"name": "parity"}}))).await;
        for (name, node) in [("a", "parity-1"), ("b", "parity-1"), ("c", "parity-2"), ("d", "")] {
            let mut pod = json!({
                "metadata": {"name": name, "labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "app"}]},
            });
            if !node.is_empty() {
                pod["spec"]["nodeName"] = node.into();
            }
            eventually("a pod to be made", async || {
                (self.call(Method::POST, PODS, Some(pod.clone())).await.status == 201).then_some(())
            })
            .await;
        }
        self.lists().await;
        self.changes().await;
        self.events().await;
        self.watches().await;
        self.custom_resources().await;
        self.deletions().await;
        self.seen
    }

    async fn lists(&mut self) {
        let mut first = String::new();
        for query in [
            "",
            "?limit=3",
            "?limit=2&resourceVersion=0",
            "?fieldSelector=spec.nodeName%3Dparity-1",
            "?fieldSelector=spec.nodeName%3D",
            "?fieldSelector=spec.nodeName%3Dparity-1&limit=1",
            "?fieldSelector=metadata.name%3Db",
            "?fieldSelector=status.phase%3DPending",
            "?fieldSelector=status.podIP%3D10.0.0.1",
            "?labelSelector=app%3Da",
            "?labelSelector=app+in+(a,c)",
            "?labelSelector=app!%3Da",
            "?labelSelector=!app",
            "?fieldSelector=spec.nodeName!%3Dparity-1",
            "?fieldSelector=spec.nonsense%3D1",
            "?fieldSelector=nonsense",
            "?labelSelector=a+b",
            "?limit=x",
            "?continue=nonsense",
            "?continue=e30",
            "?resourceVersionMatch=Exact",
            "?resourceVersion=x",
            "?resourceVersion=0&resourceVersionMatch=NotOlderThan",
        ] {
            let answer = self.list(&format!("{PODS}{query}")).await;
            if query == "?limit=3" {
                first = answer.json()["metadata"]["continue"].as_str().expect("a token").to_owned();
            }
        }
        self.list(&format!("{PODS}?limit=3&continue={first}")).await;
        self.list(&format!("{PODS}?limit=3&continue={first}&resourceVersion=5")).await;
        self.text("/api/v1/namespaces/parity/pods/none").await;
        self.text("/api/v1/namespaces/none/pods").await;
        self.text("/api/v1/namespaces/none/pods/none").await;
        self.text("/api/v1/nonsense").await;
        self.text("/apis/nonsense.io/v1/things").await;
        self.text("/apis/cilium.io/v2/nonsense").await;
    }

    async fn changes(&mut self) {
        let status = json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}});
        let answer = self.patch(&format!("{PODS}/a/status"), "application/merge-patch+json", status).await;
        self.seen.push(Seen::text(
            "PATCH status",
            &Answer { body: answer.json()["status"]["podIPs"].to_string(), ..answer },
        ));
        self.list(&format!("{PODS}?fieldSelector=status.podIP%3D10.0.0.1")).await;
        self.list(&format!("{PODS}?fieldSelector=status.podIP%3Dfd00::1")).await;
        self.list("/api/v1/pods?fieldSelector=status.podIP%3D10.0.0.1&limit=5").await;
        let answer =
            self.patch(&format!("{PODS}/none/status"), "application/merge-patch+json", json!({})).await;
        self.seen.push(Seen::text("PATCH of nothing", &answer));
        let answer = self.call(Method::GET, &format!("{PODS}/a"), None).await;
        self.seen.push(Seen::text(
            "GET a",
            &Answer {
                body: json!([answer.json()["kind"], answer.json()["apiVersion"]]).to_string(),
                ..answer
            },
        ));
    }

    async fn events(&mut self) {
        let pod = self.call(Method::GET, &format!("{PODS}/a"), None).await.json();
        let uid = pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
        let path = "/api/v1/namespaces/parity/events";
        let event = json!({
            "metadata": {"name": "a.1", "namespace": "parity"}, "type": "Warning", "reason": "FailedCreatePodSandBox", "message": "m",
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "parity", "name": "a", "uid": uid}, "count": 2,
            "source": {"component": "kubelet", "host": "parity-1"},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:10Z",
        });
        let newer = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a.2", "namespace": "parity"}, "type": "Warning",
            "reason": "FailedCreatePodSandBox", "note": "n", "action": "Create", "eventTime": "2026-01-01T00:00:20.123456Z",
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "parity", "name": "a", "uid": uid},
            "reportingController": "kubelet", "reportingInstance": "parity-1",
        });
        assert_eq!(self.call(Method::POST, path, Some(event)).await.status, 201);
        let newer_path = "/apis/events.k8s.io/v1/namespaces/parity/events";
        assert_eq!(self.call(Method::POST, newer_path, Some(newer)).await.status, 201);
        for path in [path, newer_path] {
            for name in ["a.1", "a.2"] {
                let mut answer = self.call(Method::GET, &format!("{path}/{name}"), None).await;
                let mut event = answer.json();
                event["metadata"] = Value::Null;
                answer.body = event.to_string();
                self.seen.push(Seen::text(format!("{path}/{name}"), &answer));
            }
        }
        for selector in [
            format!("involvedObject.uid%3D{uid}"),
            "involvedObject.uid%3Dnone".to_owned(),
            "reason%3DFailedCreatePodSandBox".to_owned(),
            format!("involvedObject.uid%3D{uid},reason%3DFailedCreatePodSandBox,involvedObject.kind%3DPod"),
            "type%3DNormal".to_owned(),
            "source%3Dkubelet".to_owned(),
            "nonsense%3D1".to_owned(),
        ] {
            self.list(&format!("{path}?fieldSelector={selector}")).await;
        }
    }

    async fn watches(&mut self) {
        let version = self.call(Method::GET, PODS, None).await.json()["metadata"]["resourceVersion"].clone();
        let version = version.as_str().expect("a version").to_owned();
        let labels = json!({"metadata": {"labels": {"changed": "yes"}}});
        for name in ["a", "c"] {
            assert_eq!(
                self.patch(&format!("{PODS}/{name}"), "application/merge-patch+json", labels.clone())
                    .await
                    .status,
                200
            );
        }
        for query in [
            format!("resourceVersion={version}"),
            format!("resourceVersion={version}&fieldSelector=spec.nodeName%3Dparity-1"),
            format!("resourceVersion={version}&fieldSelector=spec.nodeName%3Dnone"),
            "resourceVersion=0".to_owned(),
            String::new(),
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".to_owned(),
            "sendInitialEvents=true".to_owned(),
            "resourceVersion=x".to_owned(),
            "fieldSelector=nonsense%3D1".to_owned(),
        ] {
            let answer =
                self.call(Method::GET, &format!("{PODS}?watch=true&timeoutSeconds=1&{query}"), None).await;
            let query = query.replace(&version, "VERSION");
            if answer.status != 200 {
                self.seen.push(Seen::text(format!("watch {query}"), &answer));
                continue;
            }
            let mut events: Vec<_> = answer.body.lines().map(event_of_watch).collect();
            // The first events of a watch without a version come in no order.
            if !query.contains("VERSION") {
                events.sort();
            }
            self.seen
                .push(Seen::text(format!("watch {query}"), &Answer { body: events.join(" "), ..answer }));
        }
    }

    async fn custom_resources(&mut self) {
        let path = "/apis/cilium.io/v2/namespaces/parity/ciliumendpoints";
        let endpoint = json!({
            "apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint", "metadata": {"name": "a", "namespace": "parity"},
            "status": {"id": 7, "external-identifiers": {"cni-attachment-id": "c:eth0"}},
        });
        let made = self.call(Method::POST, path, Some(endpoint)).await;
        self.seen.push(Seen::text(
            "POST a CiliumEndpoint",
            &Answer { body: made.json()["status"].to_string(), ..made },
        ));
        self.text(&format!("{path}/none")).await;
        self.list(path).await;
        self.list(&format!("{path}?limit=1")).await;
        let answer =
            self.patch(&format!("{path}/a"), "application/strategic-merge-patch+json", json!({})).await;
        self.seen.push(Seen::text("a patch of the wrong kind", &answer));
        let answer = self.patch(&format!("{path}/a/status"), "application/merge-patch+json", json!({})).await;
        self.seen.push(Seen::text("no status subresource", &answer));
        self.list("/apis/cilium.io/v2alpha1/ciliumendpointslices?limit=5").await;
        self.text("/apis/cilium.io/v2/ciliumnodes/none").await;
        let wrong = json!({"preconditions": {"uid": "43b3592e-6c5f-4476-be78-0f135b71dd67"}});
        let answer = self.call(Method::DELETE, &format!("{path}/a"), Some(wrong)).await;
        self.seen.push(Seen::text("DELETE of another CiliumEndpoint", &answer));
        let answer = self.call(Method::DELETE, &format!("{path}/a"), None).await;
        self.seen.push(Seen::text("DELETE of a CiliumEndpoint", &answer));
    }

    async fn deletions(&mut self) {
        let wrong_uid = json!({"preconditions": {"uid": "43b3592e-6c5f-4476-be78-0f135b71dd67"}});
        let wrong_version = json!({"preconditions": {"resourceVersion": "1"}});
        for (step, options) in [("another UID", wrong_uid), ("another version", wrong_version)] {
            let answer = self.call(Method::DELETE, &format!("{PODS}/a"), Some(options)).await;
            self.seen.push(Seen::text(step, &answer));
        }
        let pod = self.call(Method::GET, &format!("{PODS}/a"), None).await.json();
        let right = json!({"preconditions": {
            "uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"],
        }});
        for (step, name, options) in [
            ("the right pod, which is bound", "a", right.clone()),
            ("again, with the old version", "a", right),
            ("now", "a", json!({"gracePeriodSeconds": 0})),
            ("once more", "a", json!({})),
            ("a pod that is bound to no node", "d", json!({})),
        ] {
            let answer = self.call(Method::DELETE, &format!("{PODS}/{name}"), Some(options)).await;
            let json = answer.json();
            let seen = if answer.status == 200 {
                let metadata = &json["metadata"];
                let fields = json!([
                    json["kind"],
                    metadata["deletionGracePeriodSeconds"],
                    metadata["deletionTimestamp"].is_string()
                ]);
                Seen::text(step, &Answer { body: fields.to_string(), ..answer })
            } else {
                Seen::text(step, &answer)
            };
            self.seen.push(seen);
            self.text(&format!("{PODS}/{name}?after={}", step.len())).await;
        }
    }

    /// Names of the items and the list's own fields.
    async fn list(&mut self, path: &str) -> Answer {
        let answer = self.call(Method::GET, path, None).await;
        let step = masked(path);
        if answer.status != 200 {
            self.seen.push(Seen::text(step, &answer));
            return answer;
        }
        let list = answer.json();
        let items = list["items"].as_array().expect("items");
        let names: Vec<_> =
            items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default()).collect();
        let kinds: Vec<_> = items.iter().map(|item| [&item["kind"], &item["apiVersion"]]).collect();
        let metadata = &list["metadata"];
        let own = json!([
            list["kind"],
            list["apiVersion"],
            names,
            kinds,
            metadata["remainingItemCount"],
            metadata["continue"].as_str().is_some_and(|token| !token.is_empty()),
            metadata["resourceVersion"].is_string(),
        ]);
        self.seen.push(Seen::text(
            step,
            &Answer {
                body: own.to_string(),
                status: answer.status,
                content_type: answer.content_type.clone(),
            },
        ));
        answer
    }

    /// The whole text of a failure, the mere status of a success.
    async fn text(&mut self, path: &str) {
        let answer = self.call(Method::GET, path, None).await;
        let body = if answer.status == 200 { String::new() } else { answer.body.clone() };
        self.seen.push(Seen::text(masked(path), &Answer { body, ..answer }));
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.send(method, path, "application/json", body).await
    }

    async fn patch(&self, path: &str, content_type: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, content_type, Some(body)).await
    }

    async fn send(&self, method: Method, path: &str, content_type: &str, body: Option<Value>) -> Answer {
        let request = hyper::Request::builder().method(method).uri(path).header(CONTENT_TYPE, content_type);
        let body = body.map(|body| body.to_string()).unwrap_or_default().into_bytes();
        let request = request.body(body.into()).expect("a request");
        let response = self.client.send(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        Answer {
            status: head.status.as_u16(),
            content_type: head
                .headers
                .get(CONTENT_TYPE)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }
}

/// Type, kind and name; of an error the whole.
fn event_of_watch(line: &str) -> String {
    let event: Value = serde_json::from_str(line).expect("an event of a watch");
    let object = &event["object"];
    match event["type"].as_str() {
        Some("ERROR") => masked(line),
        kind => format!("{}:{}:{}", kind.unwrap_or_default(), object["kind"], object["metadata"]["name"]),
    }
}
