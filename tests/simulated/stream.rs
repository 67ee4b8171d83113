//! `/v1/events` and `/v1/state` of the real binary, read with curl and by many clients at once.

use std::process::Stdio;
use std::time::{Duration, Instant};

use cilium_leak_healer::stream::{CheckState, CloudEvent, Event, GapReason};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::daemon::{Daemon, PATIENCE};
use crate::scene::{Scene, acted, judged};

/// Whether there is a curl; in CI there must be one.
async fn has_curl() -> bool {
    let found = Command::new("curl").arg("--version").stdout(Stdio::null()).status().await;
    if let Err(error) = &found {
        assert!(std::env::var_os("CI").is_none(), "curl: {error}");
        println!("SKIPPED: a stream read with curl: it cannot be started: {error}");
    }
    found.is_ok()
}

/// curl on a stream.
struct Curl {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Curl {
    fn follow(daemon: &Daemon, path: &str, args: &[&str]) -> Self {
        let url = format!("http://{}{path}", daemon.address());
        let mut child = Command::new("curl")
            .args(["--no-buffer", "--silent", "--show-error", "--fail-with-body"])
            .args(args)
            .arg(url)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("curl");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, lines }
    }

    async fn line(&mut self) -> Option<String> {
        timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time").expect("readable")
    }

    /// The next event of an SSE stream, with the `id` of its frame.
    async fn event(&mut self) -> Option<(String, CloudEvent<Event>)> {
        let mut id = String::new();
        while let Some(line) = self.line().await {
            if let Some(value) = line.strip_prefix("id: ") {
                value.clone_into(&mut id);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((id, CloudEvent::parse(data.as_bytes()).expect("an event")));
            } else {
                assert!(line.is_empty() || line == "retry: 2000" || line.starts_with(':'), "{line}");
            }
        }
        None
    }

    /// The rest of a stream, to its end, which must be a clean one.
    async fn rest(mut self) -> Vec<CloudEvent<Event>> {
        let mut rest = Vec::new();
        while let Some((_, event)) = self.event().await {
            rest.push(event);
        }
        let status = self.child.wait().await.expect("its status");
        assert!(status.success(), "curl: {status}");
        rest
    }
}

/// All that is kept, as NDJSON.
async fn kept(daemon: &Daemon, query: &str) -> Vec<CloudEvent<Event>> {
    let answer = daemon.get(&format!("/v1/events?follow=false&format=ndjson{query}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("content-type: application/x-ndjson"), "{answer:?}");
    // Chunked: what is no JSON object is a chunk's length.
    let lines = answer.body.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| CloudEvent::parse(line.as_bytes()).expect("an event")).collect()
}

fn words(events: &[CloudEvent<Event>]) -> Vec<&'static str> {
    events.iter().map(|event| event.data.kind().as_str()).collect()
}

pub(crate) async fn a_heal_is_streamed_as_it_happens_and_the_stream_ends_with_the_daemon() {
    if !has_curl().await {
        return;
    }
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let mut curl = Curl::follow(&daemon, "/v1/events", &[]);
    // It follows from now on: the first thing that it hears of is the wedge.
    daemon.metric_reaches("cilium_leak_healer_stream_clients", 1.0).await;
    let pod = scene.wedge();
    let mut told = Vec::new();
    let latency = loop {
        let (id, event) = curl.event().await.expect("the heal");
        assert_eq!(id, event.id);
        told.push(event.data.kind().as_str());
        let about = event.data.about().cloned();
        if let Event::Acted(acted) = event.data
            && acted.is_final
        {
            assert_eq!((acted.about.pod.as_str(), acted.outcome.as_str()), (pod, "healed"));
            break acted.heal_latency_seconds.expect("a latency");
        }
        assert!(about.is_none_or(|about| about.pod == pod));
    };
    assert!(told.ends_with(&["acting", "acted", "acted"]), "{told:?}");
    assert!(latency < 60, "{latency}");
    let judged = judged(&daemon, pod, "stale-endpoint").await;
    let state: Value = serde_json::from_str(&daemon.get("/v1/state").await.body).expect("JSON");
    assert_eq!(state["acts"][0]["correlationId"], judged["correlation_id"], "{state}");
    assert_eq!(state["acts"][0]["ended"], true, "{state}");
    let healed = daemon.metric("cilium_leak_healer_heal_latency_seconds_count").await;
    assert!((healed - 1.0).abs() < 0.5, "{healed}");
    let begun = Instant::now();
    daemon.stop().await;
    let rest = curl.rest().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "an open stream held the daemon up");
    assert_eq!(words(&rest).last(), Some(&"stopping"));
}

