//! The places of connections: who has one, and whose is taken where all are.
//!
//! It must not know sockets or HTTP: it is told when a request begins and ends, and when a client stops reading.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::task::AbortHandle;

/// What a connection does; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Activity(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Requests whose answer has not been handed over as a whole.
    requests: AtomicUsize,
    /// The client takes no byte.
    stalled: AtomicBool,
}

impl Activity {
    /// A request began; it ends when the value is dropped.
    pub(super) fn begin(&self) -> Busy {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    pub(super) fn stalled(&self, stalled: bool) {
        self.0.stalled.store(stalled, Ordering::Relaxed);
    }

    /// Whether nobody waits for anything: no request, or a client that does not read.
    fn is_idle(&self) -> bool {
        self.0.requests.load(Ordering::Relaxed) == 0 || self.0.stalled.load(Ordering::Relaxed)
    }
}

/// A request, for as long as it lasts.
#[derive(Debug)]
pub(super) struct Busy(Activity);

impl Busy {
    /// The same body, which keeps the request going to its end.
    pub(super) fn until_end_of(self, body: Body) -> Body {
        Body::new(Watched { body, _busy: self })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body with the request that it answers; `http_body_util` has none that keeps the length.
struct Watched {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The connections that are open, the oldest first.
#[derive(Debug)]
pub(super) struct Slots {
    most: usize,
    taken: VecDeque<(AbortHandle, Activity)>,
}

impl Slots {
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: VecDeque::new() }
    }

    /// Whether there is a place; where all are taken, the oldest idle connection is cut. A probe asks as soon as it has
    /// connected, so who wants to keep it out has to be served, or to bring as many connections within its round trip.
    pub(super) fn make_room(&mut self) -> bool {
        self.taken.retain(|(connection, _)| !connection.is_finished());
        if self.taken.len() < self.most {
            return true;
        }
        let Some(oldest) = self.taken.iter().position(|(_, activity)| activity.is_idle()) else {
            return false;
        };
        if let Some((connection, _)) = self.taken.remove(oldest) {
            connection.abort();
        }
        self.taken.len() < self.most
    }

    pub(super) fn take(&mut self, connection: AbortHandle, activity: Activity) {
        self.taken.push_back((connection, activity));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(slots: &mut Slots) -> (Activity, AbortHandle) {
        let activity = Activity::default();
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        slots.take(task.clone(), activity.clone());
        (activity, task)
    }

    #[tokio::test]
    async fn the_oldest_that_waits_for_nothing_goes_first() {
        let mut slots = Slots::new(3);
        let (first, first_task) = slot(&mut slots);
        let (_second, second_task) = slot(&mut slots);
        assert!(slots.make_room(), "there is a place");
        let (_third, third_task) = slot(&mut slots);
        let busy = first.begin();
        assert!(slots.make_room());
        tokio::task::yield_now().await;
        assert!(second_task.is_finished() && !first_task.is_finished() && !third_task.is_finished());

        let (fourth, fourth_task) = slot(&mut slots);
        let _busy = fourth.begin();
        assert!(slots.make_room());
        tokio::task::yield_now().await;
        assert!(third_task.is_finished());
        let (fifth, _) = slot(&mut slots);
        let _also = fifth.begin();
        assert!(!slots.make_room(), "all are served");
        first.stalled(true);
        assert!(slots.make_room(), "one does not read");
        tokio::task::yield_now().await;
        assert!(first_task.is_finished() && !fourth_task.is_finished());
        drop(busy);
    }

    #[tokio::test]
    async fn a_request_lasts_to_the_end_of_its_body_and_the_length_is_kept() {
        let activity = Activity::default();
        assert!(activity.is_idle());
        let body = activity.begin().until_end_of(Body::from("four"));
        assert!(!activity.is_idle());
        assert_eq!(body.size_hint().exact(), Some(4));
        drop(body);
        assert!(activity.is_idle());
    }
}
