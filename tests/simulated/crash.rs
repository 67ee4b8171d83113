//! Its process may end at any instant, and its ledger may be torn, taken, or impossible: no act is done twice, none
//! without a record.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use cilium_leak_healer::sim::{Fault, Injected, PODS, WorkloadKind};
use serde_json::Value;

use crate::bounds::nth_wedge;
use crate::daemon::{Daemon, run_to_end};
use crate::people::{deletions, held_back, says};
use crate::scene::{INGRESS, IP, Scene, acted, healed};

const LIVES: u32 = 16;
const WEDGES: u8 = 6;

/// The ledger, as its verb tells it.
async fn ledger(scene: &Scene) -> Value {
    let output = run_to_end(&["ledger", "--state-dir", &scene.state_dir(), "-o", "json"], &[]).await;
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn acts(ledger: &Value) -> Vec<Value> {
    ledger["state"]["acts"].as_array().cloned().unwrap_or_default()
}

fn file(scene: &Scene) -> PathBuf {
    PathBuf::from(scene.state_dir()).join("ledger.json")
}

/// Something below that bound that nobody chose.
fn any(bound: u32) -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    now.subsec_micros().wrapping_mul(2_654_435_761) % bound
}

pub(crate) async fn killed_at_any_instant_it_does_nothing_twice_and_heals_in_the_end() {
    let scene = Scene::new().await;
    let agent = scene.node.agent();
    // One call never takes effect; the others do, although the process that made them is gone.
    let lost = agent.inject(Fault::hang().on("DELETE").once());
    let late = Fault::late_effect(Duration::from_millis(150)).on("DELETE");
    let calls = [agent.inject(late.clone()), scene.cluster.api().inject(late.path("/tenant-b/pods/")), lost];
    let calls = || calls.iter().map(Injected::hits).sum::<u64>();
    // Calls that get lost are no act that helps.
    let args = ["--breaker-floor", "30"];
    scene.workload(WorkloadKind::ReplicaSet, "tenant-b", "api", INGRESS);
    let (mut made, mut in_hand) = (0, 0);
    for life in 0..LIVES {
        let before = calls();
        let daemon = scene.start(&lively(&args)).await;
        let end = Duration::from_millis(u64::from(any(3000)));
        // Every other one ends with a call on its way, if it makes one.
        if life % 2 == 0 {
            if made < WEDGES {
                nth_wedge(&scene, made);
                made += 1;
            }
            let call = scene.cluster.wait_for_within(Duration::from_secs(8), "a call", |_| calls() > before);
            in_hand += u32::from(call.await.is_ok());
            tokio::time::sleep(end / 10).await;
        } else {
            tokio::time::sleep(end).await;
        }
        daemon.kill().await;
    }
    assert!(in_hand > 1, "too few to tell anything");
    println!("{in_hand} of {LIVES} lives ended with a call on its way, or just after it");
    let daemon = scene.start(&lively(&args)).await;
    // What was meant and not seen to be done is open for a minute, and then tried again.
    for n in 0..WEDGES {
        let name = format!("cart-{n}");
        let runs = |cluster: &cilium_leak_healer::sim::Cluster| {
            let pod = cluster.api().get(&PODS, "shop", &name).expect("the pod");
            pod["status"]["phase"] == "Running"
        };
        let patience = Duration::from_secs(150);
        let all = scene.cluster.wait_for_within(patience, &name, runs).await;
        assert!(all.is_ok(), "{all:?}\n{}", daemon.printed());
    }
    let is_over = |acts: &[Value]| {
        let moved = acts.iter().any(|act| act["intent"]["remedy"] == "delete-pod");
        moved && acts.iter().all(|act| !act["ended"].is_null())
    };
    let deadline = Instant::now() + Duration::from_secs(100);
    let mut told = acts(&ledger(&scene).await);
    while !is_over(&told) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_secs(1)).await;
        told = acts(&ledger(&scene).await);
    }
    daemon.stop().await;
    nothing_twice(&scene, &told);
}

fn lively<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let quick =
        ["--mode", "heal", "--startup-quiet", "0s", "--confirm-gap", "300ms", "--event-delay", "200ms"];
    [&quick, &["--lone-failure-age", "1s", "--api-timeout", "2s"][..], args].concat()
}

