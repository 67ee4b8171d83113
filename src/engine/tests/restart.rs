//! The restart of the agent: what it is for, what stops it, what holds it back, and how its effect is waited for.

use std::time::Duration;

use jiff::SignedDuration;
use rstest::rstest;
use tokio::time::Instant;

use super::answers::{Answers, after};
use super::days::{directory, go_on, process_with};
use super::fixtures::{agent_pod, no_answer, rollout, unanswered, waiting_pod};
use super::hands::ByHand;
use super::options;
use super::telling::{Heard, ip, wedge};
use super::world::{AtOdds, Faults, World};
use crate::domain::{
    ActOutcome, AgentPod, Judgement, Lookup, NodeState, Observation, Pod, PodUid, Read, ReadFailure,
    RemedyKind, RestartCase, RestartKind, Rollout, judge,
};
use crate::engine::gates::By;
use crate::engine::{EngineOptions, Parts};
use crate::kube::{DeleteOutcome, Held, NamespaceFacts, NoLease};
use crate::ledger::Ledger;

use RemedyKind::{DisconnectEndpoint, RestartAgent};

fn all() -> EngineOptions {
    EngineOptions { remedies: RemedyKind::ALL.to_vec(), ..options(judge) }
}

/// An agent that is at odds with itself is restarted once, after which the pod gets its sandbox; and what it is told as.
#[rstest]
#[case::says_that_nobody_holds_it(AtOdds::Hidden, &[RestartAgent], &[ActOutcome::Healed])]
#[case::keeps_what_it_says_it_deleted(
    AtOdds::Phantom,
    &[DisconnectEndpoint, RestartAgent],
    &[ActOutcome::Failed, ActOutcome::Healed]
)]
#[tokio::test(start_paused = true)]
async fn an_agent_that(
    #[case] at_odds: AtOdds,
    #[case] acts: &[RemedyKind],
    #[case] outcomes: &[ActOutcome],
) {
    let (world, dir) = (World::new(51), directory());
    wedge(&world, true).await;
    world.set_faults(Faults { at_odds, ..Faults::default() });
    let heard = Heard::new(&world);
    process_with(&world, dir.path(), all(), &heard, go_on(&world, Duration::from_mins(10), |_| {})).await;
    let made: Vec<_> = world.record(|record| record.acts.iter().map(|(_, remedy)| *remedy).collect());
    assert_eq!(made, acts);
    let kept = Ledger::read(dir.path()).unwrap();
    let ended: Vec<_> =
        kept.state().acts().iter().filter_map(|act| act.ended()).map(|end| end.outcome).collect();
    assert_eq!(ended, outcomes);
    assert!(world.is_running(&waiting_pod().name));
    assert_eq!(world.record(|record| record.released.clone()), [RestartAgent]);
    let told = heard.briefs();
    let restart: Vec<_> = told.iter().filter(|it| it.contains("restart-agent")).map(String::as_str).collect();
    assert_eq!(
        restart,
        ["acting restart-agent", "acted restart-agent accepted", "acted restart-agent healed"],
        "{told:?}"
    );
}

/// One step before a restart: a wedge over a phantom holder, or over one that the agent does not show.
struct Before {
    hand: ByHand,
    case: RestartCase,
    obs: Observation,
    judgement: Judgement,
}

impl Before {
    async fn of(kind: RestartKind, options: EngineOptions) -> Self {
        let world = World::new(52);
        wedge(&world, true).await;
        let at_odds = if kind == RestartKind::HiddenHolder { AtOdds::Hidden } else { AtOdds::No };
        world.set_faults(Faults { at_odds, ..Faults::default() });
        let mut hand = ByHand::over(world, options).await;
        let (obs, judgement) = hand.looks().await;
        let case = RestartCase {
            kind,
            pod: obs.pod.uid.clone(),
            ip: ip(),
            agent_started: obs.agent_started.unwrap(),
            evidence: Vec::new(),
        };
        Self { hand, case, obs, judgement }
    }

