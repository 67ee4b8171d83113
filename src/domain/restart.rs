//! The preconditions of `restart-agent`: what must be so right before the node's own agent pod is deleted.
//!
//! Pure: facts in, the agent's pod that may be deleted out, or the first precondition that does not hold. It must not know
//! how the facts were read, nor the caps and the lease, which are the engine's. A fact that could not be read does not hold.

use jiff::Timestamp;

use super::history::RestartCase;
use super::ids::{NodeName, PodName, PodUid};
use super::observation::Read;

/// Everything that the preconditions look at, read fresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartFacts {
    /// The watchdog's own node.
    pub node: NodeName,
    /// When the agent started, as [`super::Observation::agent_started`] is filled, asked again now.
    pub agent_started: Option<Timestamp>,
    /// All pods that the agents' selector finds on this node.
    pub agents: Read<Vec<AgentPod>>,
    /// The DaemonSet that the agent's pod names as its controller; `None`: it is not there.
    pub rollout: Read<Option<Rollout>>,
    /// The Node; `None`: it is not there.
    pub node_state: Read<Option<NodeState>>,
    /// Whether the namespace of the agent's pod has opted out, by the label.
    pub namespace_opted_out: Read<bool>,
}

/// A pod of the Cilium agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPod {
    /// Namespace and name.
    pub name: PodName,
    /// `metadata.uid`.
    pub uid: PodUid,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `spec.nodeName`.
    pub node: Option<NodeName>,
    /// Name and UID of the DaemonSet that made it, in the pod's namespace: its controller, where that is one.
    pub daemon_set: Option<(String, String)>,
    /// A deletion timestamp is set.
    pub deleting: bool,
    /// `state.running.startedAt` of the agent's container; `None`: it does not run.
    pub started: Option<Timestamp>,
    /// The pod's own label `cilium-leak-healer/opt-out`.
    pub opt_out: bool,
}

/// How far a DaemonSet is in rolling out its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// `metadata.uid`.
    pub uid: String,
    /// A deletion timestamp is set.
    pub deleting: bool,
    /// `metadata.generation`: the version of what is wanted.
    pub generation: Option<i64>,
    /// `status.observedGeneration`: the version that the counts are about.
    pub observed_generation: Option<i64>,
    /// `status.desiredNumberScheduled`: nodes that shall run a pod of it.
    pub desired: Option<i64>,
    /// `status.updatedNumberScheduled`: nodes that run one of the newest template; absent: none.
    pub updated: Option<i64>,
}

/// What the Node says about new pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeState {
    /// `spec.unschedulable` is not set.
    pub schedulable: bool,
    /// The condition `Ready` is `True`.
    pub ready: bool,
}

/// The agent's pod that may be deleted now for this case; else which precondition does not hold, in one sentence.
///
/// The life of the case must go on: the start that is told now is exactly the one that it was told with, and the container of
/// the agent's pod did not start later. (The start of a life is usually the time of the agent's socket, which is made some
/// seconds after its container started: those two need not be equal.)
pub fn may_restart<'f>(case: &RestartCase, facts: &'f RestartFacts) -> Result<&'f AgentPod, String> {
    let agents = facts.agents.as_ref().map_err(|why| format!("the agent's pods could not be read: {why}"))?;
    let agent = match agents.as_slice() {
        [] => return Err(format!("no pod of the agent is on {}", facts.node)),
        [agent] => agent,
        several => return Err(format!("{} pods of the agent are on {}", several.len(), facts.node)),
    };
    let name = &agent.name;
    if agent.node.as_ref() != Some(&facts.node) {
        return Err(format!("the agent's pod {name} is not on {}", facts.node));
    }
    if agent.deleting {
        return Err(format!("the agent's pod {name} is being deleted already"));
    }
    if agent.opt_out {
        return Err(format!("the agent's pod {name} has opted out"));
    }
    match &facts.namespace_opted_out {
        Err(why) => return Err(format!("the agent's namespace could not be read: {why}")),
        Ok(true) => return Err(format!("the agent's namespace {} has opted out", name.namespace())),
        Ok(false) => {}
    }
    let Some(daemon_set) = &agent.daemon_set else {
        return Err(format!("the agent's pod {name} has no DaemonSet that would make it again"));
    };
    rolled_out(daemon_set, &facts.rollout)?;
    healthy(&facts.node, &facts.node_state)?;
    match (agent.started, facts.agent_started) {
        (None, _) => Err(format!("the agent's container of pod {name} does not run")),
        (_, None) => Err("nobody knows when the agent started".to_owned()),
        (Some(container), Some(now)) if now != case.agent_started || container > case.agent_started => {
            Err("the agent was restarted since".to_owned())
        }
        (Some(_), Some(_)) => Ok(agent),
    }
}

/// While a rollout runs, the agent may be restarted by it anyway, and a new pod may be of another version.
///
/// `numberUnavailable` does not count: this node's agent, which is to be restarted, may be one of them, and so is the agent
/// of each node that is down, for as long as it is.
fn rolled_out((name, uid): &(String, String), rollout: &Read<Option<Rollout>>) -> Result<(), String> {
    let it = match rollout {
        Err(why) => return Err(format!("the DaemonSet {name} could not be read: {why}")),
        Ok(None) => return Err(format!("the DaemonSet {name} is gone")),
        Ok(Some(it)) => it,
    };
    if it.uid != *uid {
        return Err(format!("the agent's pod is of another DaemonSet by the name {name}"));
    }
    if it.deleting {
        return Err(format!("the DaemonSet {name} is being deleted"));
    }
    if it.generation.is_none() || it.observed_generation != it.generation {
        return Err(format!("the DaemonSet {name} was changed, and its controller has not caught up"));
    }
    match (it.desired, it.updated.unwrap_or(0)) {
        (None, _) => Err(format!("the DaemonSet {name} does not say on how many nodes it shall run")),
        (Some(desired), updated) if desired < 1 || updated != desired => Err(format!(
            "the newest template of the DaemonSet {name} runs on {updated} of {desired} nodes: a rollout is going on"
        )),
        (Some(_), _) => Ok(()),
    }
}

/// On a node that is being drained or is unwell a new agent may not come up.
fn healthy(node: &NodeName, state: &Read<Option<NodeState>>) -> Result<(), String> {
    match state {
        Err(why) => Err(format!("node {node} could not be read: {why}")),
        Ok(None) => Err(format!("node {node} is gone")),
        Ok(Some(it)) if !it.schedulable => Err(format!("node {node} is cordoned")),
        Ok(Some(it)) if !it.ready => Err(format!("node {node} is not Ready")),
        Ok(Some(_)) => Ok(()),
    }
}
