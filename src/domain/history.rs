//! The two histories that allow `restart-agent`: what one life of the agent said, look after look.
//!
//! Pure and bounded: observations and acknowledged disconnects in, a case or nothing out. It must not know whether the
//! remedy is on, what it costs, or how an agent is restarted. Only answers count: the watchdog's own refusals to act
//! and calls that failed never do. Whatever contradicts a history, or leaves a gap in it, begins it anew.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;

use super::failure::SandboxEvents;
use super::holder::Holder;
use super::ids::{ContainerId, EndpointId, PodUid};
use super::limits::signed;
use super::observation::{Lookup, Observation};
use super::verdict::{Finding, Judgement, Verdict};

/// At most this many histories of each kind are kept; the one that is untouched for longest goes first.
const MOST: usize = 64;
/// This many fresh refusals, each with a clean look-up, make a hidden holder.
const REFUSALS: usize = 3;
/// This many looks at the holder that was said to be deleted make a phantom.
const LOOKS: usize = 2;

/// Each time limit of the histories; the defaults are those of the design (§4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// The look-up must follow a refusal within this (30 s).
    pub fresh: Duration,
    /// A failure that lies further than this after "now" is no failure of before the look-up (5 s).
    pub skew: Duration,
    /// A failure counts only if it is later than the agent's start by more than this (2 min).
    pub agent_settle: Duration,
    /// A refusal or an acknowledgement older than this counts no more (30 min).
    pub keep: Duration,
    /// A look at a phantom counts from this after the acknowledgement: a DELETE can hang and succeed late (60 s).
    pub phantom_after: Duration,
    /// Two looks at a phantom are at least this far apart (2 s).
    pub look_gap: Duration,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            fresh: Duration::from_secs(30),
            skew: Duration::from_secs(5),
            agent_settle: Duration::from_mins(2),
            keep: Duration::from_mins(30),
            phantom_after: Duration::from_mins(1),
            look_gap: Duration::from_secs(2),
        }
    }
}

/// Which history allows a restart of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RestartKind {
    /// The agent said that it deleted the endpoint, and still shows it as the holder of the address.
    PhantomHolder,
    /// The agent refuses the address again and again, and says each time that nobody holds it.
    HiddenHolder,
}

impl RestartKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::PhantomHolder, Self::HiddenHolder];

    /// The word for it in all outputs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PhantomHolder => "phantom-holder",
            Self::HiddenHolder => "hidden-holder",
        }
    }
}

impl fmt::Display for RestartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A history that allows a restart of the agent, for one wedged pod.
///
/// Only [`Histories::restart_case`] makes one outside of tests: whoever holds it holds the proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartCase {
    /// Which history.
    pub kind: RestartKind,
    /// The wedged pod.
    pub pod: PodUid,
    /// The disputed address.
    pub ip: IpAddr,
    /// The life of the agent that the history is about, as [`Observation::agent_started`] told it each time.
    pub agent_started: Timestamp,
    /// What was seen, step by step, for people.
    pub evidence: Vec<String>,
}

/// Refusals of one address for one pod, each followed by a look-up that says that nobody has it.
#[derive(Debug)]
struct Hidden {
    pod: PodUid,
    ip: IpAddr,
    agent_started: Timestamp,
    /// When the failure was, and when the look-up was begun: the newest few, oldest first.
    refusals: Vec<(Timestamp, Timestamp)>,
}

/// An endpoint that the agent says it deleted, so that a pod may have its address.
#[derive(Debug)]
struct Phantom {
    pod: PodUid,
    ip: IpAddr,
    endpoint: EndpointId,
    container: ContainerId,
    agent_started: Timestamp,
    acknowledged: Timestamp,
    /// When it was still seen: the newest few, oldest first.
    looks: Vec<Timestamp>,
}

impl Phantom {
    fn is(&self, holder: &Holder) -> bool {
        self.endpoint == holder.id && holder.container() == Some(&self.container)
    }
}

/// The histories of one node's agent. Gone with the process: then they begin anew.
#[derive(Debug, Default)]
pub struct Histories {
    limits: HistoryLimits,
    hidden: Vec<Hidden>,
    phantoms: Vec<Phantom>,
}

