//! The log of a simulated server's requests, and the pulse that tells of every change in the cluster.
//!
//! Must not know: which server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt as _;
use jiff::Timestamp;
use tokio::time::Instant;

use super::beacon::{Beacon, Heard};
use super::clock::lock;
use super::http::{Answer, Call};

/// One request that the server got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// When it came.
    pub at: Timestamp,
    /// Method.
    pub method: String,
    /// Path, as sent.
    pub path: String,
    /// Query, as sent.
    pub query: String,
    /// `User-Agent`.
    pub user_agent: String,
    /// The body of the request.
    pub body: String,
    /// Status of the answer; 0 if there is none yet, or none came.
    pub status: u16,
    /// Bytes of the answer's body so far.
    pub bytes: u64,
    /// Time until the answer's head; `None` if there is none yet, or none came.
    pub took: Option<Duration>,
}

/// The log of a server's requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestLog(Arc<Mutex<Vec<Entry>>>);

#[derive(Debug, Clone)]
struct Entry {
    record: RequestRecord,
    status: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
    took: Arc<Mutex<Option<Duration>>>,
}

impl RequestLog {
    pub(crate) fn records(&self) -> Vec<RequestRecord> {
        lock(&self.0).iter().map(Entry::record).collect()
    }

    pub(crate) fn take(&self) -> Vec<RequestRecord> {
        std::mem::take(&mut *lock(&self.0)).iter().map(Entry::record).collect()
    }

    /// Logs a call, and its answer once it is there.
    pub(crate) async fn logged(
        &self,
        at: Timestamp,
        call: Call,
        serve: impl AsyncFnOnce(Call) -> Answer,
    ) -> Answer {
        let record = RequestRecord {
            at,
            method: call.method.to_string(),
            path: call.path.clone(),
            query: call.query.clone(),
            user_agent: call.header("user-agent").to_owned(),
            body: String::from_utf8_lossy(&call.body).into_owned(),
            status: 0,
            bytes: 0,
            took: None,
        };
        let entry = Entry { record, status: Arc::default(), bytes: Arc::default(), took: Arc::default() };
        let (status, bytes, took) = (entry.status.clone(), entry.bytes.clone(), entry.took.clone());
        lock(&self.0).push(entry);
        let began = Instant::now();
        let response = serve(call).await?;
        *lock(&took) = Some(began.elapsed());
        status.store(u64::from(response.status().as_u16()), Ordering::SeqCst);
        let (parts, body) = response.into_parts();
        // A body of known length must keep it, so that its length is sent and not chunks.
        if let Some(length) = hyper::body::Body::size_hint(&body).exact() {
            bytes.store(length, Ordering::SeqCst);
            return Ok(hyper::Response::from_parts(parts, body));
        }
        let counted = body.map_frame(move |frame| {
            bytes.fetch_add(frame.data_ref().map_or(0, |data| data.len() as u64), Ordering::SeqCst);
            frame
        });
        Ok(hyper::Response::from_parts(parts, counted.boxed_unsync()))
    }
}

impl Entry {
    fn record(&self) -> RequestRecord {
        let status = u16::try_from(self.status.load(Ordering::SeqCst)).unwrap_or_default();
        let (bytes, took) = (self.bytes.load(Ordering::SeqCst), *lock(&self.took));
        RequestRecord { status, bytes, took, ..self.record.clone() }
    }
}

/// Tells that something in the cluster changed: an object, an endpoint, a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulse(Beacon);

impl Pulse {
    pub(crate) fn beat(&self) {
        self.0.tell();
    }

    pub(crate) fn subscribe(&self) -> Heard {
        self.0.subscribe()
    }
}
