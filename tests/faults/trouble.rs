//! What goes wrong in a run, drawn from its seed: when, where, for how long, and what of it.

use std::fmt;
use std::time::Duration;

use cilium_leak_healer::sim::{Fault, Injected};

use crate::dice::Dice;
use crate::in_memory::forget_events;
use crate::scene::Scene;

/// Who makes a request: the watchdog has no name at the agent, the CNI plugin has.
const WATCHDOG_AT_AGENT: &str = "";

/// Statuses with which an API server fails.
const API_STATUSES: [u16; 10] = [401, 403, 404, 409, 410, 422, 429, 500, 503, 504];
/// Statuses with which an agent fails.
const AGENT_STATUSES: [u16; 7] = [400, 403, 404, 422, 429, 500, 503];

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Requests to the API server.
    Api(How),
    /// The watchdog's requests to the agent.
    Agent(How),
    /// Running watches end.
    CutWatches,
    /// The history is forgotten: a watch that resumes gets a 410.
    Compact,
    /// The API server is away.
    ApiDown,
    /// The Events of the cluster are lost.
    LoseEvents,
    /// The agent restarts: endpoints of pods that are gone are dropped, the others restored.
    RestartAgent,
    /// The agent crashed: its socket refuses.
    CrashAgent,
    /// The agent is not ready: it refuses PUT and DELETE.
    AgentNotReady,
    /// The watchdog is killed, and started again.
    Kill,
    /// The watchdog is killed while a request of its is on the way.
    KillWithin(Kill),
    /// While the watchdog waits for an answer, something becomes another thing than what the answer says.
    Meanwhile(Meanwhile),
    /// The node's wall clock steps, by so many milliseconds.
    ClockStep(i64),
    /// The disk of the ledger is full.
    DiskFull,
}

/// Whose requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Api,
    Agent,
}

/// In which request a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) target: Target,
    /// Only of this method.
    pub(crate) method: Option<&'static str>,
    /// In the n-th.
    pub(crate) nth: u64,
    /// After it took effect, before the answer is there; else before.
    pub(crate) after: bool,
}

/// What changes, and within which request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meanwhile {
    pub(crate) target: Target,
    /// In the n-th.
    pub(crate) nth: u64,
    pub(crate) change: Change,
}

/// What changes under the watchdog's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The stale endpoint that a pod waits for goes, and a new pod gets its address.
    Reuse,
    /// The pod that waits for a stale endpoint's address goes.
    Leaves,
    /// People pause the watchdog, for a while.
    Pause,
    /// The pods' namespace opts out, for a while.
    OptOut,
}

impl Change {
    pub(crate) const ALL: [Self; 4] = [Self::Reuse, Self::Leaves, Self::Pause, Self::OptOut];
}

/// How requests go wrong, and which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct How {
    pub(crate) what: What,
    /// Only of this method.
    pub(crate) method: Option<&'static str>,
    /// Only with this in the path.
    pub(crate) path: Option<&'static str>,
    /// From the n-th on.
    pub(crate) nth: u64,
    /// So many; `None`: all of them, while it lasts.
    pub(crate) times: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Status(u16),
    Hang,
    Reset,
    HalfBody,
    Garbage,
    Slow(Duration),
    /// The answer comes late, the effect does not.
    LateAnswer(Duration),
    /// The effect comes late, also if the client has gone.
    LateEffect(Duration),
    /// Watches lag behind.
    Lag(Duration),
    /// Watches repeat their events.
    Twice,
}

impl How {
    /// The n-th request whatever it is, once.
    pub(crate) fn nth(what: What, nth: u64) -> Self {
        Self { what, method: None, path: None, nth, times: Some(1) }
    }

