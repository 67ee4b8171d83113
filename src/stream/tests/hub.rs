use futures::FutureExt as _;
use rstest::rstest;

use super::*;

/// All that a reader gets without waiting: the word of each, with its number.
fn drain(reader: &mut Reader) -> Vec<(String, u64)> {
    let mut got = Vec::new();
    while let Some(Some(item)) = reader.next(|_| true, || at(99)).now_or_never() {
        got.push((item.kind.as_str().to_owned(), item.position.number));
    }
    got
}

fn words(got: &[(String, u64)]) -> Vec<&str> {
    got.iter().map(|(word, _)| word.as_str()).collect()
}

fn gap_of(item: &Item) -> Gap {
    match CloudEvent::parse(item.json.as_bytes()).unwrap().data {
        Event::Gap(gap) => gap,
        other => panic!("{other:?}"),
    }
}

/// A hub with these many events, of which the first says that it started.
fn told(events: u64) -> Hub {
    let hub = new_hub();
    for number in 1..events {
        hub.tell(judged("a", Some("settling"), 0), at(i64::try_from(number).unwrap()));
    }
    hub
}

fn position(hub: &Hub, number: u64) -> Start {
    Start::After(Position { boot: hub.boot(), number })
}

#[test]
fn an_event_is_a_cloud_event() {
    let hub = new_hub();
    hub.tell(judged("a", Some("stale-endpoint"), 0), at(3));
    let item = hub.read(position(&hub, 1), false).next(|_| true, start).now_or_never().unwrap().unwrap();
    let json: serde_json::Value = serde_json::from_str(&item.json).unwrap();
    assert_eq!(json["specversion"], "1.0");
    assert_eq!(json["id"], format!("{}.2", hub.boot()));
    assert_eq!(json["source"], "/cilium-leak-healer/nodes/worker-1");
    assert_eq!(json["type"], "cilium-leak-healer.judged.v1");
    assert_eq!(json["time"], "2026-06-18T10:00:03Z");
    assert_eq!(json["subject"], "pod/shop/a");
    assert_eq!(json["data"]["verdict"], "stale-endpoint");
    assert_eq!(CloudEvent::parse(item.json.as_bytes()).unwrap().data, judged("a", Some("stale-endpoint"), 0));
}

#[rstest]
#[case::from_now_on(|_: &Hub| Start::Now, &[])]
#[case::from_the_oldest(|_: &Hub| Start::Oldest, &[1, 2, 3, 4])]
#[case::after_one(|hub: &Hub| position(hub, 2), &[3, 4])]
#[case::after_the_latest(|hub: &Hub| position(hub, 4), &[])]
#[case::after_an_instant(|_: &Hub| Start::AfterTime(at(1)), &[3, 4])]
#[case::after_the_start(|_: &Hub| Start::AfterTime(at(0)), &[2, 3, 4])]
#[case::after_an_instant_to_come(|_: &Hub| Start::AfterTime(at(60)), &[])]
fn where_a_reader_starts(#[case] from: impl Fn(&Hub) -> Start, #[case] numbers: &[u64]) {
    let hub = told(4);
    for follow in [false, true] {
        let got = drain(&mut hub.read(from(&hub), follow));
        assert_eq!(got.iter().map(|(_, number)| *number).collect::<Vec<_>>(), numbers, "follow: {follow}");
        assert!(!words(&got).contains(&"gap"));
    }
}

#[rstest]
#[case::another_process(|_: &Hub| Start::After("1.7".parse().unwrap()), GapReason::Restarted)]
#[case::a_number_to_come(|hub: &Hub| position(hub, 5), GapReason::UnknownId)]
#[case::no_id_at_all(|_: &Hub| Start::Unknown, GapReason::UnknownId)]
#[case::before_the_process(|_: &Hub| Start::AfterTime(at(-1)), GapReason::Restarted)]
fn what_is_lost_is_said_and_all_that_is_kept_follows(
    #[case] from: impl Fn(&Hub) -> Start,
    #[case] reason: GapReason,
) {
    let hub = told(4);
    let mut reader = hub.read(from(&hub), false);
    let gap = reader.next(|_| false, start).now_or_never().unwrap().unwrap();
    assert_eq!(gap_of(&gap), Gap { node: "worker-1".to_owned(), reason, lost: None });
    assert_eq!(words(&drain(&mut reader)), ["started", "judged", "judged", "judged"]);
}

#[test]
fn the_ring_is_bounded_in_number_and_a_late_reader_hears_how_many_are_gone() {
    let hub = told(KEPT_EVENTS as u64 + 11);
    let mut reader = hub.read(position(&hub, 3), false);
    let gap = reader.next(|_| true, start).now_or_never().unwrap().unwrap();
    assert_eq!(
        gap_of(&gap),
        Gap { node: "worker-1".to_owned(), reason: GapReason::Overwritten, lost: Some(8) }
    );
    assert!(!gap.last);
    let got = drain(&mut reader);
    assert_eq!((got.len(), got[0].1), (KEPT_EVENTS, 12));
    // By time the number is not known: those before may not be later.
    let by_time =
        hub.read(Start::AfterTime(at(3)), false).next(|_| true, start).now_or_never().unwrap().unwrap();
    assert_eq!(gap_of(&by_time).lost, None);
    assert_eq!(drain(&mut hub.read(Start::AfterTime(at(1030)), false)).len(), 4);
}

