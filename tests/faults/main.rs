//! Faults from a seed, at any instant of a node's life, on paused time: the whole watchdog against the simulated
//! cluster in memory. After each second: no live endpoint cut, no pod deleted that was not wedged on Cilium's own
//! address, no cap exceeded, everything on record. In the end: every provable leak is healed.
//!
//! `FAULT_SEEDS=10000 FAULT_SWEEP=all cargo test --release --test faults` runs so many seeds and each fault at each request, `FAULT_FIRST=500` from that one on,
//! `FAULT_SEED=42` that one alone with its plan.
#![cfg(feature = "sim")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy.toml allows them in functions that are tests, and these serve nothing else"
)]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

#[path = "../support/cores.rs"]
mod cores;
mod dice;
#[path = "../support/in_memory.rs"]
mod in_memory;
mod run;
mod scene;
mod sweep;
mod trouble;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use cores::on_all_cores;
use run::{Outcome, seeded, story};
use trouble::{Target, Trouble};

/// As many as a quick run of all tests affords.
const QUICK: u64 = 30;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is no number")))
}

/// Far more than any run takes of the machine's time: one that is still busy then turns without an end.
const ENDLESS: Duration = Duration::from_mins(2);

/// Runs all of them, on all cores. One that does not end is named, and ends them all: nothing else can stop it.
fn run_all<T: Send>(
    count: usize,
    name: impl Fn(usize) -> String + Sync,
    one: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let under_way: Mutex<BTreeMap<usize, Instant>> = Mutex::default();
    let known = || under_way.lock().expect("no panic while it is held");
    let (done, waiting) = mpsc::channel::<()>();
    let (known, name) = (&known, &name);
    let watch = move || {
        while waiting.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            if let Some((at, _)) = known().iter().find(|(_, since)| since.elapsed() > ENDLESS) {
                println!("no end after {} s: {}", ENDLESS.as_secs(), name(*at));
                std::process::exit(101);
            }
        }
    };
    std::thread::scope(move |scope| {
        scope.spawn(watch);
        let made = on_all_cores(count, |at| {
            known().insert(at, Instant::now());
            let made = one(at);
            known().remove(&at);
            made
        });
        drop(done);
        made
    })
}

fn fail(failures: &[String], of: u64) {
    let some = failures[..failures.len().min(5)].join("\n");
    assert!(failures.is_empty(), "{} of {of} runs failed, such as:\n{some}", failures.len());
}

#[test]
fn seeds() {
    if let Some(seed) = number("FAULT_SEED") {
        println!("{}", story(seed));
        if std::env::var_os("FAULT_LOG").is_some() {
            tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).without_time().init();
        }
        let outcome = seeded(seed);
        if std::env::var_os("FAULT_REQUESTS").is_some() {
            outcome.requests.iter().for_each(|line| println!("{line}"));
        }
        assert_eq!(outcome.failure, None);
        return;
    }
    let (first, count) = (number("FAULT_FIRST").unwrap_or(0), number("FAULT_SEEDS").unwrap_or(QUICK));
    let seed = |at: usize| first + at as u64;
    let run = |at| {
        let outcome = seeded(seed(at));
        // Ten thousand runs' requests would fill the memory.
        (seed(at), Outcome { requests: Vec::new(), ..outcome })
    };
    let runs = usize::try_from(count).expect("FAULT_SEEDS: as many as fit");
    let outcomes = run_all(runs, |at| story(seed(at)), run);
    let failed =
        |(seed, outcome): &(u64, Outcome)| Some(format!("{}  {}", story(*seed), outcome.failure.as_ref()?));
    fail(&outcomes.iter().filter_map(failed).collect::<Vec<_>>(), count);
    let sum =
        |count: fn(&Outcome) -> usize| outcomes.iter().map(|(_, outcome)| count(outcome)).sum::<usize>();
    let (disconnected, deleted) = (sum(|it| it.disconnected), sum(|it| it.deleted));
    let slowest = outcomes.iter().map(|(_, outcome)| outcome.quiet).max().unwrap_or_default();
    println!(
        "{count} runs: {disconnected} stale endpoints disconnected, {deleted} pods moved; all healed {} s after the last trouble",
        slowest.as_secs()
    );
    // Runs in which nothing is done would prove nothing.
    assert!(disconnected as u64 > count, "{disconnected} disconnects in {count} runs");
    assert!(deleted as u64 > count / 5, "{deleted} pods moved in {count} runs");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    // In the last two the watchdog backs off after failures: the pauses must be those of the seed too.
    for seed in [3, 7, 11, 171, 178] {
        let (first, second) = (seeded(seed), seeded(seed));
        assert!(first.requests.len() > 100);
        let differs = first.requests.iter().zip(&second.requests).find(|(one, other)| one != other);
        assert_eq!(differs, None, "{}", story(seed));
        assert_eq!(first, second);
    }
}

/// Each fault at each request; as a quick run only every 61st of them.
#[test]
fn one_fault_between_any_two_calls() {
    let (usual, api, agent) = sweep::requests();
    assert_eq!((usual.failure, usual.disconnected, usual.deleted), (None, 1, 1));
    assert!(api > 50 && agent > 10, "{api} and {agent} requests");
    let at = |target, count| (1..=count).flat_map(move |nth| sweep::troubles(target, nth));
    let all: Vec<Trouble> = at(Target::Api, api).chain(at(Target::Agent, agent)).collect();
    let step = if std::env::var_os("FAULT_SWEEP").is_some() { 1 } else { 61 };
    let chosen: Vec<&Trouble> = all.iter().step_by(step).collect();
    let count = chosen.len();
    let failures = run_all(
        count,
        |at| format!("{:?}", chosen[at]),
        |at| sweep::failure(chosen[at]).map(|why| format!("{:?}: {why}", chosen[at])),
    );
    println!("{count} of {} faults at {api} requests to the API server and {agent} to the agent", all.len());
    fail(&failures.into_iter().flatten().collect::<Vec<_>>(), count as u64);
}