    fn fault(&self) -> Fault {
        let mut fault = match &self.what {
            What::Status(code) => Fault::status(*code),
            What::Hang => Fault::hang(),
            What::Reset => Fault::reset(),
            What::HalfBody => Fault::half_body(),
            What::Garbage => Fault::garbage("{\"kind\":"),
            What::Slow(delay) => Fault::delay(*delay),
            What::LateAnswer(delay) => Fault::late_answer(*delay),
            What::LateEffect(delay) => Fault::late_effect(*delay),
            What::Lag(delay) => Fault::lag(*delay),
            What::Twice => Fault::twice(),
        };
        if let Some(method) = self.method {
            fault = fault.on(method);
        }
        if let Some(path) = self.path {
            fault = fault.path(path);
        }
        fault = fault.from_nth(self.nth);
        match self.times {
            Some(times) => fault.times(times),
            None => fault,
        }
    }

    fn draw(
        dice: &mut Dice,
        statuses: &[u16],
        methods: &[Option<&'static str>],
        paths: &[Option<&'static str>],
    ) -> Self {
        let what = match dice.below(13) {
            0..4 => What::Status(dice.one_of(statuses)),
            4 => What::Hang,
            5 => What::Reset,
            6 => What::HalfBody,
            7 => What::Garbage,
            8 => What::Slow(dice.millis(50, 20_000)),
            9 => What::LateAnswer(dice.millis(500, 30_000)),
            10 => What::LateEffect(dice.millis(500, 60_000)),
            11 => What::Lag(dice.millis(500, 30_000)),
            _ => What::Twice,
        };
        Self {
            what,
            method: dice.one_of(methods),
            path: dice.one_of(paths),
            nth: 1 + dice.below(4),
            times: [None, Some(1), Some(2), Some(5)][usize::try_from(dice.below(4)).unwrap_or_default()],
        }
    }
}

impl Trouble {
    fn draw(dice: &mut Dice) -> Self {
        match dice.below(21) {
            0..6 => Self::Api(How::draw(
                dice,
                &API_STATUSES,
                &[None, Some("GET"), Some("DELETE"), Some("PUT"), Some("POST")],
                &[
                    None,
                    Some("/pods"),
                    Some("/events"),
                    Some("/leases"),
                    Some("/ciliumnodes"),
                    Some("/namespaces/"),
                ],
            )),
            6..11 => Self::Agent(How::draw(
                dice,
                &AGENT_STATUSES,
                &[None, None, Some("GET"), Some("DELETE")],
                &[None, None, Some("/endpoint"), Some("/healthz"), Some("/config"), Some("/log")],
            )),
            11 => Self::CutWatches,
            12 => Self::Compact,
            13 => Self::ApiDown,
            14 => Self::LoseEvents,
            15 => dice.one_of(&[Self::RestartAgent, Self::CrashAgent, Self::AgentNotReady]),
            16 => Self::Kill,
            17 => {
                let method = dice.one_of(&[None, Some("DELETE"), Some("DELETE")]);
                let nth = 1 + dice.below(if method.is_some() { 2 } else { 40 });
                let target = dice.one_of(&[Target::Api, Target::Agent]);
                Self::KillWithin(Kill { target, method, nth, after: dice.percent(50) })
            }
            18 => {
                let far = dice.one_of(&[2_000, 20_000, 90_000, 600_000, 7_200_000]);
                Self::ClockStep(if dice.percent(50) { far } else { -far })
            }
            19 => Self::Meanwhile(Meanwhile {
                target: dice.one_of(&[Target::Api, Target::Agent]),
                nth: 1 + dice.below(60),
                change: dice.one_of(&Change::ALL),
            }),
            _ => Self::DiskFull,
        }
    }
}

/// A trouble, when it begins, and how long it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) trouble: Trouble,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:7.3} s for {:.1} s: {:?}", self.at.as_secs_f64(), self.lasts.as_secs_f64(), self.trouble)
    }
}

/// One to six troubles within a time.
pub(crate) fn plan(dice: &mut Dice, within: Duration) -> Vec<Planned> {
    let longest = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    let mut all: Vec<Planned> = (0..=dice.below(6))
        .map(|_| Planned {
            at: dice.millis(0, longest),
            lasts: dice.millis(200, 60_000),
            trouble: Trouble::draw(dice),
        })
        .collect();
    all.sort_by_key(|planned| planned.at);
    all
}

