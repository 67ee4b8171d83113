//! A controller with one pod on a node, which comes back when it is deleted.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

use super::{manifests::apply, wait::eventually};

pub struct Workload {
    kind: &'static str,
    name: String,
    uid: String,
    pods: Api<Pod>,
    template: Value,
    /// Whether its controller runs; if not, this plays it.
    controlled: bool,
}

impl Workload {
    /// Makes a `StatefulSet` or a `ReplicaSet`.
    pub async fn create(
        client: &Client,
        (kind, name): (&'static str, &str),
        (namespace, pod_spec): (&str, Value),
        controlled: bool,
    ) -> Self {
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": pod_spec});
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template},
        });
        if kind == "StatefulSet" {
            object["spec"]["serviceName"] = name.into();
        }
        let uid = apply(client, &object).await.uid().expect("a UID");
        let pods = Api::namespaced(client.clone(), namespace);
        Self { kind, name: name.to_owned(), uid, pods, template, controlled }
    }

    /// Its pod, or the one that comes after that one.
    pub async fn pod(&self, former: Option<&Pod>) -> Pod {
        if !self.controlled {
            return self.create_pod(former.is_some()).await;
        }
        let of_this = ListParams::default().labels(&format!("app={}", self.name));
        eventually(&format!("a pod of {} {}", self.kind, self.name), async || {
            let pods = self.pods.list(&of_this).await.expect("list pods");
            let is_next = |pod: &Pod| {
                pod.metadata.deletion_timestamp.is_none() && pod.uid() != former.and_then(ResourceExt::uid)
            };
            pods.items.into_iter().find(is_next)
        })
        .await
    }

    async fn create_pod(&self, again: bool) -> Pod {
        let name = match self.kind {
            "StatefulSet" => format!("{}-0", self.name),
            _ => format!("{}-{}", self.name, u8::from(again)),
        };
        let mut pod = self.template.clone();
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": self.kind, "name": self.name, "uid": self.uid, "controller": true,
        }]);
        let pod = serde_json::from_value(pod).expect("a pod");
        self.pods.create(&PostParams::default(), &pod).await.expect("create the pod of a controller")
    }
}
