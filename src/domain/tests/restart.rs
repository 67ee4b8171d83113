//! The preconditions of a restart of the agent, one by one.

use rstest::rstest;

use super::fixtures::{IP, ago, ip, name, node};
use crate::domain::{
    AgentPod, NodeState, ReadFailure, RestartCase, RestartFacts, RestartKind, Rollout, Unreadable,
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

fn agent() -> AgentPod {
    AgentPod {
        name: name("kube-system/cilium-x7"),
        uid: "agent".parse().unwrap(),
        resource_version: "1".to_owned(),
        node: Some(node()),
        daemon_set: Some(("cilium".to_owned(), "set".to_owned())),
        deleting: false,
        started: Some(ago(3604)),
        opt_out: false,
    }
}

fn rollout() -> Rollout {
    Rollout {
        uid: "set".to_owned(),
        deleting: false,
        generation: Some(3),
        observed_generation: Some(3),
        desired: Some(5),
        updated: Some(5),
    }
}

fn facts() -> RestartFacts {
    RestartFacts {
        node: node(),
        agent_started: Some(ago(3600)),
        agents: Ok(vec![agent()]),
        rollout: Ok(Some(rollout())),
        node_state: Ok(Some(NodeState { schedulable: true, ready: true })),
        namespace_opted_out: Ok(false),
    }
}

fn change_agent(facts: &mut RestartFacts, change: fn(&mut AgentPod)) {
    facts.agents.iter_mut().flatten().for_each(change);
}

fn change_rollout(facts: &mut RestartFacts, change: fn(&mut Rollout)) {
    facts.rollout.iter_mut().flatten().for_each(change);
}

fn unread<T>() -> Result<T, Unreadable> {
    Err(Unreadable { what: "GET it".to_owned(), why: ReadFailure::Timeout })
}

#[test]
fn all_hold() {
    assert_eq!(may_restart(&case(), &facts()), Ok(&agent()));
    let same = AgentPod { started: Some(ago(3600)), ..agent() };
    let equal = RestartFacts { agents: Ok(vec![same.clone()]), ..facts() };
    assert_eq!(may_restart(&case(), &equal), Ok(&same), "without a later socket the two are equal");
    let of_one = Rollout { desired: Some(1), updated: Some(1), ..rollout() };
    let small = RestartFacts { rollout: Ok(Some(of_one)), ..facts() };
    assert_eq!(may_restart(&case(), &small), Ok(&agent()), "a cluster of one node has one agent");
}

#[rstest]
#[case::opted_out(|it: &mut RestartFacts| change_agent(it, |it| it.opt_out = true), "pod kube-system/cilium-x7 has opted out")]
#[case::namespace_opted_out(|it: &mut RestartFacts| it.namespace_opted_out = Ok(true), "namespace kube-system has opted out")]
#[case::namespace_unread(|it: &mut RestartFacts| it.namespace_opted_out = unread(), "the agent's namespace could not be read")]
#[case::agents_unread(|it: &mut RestartFacts| it.agents = unread(), "could not be read")]
#[case::no_agent(|it: &mut RestartFacts| it.agents = Ok(Vec::new()), "no pod of the agent")]
#[case::two_agents(|it: &mut RestartFacts| it.agents = Ok(vec![agent(), agent()]), "2 pods of the agent")]
#[case::not_ours(|it: &mut RestartFacts| change_agent(it, |it| it.node = "worker-2".parse().ok()), "not on worker-1")]
#[case::unbound(|it: &mut RestartFacts| change_agent(it, |it| it.node = None), "not on worker-1")]
#[case::deleting(|it: &mut RestartFacts| change_agent(it, |it| it.deleting = true), "being deleted")]
#[case::bare(|it: &mut RestartFacts| change_agent(it, |it| it.daemon_set = None), "no DaemonSet")]
#[case::rollout_unread(|it: &mut RestartFacts| it.rollout = unread(), "DaemonSet cilium could not be read")]
#[case::daemon_set_gone(|it: &mut RestartFacts| it.rollout = Ok(None), "DaemonSet cilium is gone")]
#[case::another_daemon_set(|it: &mut RestartFacts| change_rollout(it, |it| it.uid = "other".to_owned()), "another DaemonSet by the name cilium")]
#[case::daemon_set_deleting(|it: &mut RestartFacts| change_rollout(it, |it| it.deleting = true), "DaemonSet cilium is being deleted")]
#[case::change_not_taken_up(|it: &mut RestartFacts| change_rollout(it, |it| it.generation = Some(4)), "not caught up")]
#[case::an_older_change_is_told(|it: &mut RestartFacts| change_rollout(it, |it| it.generation = Some(2)), "not caught up")]
#[case::no_generation(
    |it: &mut RestartFacts| change_rollout(it, |it| (it.generation, it.observed_generation) = (None, None)),
    "not caught up"
)]
#[case::not_updated(|it: &mut RestartFacts| change_rollout(it, |it| it.updated = Some(4)), "4 of 5")]
#[case::none_updated(|it: &mut RestartFacts| change_rollout(it, |it| it.updated = None), "0 of 5")]
#[case::more_than_desired(|it: &mut RestartFacts| change_rollout(it, |it| it.updated = Some(6)), "6 of 5")]
#[case::none_desired(|it: &mut RestartFacts| change_rollout(it, |it| (it.desired, it.updated) = (Some(0), None)), "0 of 0")]
#[case::fewer_than_none(
    |it: &mut RestartFacts| change_rollout(it, |it| (it.desired, it.updated) = (Some(-1), Some(-1))),
    "-1 of -1"
)]
#[case::no_status(|it: &mut RestartFacts| change_rollout(it, |it| it.desired = None), "does not say")]
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
