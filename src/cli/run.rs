//! `run`: the DaemonSet's verb. Wires the parts of one node together and ends them in order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::connection::ConnectionArgs;
use super::duration;
use super::log::LogArgs;
use crate::admin::{Check, Health, Server, router};
use crate::cilium::{AgentClient, AgentOptions};
use crate::domain::{Limits, NodeName};
use crate::engine::{Engine, EngineOptions, Live, Mode};
use crate::kube::{LabelMatch, PodStore, Reader, WatchOptions, connect, watch_pods};
use crate::metrics::Metrics;

/// Look-ups by address start this far apart: the agent's API is shared with the CNI plugin.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);
/// The loop counts as stuck after this long without a turn; one judgement is bounded far below.
const STUCK_AFTER: Duration = Duration::from_mins(3);
const JUDGE_TIMEOUT: Duration = Duration::from_mins(1);

/// The usage is what is printed of a missing node name: it names both ways to give it.
#[derive(Debug, Args)]
#[command(
    override_usage = "cilium-leak-healer run --node-name <NODE> [OPTIONS]\n       CILIUM_LEAK_HEALER_NODE_NAME=<NODE> cilium-leak-healer run [OPTIONS]"
)]
pub(super) struct RunArgs {
    /// Name of the node, as in spec.nodeName of its pods.
    #[arg(long, value_name = "NODE", env = "CILIUM_LEAK_HEALER_NODE_NAME")]
    node_name: NodeName,

    /// Whether to act: observe only tells.
    #[arg(long, value_enum, default_value_t = ModeArg::Observe, env = "CILIUM_LEAK_HEALER_MODE")]
    mode: ModeArg,

    /// Remedies that mode heal may use, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [RemedyArg::DisconnectEndpoint, RemedyArg::DeletePod], env = "CILIUM_LEAK_HEALER_REMEDIES")]
    remedies: Vec<RemedyArg>,

    /// Address of the HTTP server: /livez, /readyz, /healthz, /metrics. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9965", env = "CILIUM_LEAK_HEALER_LISTEN")]
    listen: SocketAddr,

    #[command(flatten)]
    agent: AgentArgs,

    #[command(flatten)]
    pace: PaceArgs,

    #[command(flatten)]
    limits: LimitArgs,

    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeArg {
    Observe,
    Heal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RemedyArg {
    DisconnectEndpoint,
    DeletePod,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Cilium agent")]
#[expect(clippy::struct_field_names, reason = "the fields name their flags")]
struct AgentArgs {
    /// Directory of the agent's cilium.sock. Mount the directory: the agent makes the socket anew at each start.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/cilium",
        env = "CILIUM_LEAK_HEALER_AGENT_SOCKET_DIR"
    )]
    agent_socket_dir: PathBuf,

    /// Time-out of one call of the agent's API.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_AGENT_TIMEOUT")]
    agent_timeout: Duration,

    /// Labels of the agent's pod, in any namespace: the start of its container counts as the agent's, if later.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        default_value = "k8s-app=cilium",
        env = "CILIUM_LEAK_HEALER_AGENT_POD_SELECTOR"
    )]
    agent_pod_selector: LabelMatch,

    /// Name of the agent's container in that pod.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "cilium-agent",
        env = "CILIUM_LEAK_HEALER_AGENT_CONTAINER"
    )]
    agent_container: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Pace")]
struct PaceArgs {
    /// No act within this time after the start.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_STARTUP_QUIET")]
    startup_quiet: Duration,

    /// Least time between the two judgements that must agree before an act.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_CONFIRM_GAP")]
    confirm_gap: Duration,

    /// A pod's Events are read once it has waited this long without a sandbox.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_EVENT_DELAY")]
    event_delay: Duration,

    /// Time a pod may take to get its sandbox after a disconnect, before that counts as not healed.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_VERIFY_TIMEOUT")]
    verify_timeout: Duration,

    /// On SIGTERM, time for the act in hand to end.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_SHUTDOWN_TIMEOUT")]
    shutdown_timeout: Duration,
}

/// The defaults are those of [`Limits`]; a test holds them to it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Time limits of the rules (shorter ones weaken the proof)")]
struct LimitArgs {
    /// An agent that started less than this ago is still settling.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_AGENT_SETTLE")]
    agent_settle: Duration,

    /// A holder on its way up or down is left alone until its newest log entry is this old.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_HOLDER_SETTLE")]
    holder_settle: Duration,

    /// A pod's first and only failure must be this old.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_LONE_FAILURE_AGE")]
    lone_failure_age: Duration,

    /// A newest failure older than this proves nothing about now.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_FAILURE_MAX_AGE")]
    failure_max_age: Duration,

    /// A newest failure further in the future than this comes from a wrong clock.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_FAILURE_MAX_SKEW")]
    failure_max_skew: Duration,

    /// A holder counts as older than a failure if its log begins at least this long before it.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::whole_second, env = "CILIUM_LEAK_HEALER_OLDER_MARGIN")]
    older_margin: Duration,

    /// A pod that started more than this after the holder's log began cannot own it.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::whole_second, env = "CILIUM_LEAK_HEALER_START_MARGIN")]
    start_margin: Duration,
}

