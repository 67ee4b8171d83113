//! The fence: the same deletes to both servers. The real one runs the policies of `rbac/`, the simulated one its copy of their
//! rules, and each denial must be by the rule that is meant.

use cilium_leak_healer::sim::{ApiOptions, Cluster, ClusterOptions, Fence, NodeOptions};
use hyper::Method;
use serde_json::{Value, json};

use super::{Seen, assert_alike, requests::Requests};
use crate::harness::{Node, Rights, agent_owner, client_of, eventually};

/// A pod and a delete of it. As made by [`Server::attempt`], the pod may be moved.
struct Attempt {
    namespace: &'static str,
    pod: Value,
    status: Value,
    options: Value,
    /// Somebody else has deleted it before, with this grace period.
    deleted: Option<u32>,
    /// A controller that is no DaemonSet.
    other_owner: Value,
}

type Change = fn(&mut Attempt);
type Case = (&'static str, &'static str, Change);

/// What is attempted, the rule that denies it (none: it is allowed), and how it differs from a pod that may be moved.
const STRICT: [Case; 25] = [
    ("a pod that may be moved", "", |_| {}),
    ("its own grace period", "", |it| it.options["gracePeriodSeconds"] = 30.into()),
    ("a longer grace period", "", |it| it.options["gracePeriodSeconds"] = 31.into()),
    ("its own grace period of 0", "", |it| it.pod["spec"]["terminationGracePeriodSeconds"] = 0.into()),
    ("not opted out", "", |it| it.pod["metadata"]["labels"]["cilium-leak-healer/opt-out"] = "false".into()),
    ("a container that waits", "", |it| {
        it.status = container(&json!({"state": {"waiting": {"reason": "x"}}}));
    }),
    ("on another node", "own-node", |it| it.pod["spec"]["nodeName"] = "elsewhere".into()),
    ("on no node", "own-node", |it| it.pod["spec"] = json!({"containers": it.pod["spec"]["containers"]})),
    ("it runs", "pending", |it| it.status = json!({"phase": "Running"})),
    ("it has ended", "pending", |it| it.status = json!({"phase": "Failed"})),
    ("it has an address", "no-address", |it| {
        it.status = json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]});
    }),
    ("a container runs", "no-container", |it| it.status = container(&json!({"state": {"running": {}}}))),
    ("a container has ended", "no-container", |it| {
        it.status = container(&json!({"state": {"terminated": {"exitCode": 1}}}));
    }),
    ("a container ended before", "no-container", |it| {
        it.status = container(&json!({"lastState": {"terminated": {"exitCode": 1}}}));
    }),
    ("a container was started again", "no-container", |it| {
        it.status = container(&json!({"restartCount": 1}));
    }),
    ("a container was started", "no-container", |it| it.status = container(&json!({"started": true}))),
    ("an init container runs", "no-container", |it| {
        it.status = json!({"initContainerStatuses": [of_container(&json!({"state": {"running": {}}}))]});
    }),
    ("an ephemeral container runs", "no-container", |it| {
        it.status = json!({"ephemeralContainerStatuses": [of_container(&json!({"state": {"running": {}}}))]});
    }),
    ("an owner that is no controller", "controller", |it| {
        it.pod["metadata"]["ownerReferences"][0]["controller"] = false.into();
    }),
    ("a mirror", "no-mirror", |it| {
        it.pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    }),
    ("deleted already, and hurried", "not-deleting", |it| {
        (it.deleted, it.options["gracePeriodSeconds"]) = (Some(60), 30.into());
    }),
    ("no UID", "uid-precondition", |it| it.options["preconditions"] = Value::Null),
    ("no grace", "grace", |it| it.options["gracePeriodSeconds"] = 0.into()),
    ("opted out", "opt-out", |it| it.pod["metadata"]["labels"]["cilium-leak-healer/opt-out"] = "".into()),
    ("in a namespace that is opted out", "opt-out", |it| it.namespace = "fence-out"),
];

/// What the server itself settles, before the fence or without it.
const UNFENCED: [(&str, u16, Change); 3] = [
    ("another UID", 409, |it| it.options["preconditions"] = json!({"uid": "other"})),
    ("another version", 409, |it| it.options["preconditions"] = json!({"resourceVersion": "1"})),
    ("deleted already, and not hurried", 200, |it| it.deleted = Some(20)),
];

