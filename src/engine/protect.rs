//! What a self-test found, told to everybody whom it concerns, and when to test again: hourly, sooner after a failure.
//!
//! It must not know how the test is made. That nothing is done without a working fence is `gates`' to say.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::sync::watch;

use crate::admin::{Check, Health};
use crate::kube::Protection;
use crate::metrics::Metrics;

/// Between two tests that went well.
const HOURLY: Duration = Duration::from_hours(1);

/// Who hears what the self-test found.
pub struct Listeners<F> {
    /// The engine.
    pub engine: watch::Sender<Protection>,
    /// Readiness.
    pub health: Health,
    /// The gauge.
    pub metrics: Arc<Metrics>,
    /// Hears of each change, for an Event.
    pub changed: F,
}

/// What follows of each self-test.
pub struct Guard<F> {
    /// Nothing is done without a working fence, so it counts as degraded.
    required: bool,
    listeners: Listeners<F>,
    delays: ExponentialBackoff,
    last: Option<Protection>,
}

impl<F: Fn(&Protection)> Guard<F> {
    /// Before the first test.
    pub fn new(required: bool, listeners: Listeners<F>) -> Self {
        Self { required, listeners, delays: delays(), last: None }
    }

    /// Tells everybody what a test found. Gives the time until the next one.
    pub fn heard(&mut self, found: Protection) -> Duration {
        let Listeners { engine, health, metrics, changed } = &self.listeners;
        metrics.set_fence(found.as_str());
        health.set(Check::Fence, state(&found, self.required));
        if self.last.as_ref() != Some(&found) {
            tell(&found, self.required);
            changed(&found);
        }
        engine.send_replace(found.clone());
        let works = found == Protection::Working;
        self.last = Some(found);
        if works {
            self.delays = delays();
            return HOURLY;
        }
        self.delays.next().unwrap_or(HOURLY)
    }
}

fn delays() -> ExponentialBackoff {
    let delays = ExponentialBuilder::new()
        .with_min_delay(Duration::from_secs(10))
        .with_max_delay(Duration::from_mins(5));
    delays.without_max_times().with_jitter().build()
}

fn state(found: &Protection, required: bool) -> Result<(), String> {
    match found {
        Protection::Working => Ok(()),
        Protection::Missing(_) | Protection::Unknown(_) if !required => {
            Err(format!("{} (not required: it acts all the same)", why(found)))
        }
        Protection::Missing(_) | Protection::Unknown(_) => {
            Err(format!("{}; nothing is done until it is mended", why(found)))
        }
    }
}

fn why(found: &Protection) -> String {
    match found {
        Protection::Working => String::new(),
        Protection::Missing(why) | Protection::Unknown(why) => why.join("; "),
    }
}

fn tell(found: &Protection, required: bool) {
    match found {
        Protection::Working => tracing::info!("self-test: the rights are right and the fence is at work"),
        Protection::Missing(_) if required => {
            tracing::error!(reason = why(found), "self-test failed: nothing is done until it is mended");
        }
        Protection::Unknown(_) if required => {
            tracing::warn!(reason = why(found), "self-test could not be made: nothing is done until it can");
        }
        Protection::Missing(_) | Protection::Unknown(_) => tracing::error!(
            reason = why(found),
            "self-test failed, and --require-fence=false: it acts WITHOUT a working fence"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rstest::rstest;

    use super::*;

    fn missing(why: &str) -> Protection {
        Protection::Missing(vec![why.to_owned(), "and more".to_owned()])
    }

    fn unknown() -> Protection {
        Protection::Unknown(vec!["timed out".to_owned()])
    }

    /// What each listener has last heard, and how many Events were made of it.
    struct Heard {
        engine: watch::Receiver<Protection>,
        health: Arc<Mutex<Result<(), String>>>,
        metrics: Arc<Metrics>,
        changes: Arc<Mutex<Vec<Protection>>>,
    }

    impl Heard {
        fn guard(required: bool) -> (Guard<impl Fn(&Protection)>, Self) {
            let (sender, engine) = watch::channel(unknown());
            let (health, metrics) = (Health::new(HOURLY), Arc::new(Metrics::new()));
            let heard =
                Self { engine, health: Arc::new(Mutex::new(Ok(()))), metrics, changes: Arc::default() };
            let state = Arc::clone(&heard.health);
            health.listen(move |check, outcome| {
                if check == Check::Fence {
                    state.lock().unwrap().clone_from(outcome);
                }
            });
            let told = Arc::clone(&heard.changes);
            let changed = move |found: &Protection| told.lock().unwrap().push(found.clone());
            let listeners =
                Listeners { engine: sender, health, metrics: Arc::clone(&heard.metrics), changed };
            (Guard::new(required, listeners), heard)
        }

        fn health(&self) -> Result<(), String> {
            self.health.lock().unwrap().clone()
        }

        fn gauge(&self, word: &str) -> bool {
            let text = self.metrics.encode().unwrap();
            let line = text.lines().find(|line| line.contains(&format!("fence{{state=\"{word}\"}}")));
            line.unwrap().ends_with(" 1")
        }
    }

    /// What readiness says where the fence is required, and where it is not.
    #[rstest]
    #[case::working(Protection::Working, None, None)]
    #[case::missing(
        missing("the fence is not there"),
        Some("the fence is not there; and more; nothing is done until it is mended"),
        Some("the fence is not there; and more (not required: it acts all the same)")
    )]
    #[case::unknown(
        unknown(),
        Some("timed out; nothing is done until it is mended"),
        Some("timed out (not required: it acts all the same)")
    )]
    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_told_to_all(
        #[case] found: Protection,
        #[case] required: Option<&str>,
        #[case] optional: Option<&str>,
    ) {
        for (is_required, why) in [(true, required), (false, optional)] {
            let (mut guard, mut heard) = Heard::guard(is_required);
            guard.heard(found.clone());
            assert!(heard.engine.has_changed().unwrap());
            assert_eq!(*heard.engine.borrow_and_update(), found);
            assert_eq!(heard.health().err().as_deref(), why);
            let gauges = ["working", "missing", "unknown"].map(|word| heard.gauge(word));
            assert_eq!(gauges, ["working", "missing", "unknown"].map(|word| word == found.as_str()));
            assert_eq!(heard.changes.lock().unwrap().as_slice(), std::slice::from_ref(&found));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_changes_are_told_as_such() {
        let (mut guard, heard) = Heard::guard(true);
        let found =
            [missing("a"), missing("a"), missing("b"), unknown(), Protection::Working, Protection::Working];
        for found in found {
            guard.heard(found);
        }
        let changes = [missing("a"), missing("b"), unknown(), Protection::Working];
        assert_eq!(*heard.changes.lock().unwrap(), changes);
    }

    #[tokio::test(start_paused = true)]
    async fn tests_are_hourly_and_sooner_after_one_that_failed() {
        let (mut guard, _heard) = Heard::guard(true);
        // Each pause is up to twice as long by chance.
        let is = |pause: Duration, seconds| (seconds..2 * seconds).contains(&pause.as_secs());
        for _ in 0..2 {
            assert_eq!(guard.heard(Protection::Working), HOURLY);
            for seconds in [10, 20, 40] {
                let pause = guard.heard(unknown());
                assert!(is(pause, seconds), "{pause:?} for {seconds} s");
            }
            let pause = (0..9).map(|_| guard.heard(missing("a"))).last().unwrap();
            assert!(is(pause, 300), "{pause:?}");
        }
    }
}
