//! Faults that a test injects into either server: which requests they meet, and what happens to those.
//!
//! Must not know: Kubernetes, Cilium.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::clock::lock;
use super::http::{Answer, Body, Call, Reset, answer, break_in_half, pieces, stream_body};

type PathTest = Arc<dyn Fn(&str) -> bool + Send + Sync>;
type Rewriter = Arc<dyn Fn(Value) -> Value + Send + Sync>;

/// A fault: a matcher, how often it strikes, and what it does.
#[derive(Clone)]
pub struct Fault {
    method: Option<String>,
    path: Option<PathTest>,
    query: Option<String>,
    by: Option<String>,
    skip: u64,
    times: Option<u64>,
    delay: Duration,
    outcome: Outcome,
}

#[derive(Clone)]
enum Outcome {
    /// Serve as ever (after the delay).
    Serve,
    /// Serve at once, answer after the delay, and do both even if the client has gone.
    AnswerLate,
    /// Serve after the delay, even if the client has gone.
    EffectLate,
    Status {
        code: u16,
        body: Option<(String, String)>,
    },
    Hang,
    Reset,
    HalfBody,
    Garbage(Vec<u8>),
    Rewrite(Rewriter),
    /// Each piece of the body comes this much later than it was sent.
    Lag(Duration),
    /// Each piece of the body comes twice.
    Twice,
}

impl Fault {
    fn new(outcome: Outcome) -> Self {
        Self {
            method: None,
            path: None,
            query: None,
            by: None,
            skip: 0,
            times: None,
            delay: Duration::ZERO,
            outcome,
        }
    }

    /// Answers this status with the server's usual body for it.
    #[must_use]
    pub fn status(code: u16) -> Self {
        Self::new(Outcome::Status { code, body: None })
    }

    /// Answers this status with this body.
    pub fn answer(code: u16, content_type: impl Into<String>, body: impl Into<String>) -> Self {
        Self::new(Outcome::Status { code, body: Some((content_type.into(), body.into())) })
    }

    /// Answers late.
    #[must_use]
    pub fn delay(delay: Duration) -> Self {
        Self { delay, ..Self::new(Outcome::Serve) }
    }

    /// Takes effect at once and answers late, as Cilium's DELETE under load. A client that went away changes nothing.
    #[must_use]
    pub fn late_answer(delay: Duration) -> Self {
        Self { delay, ..Self::new(Outcome::AnswerLate) }
    }

    /// Takes effect late, although the client may have gone by then.
    #[must_use]
    pub fn late_effect(delay: Duration) -> Self {
        Self { delay, ..Self::new(Outcome::EffectLate) }
    }

    /// Never answers.
    #[must_use]
    pub fn hang() -> Self {
        Self::new(Outcome::Hang)
    }

    /// Closes the connection without an answer.
    #[must_use]
    pub fn reset() -> Self {
        Self::new(Outcome::Reset)
    }

    /// Sends half of the right body and closes the connection.
    #[must_use]
    pub fn half_body() -> Self {
        Self::new(Outcome::HalfBody)
    }

    /// Answers 200 with these bytes, said to be JSON.
    pub fn garbage(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Outcome::Garbage(bytes.into()))
    }

    /// Changes the JSON of the right answer (not of watches).
    pub fn rewrite(change: impl Fn(Value) -> Value + Send + Sync + 'static) -> Self {
        Self::new(Outcome::Rewrite(Arc::new(change)))
    }

    /// Hands out each piece of the body later than it was sent: a watch that lags, as from a stale cache.
    #[must_use]
    pub fn lag(delay: Duration) -> Self {
        Self::new(Outcome::Lag(delay))
    }

    /// Hands out each piece of the body twice: a watch that repeats its events.
    #[must_use]
    pub fn twice() -> Self {
        Self::new(Outcome::Twice)
    }

    /// Only requests with this `User-Agent`; empty for those without one.
    #[must_use]
    pub fn by(mut self, user_agent: &str) -> Self {
        self.by = Some(user_agent.to_owned());
        self
    }

    /// Only requests with this method.
    #[must_use]
    pub fn on(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only requests whose path contains this text.
    #[must_use]
    pub fn path(self, part: &str) -> Self {
        let part = part.to_owned();
        self.path_matching(move |path| path.contains(&part))
    }

    /// Only requests whose path passes a test.
    #[must_use]
    pub fn path_matching(mut self, test: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.path = Some(Arc::new(test));
        self
    }

    /// Only requests whose query contains this text (as sent, percent-encoded).
    #[must_use]
    pub fn query(mut self, part: &str) -> Self {
        self.query = Some(part.to_owned());
        self
    }

    /// Only from the n-th matching request on; the first is 1.
    #[must_use]
    pub fn from_nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self
    }

    /// Only so many times; without it, for ever.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Only once.
    #[must_use]
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Waits before the outcome.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    fn matches(&self, call: &Call) -> bool {
        self.method.as_deref().is_none_or(|method| call.method.as_str().eq_ignore_ascii_case(method))
            && self.path.as_ref().is_none_or(|test| test(&call.path))
            && self.by.as_deref().is_none_or(|by| call.header("user-agent") == by)
            && self.query.as_deref().is_none_or(|part| call.query.contains(part))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("method", &self.method)
            .field("query", &self.query)
            .field("skip", &self.skip)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// An injected fault, to count or remove it.
#[derive(Debug, Clone)]
pub struct Injected {
    id: u64,
    hits: Arc<AtomicU64>,
    struck: Arc<Notify>,
    plan: FaultPlan,
}

impl Injected {
    /// How many requests the fault met.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::SeqCst)
    }

    /// Waits until it has met a request.
    pub async fn struck(&self) {
        while self.hits() == 0 {
            self.struck.notified().await;
        }
    }

    /// Takes the fault out.
    pub fn remove(&self) {
        lock(&self.plan.0).armed.retain(|armed| armed.id != self.id);
    }
}

