//! One node's watchdog without its HTTP and its signals: the watch, the self-test and the loop, wired.
//!
//! All that it has of the world outside comes in from its caller.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::protection::{self, LeaseNames, Questions};
use super::{RunArgs, tell};
use crate::admin::{Check, Health};
use crate::cilium::{AgentClient, AgentOptions, Wire};
use crate::clock::WallClock;
use crate::engine::{Book, Channels, Engine, EngineOptions, Guard, Listeners, Live};
use crate::kube::{PodStore, Protection, Reader, Recorder, WatchOpened, watch_pods};
use crate::metrics::Metrics;
#[cfg(feature = "sim")]
use crate::sim::Local;
use crate::stream::Hub;

/// Look-ups by address start this far apart: the agent's API is shared with the CNI plugin.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);

/// What is around a watchdog besides the API server.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(feature = "sim"),
    allow(unreachable_pub, reason = "only who plays with the simulation reaches it")
)]
pub struct Around {
    /// The wall clock.
    pub clock: WallClock,
    /// The way to the agent.
    pub wire: Wire,
    /// Takes chance out of the pauses between tries.
    pub jitter: Option<u64>,
}

impl Around {
    /// The system's clock and sockets.
    pub(super) fn of_system() -> Self {
        Self { clock: WallClock::system(), wire: Wire::Socket, jitter: None }
    }
}

/// Where it says what it sees.
pub(super) struct Told {
    pub(super) hub: Hub,
    pub(super) health: Health,
    pub(super) metrics: Arc<Metrics>,
}

/// Its tasks, and what has to outlive them.
pub(super) struct Watchdog {
    /// Ends in order once it is told to stop.
    pub(super) engine: JoinHandle<()>,
    pub(super) watching: JoinHandle<()>,
    pub(super) protecting: JoinHandle<()>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) reader: Arc<Reader>,
}

impl Watchdog {
    pub(super) fn start(
        args: &RunArgs,
        options: EngineOptions,
        (client, opened): (Client, WatchOpened),
        around: Around,
        told: Told,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let Around { clock, wire, jitter } = around;
        let Told { hub, health, metrics } = told;
        let timeout = args.connection.options().timeout;
        let store = PodStore::default();
        let watching = tokio::spawn(watch_pods(
            client.clone(),
            opened,
            args.watch_options(timeout, clock.clone(), jitter),
            store.clone(),
            Arc::clone(&metrics),
            tell::watch(health.clone(), args.node_name.clone()),
        ));
        let agent = AgentOptions {
            socket_dir: args.agent.agent_socket_dir.clone(),
            wire,
            timeout: args.agent.agent_timeout,
            lookup_interval: LOOKUP_INTERVAL,
        };
        let reader = Arc::new(Reader::new(client.clone(), timeout, store.clone()));
        let names = LeaseNames::of(args);
        let leases = names.leases(&reader, &options, &clock);
        let agent = AgentClient::new(agent, Arc::clone(&metrics));
        let agent_pod = (args.agent.agent_pod_selector.clone(), args.agent.agent_container.clone());
        let live =
            Live::new(args.node_name.clone(), agent, Arc::clone(&reader), store, agent_pod, leases, clock);
        let (found, protection) = watch::channel(Protection::Unknown(vec!["not tested yet".to_owned()]));
        let recorder = Arc::new(Recorder::new(client, &args.node_name, timeout, Arc::clone(&metrics)));
        let listeners = Listeners {
            engine: found,
            health: health.clone(),
            metrics: Arc::clone(&metrics),
            changed: protection::event(Arc::clone(&recorder), &options),
        };
        let questions = Questions::of(args, &options, &names);
        let (needed, required) = (protection::is_needed(&options), options.require_fence);
        let asked = Arc::clone(&reader);
        let quiet_millis = u64::try_from(options.startup_quiet.as_millis()).unwrap_or_default();
        let turn = Duration::from_millis(options.node.spread(quiet_millis / 2));
        let protecting = tokio::spawn(async move {
            if !needed {
                listeners.health.set(Check::Fence, Ok(()));
                return std::future::pending().await;
            }
            // Nothing is done in the start-up quiet period anyway: nodes that start at one instant do not ask at one.
            tokio::time::sleep(turn).await;
            let mut guard = Guard::new(required, listeners);
            loop {
                let found = questions.ask(&asked).await;
                tokio::time::sleep(guard.heard(found)).await;
            }
        });
        let (dir, bounds) = (args.safety.state_dir.clone(), args.bounds.options());
        let book = Book::at(dir, args.node_name.clone(), bounds, Arc::clone(&metrics));
        let channels = Channels { hub, notes: tell::notes(&recorder) };
        let engine = Engine::new(options, live, book, protection, channels, health, metrics);
        let engine = tokio::spawn(engine.run(stopped));
        Self { engine, watching, protecting, recorder, reader }
    }
}

/// A watchdog in this process, against simulated parts in memory. Dropped, it is dead in the middle of whatever it did.
#[cfg(feature = "sim")]
pub struct InProcess {
    watchdog: Watchdog,
    health: Health,
    _stopping: watch::Sender<bool>,
}

#[cfg(feature = "sim")]
impl InProcess {
    /// Starts it with the flags of `run`, against a simulated API server.
    ///
    /// # Errors
    /// The words of clap for flags that are none.
    pub fn start(flags: &[&str], api: Local, around: Around) -> Result<Self, clap::Error> {
        #[derive(clap::Parser)]
        #[command(no_binary_name = true)]
        struct Flags {
            #[command(flatten)]
            run: RunArgs,
        }
        let args = <Flags as clap::Parser>::try_parse_from(flags)?.run;
        let (metrics, health) = (Arc::new(Metrics::new()), Health::new(super::STUCK_AFTER));
        let options = args.engine_options();
        let hub = tell::hub(&options, &metrics, around.clock.now());
        let client = crate::kube::connect_to(api, args.connection.options().timeout, &metrics);
        let told = Told { hub, health: health.clone(), metrics };
        let (stopping, stopped) = watch::channel(false);
        let watchdog = Watchdog::start(&args, options, client, around, told, stopped);
        Ok(Self { watchdog, health, _stopping: stopping })
    }

    /// Whether its loop turns.
    pub fn is_live(&self) -> bool {
        self.health.is_live() && !self.watchdog.engine.is_finished()
    }
}

#[cfg(feature = "sim")]
impl Drop for InProcess {
    fn drop(&mut self) {
        for task in [&self.watchdog.engine, &self.watchdog.watching, &self.watchdog.protecting] {
            task.abort();
        }
    }
}