/// What the watchdog's keeper has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Kill,
    /// To fill the disk, or to free it.
    Disk {
        full: bool,
    },
}

/// Lets a trouble begin, last, and end; what only the keeper can do goes to it.
pub(crate) async fn happen(scene: Scene, planned: Planned, order: impl Fn(Order)) {
    tokio::time::sleep(planned.at).await;
    let api = scene.cluster.api();
    let agent = scene.node.agent();
    let lasts = tokio::time::sleep(planned.lasts);
    match planned.trouble {
        Trouble::Api(how) => over(api.inject(how.fault()), lasts).await,
        Trouble::Agent(how) => over(agent.inject(how.fault().by(WATCHDOG_AT_AGENT)), lasts).await,
        Trouble::CutWatches => api.cut_watches(),
        Trouble::Compact => {
            api.compact();
            api.cut_watches();
        }
        Trouble::ApiDown => {
            api.pause().await;
            lasts.await;
            api.resume().await.expect("its port");
        }
        Trouble::LoseEvents => forget_events(api),
        Trouble::RestartAgent => agent.restart(api.clock().now()).await.expect("its socket"),
        Trouble::CrashAgent => {
            agent.crash().await;
            lasts.await;
            agent.start(api.clock().now()).expect("its socket");
        }
        Trouble::AgentNotReady => {
            agent.set_ready(false);
            lasts.await;
            agent.set_ready(true);
        }
        Trouble::Kill => order(Order::Kill),
        Trouble::KillWithin(Kill { target, method, nth, after }) => {
            let late = Fault::late_answer(Duration::from_secs(1));
            let mut fault = if after { late } else { Fault::hang() }.once().from_nth(nth);
            if let Some(method) = method {
                fault = fault.on(method);
            }
            within(&scene, target, fault, async || {
                // After its effect, which comes at once.
                tokio::time::sleep(Duration::from_millis(if after { 100 } else { 0 })).await;
                order(Order::Kill);
            })
            .await;
        }
        Trouble::Meanwhile(it) => meanwhile(&scene, it, lasts).await,
        Trouble::ClockStep(millis) => {
            scene.set_skew(millis);
            lasts.await;
            scene.set_skew(0);
        }
        Trouble::DiskFull => {
            order(Order::Disk { full: true });
            lasts.await;
            order(Order::Disk { full: false });
        }
    }
}

/// The answer tells of what was there; by the time it comes that is so no more.
async fn meanwhile(scene: &Scene, Meanwhile { target, nth, change }: Meanwhile, lasts: tokio::time::Sleep) {
    let late = Fault::late_answer(Duration::from_millis(200)).from_nth(nth).once();
    within(scene, target, late, async || {
        tokio::time::sleep(Duration::from_millis(20)).await;
        match change {
            Change::Reuse => scene.reuse(&format!("quick-{nth}")),
            Change::Leaves => scene.leave(),
            Change::Pause => while_it_lasts(lasts, |on| scene.pause(on)).await,
            Change::OptOut => while_it_lasts(lasts, |on| scene.opt_out(on)).await,
        }
    })
    .await;
}

/// Lets something happen once this fault has struck one of the watchdog's requests, if it does within three minutes.
async fn within(scene: &Scene, target: Target, fault: Fault, then: impl AsyncFnOnce()) {
    let injected = match target {
        Target::Api => scene.cluster.api().inject(fault),
        Target::Agent => scene.node.agent().inject(fault.by(WATCHDOG_AT_AGENT)),
    };
    let struck = tokio::select! {
        biased;
        () = injected.struck() => true,
        () = tokio::time::sleep(Duration::from_mins(3)) => false,
    };
    if struck {
        then().await;
    }
    injected.remove();
}

async fn while_it_lasts(lasts: tokio::time::Sleep, set: impl Fn(bool)) {
    set(true);
    lasts.await;
    set(false);
}

async fn over(injected: Injected, lasts: tokio::time::Sleep) {
    lasts.await;
    injected.remove();
}