/// The faults of one server, tried in the order of injection.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultPlan(Arc<Mutex<Armory>>);

#[derive(Debug, Default)]
struct Armory {
    next: u64,
    armed: Vec<Armed>,
}

#[derive(Debug)]
struct Armed {
    id: u64,
    fault: Fault,
    seen: u64,
    hits: Arc<AtomicU64>,
    struck: Arc<Notify>,
}

impl FaultPlan {
    pub(crate) fn inject(&self, fault: Fault) -> Injected {
        let mut armory = lock(&self.0);
        armory.next += 1;
        let (id, hits) = (armory.next, Arc::new(AtomicU64::new(0)));
        let struck = Arc::new(Notify::new());
        armory.armed.push(Armed { id, fault, seen: 0, hits: hits.clone(), struck: struck.clone() });
        Injected { id, hits, struck, plan: self.clone() }
    }

    pub(crate) fn clear(&self) {
        lock(&self.0).armed.clear();
    }

    fn strike(&self, call: &Call) -> Option<Fault> {
        let mut armory = lock(&self.0);
        for armed in &mut armory.armed {
            if !armed.fault.matches(call) {
                continue;
            }
            armed.seen += 1;
            let spent = armed.fault.times.is_some_and(|times| armed.hits.load(Ordering::SeqCst) >= times);
            if armed.seen > armed.fault.skip && !spent {
                armed.hits.fetch_add(1, Ordering::SeqCst);
                armed.struck.notify_one();
                return Some(armed.fault.clone());
            }
        }
        None
    }

    /// Serves a call, or what a fault makes of it. `usual` gives the server's usual answer for a failing status.
    pub(crate) async fn serve(
        &self,
        call: Call,
        serve: impl FnOnce(Call) -> BoxFuture<'static, Answer>,
        usual: fn(u16) -> Answer,
    ) -> Answer {
        let Some(fault) = self.strike(&call) else {
            return serve(call).await;
        };
        let (delay, served) = (fault.delay, serve(call));
        match fault.outcome {
            Outcome::AnswerLate => {
                return detached(async move {
                    let answer = served.await;
                    tokio::time::sleep(delay).await;
                    answer
                })
                .await;
            }
            Outcome::EffectLate => {
                return detached(async move {
                    tokio::time::sleep(delay).await;
                    served.await
                })
                .await;
            }
            _ => {}
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match fault.outcome {
            Outcome::Serve | Outcome::AnswerLate | Outcome::EffectLate => served.await,
            Outcome::Status { code, body: None } => usual(code),
            Outcome::Status { code, body: Some((content_type, body)) } => {
                Ok(answer(code, &content_type, body))
            }
            Outcome::Hang => std::future::pending().await,
            Outcome::Reset => Err(Reset),
            Outcome::HalfBody => break_in_half(served.await?).await,
            Outcome::Garbage(bytes) => Ok(answer(200, "application/json", bytes)),
            Outcome::Rewrite(change) => rewrite(served.await?, &change).await,
            Outcome::Lag(late) => Ok(served.await?.map(|body| lagging(body, late))),
            Outcome::Twice => Ok(served.await?.map(repeated)),
        }
    }
}

/// Runs to the end although the client may go away: hyper drops the handler then.
async fn detached(work: impl Future<Output = Answer> + Send + 'static) -> Answer {
    tokio::spawn(work).map(|joined| joined.unwrap_or(Err(Reset))).await
}

fn lagging(body: Body, late: Duration) -> Body {
    // The pieces are under way side by side: each is late by the same time.
    let stamped = pieces(body).map(move |piece| (Instant::now() + late, piece));
    stream_body(stamped.then(|(due, piece)| async move {
        tokio::time::sleep_until(due).await;
        piece
    }))
}

fn repeated(body: Body) -> Body {
    stream_body(pieces(body).flat_map(|piece| {
        let again = piece.as_ref().ok().cloned().map(Ok);
        futures::stream::iter(std::iter::once(piece).chain(again))
    }))
}

async fn rewrite(response: hyper::Response<Body>, change: &Rewriter) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map_err(|_| Reset)?.to_bytes();
    let changed = match serde_json::from_slice(&bytes) {
        Ok(value) => change(value).to_string().into_bytes(),
        Err(_) => bytes.to_vec(),
    };
    Ok(answer(parts.status.as_u16(), "application/json", changed))
}
