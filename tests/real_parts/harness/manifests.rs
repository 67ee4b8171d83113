//! The manifests of this repository on a real API server, and the accounts that the daemon runs as.

use std::{fs, path::Path};

use http::Request;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{Pod, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    config::Kubeconfig,
    core::GroupVersionKind,
    discovery::{Scope, pinned_kind},
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::wait::eventually;

/// The namespace of the daemon in the manifests.
pub const NAMESPACE: &str = "cilium-leak-healer";

/// What the account of a daemon may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rights {
    /// `rbac/observe.yaml`, `rbac/fence.yaml` and `rbac/heal.yaml`.
    Heal,
    /// The same and `rbac/restart-agent.yaml`.
    RestartAgent,
    /// Those of the mode heal without the fence around them.
    Unfenced,
    /// The same, for a test that puts the fence up later.
    FencedLate,
    /// `rbac/observe.yaml` alone.
    Observe,
    /// `rbac/observe.yaml` and `rbac/auth.yaml`.
    Auth,
    /// What a person with read-only rights has: get and list of what a scan looks at, no exec.
    Read,
    Nothing,
}

impl Rights {
    pub fn account(self) -> &'static str {
        match self {
            Self::Heal => "cilium-leak-healer",
            Self::RestartAgent => "restart-agent",
            Self::Unfenced => "unfenced",
            Self::FencedLate => "fenced-late",
            Self::Observe => "observe-only",
            Self::Auth => "token-reviewer",
            Self::Read => "read-only",
            Self::Nothing => "no-rights",
        }
    }

    /// The user that a token of its account stands for.
    pub fn user(self) -> String {
        format!("system:serviceaccount:{NAMESPACE}:{}", self.account())
    }

    /// The files that give them, in the order in which they are applied.
    pub fn manifests(self) -> &'static [&'static str] {
        match self {
            Self::Heal => &["rbac/observe.yaml", "rbac/fence.yaml", "rbac/heal.yaml"],
            Self::RestartAgent => {
                &["rbac/observe.yaml", "rbac/fence.yaml", "rbac/heal.yaml", "rbac/restart-agent.yaml"]
            }
            Self::Unfenced | Self::FencedLate => &["rbac/observe.yaml", "rbac/heal.yaml"],
            Self::Observe => &["rbac/observe.yaml"],
            Self::Auth => &["rbac/observe.yaml", "rbac/auth.yaml"],
            Self::Read | Self::Nothing => &[],
        }
    }
}

/// The documents of a YAML file of this repository.
pub fn documents(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Applies the manifests as they are, and some of them again for the other accounts.
pub async fn install(client: &Client) {
    let all = [
        Rights::Heal,
        Rights::Observe,
        Rights::RestartAgent,
        Rights::Unfenced,
        Rights::FencedLate,
        Rights::Auth,
    ];
    for rights in all {
        for document in rights.manifests().iter().flat_map(|file| documents(file)) {
            apply(client, &for_account(document, rights.account())).await;
        }
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
    for rights in [Rights::Heal, Rights::RestartAgent] {
        fence_is_up(client, rights).await;
    }
}

/// Puts the fence up around an account that has none.
pub async fn fence_in(client: &Client, rights: Rights) {
    for document in documents("rbac/fence.yaml") {
        apply(client, &for_account(document, rights.account())).await;
    }
    fence_is_up(client, rights).await;
}

/// A document of the manifests with that account in place of its own. What it names for itself is named for that account;
/// roles and Leases are the same for all.
fn for_account(mut document: Value, account: &str) -> Value {
    let own = Rights::Heal.account();
    let rename = |name: &mut Value| *name = name.as_str().expect("a name").replacen(own, account, 1).into();
    // The self-test knows the fence by the beginning of its name.
    let policy = |name: &mut Value| {
        if account != own {
            *name = format!("{}-for-{account}", name.as_str().expect("a name")).into();
        }
    };
    match document["kind"].as_str().expect("a kind") {
        "ServiceAccount" => rename(&mut document["metadata"]["name"]),
        "ClusterRoleBinding" | "RoleBinding" => {
            rename(&mut document["metadata"]["name"]);
            rename(&mut document["subjects"][0]["name"]);
        }
        "ValidatingAdmissionPolicyBinding" => {
            policy(&mut document["metadata"]["name"]);
            policy(&mut document["spec"]["policyName"]);
        }
        "ValidatingAdmissionPolicy" => {
            policy(&mut document["metadata"]["name"]);
            let user = &mut document["spec"]["matchConditions"][0]["expression"];
            let renamed =
                user.as_str().expect("an expression").replace(&format!(":{own}'"), &format!(":{account}'"));
            *user = renamed.into();
        }
        _ => {}
    }
    document
}

/// Waits until the server holds that account to its policies: it learns of them some time after they are written.
async fn fence_is_up(client: &Client, rights: Rights) {
    let agents = [false, true].into_iter().filter(|agent| !agent || rights == Rights::RestartAgent);
    for agent in agents {
        let namespace = if agent { "kube-system" } else { NAMESPACE };
        let owners = if agent { json!([agent_owner(client).await]) } else { json!([]) };
        let pod = json!({
            "metadata": {"generateName": "fence-", "labels": {"k8s-app": "cilium"}, "ownerReferences": owners},
            "spec": {"containers": [{"name": "app", "image": "app"}]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        // The service account `default` may take its time.
        let pod = eventually("a pod to try the fence on", async || {
            pods.create(&PostParams::default(), &pod).await.ok()
        })
        .await;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{}?dryRun=All", pod.name_any());
        eventually("the fence to be up", async || {
            let request = Request::delete(&path).header("Impersonate-User", rights.user()).body(Vec::new());
            let answer = client.request_text(request.expect("a request")).await;
            answer.is_err_and(|error| error.to_string().contains("ValidatingAdmissionPolicy")).then_some(())
        })
        .await;
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&pod.name_any(), &now).await.expect("delete the pod again");
    }
}

/// What makes a pod one of the agent's: the DaemonSet of Cilium. It makes no pods, since there are no Nodes, and replaces none.
pub async fn agent_owner(client: &Client) -> Value {
    let labels = json!({"k8s-app": "cilium"});
    let spec = json!({"containers": [{"name": "cilium-agent", "image": "cilium"}]});
    let daemon_set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "cilium", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels}, "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    });
    let uid = apply(client, &daemon_set).await.uid();
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cilium", "uid": uid, "controller": true})
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

/// A kubeconfig with a token of the account that is bound to the pod, as the kubelet mounts one, or to nothing.
pub async fn kubeconfig_of(client: &Client, admin: &Path, account: &str, pod: Option<&Pod>) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let bound =
        pod.map(|pod| json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid()}));
    let spec = json!({"audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound});
    let request: TokenRequest = serde_json::from_value(json!({"spec": spec})).expect("a token request");
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