    async fn phantom() -> Self {
        Self::of(RestartKind::PhantomHolder, all()).await
    }

    /// Whether it took the place of any other act.
    async fn considered(&mut self) -> bool {
        let Self { hand, case, obs, judgement } = self;
        let stop = hand.hands.stopping.clone();
        hand.engine.consider_restart(&obs.pod.uid, case, obs, judgement, &stop).await
    }

    fn restarts(&self) -> usize {
        self.hand.world.record(|record| record.acts.len())
    }

    fn waiting(&self) -> Pod {
        self.obs.pod.clone()
    }
}

/// The answers that stop it, by what the pod that waits was when it was judged.
type Asked = fn(Pod) -> Answers;

fn agents(pods: Vec<AgentPod>) -> Answers {
    Answers { agent_pods: Some(Ok(pods)), ..Answers::default() }
}

fn rolls(rollout: Rollout) -> Answers {
    Answers { rollout: Some(Ok(Some(rollout))), ..Answers::default() }
}

fn node(answer: Read<Option<NodeState>>) -> Answers {
    Answers { node: Some(answer), ..Answers::default() }
}

fn namespace(name: &str, answer: Read<Option<NamespaceFacts>>) -> Answers {
    Answers { namespaces: [(name.to_owned(), answer)].into(), ..Answers::default() }
}

fn reads(pod: Read<Option<Pod>>) -> Answers {
    Answers { pods: after(0, [pod]), ..Answers::default() }
}

fn facts() -> NamespaceFacts {
    NamespaceFacts { opt_out: false, paused: None, created: None }
}

fn later() -> jiff::Timestamp {
    agent_pod().started.unwrap() + SignedDuration::from_secs(1)
}

