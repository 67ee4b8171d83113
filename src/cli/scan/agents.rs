//! The agents as a scan reaches them: through `pods/exec` of their own command line, with the caller's rights.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use tokio::time::Instant;

use crate::cilium::{CallError, DBG_PROGRAMS, DbgCall, DbgOutput};
use crate::domain::{NodeName, PodName, Read, ReadFailure, Unreadable};
use crate::kube::{ExecError, ExecOutcome, ListScope, Reader, exec};

/// Look-ups of one agent start this far apart: its API is shared with the CNI plugin.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);
/// Up to so many nodes are asked for their agent's pod one by one.
const ONE_BY_ONE: usize = 20;

/// How the agents' pods are found.
#[derive(Debug, Clone)]
pub(super) struct AgentOptions {
    /// `None`: any namespace.
    pub(super) namespace: Option<String>,
    /// A label selector.
    pub(super) selector: String,
    /// The container.
    pub(super) container: String,
    /// Bound on one command.
    pub(super) timeout: Duration,
}

/// One agent's pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AgentPod {
    name: PodName,
    node: Option<String>,
    /// When its container started; `None`: it does not run.
    started: Option<Timestamp>,
    terminating: bool,
    ready: bool,
    has_container: bool,
}

/// The agents.
pub(super) struct Agents<'a> {
    reader: &'a Reader,
    client: Client,
    options: &'a AgentOptions,
    /// By node, once found. An error is remembered too: nobody asks a thousand times what is forbidden.
    pods: RefCell<HashMap<String, Result<PodName, String>>>,
    /// The name that the command line has here.
    program: Cell<&'static str>,
    last_lookup: RefCell<HashMap<String, Instant>>,
}

impl<'a> Agents<'a> {
    pub(super) fn new(reader: &'a Reader, client: Client, options: &'a AgentOptions) -> Self {
        Self {
            reader,
            client,
            options,
            pods: RefCell::default(),
            program: Cell::new(DBG_PROGRAMS[0]),
            last_lookup: RefCell::default(),
        }
    }

    /// Finds the agents' pods of these nodes.
    pub(super) async fn find(&self, nodes: &HashSet<NodeName>) {
        if nodes.len() > ONE_BY_ONE {
            let found = self.list(String::new()).await;
            self.remember(nodes.iter(), found);
            return;
        }
        for node in nodes {
            let found = self.list(format!("spec.nodeName={node}")).await;
            self.remember([node].into_iter(), found);
        }
    }

