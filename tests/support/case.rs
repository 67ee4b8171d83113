//! A case file as a source of observations: the decision is asked exactly as it is on a live node.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cilium_leak_healer::cilium::{
    AgentConfig, CiliumEndpointObject, CiliumEndpointSliceObject, CiliumNodeObject, EndpointModel,
};
use cilium_leak_healer::domain::{
    CiliumEndpoint, CiliumNode, Events, Holder, IpamMode, Limits, Lookup, NodeName, Pod, PodName, Read,
    ReadFailure, SliceEntry, Unreadable, judge,
};
use cilium_leak_healer::engine::{Sources, observe};
use cilium_leak_healer::kube::{EventObject, PodObject};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    #[serde(default)]
    #[allow(dead_code, reason = "a case may have it")]
    description: Option<String>,
    #[serde(default)]
    #[allow(dead_code, reason = "a case may have it")]
    source: Option<String>,
    taken_at: Timestamp,
    cluster: Cluster,
    #[serde(default)]
    agents: BTreeMap<String, Agent>,
    pub expect: Expect,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Cluster {
    #[serde(default)]
    pods: Vec<Value>,
    #[serde(default)]
    events: Vec<Value>,
    #[serde(default)]
    #[allow(dead_code, reason = "no rule reads Nodes")]
    nodes: Vec<Value>,
    #[serde(default)]
    cilium_nodes: Vec<Value>,
    cilium_endpoints: Option<Vec<Value>>,
    cilium_endpoint_slices: Option<Vec<Value>>,
    #[serde(default)]
    unreadable: Vec<Unread>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unread {
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
    status: Option<u16>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Agent {
    #[serde(default)]
    #[allow(dead_code, reason = "a case may have it")]
    version: Option<String>,
    started_at: Option<Timestamp>,
    #[serde(default)]
    config: Option<Value>,
    #[serde(default)]
    endpoints: Vec<Value>,
    #[serde(default)]
    failures: Vec<Failure>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    call: String,
    id: Option<String>,
    status: Option<u16>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    pub findings: Vec<Expected>,
    #[serde(default)]
    pub optional: Vec<Expected>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub subject: String,
    pub node: Option<String>,
    pub ip: Option<String>,
    pub verdict: String,
    pub remedy: Option<String>,
    pub target: Option<String>,
}

impl Expected {
    /// A field that the expectation leaves out is not compared.
    pub fn is_met_by(&self, found: &Self) -> bool {
        let same = |want: &Option<String>, have: &Option<String>| want.is_none() || want == have;
        self.subject == found.subject
            && self.verdict == found.verdict
            && same(&self.node, &found.node)
            && same(&self.ip, &found.ip)
            && same(&self.remedy, &found.remedy)
            && same(&self.target, &found.target)
    }
}

impl Case {
    pub fn load(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// All findings on wedges, judged pod by pod.
    pub async fn findings(&self) -> Vec<Expected> {
        let mut found = Vec::new();
        for pod in self.cluster.pods.iter().map(|pod| decode::<PodObject>(pod).to_domain().expect("a pod")) {
            let Some(node) = pod.node.clone() else {
                continue;
            };
            let view = View { case: self, node: node.clone() };
            let obs = observe(&view, &node, pod, self.taken_at, |_, _| None).await;
            let judgement = judge(&obs, &Limits::default());
            let Some(finding) = judgement.finding() else {
                continue;
            };
            found.push(Expected {
                subject: format!("Pod {}", obs.pod.name),
                node: Some(node.to_string()),
                ip: finding.ip.map(|ip| ip.to_string()),
                verdict: finding.verdict.to_string(),
                remedy: Some(finding.remedy.as_str().to_owned()),
                target: match &finding.remedy {
                    cilium_leak_healer::domain::Remedy::DisconnectEndpoint(target) => {
                        Some(target.to_string())
                    }
                    _ => None,
                },
            });
        }
        found
    }
}

fn decode<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn failed(what: &str, status: Option<u16>, error: Option<&str>) -> Unreadable {
    let why = match (status, error) {
        (Some(status), _) => ReadFailure::Status { status, message: String::new() },
        (None, Some("timeout")) => ReadFailure::Timeout,
        (None, Some("unreadable")) => ReadFailure::Undecodable(String::new()),
        (None, _) => ReadFailure::Connection(error.unwrap_or_default().to_owned()),
    };
    Unreadable { what: what.to_owned(), why }
}

/// The case as one node's watchdog sees it.
struct View<'a> {
    case: &'a Case,
    node: NodeName,
}

impl View<'_> {
    fn pods(&self) -> Vec<Pod> {
        self.case
            .cluster
            .pods
            .iter()
            .map(|pod| decode::<PodObject>(pod).to_domain().expect("a pod"))
            .collect()
    }

    fn agent(&self) -> Option<&Agent> {
        self.case.agents.get(self.node.as_str())
    }

    /// The read of an object fails if it is named, or if the list is.
    fn unread(&self, resource: &str, namespace: Option<&str>, name: Option<&str>) -> Read<()> {
        let hit = self.case.cluster.unreadable.iter().find(|unread| {
            let covers = |field: &Option<String>, value: Option<&str>| {
                field.is_none() || value.is_none() || field.as_deref() == value
            };
            unread.resource == resource && covers(&unread.namespace, namespace) && covers(&unread.name, name)
        });
        hit.map_or(Ok(()), |hit| Err(failed(resource, hit.status, hit.error.as_deref())))
    }

    /// A list fails where the list itself could not be read; a single object that could not is missing from it.
    fn unread_list(&self, resource: &str) -> Read<()> {
        let hit = self
            .case
            .cluster
            .unreadable
            .iter()
            .find(|unread| unread.resource == resource && unread.name.is_none());
        hit.map_or(Ok(()), |hit| Err(failed(resource, hit.status, hit.error.as_deref())))
    }

    fn agent_failure(&self, call: &str, id: Option<&str>) -> Read<&Agent> {
        let agent = self.agent().ok_or_else(|| failed(call, None, Some("no such agent")))?;
        let hit = agent
            .failures
            .iter()
            .find(|failure| failure.call == call && (failure.id.is_none() || failure.id.as_deref() == id));
        hit.map_or(Ok(agent), |hit| Err(failed(call, hit.status, hit.error.as_deref())))
    }
}

impl Sources for View<'_> {
    async fn events(&self, pod: &Pod) -> Events {
        let known = self
            .case
            .cluster
            .events
            .iter()
            .filter_map(|event| decode::<EventObject>(event).to_domain())
            .collect();
        Events { known, unreadable: self.unread("events", Some(pod.name.namespace()), None).err() }
    }

    async fn lookup(&self, ip: IpAddr) -> Lookup {
        let id = format!("{}:{ip}", if ip.is_ipv4() { "ipv4" } else { "ipv6" });
        let agent = match self.agent_failure("get-endpoint", Some(&id)) {
            Ok(agent) => agent,
            Err(why) => return Lookup::Unknown(why),
        };
        let models = agent
            .endpoints
            .iter()
            .map(|model| EndpointModel::from_value(model.clone()).expect("an endpoint"));
        let mut holders = models.map(|model| {
            model.to_holder(Some(model.log_entries().unwrap_or_default())).expect("an endpoint")
        });
        holders
            .find(|holder| holder.addresses.contains(&ip))
            .map_or(Lookup::NotHeld, |holder| Lookup::Held(Box::new(holder)))
    }

    async fn agent_started(&self) -> Option<Timestamp> {
        self.agent()?.started_at
    }

    async fn ipam_mode(&self) -> Read<IpamMode> {
        let agent = self.agent_failure("get-config", None)?;
        let body = serde_json::to_vec(&agent.config).expect("JSON");
        let mode = AgentConfig::from_slice(&body).ok().and_then(|config| config.ipam_mode);
        mode.ok_or_else(|| failed("get-config", None, Some("unreadable")))
    }

    async fn cilium_node(&self) -> Read<Option<CiliumNode>> {
        self.unread("ciliumnodes", None, Some(self.node.as_str()))?;
        let mut nodes = self.case.cluster.cilium_nodes.iter().map(decode::<CiliumNodeObject>);
        let node = nodes.find(|node| node.metadata.name.as_deref() == Some(self.node.as_str()));
        let decoded = node.map(|node| node.to_domain()).transpose();
        decoded.map_err(|_| failed("ciliumnodes", None, Some("unreadable")))
    }

    async fn pod(&self, name: &PodName) -> Read<Option<Pod>> {
        if let Some(pod) = self.pods().into_iter().find(|pod| pod.name == *name) {
            return Ok(Some(pod));
        }
        self.unread("pods", Some(name.namespace()), Some(name.name()))?;
        Ok(None)
    }

    async fn pods_with_address(&self, ip: IpAddr) -> Read<Vec<Pod>> {
        self.unread_list("pods")?;
        Ok(self.pods().into_iter().filter(|pod| pod.lists(ip)).collect())
    }

    async fn pods_of_node(&self, namespace: &str) -> Read<Vec<Pod>> {
        self.unread("pods", Some(namespace), None)?;
        Ok(self.pods().into_iter().filter(|pod| pod.node.as_ref() == Some(&self.node)).collect())
    }

    async fn endpoints(&self, _holder: &Holder, _pods: &[PodName]) -> Read<Option<Vec<CiliumEndpoint>>> {
        self.unread("ciliumendpoints", None, None)?;
        let all = self.case.cluster.cilium_endpoints.as_ref();
        Ok(all.map(|all| {
            all.iter().filter_map(|cep| decode::<CiliumEndpointObject>(cep).to_domain()).collect()
        }))
    }

    async fn slices(&self, _pod: &PodName) -> Read<Option<Vec<SliceEntry>>> {
        self.unread("ciliumendpointslices", None, None)?;
        let all = self.case.cluster.cilium_endpoint_slices.as_ref();
        Ok(all.map(|all| {
            all.iter().flat_map(|slice| decode::<CiliumEndpointSliceObject>(slice).to_domain()).collect()
        }))
    }
}

/// The case files of this tree, and of a further directory where one is named.
pub fn files() -> Vec<PathBuf> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let further = std::env::var_os("CILIUM_LEAK_HEALER_CASES").map(PathBuf::from);
    let mut files = Vec::new();
    for dir in [Some(own), further].into_iter().flatten() {
        let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        files.extend(entries.map(|entry| entry.expect("an entry").path()).filter(|path| {
            path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml" || ext == "json")
        }));
    }
    files.sort();
    assert!(files.len() > 50, "only {} case files: is tests/cases whole?", files.len());
    files
}