#[rstest]
#[case::a_pod_that_opted_out(|pod| reads(Ok(Some(Pod { opt_out: true, ..pod }))), "has opted out")]
#[case::another_pod_of_the_name(|pod| reads(Ok(Some(Pod { uid: "new".parse().unwrap(), ..pod }))), "is gone, or waits no more")]
#[case::another_pod_that_opted_out(
    |pod| reads(Ok(Some(Pod { uid: "new".parse().unwrap(), opt_out: true, ..pod }))),
    "is gone, or waits no more"
)]
#[case::a_pod_that_has_its_sandbox(|pod| reads(Ok(Some(Pod { sandbox_ready: Some(true), ..pod }))), "is gone, or waits no more")]
#[case::no_pod(|_| reads(Ok(None)), "is gone, or waits no more")]
#[case::a_pod_unread(|_| reads(no_answer("GET pods")), "could not be read again")]
#[case::agents_unread(|_| Answers { agent_pods: Some(no_answer("LIST pods")), ..Answers::default() }, "agent's pods could not be read")]
#[case::no_agent(|_| agents(Vec::new()), "no pod of the agent is on n1")]
#[case::two_agents(|_| agents(vec![agent_pod(), agent_pod()]), "2 pods of the agent are on n1")]
#[case::an_agent_without_daemon_set(|_| agents(vec![AgentPod { daemon_set: None, ..agent_pod() }]), "has no DaemonSet")]
#[case::an_agent_on_its_way_out(|_| agents(vec![AgentPod { deleting: true, ..agent_pod() }]), "is being deleted already")]
#[case::an_agent_that_does_not_run(|_| agents(vec![AgentPod { started: None, ..agent_pod() }]), "does not run")]
#[case::an_agent_that_was_restarted(|_| agents(vec![AgentPod { started: Some(later()), ..agent_pod() }]), "was restarted since")]
#[case::an_agent_that_opted_out(|_| agents(vec![AgentPod { opt_out: true, ..agent_pod() }]), "cilium-x has opted out")]
#[case::a_namespace_that_opted_out(
    |_| namespace("kube-system", Ok(Some(NamespaceFacts { opt_out: true, ..facts() }))),
    "the agent's namespace kube-system has opted out"
)]
#[case::a_namespace_unread(|_| namespace("kube-system", no_answer("GET namespaces")), "the agent's namespace could not be read")]
#[case::a_daemon_set_unread(|_| Answers { rollout: Some(no_answer("GET daemonsets")), ..Answers::default() }, "could not be read")]
#[case::no_daemon_set(|_| Answers { rollout: Some(Ok(None)), ..Answers::default() }, "cilium is gone")]
#[case::a_daemon_set_on_its_way_out(|_| rolls(Rollout { deleting: true, ..rollout() }), "is being deleted")]
#[case::another_daemon_set_of_the_name(|_| rolls(Rollout { uid: "other".to_owned(), ..rollout() }), "of another DaemonSet")]
#[case::a_daemon_set_that_was_changed(|_| rolls(Rollout { generation: Some(4), ..rollout() }), "DaemonSet")]
#[case::a_daemon_set_of_no_generation(|_| rolls(Rollout { generation: None, observed_generation: None, ..rollout() }), "DaemonSet")]
#[case::a_daemon_set_that_rolls_out(|_| rolls(Rollout { updated: Some(1), ..rollout() }), "1 of 2")]
#[case::a_daemon_set_that_wants_no_pods(|_| rolls(Rollout { desired: Some(0), updated: Some(0), ..rollout() }), "0 of 0")]
#[case::a_daemon_set_that_does_not_say(|_| rolls(Rollout { desired: None, updated: None, ..rollout() }), "DaemonSet")]
#[case::a_node_unread(|_| node(no_answer("GET nodes")), "node n1 could not be read")]
#[case::no_node(|_| node(Ok(None)), "node n1 is gone")]
#[case::a_node_that_is_cordoned(|_| node(Ok(Some(NodeState { schedulable: false, ready: true }))), "node n1 is cordoned")]
#[case::a_node_that_is_not_ready(|_| node(Ok(Some(NodeState { schedulable: true, ready: false }))), "node n1 is not Ready")]
#[case::an_address_that_is_free(|_| Answers { lookups: after(0, [Lookup::NotHeld]), ..Answers::default() }, "another answer now")]
#[case::an_agent_that_does_not_answer(|_| Answers { lookups: after(0, [unanswered()]), ..Answers::default() }, "another answer now")]
#[case::an_agent_of_another_start(|_| Answers { starts: after(0, [later()]), ..Answers::default() }, "was restarted since")]
#[tokio::test(start_paused = true)]
async fn is_stopped_by(#[case] asked: Asked, #[case] why: &str) {
    let mut before = Before::phantom().await;
    before.hand.world.set_answers(asked(before.waiting()));
    let stops = before.hand.engine.agent_to_restart(&before.case, &before.obs).await.unwrap_err();
    assert!(stops.contains(why), "{stops}");
    before.hand.world.set_answers(asked(before.waiting()));
    assert!(before.considered().await, "no other act takes its place");
    assert_eq!((before.restarts(), before.hand.outcomes()), (0, Vec::new()));
    assert_eq!(before.hand.engine.to_release.len(), 1);
    let told = before.hand.heard.briefs();
    assert_eq!(told.last().unwrap(), "acted restart-agent aborted", "{told:?}");
    assert_eq!(before.hand.wedge().due - Instant::now(), Duration::from_secs(1));
}

