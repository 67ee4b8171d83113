//! The agent's API rate limiter: so many calls in parallel, so many a second, so long a wait, then a 429.
//!
//! The numbers and the order of the two waits are those of Cilium's `pkg/rate`; the self-adjustment is left out.
//! Must not know: HTTP, endpoints.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::clock::{go_duration, lock};

/// The limits of one kind of call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Calls a second; `None` for no rate.
    pub rate: Option<f64>,
    /// Calls that may come at once.
    pub burst: u32,
    /// Calls in parallel.
    pub parallel: u32,
    /// The first calls that pass unlimited.
    pub skip_initial: u64,
    /// The longest wait before a 429; `None` for ever.
    pub max_wait: Option<Duration>,
}

/// The limits of an agent; `None` switches one off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimits {
    /// `GET /endpoint/{id}` and below.
    pub get: Option<Limits>,
    /// `GET /endpoint`.
    pub list: Option<Limits>,
    /// `PUT /endpoint/{id}`.
    pub create: Option<Limits>,
    /// `DELETE /endpoint/{id}` of an endpoint that is there.
    pub delete: Option<Limits>,
}

impl RateLimits {
    /// The defaults of Cilium (`daemon/restapi/api_limits.go`).
    #[must_use]
    pub fn cilium() -> Self {
        let max_wait = Some(Duration::from_secs(10));
        Self {
            get: Some(Limits { rate: Some(4.0), burst: 4, parallel: 4, skip_initial: 4, max_wait }),
            list: Some(Limits { rate: Some(1.0), burst: 4, parallel: 2, skip_initial: 0, max_wait: None }),
            create: Some(Limits {
                rate: Some(0.5),
                burst: 4,
                parallel: 4,
                skip_initial: 4,
                max_wait: Some(Duration::from_mins(1)),
            }),
            delete: Some(Limits { rate: None, burst: 0, parallel: 4, skip_initial: 0, max_wait: None }),
        }
    }

    /// No limits.
    #[must_use]
    pub fn off() -> Self {
        Self { get: None, list: None, create: None, delete: None }
    }
}

/// Limits the calls of one kind.
#[derive(Debug)]
pub(crate) struct Limiter(Option<Limited>);

#[derive(Debug)]
struct Limited {
    limits: Limits,
    parallel: Semaphore,
    bucket: Mutex<Bucket>,
    scheduled: AtomicU64,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Limiter {
    pub(crate) fn new(limits: Option<Limits>) -> Self {
        Self(limits.map(|limits| Limited {
            limits,
            parallel: Semaphore::new(usize::try_from(limits.parallel).unwrap_or(1)),
            bucket: Mutex::new(Bucket { tokens: f64::from(limits.burst), at: Instant::now() }),
            scheduled: AtomicU64::new(0),
        }))
    }

    /// Waits for a turn, which lasts until the permit is dropped. The error is the text of the 429.
    pub(crate) async fn wait(&self) -> Result<Option<SemaphorePermit<'_>>, String> {
        let Some(limited) = &self.0 else { return Ok(None) };
        let limits = limited.limits;
        if limited.scheduled.fetch_add(1, Ordering::SeqCst) < limits.skip_initial {
            return Ok(None);
        }
        let start = Instant::now();
        let acquired = match limits.max_wait {
            Some(max) => tokio::time::timeout(max, limited.parallel.acquire()).await.map_err(|_| ()),
            None => Ok(limited.parallel.acquire().await),
        };
        let Ok(Ok(permit)) = acquired else {
            return Err(format!(
                "timed out while waiting to be served with {} parallel requests: context deadline exceeded",
                limits.parallel
            ));
        };
        let Some(rate) = limits.rate else {
            return Ok(Some(permit));
        };
        let waited = start.elapsed();
        let wait = lock(&limited.bucket).reserve(rate, limits.burst);
        if let Some(max) = limits.max_wait
            && waited + wait > max
        {
            lock(&limited.bucket).tokens += 1.0;
            let left = max.saturating_sub(waited);
            return Err(format!(
                "request would have to wait {} to be served (maximum wait duration: {})",
                go_duration(wait),
                go_duration(left)
            ));
        }
        tokio::time::sleep(wait).await;
        Ok(Some(permit))
    }
}

impl Bucket {
    fn reserve(&mut self, rate: f64, burst: u32) -> Duration {
        let now = Instant::now();
        self.tokens = (self.tokens + now.duration_since(self.at).as_secs_f64() * rate).min(f64::from(burst));
        self.at = now;
        self.tokens -= 1.0;
        if self.tokens >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.tokens / rate) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sixty_parallel_gets_are_answered_as_by_the_real_agent() {
        let limiter = Limiter::new(RateLimits::cilium().get);
        let start = Instant::now();
        let answers =
            futures::future::join_all((0..60).map(|_| async { limiter.wait().await.map(drop) })).await;
        let refused: Vec<String> = answers.into_iter().filter_map(Result::err).collect();
        // The transcripts' README: 48 answers and 12 times 429 in 10 s.
        assert_eq!(refused.len(), 12);
        assert!(
            refused.iter().all(|text| text.starts_with("request would have to wait ")
                || text.starts_with("timed out while waiting")),
            "{refused:?}"
        );
        assert!(start.elapsed() <= Duration::from_millis(10_100), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn lists_wait_for_ever_and_come_one_a_second() {
        let limiter = Limiter::new(RateLimits::cilium().list);
        let start = Instant::now();
        for _ in 0..14 {
            drop(limiter.wait().await.unwrap());
        }
        assert_eq!(start.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn switched_off_it_never_waits() {
        let limiter = Limiter::new(None);
        let start = Instant::now();
        for _ in 0..1000 {
            limiter.wait().await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
