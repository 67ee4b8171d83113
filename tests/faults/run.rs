//! One run: a node's life with its leaks, what goes wrong in it, and how it must end.

use std::fmt::Write as _;
use std::time::Duration;

use cilium_leak_healer::sim::WorkloadKind;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use crate::dice::Dice;
use crate::in_memory::on_paused_time;
use crate::scene::{INGRESS, Pull, Scene};
use crate::trouble::{Order, Planned, happen, plan};

/// How long things go wrong: past the two quiet minutes after the start, also after a kill.
const TROUBLE: Duration = Duration::from_mins(5);
/// After that all must be healed within this: longer than the breaker's cool-down and the memory of what did not help.
const QUIET: Duration = Duration::from_hours(2);
/// A watchdog that was killed is started again after this.
const RESTART: Duration = Duration::from_secs(2);

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// What must not have been.
    pub(crate) failure: Option<String>,
    /// Stale endpoints that were disconnected, pods that were moved, live pods that were left waiting.
    pub(crate) disconnected: usize,
    pub(crate) deleted: usize,
    /// Until nothing was left to be healed, from the end of the trouble.
    pub(crate) quiet: Duration,
    /// Everything that came to both servers: the same for the same seed.
    pub(crate) requests: Vec<String>,
}

/// What a seed gives.
struct Drawn {
    dice: Dice,
    planned: Vec<Planned>,
    mode: &'static str,
    pull: Pull,
}

fn drawn(seed: u64) -> Drawn {
    let mut dice = Dice::new(seed);
    let planned = plan(&mut dice, TROUBLE);
    let mode = dice.one_of(&["kubernetes", "delegated-plugin"]);
    let takes = Duration::from_secs(dice.one_of(&[0, 0, 15, 600]));
    let pull = Pull { takes, reported: dice.percent(50) };
    Drawn { dice, planned, mode, pull }
}

/// The run of a seed.
pub(crate) fn seeded(seed: u64) -> Outcome {
    let Drawn { mut dice, planned, mode, pull } = drawn(seed);
    on_paused_time(seed, run(seed, (mode, pull), planned, async |scene: &Scene| live(scene, &mut dice).await))
}

/// The story of a seed's run, for people.
pub(crate) fn story(seed: u64) -> String {
    let Drawn { planned, mode, pull, .. } = drawn(seed);
    let mut text = format!("seed {seed}: IPAM mode {mode}, {pull:?}\n");
    for planned in planned {
        let _ = writeln!(text, "  {planned}");
    }
    text
}

/// A run with this going wrong.
pub(crate) async fn run(
    seed: u64,
    (mode, pull): (&str, Pull),
    planned: Vec<Planned>,
    live: impl AsyncFnOnce(&Scene) -> Result<(), String>,
) -> Outcome {
    let scene = Scene::new(seed, mode, pull, planned.len() < 2).await;
    let mut keeper = tokio::spawn(keep(scene.clone(), planned));
    let lived = async {
        live(&scene).await?;
        settle(&scene).await
    };
    let lived = tokio::select! {
        biased;
        lived = lived => lived,
        ended = &mut keeper => Err(match ended {
            Ok(why) => why,
            Err(panic) => panic.to_string(),
        }),
    };
    keeper.abort();
    drop(keeper.await);
    let (failure, quiet) = match lived {
        Ok(quiet) => (None, quiet),
        Err(why) => (Some(why), Duration::ZERO),
    };
    let (disconnected, deleted) = scene.truth(|truth| (truth.disconnects.len(), truth.deletes.len()));
    let requests = requests(&scene);
    scene.end();
    Outcome { failure, disconnected, deleted, quiet, requests }
}

fn requests(scene: &Scene) -> Vec<String> {
    let (api, agent) = (scene.cluster.api().take_requests(), scene.node.agent().take_requests());
    let line = |it: cilium_leak_healer::sim::RequestRecord| {
        // The name of an Event has the system's time in it.
        let path = it.path.find("/events/").map_or(it.path.as_str(), |at| &it.path[..at + 8]);
        format!("{} {} {} {path} {} {}", it.at, it.user_agent, it.method, it.query, it.status)
    };
    api.into_iter().chain(agent).map(line).collect()
}

/// Keeps a watchdog running while things go wrong. Ends only with what must not be.
async fn keep(scene: Scene, planned: Vec<Planned>) -> String {
    let (orders, mut heard) = unbounded_channel();
    for planned in planned {
        let orders = orders.clone();
        // The keeper outlives them all.
        tokio::spawn(happen(scene.clone(), planned, move |order| {
            let _ = orders.send(order);
        }));
    }
    loop {
        if let Err(stuck) = process(&scene, &mut heard).await {
            return stuck;
        }
        tokio::time::sleep(RESTART).await;
    }
}

