//! An agent's upgrade that leaks every endpoint of its node, with as many pods that wait for those addresses.

use std::collections::BTreeMap;
use std::time::Duration;

use cilium_leak_healer::ledger::Ledger;
use cilium_leak_healer::sim::{EndpointSpec, Node, RateLimits};
use jiff::{SignedDuration, Timestamp};

use crate::cores::on_all_cores;
use crate::in_memory::on_paused_time;
use crate::numbers::{grouped, quantile, ratio, seconds, table};
use crate::stage::{CNI, Stage, WATCHDOG, Who, address, answered, asks_for, between};

/// Healthy pods come one by one for so long.
const WINDOW: Duration = Duration::from_mins(30);
const EVERY: Duration = Duration::from_secs(20);
/// All must be healed within this.
const LONGEST: Duration = Duration::from_hours(6);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    /// Pods that wait.
    pods: u8,
    /// Whether their addresses are held.
    leaked: bool,
    who: Who,
}

#[derive(Debug)]
struct Outcome {
    /// Until the last of the waiting pods ran, and the half of them; `None`: not within the time.
    all: Option<Duration>,
    half: Option<Duration>,
    disconnects: usize,
    cni_refused: usize,
    watchdog_refused: usize,
    watchdog_calls: usize,
    /// CNI calls of healthy pods.
    calls: Vec<Duration>,
    /// From a healthy pod's creation until its sandbox; those that had none at the end are missing.
    starts: Vec<Duration>,
    healthy: usize,
    /// How the acts ended.
    acts: BTreeMap<String, String>,
    /// What held acts back.
    words: BTreeMap<String, String>,
}

fn run(plan: Plan) -> Outcome {
    on_paused_time(1, async {
        let stage = Stage::new(7, |_| {}).await;
        let node = stage.node(1, |options| {
            options.pod_cidr = "10.16.0.0/16".parse().expect("a range");
            "delegated-plugin".clone_into(&mut options.agent.ipam_mode);
            options.agent.rate_limits = RateLimits::cilium();
            // It was upgraded ten minutes ago.
            options.agent_started = Some(stage.cluster.now() - SignedDuration::from_mins(10));
        });
        if plan.leaked {
            leak(&stage, &node, plan.pods);
        }
        let healers = stage.heal(plan.who);
        // The self-test and the quiet time after the start are over.
        tokio::time::sleep(Duration::from_mins(1)).await;
        let began = stage.cluster.now();
        for pod in 0..plan.pods {
            stage.pod(&node, &format!("waiting-{pod}"), address(1, pod));
        }
        let outcome = watch(&stage, &node, plan, began).await;
        drop(healers);
        stage.end();
        outcome
    })
}

/// The upgraded agent holds an endpoint of a pod that is gone on each of these addresses.
fn leak(stage: &Stage, node: &Node, count: u8) {
    for number in 0..count {
        let container = format!("{:064x}", 0xC0FF_EE00_u64 + u64::from(number));
        let mut spec = EndpointSpec::new("shop", format!("gone-{number}"), container, address(1, number));
        spec.created = Some(stage.cluster.now() - SignedDuration::from_mins(9));
        spec.labels = vec!["k8s:io.kubernetes.pod.namespace=shop".to_owned()];
        node.agent().leak(spec).expect("an endpoint that is left behind");
    }
}

async fn watch(stage: &Stage, node: &Node, plan: Plan, began: Timestamp) -> Outcome {
    let (mut acts, mut words) = (BTreeMap::new(), BTreeMap::new());
    let (mut healthy, mut made, mut waited) = (0_u8, Vec::new(), Duration::ZERO);
    let all_run = || (0..plan.pods).all(|pod| stage.runs(&format!("waiting-{pod}")));
    while waited < WINDOW || (plan.who == Who::Watchdog && waited < LONGEST && !all_run()) {
        if waited < WINDOW {
            made.push((address(2, healthy), stage.cluster.now()));
            stage.pod(node, &format!("healthy-{healthy}"), address(2, healthy));
            healthy += 1;
        }
        tokio::time::sleep(EVERY).await;
        waited += EVERY;
        if plan.who == Who::Watchdog {
            recorded(stage, node, &mut acts, &mut words);
        }
    }
    let requests = node.agent().take_requests();
    let of = |name: &str| requests.iter().filter(|it| it.user_agent == name).collect::<Vec<_>>();
    let refused = |name: &str| of(name).iter().filter(|it| it.status == 429).count();
    let (mut calls, mut starts) = (Vec::new(), Vec::new());
    for (ip, created) in &made {
        let tries: Vec<_> = requests.iter().filter(|it| asks_for(it, *ip)).collect();
        calls.extend(tries.iter().filter_map(|it| it.took));
        let good = tries.iter().find(|it| it.status == 201);
        starts.extend(good.map(|it| between(*created, answered(it))));
    }
    let mut run: Vec<Duration> = (0..plan.pods)
        .filter_map(|pod| requests.iter().find(|it| it.status == 201 && asks_for(it, address(1, pod))))
        .map(|it| between(began, answered(it)))
        .collect();
    run.sort_unstable();
    let nth = |count: usize| run.get(count.max(1) - 1).copied();
    let (half, all) = (nth(usize::from(plan.pods).div_ceil(2)), nth(usize::from(plan.pods)));
    let disconnects = of(WATCHDOG).iter().filter(|it| it.method == "DELETE" && it.status == 200).count();
    Outcome {
        all,
        half,
        disconnects,
        cni_refused: refused(CNI),
        watchdog_refused: refused(WATCHDOG),
        watchdog_calls: of(WATCHDOG).len(),
        calls,
        starts,
        healthy: made.len(),
        acts,
        words,
    }
}