#[test]
fn the_ring_is_bounded_in_bytes() {
    let hub = new_hub();
    let large = |letter: &str| match judged("a", Some("settling"), 0) {
        Event::Judged(judged) => Event::Judged(Judged { reason: letter.repeat(KEPT_BYTES / 4), ..judged }),
        other => other,
    };
    for letter in ["a", "b", "c", "d", "e"] {
        hub.tell(large(letter), at(1));
    }
    assert_eq!(drain(&mut hub.read(Start::Oldest, false)).len(), 3);
    // One that is larger than all of the room is let go at once, and readers hear of it.
    let mut reader = hub.read(Start::Now, true);
    assert!(drain(&mut reader).is_empty());
    match large("f") {
        Event::Judged(judged) => {
            hub.tell(Event::Judged(Judged { reason: "f".repeat(KEPT_BYTES + 1), ..judged }), at(2));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(words(&drain(&mut reader)), ["gap"]);
}

#[test]
fn a_slow_reader_is_told_and_sent_away() {
    let hub = told(2);
    let mut reader = hub.read(Start::Oldest, true);
    assert_eq!(drain(&mut reader).len(), 2);
    for number in 0..=KEPT_EVENTS {
        hub.tell(over("a"), at(i64::try_from(number).unwrap()));
    }
    let gap = reader.next(|_| true, start).now_or_never().unwrap().unwrap();
    assert_eq!((gap_of(&gap).reason, gap_of(&gap).lost), (GapReason::Slow, Some(1)));
    assert!(gap.last);
    assert_eq!(reader.next(|_| true, start).now_or_never().unwrap(), None);
}

#[tokio::test]
async fn a_reader_that_follows_gets_what_comes_and_ends_with_the_hub() {
    let hub = told(1);
    let mut reader = hub.read(Start::Now, true);
    let teller = hub.clone();
    let telling = tokio::spawn(async move {
        for _ in 0..3 {
            tokio::task::yield_now().await;
            teller.tell(over("a"), at(1));
        }
        teller.tell(Event::Stopping(Stopping { node: "worker-1".to_owned() }), at(2));
        teller.close();
    });
    let mut got = Vec::new();
    while let Some(item) = reader.next(|kind| kind != EventKind::Over, start).await {
        got.push((item.kind, item.position.number));
    }
    telling.await.unwrap();
    assert_eq!(got, [(EventKind::Stopping, 5)]);
    assert_eq!(drain(&mut hub.read(Start::Oldest, true)).len(), 5, "a late reader gets all, and its end");
}

#[test]
fn a_heartbeat_says_what_to_resume_after() {
    let hub = told(3);
    let mut reader = hub.read(Start::Oldest, true);
    drain(&mut reader);
    let beat = reader.heartbeat(at(20)).unwrap();
    assert_eq!((beat.kind, beat.position.number), (EventKind::Heartbeat, 3));
    let event = CloudEvent::parse(beat.json.as_bytes()).unwrap();
    assert_eq!(
        event.data,
        Event::Heartbeat(Heartbeat { node: "worker-1".to_owned(), last: format!("{}.3", hub.boot()) })
    );
    assert_ne!(event.id, format!("{}.3", hub.boot()), "two events of one source never have one id");
}

#[rstest]
#[case("")]
#[case("17")]
#[case(".")]
#[case("a.")]
#[case(".1")]
#[case("+1.1")]
#[case("1.+1")]
#[case("g.1")]
#[case("1.1.1")]
#[case("ABC.1")]
#[case("1ffffffffffffffff.1")]
fn no_position(#[case] text: &str) {
    assert_eq!(text.parse::<Position>(), Err(position::NoPosition));
}

#[test]
fn a_position_is_read_as_written() {
    let written = Position { boot: Boot::at(start()), number: 17 }.to_string();
    assert_eq!(written.parse::<Position>().unwrap().to_string(), written);
}

#[test]
fn kinds_are_known_by_word_and_by_type() {
    for kind in EventKind::ALL {
        assert_eq!(EventKind::of_word(kind.as_str()), Some(*kind));
        assert_eq!(EventKind::of_word(kind.type_name()), Some(*kind));
    }
    assert_eq!(EventKind::of_word("cilium-leak-healer.judged.v2"), None);
}

#[test]
fn the_metrics_have_a_series_for_each_kind_that_is_told_to_all() {
    let aside = [EventKind::Heartbeat, EventKind::Gap];
    let told = EventKind::ALL.iter().filter(|kind| !aside.contains(kind));
    assert_eq!(told.map(|kind| kind.as_str()).collect::<Vec<_>>(), crate::metrics::STREAM_TYPES);
}