    fn remember<'n>(&self, nodes: impl Iterator<Item = &'n NodeName>, found: Read<Vec<AgentPod>>) {
        let mut pods = self.pods.borrow_mut();
        match found {
            Err(why) => {
                for node in nodes {
                    pods.insert(node.to_string(), Err(format!("its agent's pod is not known: {why}")));
                }
            }
            Ok(all) => {
                let mut by_node: HashMap<String, Vec<AgentPod>> = HashMap::new();
                for pod in all {
                    by_node.entry(pod.node.clone().unwrap_or_default()).or_default().push(pod);
                }
                for node in nodes {
                    let own = by_node.get(node.as_str()).map(Vec::as_slice).unwrap_or_default();
                    pods.insert(node.to_string(), self.the_one(own));
                }
            }
        }
    }

    async fn list(&self, fields: String) -> Read<Vec<AgentPod>> {
        let scope = ListScope {
            namespace: self.options.namespace.clone(),
            fields,
            labels: self.options.selector.clone(),
        };
        let mut found = Vec::new();
        self.reader.list(&scope, |pod: Pod| found.extend(self.decode(&pod))).await?;
        Ok(found)
    }

    fn decode(&self, pod: &Pod) -> Option<AgentPod> {
        let name = PodName::new(pod.metadata.namespace.as_deref()?, pod.metadata.name.as_deref()?).ok()?;
        let status = pod.status.as_ref();
        let statuses = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let own = statuses.iter().find(|status| status.name == self.options.container);
        let running = own.and_then(|own| own.state.as_ref()?.running.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let ready = conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        Some(AgentPod {
            name,
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            started: running.and_then(|running| running.started_at.as_ref()).map(|time| time.0),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            ready,
            has_container: containers.iter().any(|it| it.name == self.options.container),
        })
    }

    /// Exactly one that is ready and not terminating, or why there is none.
    fn the_one(&self, pods: &[AgentPod]) -> Result<PodName, String> {
        let AgentOptions { selector, container, .. } = self.options;
        let fit: Vec<&AgentPod> = pods.iter().filter(|pod| pod.ready && !pod.terminating).collect();
        match (fit.as_slice(), pods) {
            ([one], _) if one.has_container => Ok(one.name.clone()),
            ([one], _) => Err(format!(
                "its agent's pod {} has no container {container:?} (--agent-container)",
                one.name
            )),
            ([], []) => Err(format!(
                "no pod with the labels {selector} runs on it (--agent-pod-selector, --agent-namespace)"
            )),
            ([], [pod, ..]) if pod.terminating => Err(format!("its agent's pod {} is terminating", pod.name)),
            ([], [pod, ..]) => Err(format!("its agent's pod {} is not ready", pod.name)),
            (several, _) => {
                let names: Vec<String> = several.iter().map(|pod| pod.name.to_string()).collect();
                Err(format!("{} pods may be its agent: {}", several.len(), names.join(", ")))
            }
        }
    }

    /// The agent's pod of a node, or why nobody can be asked.
    pub(super) async fn pod(&self, node: &NodeName) -> Result<PodName, String> {
        if let Some(known) = self.pods.borrow().get(node.as_str()) {
            return known.clone();
        }
        self.find(&HashSet::from([node.clone()])).await;
        let known = self.pods.borrow().get(node.as_str()).cloned();
        known.unwrap_or_else(|| Err("its agent's pod is not known".to_owned()))
    }

    /// When the agent's container started, read anew: a restart must not go unseen.
    pub(super) async fn started(&self, node: &NodeName) -> Option<Timestamp> {
        let name = self.pod(node).await.ok()?;
        let found = self.list(format!("spec.nodeName={node}")).await.ok()?;
        found.into_iter().find(|pod| pod.name == name && !pod.terminating)?.started
    }

    /// Runs one command in the agent's container and hands its output to `decode`.
    pub(super) async fn call<T>(
        &self,
        node: &NodeName,
        pod: &PodName,
        call: DbgCall,
        decode: impl Fn(&DbgOutput<'_>) -> Result<T, CallError>,
    ) -> Read<T> {
        if matches!(call, DbgCall::Endpoint(_)) {
            self.turn(node).await;
        }
        let args = call.args();
        let what = |program: &str| format!("{program} {}", args.join(" "));
        let (program, outcome) = self.run(pod, &args).await;
        let outcome = outcome.map_err(|error| error.to_unreadable(&what(program)))?;
        let output = DbgOutput { code: outcome.code, stdout: &outcome.stdout, stderr: &outcome.stderr };
        decode(&output).map_err(|error| error.to_unreadable(&what(program)))
    }

    async fn run(&self, pod: &PodName, args: &[String]) -> (&'static str, Result<ExecOutcome, ExecError>) {
        let first = self.program.get();
        let mut last = (first, Err(ExecError::NoSuchProgram(first.to_owned())));
        for program in [first].into_iter().chain(DBG_PROGRAMS.into_iter().filter(|name| *name != first)) {
            let command: Vec<&str> = [program].into_iter().chain(args.iter().map(String::as_str)).collect();
            let AgentOptions { container, timeout, .. } = self.options;
            let outcome = exec(&self.client, pod, container, &command, *timeout).await;
            if !matches!(outcome, Err(ExecError::NoSuchProgram(_))) {
                self.program.set(program);
                return (program, outcome);
            }
            last = (program, outcome);
        }
        last
    }

    async fn turn(&self, node: &NodeName) {
        let last = self.last_lookup.borrow().get(node.as_str()).copied();
        if let Some(last) = last {
            tokio::time::sleep_until(last + LOOKUP_INTERVAL).await;
        }
        self.last_lookup.borrow_mut().insert(node.to_string(), Instant::now());
    }
}

/// Nobody could be asked.
pub(super) fn nobody(node: &NodeName, why: &str) -> Unreadable {
    let why = ReadFailure::Connection(why.to_owned());
    Unreadable { what: format!("agent of node {node}"), why }
}
