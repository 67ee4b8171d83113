//! The wall clock of a process, so that a test can give it another time. Durations are measured on tokio's clock.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// Tells the time that is compared with the cluster's own times.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl WallClock {
    /// The system's.
    pub fn system() -> Self {
        Self::made(Timestamp::now)
    }

    /// One that shows what a function says.
    pub fn made(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WallClock").field(&self.now()).finish()
    }
}
