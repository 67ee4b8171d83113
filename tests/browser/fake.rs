//! The status page over a state and events that are made up.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use cilium_leak_healer::admin::{Health, Server, router};
use cilium_leak_healer::metrics::Metrics;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// What is answered, to be changed at any time.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<Value>,
    /// The status of `/v1/state`; its body is the word below where it is not 200.
    status: AtomicU16,
    stream_status: AtomicU16,
    refusal: Mutex<String>,
    hangs: AtomicBool,
    asked: AtomicUsize,
    events: broadcast::Sender<String>,
}

impl Fake {
    pub(crate) fn start(state: Value) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            status: AtomicU16::new(200),
            stream_status: AtomicU16::new(200),
            refusal: Mutex::new(String::new()),
            hangs: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
            events: broadcast::Sender::new(16),
        });
        let made_up = Router::new()
            .route("/v1/state", get(answer))
            .route("/v1/events", get(events))
            .with_state(Arc::clone(&shared));
        let (server, addresses) = Server::bind(&[([127, 0, 0, 1], 0).into()]).expect("a port");
        let real = router(Health::new(Duration::from_secs(30)), Arc::new(Metrics::new()));
        tokio::spawn(server.serve(real.merge(made_up), std::future::pending()));
        Self { address: addresses[0], shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Another state, without an event that tells of it.
    pub(crate) fn set(&self, state: Value) {
        *self.shared.state.lock().expect("nobody panics with it") = state;
    }

    /// An event, to all streams that are open.
    pub(crate) fn tell(&self, kind: &str, data: &Value) {
        let event =
            json!({"specversion": "1.0", "type": format!("cilium-leak-healer.{kind}.v1"), "data": data});
        drop(self.shared.events.send(format!("id: 1f.7\ndata: {event}\n\n")));
    }

    /// Ends all streams.
    pub(crate) fn cut(&self) {
        drop(self.shared.events.send(String::new()));
    }

    pub(crate) fn answers(&self, status: u16, text: &str) {
        text.clone_into(&mut self.shared.refusal.lock().expect("nobody panics with it"));
        self.shared.status.store(status, Relaxed);
    }

    pub(crate) fn streams_answer(&self, status: u16) {
        self.shared.stream_status.store(status, Relaxed);
    }

    pub(crate) fn hang(&self, hangs: bool) {
        self.shared.hangs.store(hangs, Relaxed);
    }

    /// How often the state was asked for.
    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Relaxed)
    }
}

async fn answer(State(shared): State<Arc<Shared>>) -> Response {
    shared.asked.fetch_add(1, Relaxed);
    if shared.hangs.load(Relaxed) {
        std::future::pending::<()>().await;
    }
    let status = StatusCode::from_u16(shared.status.load(Relaxed)).expect("a status");
    if status != StatusCode::OK {
        return (status, shared.refusal.lock().expect("nobody panics with it").clone()).into_response();
    }
    let body = shared.state.lock().expect("nobody panics with it").to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn events(State(shared): State<Arc<Shared>>) -> Response {
    let status = StatusCode::from_u16(shared.stream_status.load(Relaxed)).expect("a status");
    if status != StatusCode::OK {
        return (status, "no place\n").into_response();
    }
    let opening = Some("retry: 200\n\n".to_owned());
    let told = futures::stream::unfold((opening, shared.events.subscribe()), |(opening, mut events)| async {
        let frame = match opening {
            Some(opening) => opening,
            None => events.recv().await.ok().filter(|frame| !frame.is_empty())?,
        };
        Some((Ok::<_, Infallible>(frame), (None, events)))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(told)).into_response()
}

fn ago(seconds: i64) -> String {
    (Timestamp::now() - SignedDuration::from_secs(seconds)).to_string()
}

/// A state with these wedges, and acts of two kinds.
pub(crate) fn state(wedges: &[Value]) -> Value {
    let about = |pod: &str| json!({"node": "worker-1", "pod": pod, "podUid": pod, "ip": "10.244.1.12", "verdict": "stale-endpoint"});
    let mut healed = about("tenant-a/web-7d9f8c5b6-x2x9k");
    let mut going = about("tenant-c/cache-0");
    merge(
        &mut healed,
        json!({
            "correlationId": "19abf3c2d41-2", "remedy": "disconnect-endpoint", "target": "cni-attachment-id:4f1c:eth0",
            "reason": "no pod backup/agent-old is there", "began": ago(340), "ended": true,
            "steps": [
                {"time": ago(339), "outcome": "freed", "reason": "the agent says that nobody has 10.244.1.12"},
                {"time": ago(333), "outcome": "healed", "reason": "the pod has its sandbox"},
            ],
        }),
    );
    merge(
        &mut going,
        json!({
            "correlationId": "19abf3c2d41-5", "remedy": "delete-pod", "reason": "10.244.1.7 is the ingress address of this node",
            "began": ago(4), "ended": false, "steps": [],
        }),
    );
    json!({
        "kind": "WatchdogState", "schemaVersion": 1, "node": "worker-1", "version": "0.1.0", "mode": "heal",
        "remedies": ["disconnect-endpoint", "delete-pod"], "started": ago(7260), "time": ago(0),
        "position": "1f.6", "stopping": false,
        "checks": [
            {"check": "pod-watch", "state": "ok", "since": ago(7250)},
            {"check": "agent", "state": "ok", "since": ago(600)},
            {"check": "ledger", "state": "ok", "since": ago(7250)},
            {"check": "fence", "state": "degraded", "reason": "the policy cilium-leak-healer is not bound", "since": ago(90)},
        ],
        "wedges": wedges, "wedgesOmitted": 0, "acts": [going, healed],
    })
}

/// A wedge of that pod.
pub(crate) fn wedge(pod: &str, verdict: &str, seconds: i64) -> Value {
    let stale = verdict == "stale-endpoint";
    let held = json!([{"remedy": "disconnect-endpoint", "by": "budget", "reason": "no token; the next one comes in 4 s", "since": ago(20)}]);
    json!({
        "node": "worker-1", "pod": pod, "podUid": format!("uid-of-{pod}"), "controller": "ReplicaSet/web", "ip": "10.244.1.12",
        "verdict": verdict, "correlationId": format!("19abf3c2d41-{seconds}"), "owner": "shop/cart-0",
        "remedy": if stale { "disconnect-endpoint" } else { "none" },
        "target": if stale { json!("cni-attachment-id:4f1c09d5a7:eth0") } else { Value::Null },
        "waitingSince": ago(seconds), "judgedAt": ago(seconds - 4), "heldBack": if stale { held } else { json!([]) },
        "reason": if stale { "10.244.1.12 is held by endpoint 1187 of shop/cart-0, and no pod of that name is there" } else { "10.244.1.12 is held by endpoint 1187 of shop/cart-0, which is alive" },
        "evidence": [
            {"check": "waiting-pod", "outcome": "pass", "observed": "Pending, no sandbox, bound to worker-1"},
            {"check": "newest-failure", "outcome": "pass", "observed": "refused 10.244.1.12, 14 times, the last one 6 s ago"},
            {"check": "agent-lookup", "outcome": "pass", "observed": "GET endpoint/ipv4:10.244.1.12: endpoint 1187, container 4f1c09d5a7e2"},
            {"check": "owner-pod", "outcome": if stale { "pass" } else { "fail" }, "observed": if stale { "GET pods/cart-0: 404" } else { "Running, with 10.244.1.12" }},
            {"check": "ipam-mode", "outcome": "unknown", "observed": "the agent did not say"},
        ],
    })
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}