fn nothing_twice(scene: &Scene, acts: &[Value]) {
    assert!(acts.iter().all(|act| !act["ended"].is_null()), "{acts:#?}");
    let mut removed: HashMap<String, usize> = HashMap::new();
    for delete in scene.disconnects().into_iter().filter(|it| it.status == 200) {
        *removed.entry(delete.path).or_default() += 1;
    }
    assert!(removed.values().all(|times| *times == 1), "{removed:?}");
    // No endpoint was aimed at again after that had helped.
    let mut helped: Vec<&Value> = Vec::new();
    for act in acts {
        let target = &act["intent"]["target"];
        assert!(target.is_null() || !helped.contains(&target), "{acts:#?}");
        if act["ended"]["outcome"] == "healed" {
            helped.push(target);
        }
    }
    let moves: Vec<&Value> = acts.iter().filter(|act| act["intent"]["remedy"] == "delete-pod").collect();
    assert_eq!(moves.len(), 1, "{acts:#?}");
    // Meant and killed before the call: then it is not tried again, since nobody knows.
    let sent = scene
        .cluster
        .api()
        .requests()
        .into_iter()
        .filter(|request| request.method == "DELETE" && request.path.contains("/tenant-b/pods/"));
    assert!(sent.count() <= 1 && deletions(scene) <= 1);
    let outcomes: Vec<&str> = acts.iter().filter_map(|act| act["ended"]["outcome"].as_str()).collect();
    println!("{LIVES} lives: {} acts, {outcomes:?}", acts.len());
}

pub(crate) async fn a_torn_ledger_is_set_aside_and_nothing_is_done() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    nth_wedge(&scene, 1);
    acted(&daemon, "healed").await;
    daemon.stop().await;
    let whole = std::fs::read(file(&scene)).expect("a ledger");
    std::fs::write(file(&scene), &whole[..whole.len() / 2]).expect("a torn ledger");
    let output = run_to_end(&["ledger", "--state-dir", &scene.state_dir()], &[]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("sets it aside"), "{said}");
    let before = scene.disconnects().len();
    let daemon = scene.heal().await;
    let aside = |line: &Value| {
        line["message"].as_str().is_some_and(|said| said.starts_with("the ledger could not be used"))
    };
    let told = daemon.line("it is set aside", aside).await;
    assert_eq!(told["level"], "ERROR", "{told}");
    says(&told, "ledger.json.bad-");
    daemon.metric_reaches("cilium_leak_healer_breaker{state=\"open\"}", 1.0).await;
    scene.wedge();
    says(&held_back(&daemon, "breaker").await, "the ledger could not be read");
    assert_eq!(scene.disconnects().len(), before);
    assert!(scene.is_held(IP));
    let ready = daemon.answers("/readyz", 200).await;
    assert!(ready.contains("[!]ledger degraded: the breaker is open until"), "{ready}");
    daemon.stop().await;
    let output = run_to_end(&["ledger", "--state-dir", &scene.state_dir()], &[]).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("the ledger could not be read"), "{output:?}");
    // What was set aside is there for people.
    let files = std::fs::read_dir(scene.state_dir()).expect("the directory").flatten();
    let bad = files.filter(|it| it.file_name().to_string_lossy().starts_with("ledger.json.bad-"));
    assert_eq!(bad.count(), 1);
}

/// Ready, degraded by the ledger in these words, and a wedge that is left alone.
async fn unrecorded(scene: &Scene, daemon: &Daemon, words: &str) {
    let closed = |line: &Value| line["message"] == "the ledger cannot be used: nothing is done until it can";
    let told = daemon.line("it cannot be used", closed).await;
    assert_eq!(told["level"], "ERROR", "{told}");
    says(&told, words);
    let said = daemon.answers("/readyz", 200).await;
    assert!(said.contains("[!]ledger degraded: ") && said.contains(words), "{said}");
    scene.wedge();
    says(&held_back(daemon, "unrecorded").await, words);
    assert!(scene.is_held(IP));
    scene.nothing_done(daemon);
}

pub(crate) async fn a_second_process_does_nothing_until_the_first_is_gone() {
    let scene = Scene::new().await;
    let first = scene.observe().await;
    let open = |line: &Value| line["message"] == "the ledger is open";
    first.line("it has the ledger", open).await;
    let second = scene.heal().await;
    unrecorded(&scene, &second, "another process has this ledger").await;
    first.stop().await;
    second.line("now it has the ledger", open).await;
    healed(&scene, second).await;
}

pub(crate) async fn without_a_directory_for_the_ledger_nothing_is_done() {
    let scene = Scene::new().await;
    std::fs::write(scene.state_dir(), "in the way").expect("a file");
    let daemon = scene.heal().await;
    unrecorded(&scene, &daemon, "the directory cannot be made").await;
    daemon.stop().await;
}
