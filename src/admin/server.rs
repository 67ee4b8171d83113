//! The accept loop: bounded in connections, in header size and in the time that a client may take for its header.
//!
//! It must not know what it serves. A pod's port is open to the cluster, so slow or greedy clients must not be able to
//! starve the kubelet's probes: where all places are taken, the oldest connection that waits for nothing gives up its own.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::slots::{Activity, Slots};
use super::stall::StallGuard;

/// The answer to a connection too many.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// How long to wait after a failed accept: it fails for want of file descriptors, which takes time to mend.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What the kernel keeps for a connection whose client reads nothing, or sends and is not read (Linux doubles it). By
/// itself it grows to megabytes, and counts towards the memory of the container.
const SEND_BUFFER: u32 = 64 * 1024;
const RECEIVE_BUFFER: u32 = 32 * 1024;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// The two ends of a connection, as an extension of each request.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// The address that the client connected to.
    pub local: SocketAddr,
    /// The client's own.
    pub remote: SocketAddr,
}

/// What clients may take.
#[derive(Debug, Clone, Copy)]
pub struct ServerLimits {
    /// Connections at one time (64). A further one takes the place of one that waits for nothing, or gets a 503.
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
            connections: 64,
            header_timeout: Duration::from_secs(5),
            stall: Duration::from_secs(10),
            header_bytes: 16 * 1024,
            drain: Duration::from_secs(2),
        }
    }
}

/// Bound sockets that serve nothing yet.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<TcpListener>,
    limits: ServerLimits,
}

impl Server {
    /// Binds the addresses; those returned have the ports that were chosen. The error names the flag and the address.
    pub fn bind(addresses: &[SocketAddr]) -> io::Result<(Self, Vec<SocketAddr>)> {
        let mut listeners = Vec::with_capacity(addresses.len());
        let mut bound = Vec::with_capacity(addresses.len());
        for address in addresses {
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("--listen {address}: {error}"));
            let listener = listen(*address).map_err(named)?;
            bound.push(listener.local_addr().map_err(named)?);
            listeners.push(listener);
        }
        Ok((Self { listeners, limits: ServerLimits::default() }, bound))
    }

    /// The same sockets with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves until `shutdown` ends and open requests are answered, or cut after the drain time.
    pub async fn serve(self, router: Router, shutdown: impl Future<Output = ()>) {
        let Self { listeners, limits } = self;
        let mut slots = Slots::new(limits.connections);
        let (stop, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut turn = 0;
        tokio::pin!(shutdown);
        loop {
            // Ended connections are taken out here, or the set would grow for ever.
            while connections.try_join_next().is_some() {}
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                accepted = accept(&listeners, &mut turn) => accepted,
            };
            match accepted {
                Ok((stream, ends)) if slots.make_room() => {
                    let activity = Activity::default();
                    let connection = serve_connection(
                        stream,
                        ends,
                        router.clone(),
                        limits,
                        activity.clone(),
                        stopped.clone(),
                    );
                    slots.take(connections.spawn(connection), activity);
                }
                // One write that fits every empty socket buffer; who does not get it sees a closed connection.
                Ok((stream, _)) => drop(stream.try_write(BUSY)),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listeners);
        drop(stop);
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(limits.drain, drained).await.is_err() {
            tracing::debug!("open connections were cut at shutdown");
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As tokio and std do: a restart need not wait for connections of the last life.
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit both.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The next connection of any listener; each has its turn, so that none that is flooded starves another.
async fn accept(listeners: &[TcpListener], turn: &mut usize) -> io::Result<(TcpStream, Ends)> {
    let accepted = poll_fn(|cx| {
        for step in 0..listeners.len() {
            let at = (*turn + step) % listeners.len();
            if let Poll::Ready(accepted) = listeners[at].poll_accept(cx) {
                *turn = at + 1;
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    });
    let (stream, remote) = accepted.await?;
    let local = stream.local_addr()?;
    Ok((stream, Ends { local, remote }))
}

async fn serve_connection(
    stream: TcpStream,
    ends: Ends,
    router: Router,
    limits: ServerLimits,
    activity: Activity,
    mut stopped: watch::Receiver<()>,
) {
    let stream = StallGuard::new(stream, limits.stall, activity.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (router, busy) = (router.clone(), activity.begin());
        request.extensions_mut().insert(ends);
        async move {
            let answer: Response = router.oneshot(request.map(Body::new)).await?;
            let (head, body) = answer.into_parts();
            Ok::<_, std::convert::Infallible>(Response::from_parts(head, busy.until_end_of(body)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.header_bytes.max(8 * 1024))
        .serve_connection(TokioIo::new(stream), service);
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