/// Another endpoint, or none of this id, is no phantom any more.
#[rstest]
#[case::of_another_id(|holder: &mut crate::domain::Holder| holder.id = crate::domain::EndpointId(4711))]
#[case::of_another_container(|holder: &mut crate::domain::Holder| holder.attachment = Some("another:eth0".parse().unwrap()))]
#[tokio::test(start_paused = true)]
async fn is_stopped_by_an_endpoint(#[case] change: fn(&mut crate::domain::Holder)) {
    let before = Before::phantom().await;
    let Lookup::Held(mut holder) = before.obs.lookup.clone() else {
        panic!("not held");
    };
    change(&mut holder);
    before
        .hand
        .world
        .set_answers(Answers { lookups: after(0, [Lookup::Held(holder)]), ..Answers::default() });
    let stops = before.hand.engine.agent_to_restart(&before.case, &before.obs).await.unwrap_err();
    assert_eq!(stops, "the agent gives another answer now");
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_shows_again_is_hidden_no_more() {
    let before = Before::of(RestartKind::HiddenHolder, all()).await;
    assert_eq!(
        before.hand.engine.agent_to_restart(&before.case, &before.obs).await.unwrap().uid,
        agent_pod().uid
    );
    before.hand.world.set_faults(Faults::default());
    let stops = before.hand.engine.agent_to_restart(&before.case, &before.obs).await.unwrap_err();
    assert_eq!(stops, "the agent gives another answer now");
}

fn lease(seconds: u64) -> Answers {
    Answers {
        leases: [Ok(Held::made(Instant::now() + Duration::from_secs(seconds)))].into(),
        ..Answers::default()
    }
}

fn no_lease(why: NoLease) -> Answers {
    Answers { leases: [Err(why)].into(), ..Answers::default() }
}

#[tokio::test(start_paused = true)]
async fn needs_a_lease_that_lasts() {
    for (seconds, restarts) in [(65, 1), (50, 0)] {
        let mut before = Before::phantom().await;
        before.hand.world.set_answers(lease(seconds));
        assert!(before.considered().await);
        assert_eq!(before.restarts(), restarts, "{seconds} s");
        assert_eq!(before.hand.engine.to_release.len(), 1 - restarts);
    }
}

/// What holds it back, whether that takes the place of any other act, and the word that is told and recorded.
#[rstest]
#[case::where_it_is_off(options(judge), Answers::default, false, By::Remedy)]
#[case::of_an_agent_of_a_paused_cluster(
    all(),
    || namespace("cilium-leak-healer", Ok(Some(NamespaceFacts { paused: Some(String::new()), ..facts() }))),
    false,
    By::Paused
)]
#[case::while_all_leases_are_held(all(), || no_lease(NoLease::AllHeld { by: vec!["n2".to_owned()] }), true, By::Lease)]
#[case::without_a_lease(all(), || no_lease(NoLease::Missing("restart".to_owned())), false, By::Unreadable)]
#[tokio::test(start_paused = true)]
async fn is_held_back(
    #[case] options: EngineOptions,
    #[case] answers: fn() -> Answers,
    #[case] instead: bool,
    #[case] by: By,
) {
    let mut before = Before::of(RestartKind::PhantomHolder, options).await;
    before.hand.world.set_answers(answers());
    assert_eq!(before.considered().await, instead);
    assert_eq!((before.restarts(), before.hand.engine.to_release.len()), (0, 0));
    let told = before.hand.heard.briefs();
    assert_eq!(*told.last().unwrap(), format!("held-back restart-agent {}", by.as_str()));
}

#[tokio::test(start_paused = true)]
async fn waits_for_an_act_that_is_followed() {
    let mut before = Before::phantom().await;
    before.hand.verifies(DisconnectEndpoint);
    assert!(before.considered().await, "no other act takes its place");
    assert_eq!(before.restarts(), 0);
    assert_eq!(before.hand.heard.briefs().last().unwrap(), "held-back restart-agent quiet-period");
}

/// Thrown after the permit, before the call.
#[tokio::test(start_paused = true)]
async fn a_pause_in_the_last_instant_holds_it_back() {
    let mut before = Before::phantom().await;
    let world = before.hand.world.clone();
    let pausing = async {
        world.asked_for(3).await;
        world.set_paused(true);
    };
    let (instead, ()) = tokio::join!(before.considered(), pausing);
    assert!(instead);
    assert_eq!((before.restarts(), before.hand.engine.to_release.len()), (0, 1));
    assert_eq!(before.hand.heard.briefs().last().unwrap(), "held-back restart-agent paused");
}