/// The same of the agent's pod, once `rbac/restart-agent.yaml` is applied.
const AGENT: [Case; 9] = [
    ("the node's own agent", "", |_| {}),
    ("another node's agent", "own-node", |it| it.pod["spec"]["nodeName"] = "elsewhere".into()),
    ("deleted already, and hurried", "not-deleting", |it| {
        (it.deleted, it.options["gracePeriodSeconds"]) = (Some(60), 30.into());
    }),
    ("no UID", "uid-precondition", |it| it.options["preconditions"] = Value::Null),
    ("no grace", "grace", |it| it.options["gracePeriodSeconds"] = 0.into()),
    ("opted out", "opt-out", |it| it.pod["metadata"]["labels"]["cilium-leak-healer/opt-out"] = "yes".into()),
    ("another app", "pending", |it| it.pod["metadata"]["labels"]["k8s-app"] = "cilium-envoy".into()),
    ("no DaemonSet", "pending", |it| it.pod["metadata"]["ownerReferences"] = json!([it.other_owner])),
    ("in another namespace", "pending", |it| {
        it.namespace = "fence";
        it.pod["metadata"]["ownerReferences"] = json!([]);
    }),
];

fn of_container(fields: &Value) -> Value {
    let mut status = json!({"name": "app", "image": "app", "imageID": "", "ready": false, "restartCount": 0});
    for (name, value) in fields.as_object().expect("fields") {
        status[name] = value.clone();
    }
    status
}

fn container(fields: &Value) -> Value {
    json!({"containerStatuses": [of_container(fields)]})
}

/// One of the two: who may do all, the watchdog on `node`, and what was answered.
struct Server {
    admin: Requests,
    watchdog: Requests,
    node: String,
    seen: Vec<Seen>,
    /// Any object that is there will do as a controller, and this one makes no pods.
    owner: Value,
}

impl Server {
    async fn of(admin: Requests, kubeconfig: &str, node: &str) -> Self {
        let watchdog = Requests::of(client_of(kubeconfig).await);
        Self { admin, watchdog, node: node.to_owned(), seen: Vec::new(), owner: Value::Null }
    }

    async fn prepare(&mut self) {
        for (name, labels) in
            [("fence", json!({})), ("fence-out", json!({"cilium-leak-healer/opt-out": "yes"}))]
        {
            let namespace = json!({"metadata": {"name": name, "labels": labels}});
            self.admin.call(Method::POST, "/api/v1/namespaces", Some(namespace)).await;
        }
        let namespace = self.admin.call(Method::GET, "/api/v1/namespaces/default", None).await.json();
        let uid = &namespace["metadata"]["uid"];
        self.owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": uid, "controller": true});
    }

    /// An attempt at a pod of that controller that waits for its sandbox.
    fn attempt(&self, owner: &Value, namespace: &'static str, label: &str) -> Attempt {
        let pod = json!({
            "metadata": {"generateName": "p-", "labels": {"k8s-app": label}, "ownerReferences": [owner]},
            "spec": {"nodeName": self.node, "containers": [{"name": "app", "image": "app"}]},
        });
        let status = if namespace == "kube-system" { json!({"phase": "Running"}) } else { json!({}) };
        let other_owner = self.owner.clone();
        Attempt { namespace, pod, status, options: json!({}), deleted: None, other_owner }
    }

