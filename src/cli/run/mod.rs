//! `run`: the DaemonSet's verb. Wires the parts of one node together and ends them in order.

mod access;
mod args;
mod protection;
mod tell;
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(super) use args::RunArgs;
pub(super) use protection::{RESTART_LEASE, delete_leases};

use crate::admin::{Health, Server, ServerLimits, guard, log_level, router, stream_router};
use crate::kube::connect;
use crate::metrics::Metrics;
#[cfg(not(feature = "sim"))]
use watchdog::Around;
#[cfg(feature = "sim")]
pub use watchdog::{Around, InProcess};
use watchdog::{Told, Watchdog};

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
    let hub = tell::hub(&engine_options, &metrics, Timestamp::now());
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

    let connection = args.connection.options();
    let client = connect(&connection, &metrics).await?;
    let told = Told { hub: hub.clone(), health: health.clone(), metrics };
    let watchdog = Watchdog::start(&args, engine_options, client, Around::of_system(), told, stopped);
    reviews.begin(&watchdog.reader, connection.timeout);
    let Watchdog { mut engine, mut watching, mut protecting, recorder, reader } = watchdog;
    drop(reader);

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
