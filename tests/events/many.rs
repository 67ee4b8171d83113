//! A large cluster: many watchdogs that tell a little. They are one small server, which counts its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cilium_leak_healer::sim::PODS;
use cilium_leak_healer::stream::CloudEvent;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::stage::{OWN, Stage};
use crate::verb::events;

const NODES: usize = 1000;
const EACH: usize = 3;

/// What a watchdog has kept. The times of all watchdogs are mixed.
fn kept(number: usize) -> String {
    let event = |index: usize| {
        let millis = index * 1000 + number * 7 % 1000;
        let time =
            jiff::Timestamp::from_millisecond(i64::try_from(1_780_000_000_000 + millis).expect("a time"));
        let node = format!("n{number}");
        let event = json!({
            "specversion": "1.0", "id": format!("1f.{}", index + 1), "source": format!("/cilium-leak-healer/nodes/{node}"),
            "type": "cilium-leak-healer.stopping.v1", "time": time.expect("a time"), "datacontenttype": "application/json",
            "data": {"node": node},
        });
        format!("{event}\n")
    };
    (0..EACH).map(event).collect()
}

async fn answer(mut stream: TcpStream, number: usize) {
    let mut head = vec![0; 4096];
    drop(stream.read(&mut head).await);
    // Long enough for all that are let in to be here together.
    sleep(Duration::from_millis(100)).await;
    let text = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", kept(number));
    drop(stream.write_all(text.as_bytes()).await);
}

#[tokio::test]
async fn a_thousand_nodes_are_read_some_at_a_time() {
    let stage = Stage::new(0).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    for number in 0..NODES {
        let name = format!("w{number}");
        let pod = json!({
            "metadata": {"namespace": OWN, "name": name, "labels": {"app.kubernetes.io/name": OWN}},
            "spec": {"nodeName": format!("n{number}"), "containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running"},
        });
        stage.cluster.api().create(&PODS, pod).expect("a pod");
        stage.leads(&name, Some(address));
    }
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, peak) = (Arc::clone(&now), Arc::clone(&most));
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            let counted = Arc::clone(&counted);
            peak.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::spawn(async move {
                answer(stream, number).await;
                counted.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    let out = events(&stage, &["--no-follow", "-o", "ndjson"]).await.well();
    let parse = |line: &str| CloudEvent::parse(line.as_bytes()).expect("an event");
    let all: Vec<_> = out.lines().map(parse).collect();
    assert_eq!(all.len(), NODES * EACH);
    assert!(all.is_sorted_by_key(|event| event.time));
    let most = most.load(Ordering::SeqCst);
    assert!((2..=50).contains(&most), "{most} connections at one time");
}