    /// Makes the pod and lets the watchdog delete it, dry and in earnest: the two must be alike. Tells code and rule.
    async fn run(&mut self, name: &str, mut attempt: Attempt) -> (u16, String) {
        let pods = format!("/api/v1/namespaces/{}/pods", attempt.namespace);
        let made = eventually("a pod to be made", async || {
            let answer = self.admin.call(Method::POST, &pods, Some(attempt.pod.clone())).await;
            (answer.status == 201).then(|| answer.json())
        })
        .await;
        let pod = format!("{pods}/{}", made["metadata"]["name"].as_str().expect("a name"));
        let status = json!({"status": attempt.status});
        let patched =
            self.admin.patch(&format!("{pod}/status"), "application/merge-patch+json", status).await;
        assert_eq!(patched.status, 200, "{name}: {}", patched.body);
        if let Some(grace) = attempt.deleted {
            let options = json!({"gracePeriodSeconds": grace});
            assert_eq!(self.admin.call(Method::DELETE, &pod, Some(options)).await.status, 200, "{name}");
        }
        if attempt.options.get("preconditions").is_none() {
            attempt.options["preconditions"] = json!({"uid": made["metadata"]["uid"]});
        }
        attempt.options["dryRun"] = json!(["All"]);
        let dry = self.watchdog.call(Method::DELETE, &pod, Some(attempt.options.clone())).await;
        attempt.options["dryRun"] = json!([]);
        let mut answer = self.watchdog.call(Method::DELETE, &pod, Some(attempt.options)).await;
        assert_eq!(dry.status, answer.status, "{name}: a dry run differs");
        // The second account's policies are named for it.
        answer.body = answer.body.replace("-for-restart-agent'", "'");
        answer.body = answer.body.replace(made["metadata"]["name"].as_str().expect("a name"), "NAME");
        let fields =
            ["/kind", "/metadata/deletionGracePeriodSeconds", "/code", "/reason", "/message", "/details"];
        self.seen.push(Seen::part(name, &answer, &fields));
        let after = self.admin.call(Method::GET, &pod, None).await;
        let fields = ["/metadata/deletionGracePeriodSeconds", "/code"];
        self.seen.push(Seen::part(format!("{name}, afterwards"), &after, &fields));
        self.admin.call(Method::DELETE, &pod, Some(json!({"gracePeriodSeconds": 0}))).await;
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        let rule = message.split_once("denied request: ").and_then(|(_, why)| why.split_once(": "));
        (answer.status, rule.map(|(rule, _)| rule.to_owned()).unwrap_or_default())
    }

    async fn run_all(&mut self, cases: &[Case], owner: &Value, namespace: &'static str, label: &str) {
        for (name, rule, change) in cases {
            let mut attempt = self.attempt(owner, namespace, label);
            change(&mut attempt);
            let code = if rule.is_empty() { 200 } else { 403 };
            assert_eq!(self.run(name, attempt).await, (code, (*rule).to_owned()), "{name}");
        }
    }

    async fn strict(&mut self) {
        self.prepare().await;
        let owner = self.owner.clone();
        self.run_all(&STRICT, &owner, "fence", "app").await;
        for (name, code, change) in UNFENCED {
            let mut attempt = self.attempt(&owner, "fence", "app");
            change(&mut attempt);
            assert_eq!(self.run(name, attempt).await, (code, String::new()), "{name}");
        }
    }

    async fn agents(&mut self, owner: &Value) {
        self.prepare().await;
        self.run_all(&AGENT, owner, "kube-system", "cilium").await;
    }
}

/// A simulated cluster with a fence, one node, and the watchdog's pod there.
async fn simulated(restart_agent: bool) -> (Cluster, Server, tempfile::TempDir) {
    let fence = Fence { restart_agent, ..Fence::default() };
    let api = ApiOptions { fence: Some(fence), ..ApiOptions::default() };
    let cluster =
        Cluster::start(ClusterOptions { api, ..ClusterOptions::default() }).await.expect("a cluster");
    let dir = tempfile::tempdir().expect("make a directory");
    let mut options = NodeOptions::new("simulated", 1, dir.path());
    // The pods stay as they are made.
    options.kubelet.enabled = false;
    let node = cluster.add_node(options).expect("a node");
    let kubeconfig = cluster.watchdog_kubeconfig(&node).expect("a kubeconfig");
    let admin = Requests::of(client_of(&cluster.kubeconfig()).await);
    let server = Server::of(admin, &kubeconfig, node.name()).await;
    (cluster, server, dir)
}

#[tokio::test]
async fn each_rule_denies_alike() {
    let node = Node::new().await;
    let kubeconfig = node.kubeconfig(Rights::Heal).await;
    let mut real = Server::of(Requests::of(node.client.clone()), &kubeconfig, &node.name).await;
    real.strict().await;
    let (_cluster, mut simulated, _dir) = simulated(false).await;
    simulated.strict().await;
    assert_alike(&real.seen, &simulated.seen);
}