/// One process, until it is killed.
async fn process(scene: &Scene, heard: &mut UnboundedReceiver<Order>) -> Result<(), String> {
    let watchdog = scene.watchdog();
    loop {
        tokio::select! {
            biased;
            order = heard.recv() => match order {
                Some(Order::Kill) => return Ok(()),
                Some(Order::Disk { full }) => disk(scene, full),
                None => return Err("nobody gives orders any more".to_owned()),
            },
            () = tokio::time::sleep(Duration::from_secs(10)) => {
                if !watchdog.is_live() {
                    return Err("the watchdog's loop is stuck, or it ended".to_owned());
                }
            }
        }
    }
}

/// A directory where the file's successor is to be written cannot be replaced: that write fails as on a full disk.
fn disk(scene: &Scene, full: bool) {
    let at = scene.state_dir().join("ledger.json.tmp");
    if full {
        drop(std::fs::create_dir_all(at.join("full")));
    } else {
        drop(std::fs::remove_dir_all(at));
    }
}

/// What a node sees in some minutes: pods that run, leaks, duplicates, pods on Cilium's own address.
async fn live(scene: &Scene, dice: &mut Dice) -> Result<(), String> {
    for number in 1..=4 {
        scene.pod("shop", &format!("web-{number}"), &format!("10.244.1.{}", 20 + number));
    }
    scene.workload(WorkloadKind::StatefulSet, "db", "10.244.1.30");
    let end = Instant::now() + TROUBLE;
    let mut number = 0;
    // At least one leak in each run.
    leak(scene, dice, number).await?;
    while Instant::now() < end {
        number += 1;
        scene.go_on(dice.millis(500, 40_000)).await?;
        match dice.below(10) {
            0..3 => leak(scene, dice, number).await?,
            3 => {
                scene.remove("shop", "db-0", dice.percent(50));
            }
            // An address of a pod that runs, or still pulls its image.
            4 => scene.pod("shop", &format!("copy-{number}"), &format!("10.244.1.{}", 21 + dice.below(4))),
            5 => scene.workload(WorkloadKind::ReplicaSet, &format!("front-{number}"), INGRESS),
            6 => {
                let web = 1 + dice.below(4);
                scene.remove("shop", &format!("web-{web}"), dice.percent(30));
            }
            7 => {
                let web = 1 + dice.below(4);
                scene.pod("shop", &format!("web-{web}"), &format!("10.244.1.{}", 20 + web));
            }
            8 => {
                // Its wedge is nobody's business any more.
                scene.leave();
            }
            _ => {
                // The next pod takes the address that is being healed.
                let ip = 40 + dice.below(u64::from(number) + 1);
                scene.pod("shop", &format!("other-{number}"), &format!("10.244.1.{ip}"));
            }
        }
    }
    Ok(())
}

/// A pod that runs, goes, and leaves its endpoint; then another that gets its address.
async fn leak(scene: &Scene, dice: &mut Dice, number: u32) -> Result<(), String> {
    let (old, new, ip) =
        (format!("old-{number}"), format!("new-{number}"), format!("10.244.1.{}", 40 + number));
    scene.pod("shop", &old, &ip);
    for _ in 0..30 {
        if scene.runs("shop", &old) {
            break;
        }
        scene.go_on(Duration::from_secs(1)).await?;
    }
    scene.remove("shop", &old, true);
    scene.go_on(dice.millis(1_200, 6_000)).await?;
    scene.pod("shop", &new, &ip);
    Ok(())
}

/// Nothing goes wrong any more: all that is provably stale must be healed.
async fn settle(scene: &Scene) -> Result<Duration, String> {
    // What still lasts comes to its end first.
    scene.go_on(Duration::from_secs(65)).await?;
    scene.cluster.api().clear_faults();
    scene.node.agent().clear_faults();
    let from = Instant::now();
    loop {
        let left = scene.unhealed();
        let time = from.elapsed();
        if left.is_empty() && time > Duration::from_secs(30) {
            return Ok(time);
        }
        if time > QUIET {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            return Err(format!("not healed in {} h: {}", QUIET.as_secs() / 3600, left.join(", ")));
        }
        scene.go_on(Duration::from_secs(5)).await?;
    }
}