impl Histories {
    /// None yet, with these limits.
    pub fn new(limits: HistoryLimits) -> Self {
        Self { limits, hidden: Vec::new(), phantoms: Vec::new() }
    }

    /// Takes every look at a pod that waits, with its judgement, in the order in which they were made.
    pub fn saw(&mut self, obs: &Observation, judgement: &Judgement) {
        self.expire(obs.now);
        let Some(finding) = judgement.finding() else {
            // Its sandbox came up, or it fails by something else now.
            self.hidden.retain(|it| it.pod != obs.pod.uid);
            return;
        };
        if let Some(started) = obs.agent_started {
            self.hidden.retain(|it| it.agent_started == started);
            self.phantoms.retain(|it| it.agent_started == started);
        }
        // Without a disputed address nobody was looked up.
        let Some(ip) = finding.ip else {
            return;
        };
        let reserved = |node: &super::CiliumNode| node.reserved_use(ip).is_some();
        if finding.verdict == Verdict::ReservedHolder || obs.cilium_node.iter().flatten().any(reserved) {
            self.hidden.retain(|it| it.ip != ip);
            self.phantoms.retain(|it| it.ip != ip);
            return;
        }
        match (&obs.lookup, obs.agent_started) {
            (Lookup::Unknown(_), _) | (_, None) => self.begin_anew(ip),
            (Lookup::NotHeld, Some(started)) => {
                self.phantoms.retain(|it| it.ip != ip);
                self.not_held(obs, finding, ip, started);
            }
            (Lookup::Held(holder), Some(_)) => {
                self.hidden.retain(|it| it.ip != ip);
                self.held(obs, finding, ip, holder);
            }
        }
    }

    /// The agent said that it deleted this endpoint, so that this pod may have the address: 200 or 206, or the empty 404
    /// for the endpoint's own id. Not for a call that timed out or failed: nobody said anything then. `agent_started` is
    /// that of before the call. Each acknowledgement begins anew.
    pub fn disconnected(
        &mut self,
        pod: &PodUid,
        ip: IpAddr,
        holder: &Holder,
        agent_started: Timestamp,
        now: Timestamp,
    ) {
        self.phantoms.retain(|it| it.ip != ip);
        // Without a container nobody could tell later whether it is the same endpoint.
        let Some(container) = holder.container().cloned() else {
            return;
        };
        bound(&mut self.phantoms);
        self.phantoms.push(Phantom {
            pod: pod.clone(),
            ip,
            endpoint: holder.id,
            container,
            agent_started,
            acknowledged: now,
            looks: Vec::new(),
        });
    }

    /// The history that allows a restart of the agent for this pod and address, if there is one. To be asked right after
    /// the look at this pod.
    pub fn restart_case(&self, pod: &PodUid, ip: IpAddr, now: Timestamp) -> Option<RestartCase> {
        self.phantom_case(pod, ip, now).or_else(|| self.hidden_case(pod, ip, now))
    }

    fn phantom_case(&self, pod: &PodUid, ip: IpAddr, now: Timestamp) -> Option<RestartCase> {
        let it = self.phantoms.iter().find(|it| it.pod == *pod && it.ip == ip)?;
        if it.looks.len() < LOOKS || !self.is_kept(it.acknowledged, now) {
            return None;
        }
        let said = format!(
            "{}: the agent said that it deleted endpoint {} of container {}",
            it.acknowledged, it.endpoint, it.container
        );
        let still = |at: &Timestamp| {
            format!("{at}: the look-up by {ip} still shows endpoint {} of that container", it.endpoint)
        };
        Some(RestartCase {
            kind: RestartKind::PhantomHolder,
            pod: pod.clone(),
            ip,
            agent_started: it.agent_started,
            evidence: std::iter::once(said).chain(it.looks.iter().map(still)).collect(),
        })
    }

    fn hidden_case(&self, pod: &PodUid, ip: IpAddr, now: Timestamp) -> Option<RestartCase> {
        let it = self.hidden.iter().find(|it| it.pod == *pod && it.ip == ip)?;
        let counting = it.refusals.iter().filter(|(failed, _)| self.is_kept(*failed, now));
        let evidence: Vec<String> = counting
            .map(|(failed, looked)| {
                format!("{failed}: the agent refused {ip}; {looked}: the look-up says that nobody holds it")
            })
            .collect();
        (evidence.len() >= REFUSALS).then(|| RestartCase {
            kind: RestartKind::HiddenHolder,
            pod: pod.clone(),
            ip,
            agent_started: it.agent_started,
            evidence,
        })
    }

