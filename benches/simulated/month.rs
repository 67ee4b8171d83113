//! A month of one node: what the watchdog keeps must not grow.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::in_memory::{forget_events, on_paused_time};
use crate::memory;
use crate::numbers::{float, grouped, table};
use crate::stage::{NAMESPACE, Stage, Who, address};

// A debug build is for work on the benchmark itself.
const DAYS: usize = if cfg!(debug_assertions) { 2 } else { 30 };
/// In KiB a day: one KiB for each of its leaks. What is kept of an act is about as much.
const MOST_GROWTH: f64 = 24.0;
/// From here on nothing may grow: the ledger is full of acts within a week.
const MIDDLE: usize = DAYS / 3;
const HOUR: Duration = Duration::from_hours(1);
/// Pods that just run.
const RESIDENTS: u8 = 20;

/// One day.
struct Day {
    resident_kib: usize,
    ledger_bytes: usize,
    requests: usize,
    calls: usize,
}

/// The argument of a process that runs one month and nothing else: what was in its memory before would hide what grows.
const ALONE: &str = "month-of";

pub(crate) fn section() {
    println!(
        "A leak an hour; each process holds the simulated cluster as well, so the same month without a watchdog stands beside it.\n"
    );
    let (with, without) = (in_a_process("watchdog"), in_a_process("nobody"));
    let more = with - without;
    println!(
        "resident, from day {} on: {with:.1} KiB a day with a watchdog, {without:.1} without: {more:.1} by it\n",
        MIDDLE + 1
    );
    assert!(more <= MOST_GROWTH || cfg!(debug_assertions), "the watchdog's memory grew");
}

/// A month in a process of its own. How much its memory grew a day, in KiB.
fn in_a_process(who: &str) -> f64 {
    let program = std::env::current_exe().expect("this program");
    let output = std::process::Command::new(program).args([ALONE, who]).output().expect("it can be started");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{who}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let (table, growth) = text.trim_end().rsplit_once('\n').expect("a table and a number");
    println!("{table}\n");
    growth.parse().expect("a number")
}

/// Runs as such a process, if it is one.
pub(crate) fn alone() -> bool {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [first, who] = args.as_slice() else { return false };
    if first != ALONE {
        return false;
    }
    let who = if who == "watchdog" { Who::Watchdog } else { Who::Nobody };
    let days = on_paused_time(1, month(who));
    let rows: Vec<Vec<String>> = (1..)
        .zip(&days)
        .filter(|(number, _)| [1, 2, 5, 10, 20, 30].contains(number))
        .map(|(number, day)| {
            let counts = [day.resident_kib, day.ledger_bytes, day.requests, day.calls];
            std::iter::once(number.to_string()).chain(counts.map(grouped)).collect()
        })
        .collect();
    let heads = [
        format!("{who:?}: day"),
        "resident (KiB)".to_owned(),
        "ledger (bytes)".to_owned(),
        "API requests".to_owned(),
        "agent calls".to_owned(),
    ];
    table(&heads.each_ref().map(String::as_str), &rows);
    let (early, late) = (&days[MIDDLE], &days[DAYS - 1]);
    for (what, of) in [
        ("ledger", (|day| day.ledger_bytes) as fn(&Day) -> usize),
        ("API requests", |day| day.requests),
        ("agent calls", |day| day.calls),
    ] {
        assert!(float(of(late)) <= 1.1 * float(of(early)) || cfg!(debug_assertions), "{what} grew");
    }
    let grown = float(late.resident_kib) - float(early.resident_kib);
    println!("{:.1}", grown / float(DAYS - 1 - MIDDLE));
    true
}

/// The days. Each leak has to be healed within its hour.
async fn month(who: Who) -> Vec<Day> {
    let stage = Stage::new(1, |_| {}).await;
    let node = stage.node(1, |options| {
        "delegated-plugin".clone_into(&mut options.agent.ipam_mode);
        options.with_agent_pod = true;
    });
    let (api, agent) = (stage.cluster.api(), node.agent());
    for number in 0..RESIDENTS {
        stage.pod(&node, &format!("app-{number}"), address(1, 10 + number));
    }
    let healers = stage.heal(who);
    let began = Instant::now();
    let mut days = Vec::new();
    drop((api.take_requests(), agent.take_requests()));
    for day in 0..u32::try_from(DAYS).expect("few") {
        let (mut requests, mut calls) = (0, 0);
        for hour in 0..24 {
            let ip = address(1, 100 + u8::try_from(day % 6 * 24 + hour).expect("below 144"));
            stage.leak(&node, "old", ip).await;
            stage.pod(&node, "new", ip);
            if who == Who::Nobody {
                sleep(Duration::from_secs(10)).await;
                agent.remove_endpoint(ip.into());
            }
            match hour {
                // An owner that lives: to be left alone, and told of.
                3 | 9 => stage.pod(&node, "copy", address(1, 10)),
                6 => agent.restart(stage.cluster.now()).await.expect("its socket"),
                12 => {
                    api.pause().await;
                    sleep(Duration::from_mins(2)).await;
                    api.resume().await.expect("its port");
                }
                15 => api.compact(),
                18 => api.cut_watches(),
                _ => {}
            }
            sleep_until(began + HOUR * (24 * day + hour + 1) - Duration::from_mins(5)).await;
            assert!(stage.runs("new"), "day {day}, hour {hour}: the leak is healed");
            stage.remove(&node, "new", false);
            if matches!(hour, 3 | 9) {
                assert!(!stage.runs("copy"), "the owner of its address lives");
                stage.remove(&node, "copy", false);
            }
            // As the API server forgets them.
            forget_events(api);
            sleep_until(began + HOUR * (24 * day + hour + 1)).await;
            requests += api.take_requests().len();
            calls += agent.take_requests().iter().filter(|it| it.user_agent.is_empty()).count();
        }
        let ledger = std::fs::metadata(stage.state_dir(&node).join("ledger.json"));
        let ledger_bytes = ledger.map_or(0, |file| usize::try_from(file.len()).expect("small"));
        let resident_kib =
            memory::kib("self", "VmRSS").and_then(|kib| usize::try_from(kib).ok()).expect("Linux");
        days.push(Day { resident_kib, ledger_bytes, requests, calls });
    }
    let left = agent.endpoints().len();
    assert!(left < usize::from(RESIDENTS) + 10, "{left} endpoints at the end in {NAMESPACE}");
    drop(healers);
    stage.end();
    days
}