#[tokio::test]
async fn the_agents_pods_are_fenced_alike() {
    let node = Node::new().await;
    let kubeconfig = node.kubeconfig(Rights::RestartAgent).await;
    let mut real = Server::of(Requests::of(node.client.clone()), &kubeconfig, &node.name).await;
    real.agents(&agent_owner(&node.client).await).await;
    let (_cluster, mut simulated, _dir) = simulated(true).await;
    let daemon_set = json!({"metadata": {"name": "cilium"}, "spec": {}});
    let path = "/apis/apps/v1/namespaces/kube-system/daemonsets";
    let made = simulated.admin.call(Method::POST, path, Some(daemon_set)).await.json();
    let uid = &made["metadata"]["uid"];
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cilium", "uid": uid, "controller": true});
    simulated.agents(&owner).await;
    assert_alike(&real.seen, &simulated.seen);
}

/// What the watchdog asks besides: who it is, what it may, its Leases, its namespace, Events.
#[tokio::test]
async fn what_the_fenced_account_asks_besides() {
    let node = Node::new().await;
    let kubeconfig = node.kubeconfig(Rights::Heal).await;
    let mut real = Requests::of(client_of(&kubeconfig).await);
    besides(&mut real, &node.namespace).await;
    let (_cluster, mut simulated, _dir) = simulated(false).await;
    besides(&mut simulated.watchdog, "default").await;
    assert_alike(&real.seen, &simulated.watchdog.seen);
}

async fn besides(api: &mut Requests, namespace: &str) {
    let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = api.call(Method::POST, review, Some(json!({}))).await;
    let fields = ["/kind", "/apiVersion", "/status/userInfo/username", "/status/userInfo/groups"];
    let mut who = Seen::part("who it is", &answer, &fields);
    let user = answer.json()["status"]["userInfo"].clone();
    for (name, values) in user["extra"].as_object().expect("extra") {
        // There are Nodes only in the simulated cluster.
        if name != "authentication.kubernetes.io/node-uid" {
            who.body.insert(format!("{name}: {} values", values.as_array().expect("values").len()));
        }
    }
    api.seen.push(who);
    let access = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let wish = json!({"resource": "pods", "verb": "delete"});
    let review = json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"resourceAttributes": wish},
    });
    let answer = api.call(Method::POST, access, Some(review)).await;
    api.seen.push(Seen::part("what it may", &answer, &["/kind", "/spec", "/status/allowed"]));
    let answer = api.call(Method::GET, "/api/v1/namespaces/cilium-leak-healer", None).await;
    api.seen.push(Seen::part("its namespace", &answer, &["/kind", "/metadata/name", "/status/phase"]));

    let leases = "/apis/coordination.k8s.io/v1/namespaces/cilium-leak-healer/leases";
    let lease = format!("{leases}/cilium-leak-healer-delete-pod-1");
    let answer = api.call(Method::GET, &lease, None).await;
    api.seen.push(Seen::part("a Lease", &answer, &["/kind", "/apiVersion", "/metadata/name", "/spec"]));
    let mut taken = answer.json();
    taken["spec"] = json!({"holderIdentity": "n", "leaseDurationSeconds": 60, "renewTime": "2026-01-01T00:00:00.000000Z"});
    let mut unconditional = taken.clone();
    unconditional["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    for (step, body) in
        [("taken", taken.clone()), ("taken by an old version", taken), ("taken by none", unconditional)]
    {
        let answer = api.call(Method::PUT, &lease, Some(body)).await;
        api.seen.push(Seen::part(step, &answer, &["/spec", "/code", "/reason", "/message", "/details"]));
    }

    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let about = json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "p", "uid": "u"});
    let event = json!({
        "metadata": {"name": "p.1", "namespace": namespace}, "regarding": about, "type": "Warning", "reason": "Judged",
        "action": "Judge", "note": "n", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "cilium-leak-healer", "reportingInstance": "n",
    });
    let answer = api.call(Method::POST, &events, Some(event)).await;
    api.seen.push(Seen::part("an Event", &answer, &["/kind", "/note", "/reason", "/action", "/series"]));
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:10.000000Z"}});
    let answer = api.patch(&format!("{events}/p.1"), "application/merge-patch+json", series).await;
    api.seen.push(Seen::part("the same again", &answer, &["/kind", "/note", "/series/count"]));
}
