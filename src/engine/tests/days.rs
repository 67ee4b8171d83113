//! Simulated days: a process that is killed at any await, an agent and an API server that fail, a person who pauses.
//!
//! Held against the world's own record: no live endpoint is cut, no pod moved twice, no cap exceeded across restarts.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rstest::rstest;
use tempfile::TempDir;
use tokio::time::Instant;

use super::fixtures::reserved;
use super::hands::Hands;
use super::options;
use super::telling::Heard;
use super::world::{AtOdds, Faults, Record, World};
use crate::domain::{Judgement, Limits, Observation, PodName, RemedyKind, judge};
use crate::engine::{EngineOptions, Judge};
use crate::ledger::{BoundOptions, BucketOptions, Ledger};

/// One process, for as long as it lives; then it is gone in the middle of whatever it does.
async fn process(world: &World, dir: &Path, judge: Judge, life: impl Future<Output = ()>) {
    process_with(world, dir, options(judge), &Heard::new(world), life).await;
}

/// The same with its settings, and heard.
pub(super) async fn process_with(
    world: &World,
    dir: &Path,
    options: EngineOptions,
    heard: &Heard,
    life: impl Future<Output = ()>,
) {
    let (engine, hands) = Hands::on(world, dir, options, heard);
    tokio::select! {
        () = engine.run(hands.stopping) => panic!("it ended by itself"),
        () = life => assert!(hands.health.is_live(), "its loop is stuck"),
    }
}

/// Lets the world go on, a second at a time.
pub(super) async fn go_on(world: &World, time: Duration, mut each: impl FnMut(&World)) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(1000 + world.random(7))).await;
        each(world);
        world.turn();
    }
}

/// Lets the world go on until it is so, for an hour at most.
pub(super) async fn go_on_until(world: &World, mut is_so: impl FnMut(&World) -> bool) {
    let begin = Instant::now();
    while !is_so(world) {
        assert!(
            begin.elapsed() < Duration::from_hours(1),
            "not within an hour: {:?}",
            world.record(Record::clone)
        );
        go_on(world, Duration::from_secs(1), |_| {}).await;
    }
}

/// In memory where that can be had: a simulated day writes a ledger thousands of times.
pub(super) fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn name(text: &str) -> PodName {
    text.parse().unwrap()
}

fn address(host: u64) -> IpAddr {
    format!("10.0.0.{}", host + 10).parse().unwrap()
}

/// What a busy, badly run node does to its watchdog in a second.
fn anything(world: &World) {
    match world.random(600) {
        // A StatefulSet's pods come again under their names, on whatever address the IPAM thinks is free.
        0..40 => {
            let pod = name(&format!("shop/db-{}", world.random(12)));
            if !world.names().contains(&pod) {
                world.pod(&pod, Some("db"), address(world.random(24)));
            }
        }
        40..70 => {
            let names = world.names();
            if !names.is_empty() {
                let at = usize::try_from(world.random(names.len() as u64)).unwrap();
                let leaks = world.random(3) == 0;
                world.remove(&names[at], leaks);
            }
        }
        70..72 => {
            let set = format!("web-{}", world.random(6));
            let number = world.random(1000);
            world.pod(&name(&format!("shop/{set}-{number}")), Some(&set), reserved());
        }
        72 => world.set_faults(Faults {
            lookups: world.random(60),
            reads: world.random(40),
            writes: world.random(60),
            useless: world.random(8) == 0,
            busy: world.random(8) == 0,
            at_odds: match world.random(16) {
                0 => AtOdds::Phantom,
                1 => AtOdds::Hidden,
                _ => AtOdds::No,
            },
        }),
        73..76 => world.set_faults(Faults::default()),
        76 if world.random(10) == 0 => world.restart_agent(),
        77 => world.set_paused(world.random(3) == 0),
        _ => {}
    }
}

/// At most `burst + t / refill` calls within any time `t`.
fn holds(acts: &[Timestamp], bucket: BucketOptions) {
    let refill = bucket.refill.as_secs_f64();
    for (first, from) in acts.iter().enumerate() {
        for (last, to) in acts.iter().enumerate().skip(first) {
            let seconds = to.duration_since(*from).as_secs_f64();
            let made = f64::from(u32::try_from(last - first + 1).unwrap());
            assert!(
                made <= f64::from(bucket.burst) + seconds / refill + 1.0,
                "{made} acts from {from} to {to}"
            );
        }
    }
}

fn acts_of(world: &World, remedy: RemedyKind) -> Vec<Timestamp> {
    world.record(|record| {
        let acts = record.acts.iter().filter(|(_, of)| *of == remedy);
        acts.map(|(at, _)| *at).collect()
    })
}

