//! `run`: the DaemonSet's verb. Wires the parts of one node together and ends them in order.

mod access;
mod args;
mod protection;
mod tell;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(super) use args::RunArgs;
pub(super) use protection::{RESTART_LEASE, delete_leases};

use crate::admin::{Check, Health, Server, ServerLimits, guard, log_level, router, stream_router};
use crate::cilium::{AgentClient, AgentOptions};
use crate::engine::{Book, Channels, Engine, Guard, Listeners, Live};
use crate::kube::{PodStore, Protection, Reader, Recorder, connect, watch_pods};
use crate::metrics::Metrics;
use protection::{LeaseNames, Questions};

/// Look-ups by address start this far apart: the agent's API is shared with the CNI plugin.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);
/// The loop counts as stuck after this long without a turn; one judgement is bounded far below.
const STUCK_AFTER: Duration = Duration::from_mins(3);
const JUDGE_TIMEOUT: Duration = Duration::from_mins(1);
/// Connections that streams cannot take.
const PROBES: usize = 48;
/// What may still be written to the cluster when all else has ended.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// Runs until SIGTERM or SIGINT. A second signal ends it at once.
pub(super) async fn run(args: RunArgs) -> Result<()> {
    let log = args.log.init()?;
    let mut stop = Stop::listen().context("signals cannot be handled")?;
    let metrics = Arc::new(Metrics::new());
    let health = Health::new(STUCK_AFTER);
    let engine_options = args.engine_options();
    let hub = tell::hub(&engine_options, &metrics);
    tell::checks(&health, &hub, &args.node_name);

    // Served before anything that may block, so that a probe finds out what is missing.
    let (server, addresses) = Server::bind(&args.listen)?;
    tell::serving(&addresses, &engine_options);
    // The engine is stopped first: probes can hear of it as long as an act is in hand.
    let (stopping, stopped) = watch::channel(false);
    let (closing, closed) = watch::channel(false);
    let (access, reviews) = access::access(args.auth(), &addresses, Arc::clone(&metrics));
    let streams = stream_router(hub.clone(), Arc::clone(&metrics), args.stream_clients);
    let private = streams.merge(log_level(log, args.log.level()));
    let pages = router(health.clone(), Arc::clone(&metrics)).merge(guard(private, access));
    let connections = PROBES + args.stream_clients;
    let server = server.with_limits(ServerLimits { connections, ..ServerLimits::default() });
    let serving = tokio::spawn(server.serve(pages, until(closed)));

    let options = args.connection.options();
    let (client, opened) = connect(&options, &metrics).await?;
    let store = PodStore::default();
    let mut watching = tokio::spawn(watch_pods(
        client.clone(),
        opened,
        args.watch_options(options.timeout),
        store.clone(),
        Arc::clone(&metrics),
        tell::watch(health.clone(), args.node_name.clone()),
    ));

    let agent = AgentOptions {
        socket_dir: args.agent.agent_socket_dir.clone(),
        timeout: args.agent.agent_timeout,
        lookup_interval: LOOKUP_INTERVAL,
    };
    let reader = Arc::new(Reader::new(client.clone(), options.timeout, store.clone()));
    reviews.begin(&reader, options.timeout);
    let names = LeaseNames::of(&args);
    let leases = names.leases(&reader, &engine_options);
    let agent = AgentClient::new(agent, Arc::clone(&metrics));
    let agent_pod = (args.agent.agent_pod_selector.clone(), args.agent.agent_container.clone());
    let live = Live::new(args.node_name.clone(), agent, Arc::clone(&reader), store, agent_pod, leases);
    let (found, protection) = watch::channel(Protection::Unknown(vec!["not tested yet".to_owned()]));
    let recorder = Arc::new(Recorder::new(client, &args.node_name, options.timeout, Arc::clone(&metrics)));
    let listeners = Listeners {
        engine: found,
        health: health.clone(),
        metrics: Arc::clone(&metrics),
        changed: protection::event(Arc::clone(&recorder), &engine_options),
    };
    let (questions, required) = (Questions::of(&args, &engine_options, &names), engine_options.require_fence);
    let needed = protection::is_needed(&engine_options);
    let mut protecting: JoinHandle<()> = tokio::spawn(async move {
        if !needed {
            listeners.health.set(Check::Fence, Ok(()));
            return std::future::pending().await;
        }
        let mut guard = Guard::new(required, listeners);
        loop {
            let found = questions.ask(&reader).await;
            tokio::time::sleep(guard.heard(found)).await;
        }
    });
    let (dir, bounds) = (args.safety.state_dir.clone(), args.bounds.options());
    let book = Book::at(dir, args.node_name.clone(), bounds, Arc::clone(&metrics));
    let channels = Channels { hub: hub.clone(), notes: tell::notes(&recorder) };
    let engine = Engine::new(engine_options, live, book, protection, channels, health.clone(), metrics);
    let mut engine = tokio::spawn(engine.run(stopped));

    tokio::select! {
        () = stop.next() => {}
        ended = &mut engine => return Err(anyhow::anyhow!("the loop ended by itself: {ended:?}")),
        // Without it the engine would go on with what it knew last.
        ended = &mut protecting => return Err(anyhow::anyhow!("the self-test ended by itself: {ended:?}")),
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
    end([engine, watching, protecting]).await;
    tell::stopping(&hub, &args.node_name);
    closing.send_replace(true);
    if let Some(recorder) = Arc::into_inner(recorder) {
        recorder.finish(LAST_EVENTS).await;
    }
    drop(tokio::time::timeout(Duration::from_secs(3), serving).await);
    Ok(())
}

/// Ends those that still run: whoever may write Events is gone after this.
async fn end(tasks: [JoinHandle<()>; 3]) {
    for task in tasks {
        if !task.is_finished() {
            task.abort();
            drop(task.await);
        }
    }
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
