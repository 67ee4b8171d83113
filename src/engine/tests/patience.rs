//! How long the effect of a disconnect is waited for, and what ends the wait.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use rstest::rstest;

use super::days::{directory, go_on, go_on_until, process_with};
use super::options;
use super::telling::{Heard, wedge};
use super::world::{Faults, World};
use crate::domain::{ActOutcome, judge};
use crate::ledger::Ledger;

/// Minutes in the process, then how the only act ended and the seconds that it took; `None`: it has no end.
async fn only_act(world: &World, dir: &Path, minutes: u64) -> Option<(ActOutcome, i64)> {
    let life = go_on(world, Duration::from_mins(minutes), |_| {});
    process_with(world, dir, options(judge), &Heard::new(world), life).await;
    let kept = Ledger::read(dir).unwrap();
    let [act] = kept.state().acts() else {
        panic!("not one act: {:?}", kept.state().acts());
    };
    let end = act.ended()?;
    Some((end.outcome, end.at.duration_since(act.began()).as_secs()))
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_its_turn_at_a_busy_agent_is_waited_for() {
    let (world, dir) = (World::new(31), directory());
    wedge(&world, true).await;
    world.set_faults(Faults { busy: true, ..Faults::default() });
    assert_eq!(only_act(&world, dir.path(), 5).await, None);
    // Another process sees the end of it.
    world.set_faults(Faults::default());
    let (outcome, _) = only_act(&world, dir.path(), 1).await.unwrap();
    assert_eq!(outcome, ActOutcome::Healed);
}

/// What goes on, and the seconds until the act counts as in vain.
#[rstest]
#[case::that_never_gets_its_turn(Faults { busy: true, ..Faults::default() }, 600..640)]
#[case::that_is_refused_again_on_a_free_address(Faults { useless: true, ..Faults::default() }, 60..70)]
#[tokio::test(start_paused = true)]
async fn a_pod(#[case] faults: Faults, #[case] within: Range<i64>) {
    let (world, dir) = (World::new(32), directory());
    wedge(&world, true).await;
    world.set_faults(faults);
    let (outcome, seconds) = only_act(&world, dir.path(), 15).await.unwrap();
    assert_eq!(outcome, ActOutcome::NotHealed);
    assert!(within.contains(&seconds), "{seconds} s");
}

#[tokio::test(start_paused = true)]
async fn look_ups_without_an_answer_do_not_end_it() {
    let (world, dir) = (World::new(34), directory());
    wedge(&world, true).await;
    world.set_faults(Faults { useless: true, ..Faults::default() });
    let deaf = Faults { useless: true, lookups: 100, ..Faults::default() };
    let life = async {
        go_on_until(&world, |world| world.record(|record| record.freed) > 0).await;
        go_on(&world, Duration::from_secs(5), |_| {}).await;
        world.set_faults(deaf);
        go_on(&world, Duration::from_mins(4), |_| {}).await;
    };
    process_with(&world, dir.path(), options(judge), &Heard::new(&world), life).await;
    let acts = Ledger::read(dir.path()).unwrap();
    assert!(acts.state().acts()[0].is_open(), "{:?}", acts.state().acts());
    world.set_faults(Faults { useless: true, ..Faults::default() });
    let (outcome, _) = only_act(&world, dir.path(), 15).await.unwrap();
    assert_eq!(outcome, ActOutcome::NotHealed);
}
