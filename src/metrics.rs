//! The metrics: every name, help text and label value of `/metrics` is here.
//!
//! It knows the domain's words and nothing of who counts. Label sets are closed and start at zero, so that a rate sees the
//! first event; buckets are few, since a DaemonSet multiplies every series by the number of nodes.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::domain::{ActOutcome, Finding, Judgement, RemedyKind, Verdict, Withheld};

mod api;
mod labels;
#[cfg(test)]
mod page;
mod process;
mod register;
mod serving;

pub use api::{ApiOutcome, ApiResource, ApiVerb};
pub use labels::{AGENT_OUTCOMES, AgentCall, HELD_BACK, NoteOutcome};
use serving::Serving;
pub use serving::{AuthOutcome, CHECKS, STREAM_TYPES};

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of [`Metrics::encode_text`].
pub const TEXT_CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// The word for a pod without finding among the judgements.
const NOT_WEDGED: &str = "not-wedged";

/// Bounds of the durations, in seconds: the agent's waits end at 10 s, a client's time-out lies below.
const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

/// Bounds of the time to a heal, in seconds: two judgements take some 5 s, an act's effect at most 1 min.
const HEAL_BUCKETS: [f64; 9] = [5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0];

/// Where the breaker can stand.
const BREAKER: [&str; 3] = ["closed", "open", "half-open"];
/// What the self-test can find.
const FENCE: [&str; 4] = ["working", "missing", "unknown", "not-tested"];

