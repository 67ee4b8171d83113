//! What the decision core costs: judgements a second and allocations, over the case corpus, and how both grow with the pods of a
//! node and with Events.
//!
//! `cargo bench --bench judge`. No I/O is measured. Ratios are within one run; it fails if anything grows faster than what it reads.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, reason = "a benchmark")]
#![allow(unreachable_pub, reason = "nothing outside uses a benchmark")]

#[path = "support/cases.rs"]
mod cases;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use cilium_leak_healer::domain::{Judgement, Limits, Lookup, NotWedged, Observation, Phase, Pod, judge};
use cilium_leak_healer::engine::observe;
use cilium_leak_healer::snapshot::{Snapshot, View};

/// Of each, the quickest of so many times: the rest is the machine's noise.
const TIMES: u32 = 15;
/// How long each time is, about.
const LONG: Duration = Duration::from_millis(50);

fn main() {
    let all = observations();
    println!("| verdict | cases | judgements a second | allocations each |\n|---|---:|---:|---:|");
    let mut by_verdict: BTreeMap<String, Vec<&Observation>> = BTreeMap::new();
    for obs in &all {
        by_verdict.entry(name(&judge(obs, &Limits::default()))).or_default().push(obs);
    }
    assert!(by_verdict.len() >= 10, "only {:?}: is tests/cases whole?", by_verdict.keys());
    for (verdict, of) in &by_verdict {
        let one = cost(of);
        println!(
            "| `{verdict}` | {} | {:.0} | {:.1} |",
            of.len(),
            1.0 / one.time.as_secs_f64(),
            one.allocations
        );
    }
    let all: Vec<&Observation> = all.iter().collect();
    let one = cost(&all);
    println!("| all | {} | {:.0} | {:.1} |\n", all.len(), 1.0 / one.time.as_secs_f64(), one.allocations);
    growth(&all);
}

fn name(judgement: &Judgement) -> String {
    match judgement {
        Judgement::Wedged(finding) => finding.verdict.to_string(),
        Judgement::NotWedged(NotWedged { .. }) => "no wedge".to_owned(),
    }
}

/// Each waiting pod of the corpus, as the judge sees it.
fn observations() -> Vec<Observation> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut all = Vec::new();
    for file in cases::files() {
        let snapshot = Snapshot::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let view = View::new(&snapshot);
        for pod in &view.pods {
            let Some(node) = &pod.node else { continue };
            let sources = view.node(node);
            all.push(runtime.block_on(observe(&sources, node, pod.clone(), snapshot.taken_at, |_, _| None)));
        }
    }
    all
}

struct Cost {
    time: Duration,
    allocations: f64,
}

/// Of one judgement, on average.
fn cost(of: &[&Observation]) -> Cost {
    let limits = Limits::default();
    let judge_all = || of.iter().for_each(|obs| drop(black_box(judge(black_box(obs), &limits))));
    judge_all();
    let counted = allocation_counter::measure(judge_all);
    let count = u32::try_from(of.len()).expect("few");
    let began = Instant::now();
    judge_all();
    // Long enough for the clock.
    let times = u32::try_from(LONG.as_nanos() / began.elapsed().as_nanos().max(1)).unwrap_or(1).max(1);
    let quickest = (0..TIMES).map(|_| {
        let began = Instant::now();
        (0..times).for_each(|_| judge_all());
        began.elapsed() / times / count
    });
    let time = quickest.min().unwrap_or_default();
    Cost { time, allocations: float(counted.count_total) / f64::from(count) }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn float(value: u64) -> f64 {
    value as f64
}

/// One wedge among more and more pods and Events.
fn growth(all: &[&Observation]) {
    let wedge = |obs: &&&Observation| matches!(judge(obs, &Limits::default()), Judgement::Wedged(_));
    let nameless = |obs: &&&Observation| obs.node_pods.as_ref().is_ok_and(|pods| !pods.is_empty());
    let refused = |obs: &&&Observation| matches!(obs.lookup, Lookup::Held(_)) && obs.events.known.len() > 1;
    let of_pods = all.iter().filter(nameless).find(wedge).expect("a case in which the node's pods are read");
    let of_events = all.iter().filter(refused).find(wedge).expect("a case with several Events");
    let with_pods = |count: usize| {
        let mut obs = (**of_pods).clone();
        if let Ok(pods) = &mut obs.node_pods {
            let another = pods.last().expect("one at least").clone();
            pods.extend((0..count).map(|number| one_more(&another, number)));
        }
        obs
    };
    let with_events = |count: usize| {
        let mut obs = (**of_events).clone();
        let oldest = obs.events.known.iter().min_by_key(|event| event.at).expect("one at least").clone();
        obs.events.known.extend((0..count).map(|_| oldest.clone()));
        obs
    };
    println!("| a wedge among … | µs | / least | allocations | / least |\n|---|---:|---:|---:|---:|");
    grows("pods of the node", &[30, 110, 250, 500], with_pods);
    grows("Events of the pod", &[1, 10, 100, 1000], with_events);
    let running = Pod { phase: Phase::Running, sandbox_ready: Some(true), ..of_pods.pod.clone() };
    let one = allocation_counter::measure(|| assert!(black_box(&running).not_waiting().is_some()));
    println!("\nTo pass over a pod that runs takes {} allocations.", one.count_total);
    assert_eq!(one.count_total, 0, "pods that run are most of all");
}

fn one_more(like: &Pod, number: usize) -> Pod {
    Pod {
        name: format!("tenant/app-{number}").parse().expect("a name"),
        uid: format!("uid-{number}").parse().expect("a UID"),
        ips: Vec::new(),
        ..like.clone()
    }
}

fn grows(what: &str, sizes: &[usize], made: impl Fn(usize) -> Observation) {
    let costs: Vec<Cost> = sizes.iter().map(|&size| cost(&[&made(size)])).collect();
    for (size, one) in sizes.iter().zip(&costs) {
        let (time, allocations) = (one.time.as_secs_f64(), one.allocations);
        let (least, fewest) = (costs[0].time.as_secs_f64(), costs[0].allocations);
        println!(
            "| {size} {what} | {:.1} | {:.2} | {allocations:.0} | {:.2} |",
            time * 1e6,
            time / least,
            allocations / fewest
        );
    }
    let (first, last) = (&costs[0], &costs[costs.len() - 1]);
    let size = float(u64::try_from(sizes[sizes.len() - 1] / sizes[0]).expect("small"));
    assert!(last.allocations <= first.allocations * size, "{what}: more allocations than what is read");
    // Twice, for a noisy machine.
    assert!(
        last.time.as_secs_f64() <= 2.0 * size * first.time.as_secs_f64(),
        "{what}: slower than in proportion"
    );
}