/// The watchdog's own namespace is asked for, then the pod's, the agent's, and its own again.
#[rstest]
#[case::within_the_permit(2)]
#[case::within_the_last_reads(3)]
#[case::within_the_very_last(4)]
#[tokio::test(start_paused = true)]
async fn a_watchdog_that_is_stopped_restarts_nothing(#[case] once_asked_for: usize) {
    let mut before = Before::phantom().await;
    let (world, stop) = (before.hand.world.clone(), before.hand.hands.stop.clone());
    let stopping = async {
        world.asked_for(once_asked_for).await;
        stop.send_replace(true);
    };
    let (instead, ()) = tokio::join!(before.considered(), stopping);
    assert!(instead);
    assert_eq!((before.restarts(), before.hand.engine.to_release.len()), (0, 1));
}

fn denied() -> DeleteOutcome {
    DeleteOutcome::Failed(ReadFailure::Status { status: 403, message: "no".to_owned() })
}

/// What the API server says to the deletion, whether its effect is waited for, the end, and how soon another look is due.
#[rstest]
#[case::accepted(DeleteOutcome::Accepted, true, None, "accepted")]
#[case::without_an_answer(DeleteOutcome::Failed(ReadFailure::Timeout), true, None, "unanswered")]
#[case::denied(denied(), false, Some(ActOutcome::Failed), "failed")]
#[case::of_an_agent_that_changed(DeleteOutcome::Changed("newer".to_owned()), false, Some(ActOutcome::Aborted), "aborted")]
#[tokio::test(start_paused = true)]
async fn a_deletion(
    #[case] answer: DeleteOutcome,
    #[case] followed: bool,
    #[case] outcome: Option<ActOutcome>,
    #[case] step: &str,
) {
    let mut before = Before::phantom().await;
    before.hand.world.set_answers(Answers { deletion: Some(answer), ..Answers::default() });
    assert!(before.considered().await);
    assert_eq!(before.restarts(), 1);
    assert_eq!(before.hand.outcomes()[0].0, outcome);
    let hand = &before.hand;
    let act = hand.engine.book.acts().next().unwrap();
    assert_eq!(act.sent().is_some(), step == "accepted");
    assert_eq!(act.intent().target.as_deref(), Some("agent-1"));
    let told = hand.heard.briefs();
    assert_eq!(
        told[told.len() - 2..],
        ["acting restart-agent".to_owned(), format!("acted restart-agent {step}")]
    );
    assert_eq!(
        (hand.engine.restarting.is_some(), hand.engine.to_release.len()),
        (followed, usize::from(!followed))
    );
    let quiet = hand.engine.quiet.until.saturating_duration_since(Instant::now());
    assert_eq!(quiet, Duration::from_mins(if followed { 5 } else { 0 }));
    let due = (hand.wedge().due - Instant::now()).as_secs();
    assert!(if followed { due == 30 } else { (5..=10).contains(&due) }, "{due} s");
    // The budget is one a day.
    before.hand.engine.restarting = None;
    before.hand.engine.quiet.until = Instant::now();
    before.considered().await;
    assert_eq!(before.restarts(), 1);
}

#[derive(Clone, Copy)]
enum Agent {
    Same,
    Going,
    New,
}

#[derive(Clone, Copy)]
enum Wedged {
    Waits,
    Runs,
    Goes,
    Gone,
}

