//! The real agent's endpoint API of one node, as the CNI plugin and the tests call it.

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use filetime::FileTime;
use hyper::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::{
    go,
    http::{Answer, over_unix},
    process::Process,
};

const START: Duration = Duration::from_mins(1);
const STOP: Duration = Duration::from_secs(15);

/// What a node's agent is started with.
#[derive(Clone)]
pub struct AgentSpec {
    pub kubeconfig: PathBuf,
    pub node: String,
    pub node_ip: String,
    pub pod_cidr: String,
    /// Whether it holds an ingress address.
    pub ingress: bool,
}

pub struct Agent {
    spec: AgentSpec,
    /// Short, for a unix socket's name: so not in target/.
    directory: TempDir,
    process: Option<Process>,
}

impl Agent {
    pub fn start(spec: AgentSpec) -> Self {
        let directory = tempfile::Builder::new().prefix("agent-").tempdir().expect("make a directory");
        let mut agent = Self { spec, directory, process: None };
        agent.launch();
        agent
    }

    /// Starts it, again with no endpoints: this agent does not restore.
    pub fn launch(&mut self) {
        let spec = &self.spec;
        let mut command = Command::new(go::cilium_agent());
        command.arg("--dir").arg(self.directory()).arg("--kubeconfig").arg(&spec.kubeconfig);
        command.args(["--node", &spec.node, "--node-ip", &spec.node_ip, "--pod-cidr", &spec.pod_cidr]);
        command.arg("--log-file").arg(self.directory().join("log"));
        if spec.ingress {
            command.arg("--ingress");
        }
        self.process = Some(Process::spawn_ready("cilium-agent", &mut command, START));
    }

    /// Stops it in good order: the socket goes.
    pub async fn stop(&mut self) {
        let mut process = self.process.take().expect("a running agent");
        process.terminate(STOP).await.expect("the agent to end after SIGTERM");
    }

    /// The daemon takes the time of the socket for the start of the agent: this moves it back.
    pub fn started_long_ago(&self) {
        self.started(SystemTime::now() - Duration::from_mins(10));
    }

    pub fn started_now(&self) {
        self.started(SystemTime::now());
    }

    fn started(&self, at: SystemTime) {
        let at = FileTime::from_system_time(at);
        // The other functions of the crate open the file, which a socket does not allow.
        filetime::set_symlink_file_times(self.socket(), at, at).expect("set the time of the socket");
    }

    /// Holds `cilium.sock`.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.directory().join("cilium.sock")
    }

    pub fn api(&self) -> AgentApi {
        AgentApi { socket: self.socket() }
    }
}

#[derive(Clone)]
pub struct AgentApi {
    socket: PathBuf,
}

impl AgentApi {
    pub fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> io::Result<Answer> {
        over_unix(&self.socket, method, path, body).await
    }

    /// What the CNI plugin sends once it has an address for the sandbox.
    pub async fn put_endpoint(&self, body: &Value) -> Answer {
        self.call(Method::PUT, "/v1/endpoint/cilium-local:0", Some(body)).await.expect("PUT an endpoint")
    }

    /// Waits until the endpoint has the identity of its pod: an agent that has not heard of the pod yet gives none.
    pub async fn labelled(&self, container: &str) {
        let path = format!("/v1/endpoint/cni-attachment-id:{container}:eth0");
        for _ in 0..50 {
            let answer = self.call(Method::GET, &path, None).await.expect("GET an endpoint");
            if answer.status == 200 && !answer.body.contains("reserved:init") {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
        panic!("the endpoint of {container} never got its pod's labels");
    }

    pub async fn delete_endpoint(&self, attachment: &str) -> Answer {
        let path = format!("/v1/endpoint/cni-attachment-id:{attachment}");
        self.call(Method::DELETE, &path, None).await.expect("DELETE an endpoint")
    }

    /// The attachment id of the endpoint that holds the address. The agent allows few of these a second.
    pub async fn holder(&self, ip: IpAddr) -> Option<String> {
        let path = format!("/v1/endpoint/{}:{ip}", family(ip));
        let answer = self.call(Method::GET, &path, None).await.expect("GET an endpoint");
        match answer.status {
            200 => Some(text(&answer.json(), "/status/external-identifiers/cni-attachment-id")),
            404 => None,
            _ => panic!("{path}: {answer:?}"),
        }
    }
}

/// The body of that PUT.
pub fn endpoint(pod: &Pod, container: &str, ip: IpAddr) -> Value {
    json!({
        "id": 0,
        "container-id": container,
        "container-interface-name": "eth0",
        "interface-name": format!("lxc{}", &container[..8]),
        "mac": "0a:00:00:00:00:01",
        "host-mac": "5e:b8:ca:47:69:b7",
        "k8s-namespace": pod.namespace(),
        "k8s-pod-name": pod.name_any(),
        "k8s-uid": pod.uid(),
        "state": "waiting-for-identity",
        "sync-build-endpoint": true,
        "addressing": {family(ip): ip},
    })
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "ipv4" } else { "ipv6" }
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