    /// A clean 404: it counts if it follows a fresh refusal that did not count before.
    fn not_held(&mut self, obs: &Observation, finding: &Finding, ip: IpAddr, started: Timestamp) {
        let Some(failed) = self.fresh_refusal(obs, finding, started) else {
            return;
        };
        let known = self.hidden.iter().position(|it| it.pod == obs.pod.uid && it.ip == ip);
        let mut entry = known.map_or_else(
            || Hidden { pod: obs.pod.uid.clone(), ip, agent_started: started, refusals: Vec::new() },
            |at| self.hidden.remove(at),
        );
        if let Some((last, looked)) = entry.refusals.last().copied() {
            let events = SandboxEvents::of(&obs.pod, &obs.node, &obs.events.known);
            if !events.only_refusals_of(ip, last) {
                entry.refusals.clear();
            } else if failed <= last || obs.now <= looked {
                self.hidden.push(entry);
                return;
            }
        }
        entry.refusals.push((failed, obs.now));
        let surplus = entry.refusals.len().saturating_sub(REFUSALS);
        entry.refusals.drain(..surplus);
        bound(&mut self.hidden);
        self.hidden.push(entry);
    }

    /// When the refusal was that this look-up followed at once. `None`: it does not count.
    fn fresh_refusal(&self, obs: &Observation, finding: &Finding, started: Timestamp) -> Option<Timestamp> {
        let all_read = obs.events.unreadable.is_none() && matches!(obs.cilium_node, Ok(Some(_)));
        let failed = finding.failure.as_ref()?.at?;
        let age = obs.now.duration_since(failed);
        let fresh = age <= signed(self.limits.fresh) && age >= -signed(self.limits.skew);
        let settled = failed.duration_since(started) > signed(self.limits.agent_settle);
        (finding.verdict == Verdict::NotHeld && all_read && fresh && settled).then_some(failed)
    }

    /// An endpoint holds the address: is it the one that was said to be deleted, and still left over?
    fn held(&mut self, obs: &Observation, finding: &Finding, ip: IpAddr, holder: &Holder) {
        let limits = self.limits;
        self.phantoms.retain(|it| it.ip != ip || it.is(holder));
        for it in self.phantoms.iter_mut().filter(|it| it.ip == ip) {
            // Its pod may live again, or something could not be read.
            if finding.verdict != Verdict::StaleEndpoint {
                it.looks.clear();
                continue;
            }
            let after_last = it.looks.last().map(|at| (*at, limits.look_gap));
            let (since, least) = after_last.unwrap_or((it.acknowledged, limits.phantom_after));
            if it.pod == obs.pod.uid && obs.now.duration_since(since) >= signed(least) {
                it.looks.push(obs.now);
                let surplus = it.looks.len().saturating_sub(LOOKS);
                it.looks.drain(..surplus);
            }
        }
    }

    /// Nobody knows who holds the address, or in which life of the agent.
    fn begin_anew(&mut self, ip: IpAddr) {
        self.hidden.retain(|it| it.ip != ip);
        self.phantoms.iter_mut().filter(|it| it.ip == ip).for_each(|it| it.looks.clear());
    }

    fn is_kept(&self, at: Timestamp, now: Timestamp) -> bool {
        now.duration_since(at) <= signed(self.limits.keep)
    }

    fn expire(&mut self, now: Timestamp) {
        let keep = signed(self.limits.keep);
        let is_kept = |at: Timestamp| now.duration_since(at) <= keep;
        self.hidden.retain_mut(|it| {
            it.refusals.retain(|(failed, _)| is_kept(*failed));
            !it.refusals.is_empty()
        });
        self.phantoms.retain(|it| is_kept(it.acknowledged));
    }
}

/// Makes room for one more. New and touched ones are at the end.
fn bound<T>(entries: &mut Vec<T>) {
    let surplus = (entries.len() + 1).saturating_sub(MOST);
    entries.drain(..surplus);
}