/// Longer than the memory of what was tried, and with another seed some hours.
#[rstest]
#[case::a_day_and_more(1, 26)]
#[case::some_hours(2, 6)]
#[tokio::test(start_paused = true)]
async fn days_of_trouble(#[case] seed: u64, #[case] hours: u64) {
    let world = World::new(seed);
    let dir = directory();
    let end = Instant::now() + Duration::from_hours(hours);
    let all = EngineOptions { remedies: RemedyKind::ALL.to_vec(), ..options(judge) };
    let mut lives = 0;
    while Instant::now() < end {
        // Often killed within its first act, now and then living long.
        let longest = [20_000, 90_000, 3_600_000, 20_000_000][usize::try_from(world.random(4)).unwrap()];
        let life = Duration::from_millis(world.random(longest));
        let life = go_on(&world, life, anything);
        process_with(&world, dir.path(), all.clone(), &Heard::new(&world), life).await;
        lives += 1;
    }
    let bounds = BoundOptions::default();
    let acts = RemedyKind::ALL.map(|remedy| {
        let acts = acts_of(&world, remedy);
        holds(&acts, bounds.bucket(remedy));
        acts.len()
    });
    world.record(|record| {
        assert_eq!(record.violations, Vec::<String>::new());
        assert!(record.freed > 20, "it healed {} in {lives} lives", record.freed);
        assert!(!record.moved.is_empty(), "it moved none");
    });
    // Everything that was tried is on record, and nothing that was not.
    let kept = Ledger::read(dir.path()).unwrap();
    assert!(kept.state().acts().len() <= acts.iter().sum::<usize>() + lives);
}

/// Takes every holder for left over, whatever was read of its owner.
fn wrong(obs: &Observation, limits: &Limits) -> Judgement {
    let blind = Observation { owner: Ok(None), address_users: Ok(Vec::new()), ..obs.clone() };
    judge(&blind, limits)
}

/// A hundred pods that wait for the addresses of others, which run, or are gone and have leaked their endpoints.
async fn hundred(world: &World, leak: bool) {
    for number in 0..100 {
        let ip: IpAddr = format!("10.0.2.{number}").parse().unwrap();
        world.pod(&name(&format!("shop/owner-{number}")), None, ip);
    }
    go_on(world, Duration::from_secs(5), |_| {}).await;
    for number in 0..100 {
        let owner = name(&format!("shop/owner-{number}"));
        assert!(world.is_running(&owner));
        if leak {
            world.remove(&owner, true);
        }
        let ip: IpAddr = format!("10.0.2.{number}").parse().unwrap();
        world.pod(&name(&format!("shop/waits-{number}")), None, ip);
    }
    // Long enough for the first refusals to count.
    go_on(world, Duration::from_mins(3), |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_judgement_on_a_hundred_wedges_cuts_no_more_than_the_floor() {
    let world = World::new(11);
    let dir = directory();
    hundred(&world, false).await;
    // Killed every few seconds, which must not give the breaker its tries again.
    let end = Instant::now() + Duration::from_mins(25);
    while Instant::now() < end {
        let life = Duration::from_secs(5 + world.random(120));
        process(&world, dir.path(), wrong, go_on(&world, life, |_| {})).await;
    }
    let cut = world.record(|record| record.cut);
    assert!((1..=3).contains(&cut), "{cut} live endpoints were cut");
    // After the cool-down one is tried, and no more.
    process(&world, dir.path(), wrong, go_on(&world, Duration::from_mins(35), |_| {})).await;
    let cut = world.record(|record| record.cut);
    assert!(cut <= 5, "{cut} live endpoints were cut");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_disconnects_that_do_not_help_stop_at_the_floor() {
    let world = World::new(12);
    let dir = directory();
    hundred(&world, true).await;
    world.set_faults(Faults { useless: true, ..Faults::default() });
    process(&world, dir.path(), judge, go_on(&world, Duration::from_mins(25), |_| {})).await;
    let acts = acts_of(&world, RemedyKind::DisconnectEndpoint);
    assert_eq!(acts.len(), 3, "{acts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_leaked_endpoints_are_all_healed() {
    let world = World::new(13);
    let dir = directory();
    hundred(&world, true).await;
    let all = go_on_until(&world, |world| world.record(|record| record.freed) == 100);
    process(&world, dir.path(), judge, all).await;
    assert_eq!(acts_of(&world, RemedyKind::DisconnectEndpoint).len(), 100, "each once");
}
