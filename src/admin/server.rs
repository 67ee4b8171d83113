//! The accept loop: bounded in connections, in header size and in the time that a client may take for its header.
//!
//! It must not know what it serves. A pod's port is open to the cluster, so a slow or greedy client must not be able to
//! starve the kubelet's probes for longer than these time-outs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::stall::StallGuard;

/// The answer to a connection too many.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// How long to wait after a failed accept: it fails for want of file descriptors, which takes time to mend.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What clients may take.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// Connections at one time; further ones get a 503 and are closed.
    pub connections: usize,
    /// The time for a whole header; an idle connection is closed after the same time (5 s).
    pub header_timeout: Duration,
    /// The time for which a client may take no byte of its answer (10 s).
    pub stall: Duration,
    /// Bytes of a header; hyper allows no less than 8 KiB.
    pub header_bytes: usize,
    /// How long requests may go on after the shutdown has begun (2 s).
    pub drain: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 32,
            header_timeout: Duration::from_secs(5),
            stall: Duration::from_secs(10),
            header_bytes: 16 * 1024,
            drain: Duration::from_secs(2),
        }
    }
}

/// A bound socket that serves nothing yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    limits: ServerLimits,
}

impl Server {
    /// Binds the address; the one returned has the port that was chosen. The error names the flag and the address.
    pub async fn bind(address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("--listen {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(named)?;
        let bound = listener.local_addr().map_err(named)?;
        Ok((Self { listener, limits: ServerLimits::default() }, bound))
    }

    /// The same socket with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves until `shutdown` ends and open requests are answered, or cut after the drain time.
    pub async fn serve(self, router: Router, shutdown: impl Future<Output = ()>) {
        let Self { listener, limits } = self;
        let permits = Arc::new(Semaphore::new(limits.connections));
        let (stop, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            // Ended connections are taken out here, or the set would grow for ever.
            while connections.try_join_next().is_some() {}
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => match Arc::clone(&permits).try_acquire_owned() {
                    Ok(permit) => {
                        let connection = serve_connection(stream, router.clone(), limits, stopped.clone());
                        connections.spawn(async move {
                            connection.await;
                            drop(permit);
                        });
                    }
                    // One write that fits every empty socket buffer; who does not get it sees a closed connection.
                    Err(_) => drop(stream.try_write(BUSY)),
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        drop(stop);
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.drain, drained).await.is_err() {
            tracing::debug!("open connections were cut at shutdown");
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    router: Router,
    limits: ServerLimits,
    mut stopped: watch::Receiver<()>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.header_bytes.max(8 * 1024))
        .serve_connection(
            TokioIo::new(StallGuard::new(stream, limits.stall)),
            TowerToHyperService::new(router),
        );
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        // The sender is dropped at shutdown.
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended badly");
    }
}