/// Sets one state of a set to 1 and all others to 0.
fn set_one(family: &Family<One, Gauge>, all: &[&'static str], state: &str) {
    for word in all {
        family.get_or_create(&[("state", *word)]).set(i64::from(*word == state));
    }
}

type One = [(&'static str, &'static str); 1];
type Two = [(&'static str, &'static str); 2];
type Three = [(&'static str, &'static str); 3];
type Counters<L> = Family<L, Counter>;
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

/// All metrics of one process. Every method is a few atomic operations.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    wedges: Family<One, Gauge>,
    oldest_wedge: Gauge<f64, std::sync::atomic::AtomicU64>,
    judgements: Counters<One>,
    refusals: Counters<One>,
    acts: Counters<Two>,
    heal_latency: Histogram,
    held_back: Counters<One>,
    budget_tokens: Family<One, Gauge>,
    breaker: Family<One, Gauge>,
    fence: Family<One, Gauge>,
    agent_requests: Counters<Two>,
    agent_durations: Histograms<One>,
    api_requests: Counters<Three>,
    api_durations: Histograms<Two>,
    notes: Counters<One>,
    mode: Family<One, Gauge>,
    pods_watched: Gauge,
    malformed: Counters<One>,
    watch_restarts: Counter,
    serving: Serving,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Makes and registers them, each label set at zero. Takes now as the start of the process.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            wedges: Family::default(),
            oldest_wedge: Gauge::default(),
            judgements: Family::default(),
            refusals: Family::default(),
            acts: Family::default(),
            heal_latency: Histogram::new(HEAL_BUCKETS),
            held_back: Family::default(),
            budget_tokens: Family::default(),
            breaker: Family::default(),
            fence: Family::default(),
            agent_requests: Family::default(),
            agent_durations: Family::new_with_constructor(histogram),
            api_requests: Family::default(),
            api_durations: Family::new_with_constructor(histogram),
            notes: Family::default(),
            mode: Family::default(),
            pods_watched: Gauge::default(),
            malformed: Family::default(),
            watch_restarts: Counter::default(),
            serving: Serving::default(),
        };
        metrics.start_at_zero();
        metrics.register();
        metrics
    }

    /// Sets the wedges of this node to these, one verdict a wedge.
    pub fn set_wedges(&self, now: impl IntoIterator<Item = Verdict>) {
        let mut counts = [0_i64; Verdict::ALL.len()];
        for verdict in now {
            counts[verdict as usize] += 1;
        }
        for verdict in Verdict::ALL {
            self.wedges.get_or_create(&[("verdict", verdict.as_str())]).set(counts[verdict as usize]);
        }
    }

    /// Sets the age of the oldest wedge; `None` without any.
    pub fn set_oldest_wedge(&self, age: Option<Duration>) {
        self.oldest_wedge.set(age.unwrap_or_default().as_secs_f64());
    }

    /// Counts a judgement.
    pub fn judged(&self, judgement: &Judgement) {
        let word = judgement.finding().map_or(NOT_WEDGED, |finding| finding.verdict.as_str());
        self.judgements.get_or_create(&[("verdict", word)]).inc();
    }

    /// Counts a finding that is left alone, by what withheld its remedy, else by its verdict.
    pub fn refused(&self, finding: &Finding) {
        let reason = finding.withheld.map_or(finding.verdict.as_str(), Withheld::as_str);
        self.refusals.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a remedy that came to an end.
    pub fn acted(&self, kind: RemedyKind, outcome: ActOutcome) {
        self.acts.get_or_create(&[("remedy", kind.as_str()), ("outcome", outcome.as_str())]).inc();
    }

    /// Takes the time from the first sight of a waiting pod to its sandbox, where an act healed it.
    pub fn healed_after(&self, took: Duration) {
        self.heal_latency.observe(took.as_secs_f64());
    }

    /// Counts that an act could have followed and was held back, by a word of [`HELD_BACK`] or of a bound.
    pub fn held_back(&self, by: &'static str) {
        self.held_back.get_or_create(&[("reason", by)]).inc();
    }

    /// Sets what the ledger's bounds leave; without a ledger the breaker counts as open.
    pub fn set_bounds(
        &self,
        tokens: impl IntoIterator<Item = (RemedyKind, u32)>,
        breaker: Option<&'static str>,
    ) {
        for (remedy, left) in tokens {
            self.budget_tokens.get_or_create(&[("remedy", remedy.as_str())]).set(i64::from(left));
        }
        set_one(&self.breaker, &BREAKER, breaker.unwrap_or("open"));
    }

    /// Says what the self-test found: a word of `working`, `missing`, `unknown`, `not-tested`.
    pub fn set_fence(&self, state: &'static str) {
        set_one(&self.fence, &FENCE, state);
    }

    /// Counts a call of the agent; `outcome` is one of [`AGENT_OUTCOMES`].
    pub fn agent_request(&self, call: AgentCall, outcome: &'static str, took: Duration) {
        self.agent_requests.get_or_create(&[("call", call.as_str()), ("outcome", outcome)]).inc();
        self.agent_durations.get_or_create(&[("call", call.as_str())]).observe(took.as_secs_f64());
    }

    /// Counts a request to the API server.
    pub fn api_request(&self, verb: ApiVerb, resource: ApiResource, outcome: ApiOutcome, took: Duration) {
        let [verb, resource] = [("verb", verb.as_str()), ("resource", resource.as_str())];
        self.api_requests.get_or_create(&[verb, resource, ("outcome", outcome.as_str())]).inc();
        self.api_durations.get_or_create(&[verb, resource]).observe(took.as_secs_f64());
    }

    /// Counts a Kubernetes Event that was to be written.
    pub fn noted(&self, outcome: NoteOutcome) {
        self.notes.get_or_create(&[("outcome", outcome.as_str())]).inc();
    }

    /// Says which mode the program runs in.
    pub fn set_heal_mode(&self, heal: bool) {
        self.mode.get_or_create(&[("mode", "heal")]).set(i64::from(heal));
        self.mode.get_or_create(&[("mode", "observe")]).set(i64::from(!heal));
    }

    /// Sets the number of pods that the watch knows.
    pub fn set_pods_watched(&self, pods: usize) {
        self.pods_watched.set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    /// Counts an object that could not be understood.
    pub fn malformed_object(&self, resource: ApiResource) {
        self.malformed.get_or_create(&[("resource", resource.as_str())]).inc();
    }

    /// Counts that the watch on pods was begun anew.
    pub fn watch_restarted(&self) {
        self.watch_restarts.inc();
    }

    /// All metrics in the text format of `OpenMetrics`, to be sent as [`CONTENT_TYPE`].
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }

    /// All metrics in the text format of Prometheus, to be sent as [`TEXT_CONTENT_TYPE`].
    pub fn encode_text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        prometheus_text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