impl LimitArgs {
    fn limits(&self) -> Limits {
        Limits {
            agent_settle: self.agent_settle,
            holder_settle: self.holder_settle,
            lone_failure_age: self.lone_failure_age,
            failure_max_age: self.failure_max_age,
            failure_max_skew: self.failure_max_skew,
            older_margin: self.older_margin,
            start_margin: self.start_margin,
        }
    }
}

impl RunArgs {
    fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            node: self.node_name.clone(),
            mode: match self.mode {
                ModeArg::Observe => Mode::Observe,
                ModeArg::Heal => Mode::Heal,
            },
            disconnect_endpoint: self.remedies.contains(&RemedyArg::DisconnectEndpoint),
            delete_pod: self.remedies.contains(&RemedyArg::DeletePod),
            limits: self.limits.limits(),
            startup_quiet: self.pace.startup_quiet,
            confirm_gap: self.pace.confirm_gap,
            event_delay: self.pace.event_delay,
            verify_timeout: self.pace.verify_timeout,
            judge_timeout: JUDGE_TIMEOUT,
        }
    }

    fn watch_options(&self, timeout: Duration) -> WatchOptions {
        WatchOptions {
            node: self.node_name.clone(),
            agent_labels: self.agent.agent_pod_selector.clone(),
            agent_container: self.agent.agent_container.clone(),
            timeout,
        }
    }
}

/// Runs until SIGTERM or SIGINT. A second signal ends it at once.
pub(super) async fn run(args: RunArgs) -> Result<()> {
    args.log.init()?;
    let mut stop = Stop::listen().context("signals cannot be handled")?;
    let metrics = Arc::new(Metrics::new());
    let health = Health::new(STUCK_AFTER);

    // Served before anything that may block, so that a probe finds out what is missing.
    let (server, address) = Server::bind(args.listen).await?;
    tracing::info!(%address, mode = args.engine_options().mode.as_str(), node = %args.node_name, version = env!("CARGO_PKG_VERSION"), "serving");
    // The engine is stopped first: probes can hear of it as long as an act is in hand.
    let (stopping, stopped) = watch::channel(false);
    let (closing, closed) = watch::channel(false);
    let serving = tokio::spawn(server.serve(router(health.clone(), Arc::clone(&metrics)), until(closed)));

    let options = args.connection.options();
    let (client, opened) = connect(&options, &metrics).await?;
    let store = PodStore::default();
    let reporter = WatchReport::new(health.clone(), args.node_name.clone());
    let mut watching = tokio::spawn(watch_pods(
        client.clone(),
        opened,
        args.watch_options(options.timeout),
        store.clone(),
        Arc::clone(&metrics),
        move |state| reporter.hear(state),
    ));

    let agent = AgentOptions {
        socket_dir: args.agent.agent_socket_dir.clone(),
        timeout: args.agent.agent_timeout,
        lookup_interval: LOOKUP_INTERVAL,
    };
    let reader = Reader::new(client, options.timeout, store.clone());
    let live =
        Live::new(args.node_name.clone(), AgentClient::new(agent, Arc::clone(&metrics)), reader, store);
    let mut engine =
        tokio::spawn(Engine::new(args.engine_options(), live, health.clone(), metrics).run(stopped));

    tokio::select! {
        () = stop.next() => {}
        ended = &mut engine => return Err(anyhow::anyhow!("the loop ended by itself: {ended:?}")),
        // Without it the engine would go on with what it knew last.
        ended = &mut watching => return Err(anyhow::anyhow!("the watch ended by itself: {ended:?}")),
    }
    tracing::info!("stopping: the act in hand is finished or abandoned");
    health.shutting_down();
    stopping.send_replace(true);
    tokio::select! {
        ended = tokio::time::timeout(args.pace.shutdown_timeout, &mut engine) => {
            if ended.is_err() {
                tracing::warn!(limit_seconds = args.pace.shutdown_timeout.as_secs_f32(), "the act in hand did not end in time and is abandoned");
            }
        }
        () = stop.next() => tracing::warn!("second signal: ending at once"),
    }
    engine.abort();
    watching.abort();
    closing.send_replace(true);
    drop(tokio::time::timeout(Duration::from_secs(3), serving).await);
    Ok(())
}

async fn until(mut stopped: watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// SIGTERM and SIGINT.
struct Stop {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl Stop {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// Hears whether the watch works, tells readiness, and logs each change.
struct WatchReport {
    health: Health,
    node: NodeName,
    last: std::sync::Mutex<Option<Result<(), String>>>,
}

impl WatchReport {
    fn new(health: Health, node: NodeName) -> Self {
        Self { health, node, last: std::sync::Mutex::default() }
    }

    fn hear(&self, state: Result<(), String>) {
        self.health.set(Check::PodWatch, state.clone());
        let Ok(mut last) = self.last.lock() else {
            return;
        };
        if last.as_ref() == Some(&state) {
            return;
        }
        match &state {
            Ok(()) => tracing::info!(node = %self.node, "watching the pods of this node"),
            Err(why) => {
                tracing::warn!(node = %self.node, reason = why, "the watch on pods does not work; it is tried again");
            }
        }
        *last = Some(state);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Only {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn the_default_limits_are_those_of_the_design() {
        let only = Only::parse_from(["run", "--node-name", "n1"]);
        assert_eq!(only.run.limits.limits(), Limits::default());
    }
}
