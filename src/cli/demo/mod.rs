//! `demo`: the real daemon, as a process of its own, on a simulated cluster; the story is told on standard output.
//!
//! Three situations give one and the same message. The leak is healed, the live duplicate is left alone, the pod on a
//! reserved address is moved. The demo checks each ending itself and fails if one is not as told.

mod daemon;
mod stage;
mod voice;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use daemon::Daemon;
use stage::Stage;
use voice::Voice;

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// How many times faster than on a real node: divides the kubelet's and the daemon's waiting times.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    speed: f64,

    /// Leave the cluster and the daemon running at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,

    /// Show the daemon's own log lines as well.
    #[arg(long)]
    log: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.1..=20.0).contains(&factor) => Ok(factor),
        _ => Err(format!("{text:?} is no factor between 0.1 and 20")),
    }
}

impl DemoArgs {
    fn paced(&self, real: Duration) -> Duration {
        real.div_f64(self.speed)
    }
}

/// Tells the story to its end.
pub(super) async fn demo(args: DemoArgs) -> Result<()> {
    let voice = Voice::default();
    let stage = Stage::build(&args).await?;
    voice.title("A node with Cilium 1.20, simulated; the daemon is the real one");
    Voice::say("worker-1 runs three pods. Its ingress address, 10.244.1.7, is Cilium's own.");
    stage.ordinary_pods().await?;
    let mut daemon = Daemon::start(&args, &stage).await?;
    Voice::say(&format!("cilium-leak-healer runs in mode heal; its HTTP is at http://{}", daemon.address()));

    let healed = leak(&voice, &stage, &mut daemon).await?;
    let refused = duplicate(&voice, &stage, &mut daemon).await?;
    let moved = reserved(&voice, &stage, &mut daemon).await?;

    voice.title("What was done");
    for line in [healed, refused, moved] {
        Voice::point(&line);
    }
    let acts = daemon.acts().await?;
    Voice::point(&format!("acts by the daemon's own metrics: {acts}"));
    if acts != "1 delete-pod deleted, 1 disconnect-endpoint healed" {
        bail!("the daemon did other things than the story tells: {acts}");
    }
    if args.keep {
        voice.title("Left running (--keep); Ctrl-C ends it");
        Voice::point(&format!("curl http://{}/metrics", daemon.address()));
        Voice::point(&format!("curl 'http://{}/readyz?verbose'", daemon.address()));
        Voice::point(&format!("kubectl --kubeconfig {} get pods -A", stage.kubeconfig().display()));
        tokio::signal::ctrl_c().await?;
    }
    daemon.stop().await?;
    Voice::say("\nOn a cluster: kubectl apply -f rbac/observe.yaml -f deploy/daemonset.yaml");
    Ok(())
}

/// An endpoint outlives its pod, and a new pod gets its address.
async fn leak(voice: &Voice, stage: &Stage, daemon: &mut Daemon) -> Result<String> {
    voice.title("1. A leak: backup/agent-old is deleted, and the agent never hears of it");
    let ip = stage.leak("backup", "agent-old").await?;
    Voice::say(&format!(
        "Its pod is gone, its endpoint still holds {ip}. A new pod, shop/cart, is given that address:"
    ));
    stage.pod_on("shop", "cart", &ip)?;
    Voice::quote(&stage.failure_message("shop", "cart").await?);
    let failed = Instant::now();
    let judged = daemon.judgement(&ip, "stale-endpoint", "disconnect-endpoint").await?;
    voice.judgement(&judged);
    daemon.outcome("freed").await?;
    let seconds = failed.elapsed().as_secs_f64();
    voice.act("DELETE endpoint by its attachment id; the look-up by address says 404 now");
    stage.running("shop", "cart").await?;
    daemon.outcome("healed").await?;
    voice.act("shop/cart got its sandbox and runs: healed");
    Ok(format!("healed: shop/cart has {ip}; from its first failure to the disconnect {seconds:.1} s"))
}

/// Two pods are given one address; the first one lives.
async fn duplicate(voice: &Voice, stage: &Stage, daemon: &mut Daemon) -> Result<String> {
    let ip = stage.address("shop", "web").await?;
    voice.title(&format!("2. The same message, but the holder is alive: shop/web runs with {ip}"));
    stage.pod_on("tenant-a", "db", &ip)?;
    Voice::quote(&stage.failure_message("tenant-a", "db").await?);
    let judged = daemon.judgement(&ip, "live-duplicate", "none").await?;
    voice.judgement(&judged);
    if stage.address("shop", "web").await? != ip || !stage.holds("shop", "web", &ip) {
        bail!("the live pod shop/web lost its endpoint");
    }
    voice.act(
        "nothing is touched: shop/web still runs with its endpoint; a person has to mend the address plan",
    );
    Ok(format!("refused: shop/web is alive and keeps {ip}"))
}

/// A pod is given an address of Cilium's own.
async fn reserved(voice: &Voice, stage: &Stage, daemon: &mut Daemon) -> Result<String> {
    voice.title("3. The same message once more, but the address is Cilium's own ingress address");
    let first = stage.replica_on_ingress("tenant-b", "api").await?;
    Voice::quote(&stage.failure_message("tenant-b", &first).await?);
    let judged = daemon.judgement(stage::INGRESS, "reserved-holder", "delete-pod").await?;
    voice.judgement(&judged);
    daemon.outcome("deleted").await?;
    voice.act("the agent's endpoint is not touched; the pod, which never ran, is deleted once: its ReplicaSet makes another");
    let (name, ip) = stage.replacement("tenant-b", "api", &first).await?;
    voice.act(&format!("tenant-b/{name} runs with {ip}"));
    Ok(format!("told and moved: tenant-b/api could not have {}, and has {ip} now", stage::INGRESS))
}
