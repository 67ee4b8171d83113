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
