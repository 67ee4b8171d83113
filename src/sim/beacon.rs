//! Tells many that something is new, in the order in which they came to wait.
//!
//! tokio's watch channel does the same in an order by chance, and a run from a seed has to be the same each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// Whoever tells. Clones are the same; with the last one gone nothing new comes any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Beacon(Arc<Lit>);

#[derive(Debug, Default)]
struct Lit(Arc<State>);

#[derive(Debug, Default)]
struct State {
    told: AtomicU64,
    gone: AtomicBool,
    wake: Notify,
}

/// Whoever hears.
#[derive(Debug)]
pub(crate) struct Heard {
    state: Arc<State>,
    seen: u64,
}

/// Nobody tells any more.
#[derive(Debug)]
pub(crate) struct Gone;

impl Beacon {
    /// Says that something is new.
    pub(crate) fn tell(&self) {
        self.0.0.told.fetch_add(1, Ordering::SeqCst);
        self.0.0.wake.notify_waiters();
    }

    /// Hears of all that is new from now on.
    pub(crate) fn subscribe(&self) -> Heard {
        let state = Arc::clone(&self.0.0);
        Heard { seen: state.told.load(Ordering::SeqCst), state }
    }
}

impl Drop for Lit {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::SeqCst);
        self.0.wake.notify_waiters();
    }
}

impl Heard {
    /// What was told so far is no news.
    pub(crate) fn mark_unchanged(&mut self) {
        self.seen = self.state.told.load(Ordering::SeqCst);
    }

    /// Waits for news, if there is none yet.
    pub(crate) async fn changed(&mut self) -> Result<(), Gone> {
        loop {
            let mut news = std::pin::pin!(self.state.wake.notified());
            news.as_mut().enable();
            let told = self.state.told.load(Ordering::SeqCst);
            if told != self.seen {
                self.seen = told;
                return Ok(());
            }
            if self.state.gone.load(Ordering::SeqCst) {
                return Err(Gone);
            }
            news.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn news_is_heard_once_also_if_it_came_before_and_the_end_is_heard() {
        let beacon = Beacon::default();
        let mut heard = beacon.subscribe();
        beacon.tell();
        beacon.tell();
        heard.changed().await.unwrap();
        let waits = async {
            heard.changed().await.unwrap();
            heard
        };
        let (mut heard, ()) = tokio::join!(waits, async { beacon.tell() });
        beacon.tell();
        heard.mark_unchanged();
        drop(beacon);
        heard.changed().await.unwrap_err();
    }
}
