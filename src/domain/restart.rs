//! The preconditions of `restart-agent`: what must be so right before the node's own agent pod is deleted.
//!
//! Pure: facts in, the first precondition that does not hold out. It must not know how the facts were read, nor the
//! caps and the lease, which are the engine's. A fact that could not be read does not hold.

use jiff::Timestamp;

use super::history::RestartCase;
use super::ids::{NodeName, PodName};
use super::observation::Read;

/// Everything that the preconditions look at, read fresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartFacts {
    /// The watchdog's own node.
    pub node: NodeName,
    /// When the agent started, as [`super::Observation::agent_started`] is filled, asked again now.
    pub agent_started: Option<Timestamp>,
    /// All pods that the agents' selector finds on this node.
    pub agents: Read<Vec<AgentFacts>>,
    /// The DaemonSet that controls the agent; `None`: it is not there.
    pub rollout: Read<Option<RolloutFacts>>,
    /// The Node; `None`: it is not there.
    pub node_state: Read<Option<NodeState>>,
    /// What opts out of it, in words for people: the wedged pod, the agent's pod or the node, by its label.
    pub opted_out: Option<String>,
}

/// A pod of the Cilium agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFacts {
    /// Namespace and name.
    pub name: PodName,
    /// `spec.nodeName`.
    pub node: Option<NodeName>,
    /// The name of the controller, where that is a DaemonSet.
    pub daemon_set: Option<String>,
    /// A deletion timestamp is set.
    pub deleting: bool,
    /// `state.running.startedAt` of the agent's container; `None`: it does not run.
    pub started: Option<Timestamp>,
}

/// How far a DaemonSet is rolled out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutFacts {
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
    /// `status.desiredNumberScheduled`.
    pub desired: i32,
    /// `status.updatedNumberScheduled`.
    pub updated: i32,
}

/// What the Node says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeState {
    /// `spec.unschedulable` is not set.
    pub schedulable: bool,
    /// The condition `Ready` is `True`.
    pub ready: bool,
}

/// Whether the agent may be restarted now for this case; else which precondition does not hold, in one sentence.
///
/// The life of the case must go on: the start that is told now is exactly the one that it was told with, and the container of
/// the agent's pod did not start later. (The start of a life is usually the time of the agent's socket, which is made some
/// seconds after its container started: those two need not be equal.)
pub fn may_restart(case: &RestartCase, facts: &RestartFacts) -> Result<(), String> {
    if let Some(what) = &facts.opted_out {
        return Err(format!("{what} has opted out"));
    }
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
        (Some(_), Some(_)) => Ok(()),
    }
}

/// While a rollout runs, the agent may be restarted by it anyway, and a new pod may be of another version.
fn rolled_out(name: &str, rollout: &Read<Option<RolloutFacts>>) -> Result<(), String> {
    match rollout {
        Err(why) => Err(format!("the DaemonSet {name} could not be read: {why}")),
        Ok(None) => Err(format!("the DaemonSet {name} is gone")),
        Ok(Some(it)) if it.observed_generation != it.generation => {
            Err(format!("a change of the DaemonSet {name} is not taken up yet"))
        }
        Ok(Some(it)) if it.desired < 1 || it.updated != it.desired => Err(format!(
            "the DaemonSet {name} is not rolled out: {} of {} pods are up to date",
            it.updated, it.desired
        )),
        Ok(Some(_)) => Ok(()),
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
