//! Waiting for what is to come, with a deadline and a word for what did not.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Longer than the daemon leaves a wedge unlooked at, on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);

const POLL: Duration = Duration::from_millis(50);

/// Asks until there is an answer; panics with `what` after [`PATIENCE`].
pub async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = probe().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for: {what}");
        sleep(POLL).await;
    }
}