pub(crate) async fn what_is_kept_can_be_read_and_narrowed() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let pod = scene.wedge();
    acted(&daemon, "healed").await;
    let all = kept(&daemon, "").await;
    assert_eq!(words(&all)[0], "started");
    let numbers: Vec<u64> = all
        .iter()
        .map(|event| event.id.split_once('.').expect("an id").1.parse().expect("a number"))
        .collect();
    assert!(numbers.iter().enumerate().all(|(at, number)| *number == at as u64 + 1), "{numbers:?}");
    let acts = kept(&daemon, "&types=acting,acted").await;
    assert_eq!(words(&acts), ["acting", "acted", "acted"]);
    assert!(acts.iter().all(|event| event.subject.as_deref() == Some(format!("pod/{pod}").as_str())));
    let later = kept(&daemon, &format!("&since={}", all[3].id)).await;
    assert_eq!(later[0].id, all[4].id);
    let agent = all.iter().rev().find_map(|event| match &event.data {
        Event::CheckChanged(changed) if changed.check == "agent" => Some(changed.state),
        _ => None,
    });
    assert_eq!(agent, Some(CheckState::Ok));
    let wrong = daemon.get("/v1/events?begin=1").await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("unknown field `begin`"), "{wrong:?}");
    daemon.stop().await;
}

pub(crate) async fn a_reader_that_comes_back_to_another_process_is_told_of_the_gap() {
    if !has_curl().await {
        return;
    }
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let last = kept(&daemon, "").await.pop().expect("an event").id;
    let mut same = Curl::follow(&daemon, "/v1/events", &["-H", &format!("Last-Event-ID: {last}")]);
    daemon.metric_reaches("cilium_leak_healer_stream_clients", 1.0).await;
    let pod = scene.wedge();
    let (_, next) = same.event().await.expect("an event");
    assert_eq!(
        next.data.about().map(|about| about.pod.as_str()),
        Some(pod),
        "nothing is lost in one process"
    );
    acted(&daemon, "healed").await;
    daemon.stop().await;
    let daemon = scene.heal().await;
    let mut other = Curl::follow(&daemon, "/v1/events", &["-H", &format!("Last-Event-ID: {last}")]);
    let (_, gap) = other.event().await.expect("a gap");
    let Event::Gap(gap) = gap.data else { panic!("{gap:?}") };
    assert_eq!(gap.reason, GapReason::Restarted);
    assert_eq!(other.event().await.expect("the start").1.data.kind().as_str(), "started");
    // What the earlier process did is part of the state.
    let state: Value = serde_json::from_str(&daemon.get("/v1/state").await.body).expect("JSON");
    assert_eq!(state["acts"][0]["pod"], pod, "{state}");
    daemon.stop().await;
}

/// Kilobytes of memory that the daemon has in use.
async fn resident(daemon: &Daemon) -> f64 {
    daemon.metric("process_resident_memory_bytes").await / 1024.0
}

pub(crate) async fn a_thousand_clients_get_their_places_or_are_sent_away() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let before = resident(&daemon).await;
    let request = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut streams = Vec::new();
    let mut refused = 0;
    for _ in 0..1000 {
        let mut stream = TcpStream::connect(daemon.address()).await.expect("a connection");
        // One that is sent away at once may be closed already.
        drop(stream.write_all(request).await);
        let mut head = [0; 12];
        match timeout(Duration::from_secs(10), stream.read_exact(&mut head)).await.expect("an answer") {
            Ok(_) if head.ends_with(b"200") => streams.push(stream),
            _ => refused += 1,
        }
    }
    assert_eq!((streams.len(), refused), (16, 984));
    let asked = Instant::now();
    assert_eq!(daemon.get("/livez").await.status, 200);
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    let clients = daemon.metric("cilium_leak_healer_stream_clients").await;
    assert!((clients - 16.0).abs() < 0.5, "{clients}");
    let grown = resident(&daemon).await - before;
    assert!(grown < 4096.0, "{grown} KiB more for 16 readers that read nothing, and 984 that came in vain");
    // They read nothing, and a heal goes on beside them.
    scene.wedge();
    acted(&daemon, "healed").await;
    drop(streams);
    let gone = async {
        while daemon.metric("cilium_leak_healer_stream_clients").await > 0.0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("their places are free again");
    daemon.stop().await;
}