/// What the ledger has of acts and refusals; it keeps the newest, so it is read now and then.
fn recorded(
    stage: &Stage,
    node: &Node,
    acts: &mut BTreeMap<String, String>,
    words: &mut BTreeMap<String, String>,
) {
    let Ok(ledger) = Ledger::read(&stage.state_dir(node)) else { return };
    for act in ledger.state().acts() {
        let outcome = act.ended().map_or("open", |end| end.outcome.as_str());
        acts.insert(act.intent().correlation_id.clone() + &act.began().to_string(), outcome.to_owned());
    }
    for refused in ledger.state().refusals() {
        let refusal = refused.refusal();
        words.insert(refusal.correlation_id.clone() + &refusal.word, refusal.word.clone());
    }
}

fn counted(all: &BTreeMap<String, String>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in all.values() {
        *counts.entry(word).or_default() += 1;
    }
    counts.iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

fn or_never(time: Option<Duration>) -> String {
    time.map_or_else(|| "never".to_owned(), seconds)
}

pub(crate) fn section() {
    let mut plans = Vec::new();
    // A debug build is for work on the benchmark itself.
    let sizes: &[u8] = if cfg!(debug_assertions) { &[50] } else { &[50, 200] };
    for &pods in sizes {
        plans.extend([
            Plan { pods, leaked: true, who: Who::Watchdog },
            Plan { pods, leaked: true, who: Who::Nobody },
            Plan { pods, leaked: false, who: Who::Nobody },
        ]);
    }
    let made = on_all_cores(plans.len(), |at| run(plans[at]));
    let (mut healing, mut beside, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (plan, outcome)) in plans.iter().zip(&made).enumerate() {
        let case = match (plan.leaked, plan.who) {
            (true, Who::Watchdog) => "leaked, watchdog",
            (true, _) => "leaked, no watchdog",
            _ => "nothing leaked, no watchdog",
        };
        let pods = usize::from(plan.pods);
        let without = &made[at / 3 * 3 + 2];
        let free = without.all.expect("pods with free addresses start").as_secs_f64();
        let times = outcome.all.map_or_else(|| "–".to_owned(), |all| ratio(all.as_secs_f64(), free));
        let name = format!("{pods} pods, {case}");
        if plan.who == Who::Watchdog {
            assert_eq!(outcome.disconnects, pods, "each stale endpoint is disconnected once: {outcome:?}");
            assert!(outcome.all.is_some(), "all are healed: {outcome:?}");
            bounds.push(vec![format!("{pods}"), counted(&outcome.acts), counted(&outcome.words)]);
        } else {
            assert_eq!((outcome.disconnects, outcome.all.is_none()), (0, plan.leaked), "{outcome:?}");
        }
        healing.push(vec![
            name.clone(),
            or_never(outcome.half),
            or_never(outcome.all),
            times,
            grouped(outcome.cni_refused),
            grouped(outcome.watchdog_calls),
            grouped(outcome.watchdog_refused),
        ]);
        // The same node with the same leaks and nobody who heals.
        let alone = &made[at / 3 * 3 + 1];
        assert!(outcome.calls.len() >= outcome.healthy, "each healthy pod is tried: {outcome:?}");
        let quantiles = |values: &[Duration]| [quantile(values, 50), quantile(values, 99)];
        let [call, late] = quantiles(&outcome.calls);
        let spent = |of: &Outcome| of.calls.iter().sum::<Duration>().as_secs_f64();
        let times = ratio(spent(outcome), spent(alone));
        let [start, slow] = quantiles(&outcome.starts);
        beside.push(vec![
            name,
            grouped(outcome.calls.len()),
            seconds(call),
            seconds(late),
            times,
            format!("{} of {}", outcome.starts.len(), outcome.healthy),
            seconds(start),
            seconds(slow),
        ]);
    }
    println!(
        "Time until the waiting pods run, in seconds of simulated time, and 429 answers of the agent:\n"
    );
    table(
        &[
            "",
            "half of them",
            "all",
            "all / nothing leaked",
            "429 to the CNI plugin",
            "calls of the watchdog",
            "429 to the watchdog",
        ],
        &healing,
    );
    println!("How the acts ended, and what held acts back, as the ledger has it:\n");
    table(&["stale endpoints", "acts", "held back"], &bounds);
    println!(
        "CNI calls (PUT) of healthy pods beside it, one new pod each {} s for {} min, in seconds; the time until their sandbox:\n",
        EVERY.as_secs(),
        WINDOW.as_secs() / 60
    );
    table(
        &[
            "",
            "calls",
            "median",
            "99th percentile",
            "time in calls / no watchdog",
            "got a sandbox",
            "until it, median",
            "99th percentile",
        ],
        &beside,
    );
}