/// The agent's pod and the pod that waits, the seconds since the act, and the end.
#[rstest]
#[case::not_gone_yet(Agent::Same, Wedged::Waits, 599, None)]
#[case::running_beside_the_same_agent(Agent::Same, Wedged::Runs, 599, None)]
#[case::never_gone(Agent::Same, Wedged::Waits, 600, Some(ActOutcome::NotHealed))]
#[case::never_gone_and_running(Agent::Same, Wedged::Runs, 600, Some(ActOutcome::NotHealed))]
#[case::on_its_way_out(Agent::Going, Wedged::Waits, 599, None)]
#[case::new_and_waiting(Agent::New, Wedged::Waits, 599, None)]
#[case::new_and_waiting_too_long(Agent::New, Wedged::Waits, 600, Some(ActOutcome::NotHealed))]
#[case::new_and_running(Agent::New, Wedged::Runs, 1, Some(ActOutcome::Healed))]
#[case::new_and_running_late(Agent::New, Wedged::Runs, 900, Some(ActOutcome::Healed))]
#[case::new_and_going(Agent::New, Wedged::Goes, 1, Some(ActOutcome::Disconnected))]
#[case::new_and_gone(Agent::New, Wedged::Gone, 1, Some(ActOutcome::Disconnected))]
#[tokio::test(start_paused = true)]
async fn an_agent(
    #[case] agent: Agent,
    #[case] wedged: Wedged,
    #[case] seconds: u64,
    #[case] outcome: Option<ActOutcome>,
) {
    let mut before = Before::phantom().await;
    before.hand.world.set_answers(Answers { deletion: Some(DeleteOutcome::Accepted), ..Answers::default() });
    assert!(before.considered().await);
    let deadline = before.hand.engine.restarting.as_ref().unwrap().deadline;
    assert_eq!(deadline - Instant::now(), Duration::from_mins(10));
    let (world, pod) = (&before.hand.world, before.waiting());
    world.shows_agent(match agent {
        Agent::Same => Some(false),
        Agent::Going => Some(true),
        Agent::New => None,
    });
    let uid: PodUid = pod.uid.clone();
    match wedged {
        Wedged::Waits => {}
        Wedged::Runs => world.shows(Pod { sandbox_ready: Some(true), ..pod }),
        Wedged::Goes => world.shows(Pod { deleting: true, ..pod }),
        Wedged::Gone => Parts::store(world).remove(&uid),
    }
    tokio::time::advance(Duration::from_secs(seconds)).await;
    before.hand.engine.follow_restart();
    assert_eq!(before.hand.outcomes()[0].0, outcome);
    let over = outcome.is_some();
    assert_eq!(
        (before.hand.engine.restarting.is_none(), before.hand.engine.to_release.len()),
        (over, usize::from(over))
    );
}

/// While the agent restarts, and as long as such an act has no end, nothing else is begun.
#[tokio::test(start_paused = true)]
async fn keeps_all_other_acts_waiting() {
    let mut before = Before::phantom().await;
    assert!(before.considered().await);
    for remedy in RemedyKind::ALL {
        assert!(before.hand.engine.others_wait_for(remedy), "{remedy}");
    }
    let followed = before.hand.engine.restarting.take();
    assert!(before.hand.engine.others_wait_for(DisconnectEndpoint), "it has no end on record");
    before.hand.engine.restarting = followed;
    go_on(&before.hand.world, Duration::from_secs(30), |_| {}).await;
    before.hand.engine.follow_restart();
    assert!(!before.hand.engine.others_wait_for(DisconnectEndpoint));
}

/// The next process knows of it from the ledger.
#[tokio::test(start_paused = true)]
async fn its_quiet_period_outlives_the_process() {
    let mut before = Before::phantom().await;
    assert!(before.considered().await);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let ByHand { world, dir, engine, .. } = before.hand;
    drop(engine);
    let heard = Heard::new(&world);
    let (mut next, _hands) = super::hands::Hands::on(&world, dir.path(), all(), &heard);
    next.open_book();
    let quiet = next.quiet.until - Instant::now();
    assert!((230..=240).contains(&quiet.as_secs()), "{quiet:?}");
    assert_eq!(next.quiet.why, "quiet period after a restart of the agent");
}
