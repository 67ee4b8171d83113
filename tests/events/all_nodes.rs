//! Three nodes with a daemon each: a leak is healed on one, a live duplicate is left alone on another.

use std::collections::{BTreeMap, BTreeSet};

use cilium_leak_healer::stream::{CloudEvent, Event, EventKind, Position};

use crate::daemon::Daemon;
use crate::stage::Stage;
use crate::verb::events;

type Told = CloudEvent<Event>;

fn parsed(out: &str) -> Vec<Told> {
    let parse = |line: &str| CloudEvent::parse(line.as_bytes()).unwrap_or_else(|why| panic!("{why}: {line}"));
    out.lines().map(parse).collect()
}

/// What happened: first on worker-1, then on worker-2.
async fn story(stage: &Stage) -> Vec<Daemon> {
    let mut daemons = Vec::new();
    for number in 1..=3 {
        daemons.push(stage.daemon(number).await);
    }
    stage.leak(1, "agent-old", "10.244.1.50");
    stage.pod(1, "cart", "10.244.1.50");
    daemons[0].line("healed", |line| line["message"] == "acted" && line["outcome"] == "healed").await;
    stage.runs("cart").await;
    stage.pod(2, "web", "10.244.2.50");
    stage.runs("web").await;
    stage.pod(2, "news", "10.244.2.50");
    let duplicate =
        |line: &serde_json::Value| line["message"] == "judged" && line["verdict"] == "live-duplicate";
    daemons[1].line("a live duplicate", duplicate).await;
    daemons
}

/// The time of each line is another one each run, and so is who gets the address first.
fn masked(text: &str) -> String {
    let mask = |line: &str| match line.get(..8) {
        Some(time) if time.as_bytes()[2] == b':' => {
            let (rest, freed) =
                line[8..].split_once("freed: ").map_or((&line[8..], ""), |(rest, _)| (rest, "freed: …"));
            format!("hh:mm:ss{rest}{freed}\n")
        }
        _ => "yyyy-mm-dd UTC\n".to_owned(),
    };
    text.lines().map(mask).collect()
}

#[tokio::test]
async fn what_the_watchdogs_of_all_nodes_tell() {
    let stage = Stage::new(3).await;
    let daemons = story(&stage).await;

    let text = events(&stage, &["--no-follow", "--types", "acting,acted"]).await.well();
    insta::assert_snapshot!("acts", masked(&text));

    let all = events(&stage, &["--no-follow", "-o", "ndjson"]).await.well();
    let told = parsed(&all);
    assert!(told.is_sorted_by_key(|event| event.time), "{all}");
    each_node_is_whole(&told);
    let mut own: BTreeSet<String> = BTreeSet::new();
    for daemon in &daemons {
        let kept = daemon.get("/v1/events?format=ndjson&follow=false").await.body;
        // In chunks: the lines are those that are JSON.
        own.extend(kept.lines().filter(|line| line.starts_with('{')).map(str::to_owned));
    }
    let lines: BTreeSet<String> = all.lines().map(str::to_owned).collect();
    assert!(lines.is_subset(&own), "what is printed is what was told: {all}");
    assert_eq!(lines.len(), told.len(), "none twice");

    let one = events(&stage, &["--no-follow", "-o", "ndjson", "--node", "worker-2", "--types", "judged"]);
    let one = parsed(&one.await.well());
    assert!(one.iter().all(|event| event.source.ends_with("/worker-2")), "{one:?}");
    let Some(Event::Judged(judged)) = one.last().map(|event| &event.data) else { panic!("{one:?}") };
    assert_eq!(judged.about.verdict.as_deref(), Some("live-duplicate"));

    // An instant that lies between: what came before it is left out, and nothing else.
    let cut = told.iter().find(|event| matches!(event.data, Event::Acted(_))).expect("an act").time;
    let cut_text = cut.to_string();
    let late = parsed(&events(&stage, &["--no-follow", "-o", "ndjson", "--since", &cut_text]).await.well());
    let ids = |all: &[Told]| all.iter().map(|event| (event.source.clone(), event.id.clone())).collect();
    let later: Vec<Told> = told.into_iter().filter(|event| event.time > cut).collect();
    let (late, later): (BTreeSet<_>, BTreeSet<_>) = (ids(&late), ids(&later));
    assert!(later.is_subset(&late), "{late:?} {later:?}");

    // The proxy leads to the same.
    let proxied = events(&stage, &["--no-follow", "--types", "acting,acted", "--via", "proxy"]).await.well();
    assert_eq!(proxied, text);

    until(&stage).await;
    for daemon in daemons {
        daemon.stop().await;
    }
}

/// The numbers of one process have no hole.
fn each_node_is_whole(told: &[Told]) {
    let mut numbers: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for event in told {
        assert_ne!(event.data.kind(), EventKind::Heartbeat);
        let position: Position = event.id.parse().expect("an id");
        numbers.entry(&event.source).or_default().push(position.number);
    }
    assert_eq!(numbers.len(), 3, "{:?}", numbers.keys());
    for (source, numbers) in numbers {
        let count = u64::try_from(numbers.len()).expect("a number");
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "{source}");
    }
}

/// The event of `--until` ends it, also where it follows; without it a limit is a failure.
async fn until(stage: &Stage) {
    let met = events(stage, &["--until", "acted:healed", "--types", "acting"]).await.well();
    let last = met.lines().last().unwrap_or_default();
    assert!(last.contains("disconnect-endpoint healed"), "{met}");
    let unmet = events(stage, &["--until", "acted:healed", "--since", "0s", "--for", "2s"]).await;
    unmet.failed("error: the event of --until did not come");
    assert!(!unmet.err.contains("missing"), "{}", unmet.err);
}
