//! The manifests of this repository on a real API server, and the accounts that the daemon runs as.

use std::{fs, path::Path};

use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{Pod, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    config::Kubeconfig,
    core::GroupVersionKind,
    discovery::{Scope, pinned_kind},
};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The namespace of the daemon in the manifests.
pub const NAMESPACE: &str = "cilium-leak-healer";

/// What the account of a daemon may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rights {
    /// `rbac/observe.yaml` and `rbac/heal.yaml`.
    Heal,
    /// `rbac/observe.yaml` alone.
    Observe,
    /// What a person with read-only rights has: get and list of what a scan looks at, no exec.
    Read,
    Nothing,
}

impl Rights {
    pub fn account(self) -> &'static str {
        match self {
            Self::Heal => "cilium-leak-healer",
            Self::Observe => "observe-only",
            Self::Read => "read-only",
            Self::Nothing => "no-rights",
        }
    }
}

/// The documents of a YAML file of this repository.
pub fn documents(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Applies the manifests as they are, and the same again for the account that may only observe.
pub async fn install(client: &Client) {
    let observe = documents("rbac/observe.yaml");
    for document in observe.iter().chain(&documents("rbac/heal.yaml")) {
        apply(client, document).await;
    }
    for mut document in observe {
        match document["kind"].as_str() {
            Some("ServiceAccount") => {}
            Some("ClusterRoleBinding") => document["subjects"][0]["name"] = Rights::Observe.account().into(),
            _ => continue,
        }
        document["metadata"]["name"] = Rights::Observe.account().into();
        apply(client, &document).await;
    }
    for rights in [Rights::Nothing, Rights::Read] {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": rights.account(), "namespace": NAMESPACE},
        });
        apply(client, &account).await;
    }
    let name = Rights::Read.account();
    let reads = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [
            {"apiGroups": [""], "resources": ["pods", "events", "nodes"], "verbs": ["get", "list"]},
            {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get", "list"]},
            {"apiGroups": ["cilium.io"], "verbs": ["get", "list"],
             "resources": ["ciliumnodes", "ciliumendpoints", "ciliumendpointslices"]},
        ],
    });
    apply(client, &reads).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    });
    apply(client, &binding).await;
}

/// Server-side apply of any object.
pub async fn apply(client: &Client, document: &Value) -> DynamicObject {
    patch(client, document, &PatchParams::apply("tests")).await
}

/// Asks the server what it would say to a file; unknown fields are errors.
pub async fn dry_run(client: &Client, file: &str) {
    for document in documents(file) {
        patch(client, &document, &PatchParams::apply("dry-run").force().dry_run().validation_strict()).await;
    }
}

async fn patch(client: &Client, document: &Value, params: &PatchParams) -> DynamicObject {
    let object = DynamicObject::deserialize(document).expect("an object");
    let types = object.types.clone().expect("apiVersion and kind");
    let kind = GroupVersionKind::try_from(&types).expect("a group, version and kind");
    let (resource, capabilities) = pinned_kind(client, &kind).await.expect("a kind that the server has");
    let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
        _ => Api::all_with(client.clone(), &resource),
    };
    let patched = api.patch(&object.name_any(), params, &Patch::Apply(document)).await;
    patched.unwrap_or_else(|error| panic!("apply {} {}: {error}", types.kind, object.name_any()))
}

/// A kubeconfig with a token of the account that is bound to the pod, as the kubelet mounts one.
pub async fn kubeconfig_of(client: &Client, admin: &Path, account: &str, pod: &Pod) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let request: TokenRequest = serde_json::from_value(json!({"spec": {
        "audiences": [],
        "expirationSeconds": 3600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid()},
    }}))
    .expect("a token request");
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let token = answer.expect("a token").status.expect("a status").token;
    let admin = Kubeconfig::read_from(admin).expect("read the admin's kubeconfig");
    let cluster = &admin.clusters[0].cluster;
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "daemon",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "daemon", "user": {"token": token}}],
        "contexts": [{"name": "daemon", "context": {"cluster": "test", "user": "daemon", "namespace": NAMESPACE}}],
    })
    .to_string()
}
