//! A stream that fails once its peer has taken no byte for some time.
//!
//! Without it a client that asks and never reads would hold its connection, and so its place, for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::slots::Activity;

/// The stream, with the timer of a write that waits.
#[derive(Debug)]
pub(super) struct StallGuard<S> {
    stream: S,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    activity: Activity,
}

impl<S> StallGuard<S> {
    /// `activity` is told when a write begins to wait, and when one goes on.
    pub(super) fn new(stream: S, limit: Duration, activity: Activity) -> Self {
        Self { stream, limit, waiting: None, activity }
    }

    /// Passes on what a write came to; of one that waits, starts or asks the timer.
    fn guard<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            if self.waiting.take().is_some() {
                self.activity.stalled(false);
            }
            return polled;
        }
        if self.waiting.is_none() {
            self.activity.stalled(true);
        }
        let limit = self.limit;
        ready!(self.waiting.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.guard(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
