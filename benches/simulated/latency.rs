//! From the kubelet's first refusal to the disconnect and to the pod's sandbox, one wedge at a time.

use std::time::Duration;

use jiff::Timestamp;

use crate::cores::on_all_cores;
use crate::in_memory::on_paused_time;
use crate::numbers::{float, grouped, middle_and_tail, quantile, ratio, seconds, table};
use crate::stage::{Stage, Who, address, answered, asks_for, between};

/// The kubelet tries again this long after its last try, at the earliest.
pub(crate) const RETRY: Duration = Duration::from_secs(12);

/// What one wedge took, from the answer with the first refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    pub(crate) disconnect: Duration,
    pub(crate) sandbox: Duration,
    pub(crate) tries: usize,
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn millis(&mut self, below: u64) -> Duration {
        // Knuth's linear congruential generator; its high bits are good enough for phases.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((self.0 >> 33) % below)
    }
}

/// So many wedges, one after the other: each pod is first tried up to 20 s after it was bound, as where volumes are mounted.
pub(crate) fn wedges(seed: u64, ipam_mode: &str, who: Who, count: usize) -> Vec<Took> {
    on_paused_time(1, async {
        let stage = Stage::new(seed, |_| {}).await;
        let node = stage.node(1, |options| {
            ipam_mode.clone_into(&mut options.agent.ipam_mode);
            options.kubelet.mount_jitter = Duration::from_secs(20);
            options.with_agent_pod = true;
        });
        let healers = stage.heal(who);
        let mut dice = Dice(seed);
        tokio::time::sleep(Duration::from_mins(1)).await;
        let mut all = Vec::new();
        for number in 0..count {
            let ip = address(1, 20 + u8::try_from(number % 200).expect("below 200"));
            let (old, new) = (format!("old-{number}"), format!("new-{number}"));
            stage.leak(&node, &old, ip).await;
            tokio::time::sleep(dice.millis(20_000)).await;
            drop(node.agent().take_requests());
            stage.pod(&node, &new, ip);
            stage.until_runs(&new, Duration::from_mins(5)).await;
            all.push(took(&node.agent().take_requests(), ip));
            stage.remove(&node, &new, false);
            stage.until_gone(&new).await;
            tokio::time::sleep(dice.millis(10_000)).await;
        }
        drop(healers);
        stage.end();
        all
    })
}

fn took(requests: &[cilium_leak_healer::sim::RequestRecord], ip: std::net::Ipv4Addr) -> Took {
    let tries: Vec<_> = requests.iter().filter(|it| asks_for(it, ip)).collect();
    let of = |status: u16| tries.iter().find(|it| it.status == status).map(|it| answered(it));
    let refused: Timestamp = of(400).expect("a refusal first");
    let gone = requests.iter().find(|it| it.method == "DELETE" && it.status == 200).expect("a disconnect");
    let sandbox = of(201).expect("a sandbox");
    assert!(tries.iter().all(|it| it.status == 400 || it.status == 201), "{tries:?}");
    Took { disconnect: between(refused, gone.at), sandbox: between(refused, sandbox), tries: tries.len() }
}

pub(crate) fn section() {
    // A debug build is for work on the benchmark itself.
    const EACH: usize = if cfg!(debug_assertions) { 10 } else { 150 };
    let modes = ["delegated-plugin", "kubernetes"];
    let runs: [(u64, &str); 4] = [(1, modes[0]), (2, modes[0]), (3, modes[1]), (4, modes[1])];
    let made = on_all_cores(runs.len(), |at| wedges(runs[at].0, runs[at].1, Who::Watchdog, EACH));
    let mut rows = Vec::new();
    for mode in modes {
        let all: Vec<Took> =
            runs.iter().zip(&made).filter(|(run, _)| run.1 == mode).flat_map(|(_, it)| it.clone()).collect();
        assert!(all.len() == 2 * EACH, "{} wedges", all.len());
        let disconnects: Vec<Duration> = all.iter().map(|it| it.disconnect).collect();
        let sandboxes: Vec<Duration> = all.iter().map(|it| it.sandbox).collect();
        let second = all.iter().filter(|it| it.tries == 2).count();
        assert!(quantile(&disconnects, 50) < RETRY, "the aim is a disconnect before the kubelet's next try");
        assert!(sandboxes.iter().zip(&disconnects).all(|(sandbox, gone)| sandbox > gone));
        let [middle, tail] = middle_and_tail(&disconnects);
        let [sandbox, late] = middle_and_tail(&sandboxes);
        let most = disconnects.iter().max().copied().unwrap_or_default();
        let median = quantile(&disconnects, 50).as_secs_f64() / RETRY.as_secs_f64();
        rows.push(vec![
            format!("`{mode}`"),
            grouped(all.len()),
            middle,
            tail,
            seconds(most),
            ratio(median, 1.0),
            sandbox,
            late,
            format!("{:.1} %", 100.0 * float(second) / float(all.len())),
        ]);
    }
    println!(
        "Seconds of simulated time from the first refusal, default settings, Cilium's own rate limits:\n"
    );
    table(
        &[
            "IPAM mode",
            "wedges",
            "disconnect, median",
            "99th percentile",
            "longest",
            "median / 12 s retry",
            "sandbox, median",
            "99th percentile",
            "sandbox at the kubelet's next try",
        ],
        &rows,
    );
}
