//! The preconditions of a restart of the agent, one by one.

use rstest::rstest;

use super::fixtures::{IP, ago, ip, name, node};
use crate::domain::{
    AgentFacts, NodeState, ReadFailure, RestartCase, RestartFacts, RestartKind, RolloutFacts, Unreadable,
    may_restart,
};

fn case() -> RestartCase {
    RestartCase {
        kind: RestartKind::HiddenHolder,
        pod: "wedged".parse().unwrap(),
        ip: ip(IP),
        agent_started: ago(3600),
        evidence: Vec::new(),
    }
}

fn agent() -> AgentFacts {
    AgentFacts {
        name: name("kube-system/cilium-x7"),
        node: Some(node()),
        daemon_set: Some("cilium".to_owned()),
        deleting: false,
        started: Some(ago(3604)),
    }
}

fn facts() -> RestartFacts {
    RestartFacts {
        node: node(),
        agent_started: Some(ago(3600)),
        agents: Ok(vec![agent()]),
        rollout: Ok(Some(RolloutFacts { generation: 3, observed_generation: 3, desired: 5, updated: 5 })),
        node_state: Ok(Some(NodeState { schedulable: true, ready: true })),
        opted_out: None,
    }
}

fn change_agent(facts: &mut RestartFacts, change: fn(&mut AgentFacts)) {
    facts.agents.iter_mut().flatten().for_each(change);
}

fn change_rollout(facts: &mut RestartFacts, change: fn(&mut RolloutFacts)) {
    facts.rollout.iter_mut().flatten().for_each(change);
}

fn unread<T>() -> Result<T, Unreadable> {
    Err(Unreadable { what: "GET it".to_owned(), why: ReadFailure::Timeout })
}

#[test]
fn all_hold() {
    assert_eq!(may_restart(&case(), &facts()), Ok(()));
    let same =
        RestartFacts { agents: Ok(vec![AgentFacts { started: Some(ago(3600)), ..agent() }]), ..facts() };
    assert_eq!(may_restart(&case(), &same), Ok(()), "without a later socket the two are equal");
    let of_one = RolloutFacts { generation: 3, observed_generation: 3, desired: 1, updated: 1 };
    let small = RestartFacts { rollout: Ok(Some(of_one)), ..facts() };
    assert_eq!(may_restart(&case(), &small), Ok(()), "a cluster of one node has one agent");
}

#[rstest]
#[case::opted_out(|it: &mut RestartFacts| it.opted_out = Some("node worker-1".to_owned()), "opted out")]
#[case::agents_unread(|it: &mut RestartFacts| it.agents = unread(), "could not be read")]
#[case::no_agent(|it: &mut RestartFacts| it.agents = Ok(Vec::new()), "no pod of the agent")]
#[case::two_agents(|it: &mut RestartFacts| it.agents = Ok(vec![agent(), agent()]), "2 pods of the agent")]
#[case::not_ours(|it: &mut RestartFacts| change_agent(it, |it| it.node = "worker-2".parse().ok()), "not on worker-1")]
#[case::unbound(|it: &mut RestartFacts| change_agent(it, |it| it.node = None), "not on worker-1")]
#[case::deleting(|it: &mut RestartFacts| change_agent(it, |it| it.deleting = true), "being deleted")]
#[case::bare(|it: &mut RestartFacts| change_agent(it, |it| it.daemon_set = None), "no DaemonSet")]
#[case::rollout_unread(|it: &mut RestartFacts| it.rollout = unread(), "DaemonSet cilium could not be read")]
#[case::daemon_set_gone(|it: &mut RestartFacts| it.rollout = Ok(None), "DaemonSet cilium is gone")]
#[case::change_not_taken_up(|it: &mut RestartFacts| change_rollout(it, |it| it.generation = 4), "not taken up")]
#[case::an_older_change_is_told(|it: &mut RestartFacts| change_rollout(it, |it| it.generation = 2), "not taken up")]
#[case::not_updated(|it: &mut RestartFacts| change_rollout(it, |it| it.updated = 4), "4 of 5")]
#[case::more_than_desired(|it: &mut RestartFacts| change_rollout(it, |it| it.updated = 6), "6 of 5")]
#[case::none_desired(|it: &mut RestartFacts| change_rollout(it, |it| { it.updated = 0; it.desired = 0; }), "0 of 0")]
#[case::node_unread(|it: &mut RestartFacts| it.node_state = unread(), "node worker-1 could not be read")]
#[case::node_gone(|it: &mut RestartFacts| it.node_state = Ok(None), "node worker-1 is gone")]
#[case::cordoned(|it: &mut RestartFacts| it.node_state = Ok(Some(NodeState { schedulable: false, ready: true })), "cordoned")]
#[case::not_ready(|it: &mut RestartFacts| it.node_state = Ok(Some(NodeState { schedulable: true, ready: false })), "not Ready")]
#[case::stopped(|it: &mut RestartFacts| change_agent(it, |it| it.started = None), "does not run")]
#[case::start_unknown(|it: &mut RestartFacts| it.agent_started = None, "nobody knows")]
#[case::restarted(|it: &mut RestartFacts| it.agent_started = Some(ago(3599)), "restarted since")]
#[case::an_older_life(|it: &mut RestartFacts| it.agent_started = Some(ago(3601)), "restarted since")]
#[case::container_restarted(|it: &mut RestartFacts| change_agent(it, |it| it.started = Some(ago(3599))), "restarted since")]
fn one_does_not(#[case] change: fn(&mut RestartFacts), #[case] why: &str) {
    let mut facts = facts();
    change(&mut facts);
    let refused = may_restart(&case(), &facts).unwrap_err();
    assert!(refused.contains(why), "{refused}");
}
