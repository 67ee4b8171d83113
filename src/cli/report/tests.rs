//! The folding as a table, and each format read again by a reader of its kind, with names that want to be more.

use jiff::{SignedDuration, Timestamp};
use pulldown_cmark::{Event as Mark, Options, Parser, Tag};
use rstest::rstest;
use serde_json::{Value, json};

use super::fold::{Fold, NodeState};
use super::form::{self, Ending, FailOn, HealFinding, HealReport};
use super::gather::Gathered;
use super::notes::Notes;
use super::notes::tests::event as kubernetes_event;
use super::{Format, targets};
use crate::stored::schema_is_stored;
use crate::stream::{Event, EventKind};

fn at(second: i64) -> Timestamp {
    let start: Timestamp = "2026-06-18T10:00:00Z".parse().unwrap();
    start + SignedDuration::from_secs(second)
}

/// An event of the story of shop/web: `judged VERDICT`, `withheld VERDICT`, `held BY`, `acting`, `acted OUTCOME`, `over`, `well`.
fn told(word: &str) -> Event {
    let (kind, word) = word.split_once(' ').unwrap_or((word, ""));
    let mut data = json!({
        "node": "worker-1", "pod": "shop/web", "podUid": "u1", "ip": "10.0.0.1", "verdict": "stale-endpoint",
        "correlationId": "1f-1", "remedy": "disconnect-endpoint", "reason": format!("because of {word}"),
        "waitingSince": at(0), "evidence": [{"check": "owner", "outcome": "pass", "observed": word}],
    });
    let kind = match kind {
        "judged" | "withheld" => {
            data["verdict"] = word.into();
            if kind == "withheld" {
                data["withheld"] = "ipam-mode".into();
            }
            EventKind::Judged
        }
        "well" => {
            let fields = data.as_object_mut().unwrap();
            fields.remove("verdict");
            fields.remove("ip");
            EventKind::Judged
        }
        "held" => {
            data["by"] = word.into();
            EventKind::HeldBack
        }
        "acting" => EventKind::Acting,
        "acted" => {
            data["outcome"] = word.into();
            data["final"] = (!["freed", "accepted", "unanswered"].contains(&word)).into();
            EventKind::Acted
        }
        "over" => EventKind::Over,
        other => panic!("{other}"),
    };
    Event::read(kind, data).unwrap()
}

fn stream(words: &[&str]) -> Fold {
    let mut fold = Fold::default();
    for (second, word) in (0..).zip(words) {
        fold.event("worker-1", at(second), told(word));
    }
    fold
}

/// The state that a watchdog shows after these events, by its own rules.
fn state(words: &[&str]) -> NodeState {
    let started = crate::stream::Started {
        node: "worker-1".to_owned(),
        version: "0".to_owned(),
        mode: "heal".to_owned(),
        remedies: Vec::new(),
    };
    let hub = crate::stream::Hub::new("worker-1".parse().unwrap(), started, std::sync::Arc::default(), at(0));
    for (second, word) in (0..).zip(words) {
        hub.tell(told(word), at(second));
    }
    serde_json::from_value(serde_json::to_value(hub.state(at(1000))).unwrap()).unwrap()
}

fn finding(fold: Fold) -> HealFinding {
    let all: Vec<_> = fold.into_drafts().map(|draft| draft.finding(&[])).collect();
    let [finding] = &all[..] else { panic!("{all:#?}") };
    finding.clone()
}

#[rstest]
#[case::healed(&["judged stale-endpoint", "held quiet-period", "acting", "acted freed", "acted healed", "over"], Ending::Healed)]
#[case::healed_at_the_second_try(&["judged stale-endpoint", "acting", "acted failed", "acting", "acted healed"], Ending::Healed)]
#[case::freed_and_the_pod_went(&["judged stale-endpoint", "acting", "acted freed", "acted disconnected", "over"], Ending::Healed)]
#[case::moved(&["judged reserved-holder", "acting", "acted accepted", "acted deleted", "over"], Ending::Healed)]
#[case::given_up_then_healed(&["judged stale-endpoint", "acted aborted", "acting", "acted healed"], Ending::Healed)]
#[case::live(&["judged live-duplicate"], Ending::Refused)]
#[case::live_and_gone(&["judged live-duplicate", "over"], Ending::Refused)]
#[case::live_after_settling(&["judged settling", "judged live-duplicate", "judged not-held", "well"], Ending::Refused)]
#[case::reserved_and_held(&["judged reserved-holder", "held budget"], Ending::Refused)]
#[case::unmanaged(&["judged unmanaged-holder"], Ending::Refused)]
#[case::shared(&["judged shared-by-design"], Ending::Refused)]
#[case::nobody_can_tell(&["judged agent-unknown"], Ending::Refused)]
#[case::nothing_is_proven(&["judged insufficient-evidence"], Ending::Refused)]
#[case::no_leak_after_all(&["judged stale-endpoint", "judged live-duplicate"], Ending::Refused)]
#[case::paused(&["judged stale-endpoint", "held paused"], Ending::Unhealed)]
#[case::paused_until_it_went(&["judged stale-endpoint", "held paused", "over"], Ending::Unhealed)]
#[case::withheld(&["withheld stale-endpoint"], Ending::Unhealed)]
#[case::failed(&["judged stale-endpoint", "acting", "acted failed"], Ending::Unhealed)]
#[case::useless(&["judged stale-endpoint", "acting", "acted freed", "acted not-healed", "over"], Ending::Unhealed)]
#[case::interrupted(&["judged stale-endpoint", "acting", "acted interrupted"], Ending::Unhealed)]
#[case::given_up(&["judged stale-endpoint", "acted aborted", "over"], Ending::Unhealed)]
#[case::it_went_by_itself(&["judged stale-endpoint", "judged not-held", "over"], Ending::Unhealed)]
#[case::it_waits_again(&["judged stale-endpoint", "acting", "acted healed", "judged stale-endpoint"], Ending::Unhealed)]
#[case::a_second_look_is_due(&["judged stale-endpoint"], Ending::Open)]
#[case::on_its_way(&["judged stale-endpoint", "acting", "acted freed"], Ending::Open)]
#[case::unanswered(&["judged stale-endpoint", "acting", "acted unanswered"], Ending::Open)]
#[case::settling(&["judged settling"], Ending::Open)]
#[case::not_held(&["judged not-held"], Ending::Open)]
#[case::a_word_of_a_newer_watchdog(&["judged haunted"], Ending::Open)]
#[case::it_settled(&["judged settling", "over"], Ending::Passed)]
#[case::the_agent_came_back(&["judged agent-unknown", "well"], Ending::Passed)]
fn how_it_ended(#[case] words: &[&str], #[case] ending: Ending) {
    let mut fold = stream(words);
    fold.state("worker-1", state(words));
    let finding = finding(fold);
    assert_eq!(finding.ending, ending, "{finding:#?}");
    let begun = words.iter().filter(|word| **word == "acting" || **word == "acted aborted").count();
    assert_eq!(finding.acts.len(), begun, "each act once: {finding:#?}");
}

/// The ring has lost all of it; the state knows what was done, and what still waits.
#[rstest]
#[case::healed(&["judged stale-endpoint", "acting", "acted freed", "acted healed", "over"], Some(Ending::Healed))]
#[case::failed(&["judged stale-endpoint", "acting", "acted failed"], Some(Ending::Unhealed))]
#[case::paused(&["judged stale-endpoint", "held paused"], Some(Ending::Unhealed))]
#[case::live(&["judged live-duplicate"], Some(Ending::Refused))]
#[case::live_and_gone(&["judged live-duplicate", "over"], None)]
fn of_the_state_alone(#[case] words: &[&str], #[case] ending: Option<Ending>) {
    let mut fold = Fold::default();
    fold.state("worker-1", state(words));
    let endings: Vec<_> = fold.into_drafts().map(|draft| draft.finding(&[]).ending).collect();
    assert_eq!(endings.first().copied(), ending);
}

/// A Kubernetes Event: its reason, the words at its end, when it was seen first and last, how often.
type Seen<'a> = (&'a str, &'a str, i64, i64, u32);

const STALE: &str = "verdict stale-endpoint, address 10.0.0.1";
const FREED: &str = "verdict stale-endpoint, address 10.0.0.1, outcome freed";
const USELESS: &str = "verdict stale-endpoint, address 10.0.0.1, outcome not-healed";
const OBSERVED: &str = "verdict stale-endpoint, address 10.0.0.1, held back by observe-mode";
const LIVE: &str = "verdict live-duplicate, address 10.0.0.1";
const NO_ANSWER: &str = "verdict agent-unknown, address 10.0.0.1";
const NOT_HELD: &str = "verdict not-held, address 10.0.0.1";
const WITHHELD: &str = "verdict stale-endpoint, address 10.0.0.1, withheld by ipam-mode";
const PAUSED: &str = "verdict stale-endpoint, address 10.0.0.1, held back by paused";

#[rstest]
#[case::healed(&[("EndpointLeakDetected", STALE, 0, 0, 1), ("StaleEndpointDisconnected", FREED, 3, 3, 1)], Ending::Healed)]
#[case::it_did_not_help(
    &[("EndpointLeakDetected", STALE, 0, 0, 1), ("StaleEndpointDisconnected", FREED, 3, 3, 1), ("StaleEndpointDisconnectFailed", USELESS, 9, 9, 1)],
    Ending::Unhealed
)]
#[case::it_never_helped(&[("StaleEndpointDisconnectFailed", USELESS, 9, 99, 4), ("StaleEndpointDisconnected", FREED, 3, 90, 4)], Ending::Unhealed)]
#[case::it_helped_in_the_end(&[("StaleEndpointDisconnected", FREED, 3, 99, 2), ("StaleEndpointDisconnectFailed", USELESS, 9, 9, 1)], Ending::Healed)]
#[case::observed(&[("EndpointLeakDetected", OBSERVED, 0, 0, 1)], Ending::Unhealed)]
#[case::nothing_tells_of_an_act(&[("EndpointLeakDetected", STALE, 0, 0, 1)], Ending::Unhealed)]
#[case::paused(&[("EndpointLeakDetected", STALE, 0, 0, 1), ("HealPaused", PAUSED, 1, 60, 7)], Ending::Unhealed)]
#[case::withheld(&[("EndpointLeakRefused", WITHHELD, 0, 0, 1)], Ending::Unhealed)]
#[case::live(&[("EndpointLeakRefused", LIVE, 0, 600, 9)], Ending::Refused)]
#[case::nobody_can_tell(&[("EndpointLeakRefused", NO_ANSWER, 0, 600, 9)], Ending::Refused)]
#[case::not_held(&[("EndpointLeakRefused", NOT_HELD, 30, 30, 1)], Ending::Open)]
#[case::moved(&[("EndpointLeakRefused", "verdict reserved-holder, address 10.0.0.1", 0, 0, 1), ("WedgedPodDeleted", FREED, 3, 3, 1)], Ending::Healed)]
#[case::restarted(&[("AgentRestartRequested", FREED, 3, 3, 1), ("AgentRestartFailed", USELESS, 99, 99, 1)], Ending::Unhealed)]
fn of_kubernetes_events_alone(#[case] seen: &[Seen<'_>], #[case] ending: Ending) {
    let mut events = Vec::new();
    for (reason, words, first, last, count) in seen {
        for on in ["Pod", "ReplicaSet", "Node"] {
            let times = [at(*first), at(*last)].map(|time| format!("{time:.6}"));
            events.push(kubernetes_event(on, reason, words, [&times[0], &times[1]], *count));
        }
    }
    let notes = Notes::of(&events, &[], None);
    let mut fold = Fold::default();
    notes.noted.iter().for_each(|noted| fold.note(noted));
    let finding = finding(fold);
    assert_eq!(finding.ending, ending, "{finding:#?}");
    assert_eq!(finding.notes.len(), seen.len(), "each telling once: {finding:#?}");
    let most = seen.iter().map(|(.., count)| *count).max().unwrap();
    assert_eq!(finding.notes.iter().map(|note| note.count).max(), Some(most));
}

/// What the watchdog told itself is not turned by an Event; what it has lost comes back.
#[test]
fn kubernetes_events_add_what_was_lost() {
    let event = |reason, words| kubernetes_event("Pod", reason, words, ["2026-06-18T10:00:01Z"; 2], 1);
    let acted = event("StaleEndpointDisconnected", FREED);
    let notes = Notes::of(&[acted, event("EndpointLeakDetected", STALE)], &[], None);
    let known = ["judged stale-endpoint", "acting", "acted freed", "acted not-healed"];
    for (words, acts, ending) in
        [(&known[..], 1, Ending::Unhealed), (&["judged not-held", "over"][..], 1, Ending::Healed)]
    {
        let mut fold = stream(words);
        notes.noted.iter().for_each(|noted| fold.note(noted));
        let finding = finding(fold);
        assert_eq!((finding.acts.len(), finding.ending), (acts, ending), "{finding:#?}");
        assert_eq!(finding.sources.len(), 2);
    }
}

/// Names and sentences that want to be more than text, in each of their places.
const HOSTILE: &str = "a|b`c`</testcase>]]>&amp;<img src=x>\n# h\u{1b}[31m\u{202e}\u{0}\u{fffe} [l](http://x.example) @all *b* https://y.example www.z.example $x$";

fn hostile() -> HealReport {
    let mut fold = Fold::default();
    let words = ["judged stale-endpoint", "held paused", "acting", "acted freed", "acted not-healed", "over"];
    for (second, word) in (0..).zip(words) {
        let event = told(word);
        let mut data = serde_json::to_value(&event).unwrap();
        let texts = ["pod", "controller", "owner", "target", "remedy", "by", "outcome", "reason"];
        for field in texts.into_iter().chain(["podUid", "correlationId"]) {
            data[field] = HOSTILE.into();
        }
        if !data["evidence"].is_null() {
            data["evidence"] = json!([{"check": HOSTILE, "outcome": HOSTILE, "observed": HOSTILE}]);
        }
        fold.event(HOSTILE, at(second), Event::read(event.kind(), data).unwrap());
    }
    let mut note = kubernetes_event("Pod", "EndpointLeakDetected", STALE, ["2026-06-18T10:00:01Z"; 2], 1);
    note.involved_object.name = Some(HOSTILE.to_owned());
    note.message = note.message.map(|text| text.replace("a sentence", HOSTILE));
    Notes::of(&[note], &[], None).noted.iter().for_each(|noted| fold.note(noted));
    let mut gathered = Gathered { fold, remarks: vec![HOSTILE.to_owned()], ..Gathered::default() };
    gathered.nodes.push(form::NodeRead {
        node: HOSTILE.to_owned(),
        reading: form::Reading::NotRead,
        why: Some(HOSTILE.to_owned()),
        mode: Some(HOSTILE.to_owned()),
        version: None,
        started: None,
        kubernetes_events: 1,
    });
    HealReport::of(gathered, &[FailOn::Heal], None, at(99))
}

#[test]
fn markdown_shows_what_is_hostile_as_text() {
    let report = hostile();
    let text = Format::Markdown.text(&report).unwrap();
    let marks = Parser::new_ext(&text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH);
    let (mut headings, mut rows, mut cells, mut plain) = (0, 0, 0, String::new());
    for mark in marks {
        match mark {
            Mark::Html(html) | Mark::InlineHtml(html) => {
                let ours = ["<details><summary>Evidence: 1 checks</summary>", "</details>"];
                assert!(ours.contains(&html.trim()), "{html}");
            }
            Mark::Start(Tag::Link { .. } | Tag::Image { .. } | Tag::Emphasis | Tag::CodeBlock(_))
            | Mark::Code(_) => {
                panic!("{mark:?} in {text}")
            }
            Mark::Start(Tag::Heading { .. }) => headings += 1,
            Mark::Start(Tag::TableRow) => rows += 1,
            Mark::Start(Tag::TableCell) => cells += 1,
            Mark::Text(more) => plain.push_str(&more),
            _ => {}
        }
    }
    assert_eq!(headings, 1 + report.findings.len(), "{text}");
    // Two findings and a node, each of six cells under as many heads; one check of three.
    assert_eq!((rows, cells), (2 + 1 + 1, 6 * (1 + 2) + 6 * (1 + 1) + 3 * (1 + 1)), "{text}");
    assert!(plain.contains("a|b`c`</testcase>]]>&amp;<img src=x>"), "it is shown as it is: {plain}");
    // These become links in a job's summary, and no parser of plain CommonMark knows.
    assert!(!text.contains("://") && !text.contains("www.") && !text.contains('@'), "{text}");
    assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{0}']), "{text:?}");
}

#[test]
fn junit_is_well_formed_whatever_is_told() {
    let report = hostile();
    let text = Format::Junit.text(&report).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let cases: Vec<_> = document.descendants().filter(|it| it.has_tag_name("testcase")).collect();
    assert_eq!(cases.len(), 1 + report.findings.len());
    let suite = document.descendants().find(|it| it.has_tag_name("testsuite")).unwrap();
    assert_eq!((suite.attribute("tests"), suite.attribute("errors")), (Some("3"), Some("1")));
    let held: Vec<_> = document.descendants().filter_map(|it| it.text()).collect();
    assert!(held.iter().any(|text| text.contains("a|b`c`</testcase>]]>&amp;<img src=x>")), "{held:?}");
    assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{0}', '\u{fffe}']), "{text:?}");
}

#[rstest]
#[case::none_given(&[Format::Markdown], &[], Ok(vec![None]))]
#[case::a_summary_and_a_file(&[Format::Junit, Format::Markdown], &["j"], Ok(vec![Some("j"), None]))]
#[case::a_dash(&[Format::Junit, Format::Markdown], &["-", "m"], Ok(vec![None, Some("m")]))]
#[case::two_to_standard_output(&[Format::Junit, Format::Markdown], &[], Err("only one format"))]
#[case::a_file_too_many(&[Format::Json], &["a", "b"], Err("more --output than --format"))]
fn which_file_is_for_which_format(
    #[case] formats: &[Format],
    #[case] files: &[&str],
    #[case] want: Result<Vec<Option<&str>>, &str>,
) {
    let files: Vec<_> = files.iter().map(Into::into).collect();
    match (targets(formats, &files), want) {
        (Ok(targets), Ok(want)) => {
            let got: Vec<_> = targets.iter().map(|(_, file)| file.and_then(|file| file.to_str())).collect();
            assert_eq!(got, want);
        }
        (Err(error), Err(why)) => assert!(error.to_string().contains(why), "{error}"),
        (got, want) => panic!("{got:?} {want:?}"),
    }
}

/// `UPDATE_SCHEMAS=1` writes it anew.
#[test]
fn the_stored_schema_is_that_of_the_type() {
    schema_is_stored("heal-report-v1.json", &form::schema());
}

/// Each field of a report is in the schema, and each that the schema requires is in the report.
#[test]
fn a_report_is_of_its_schema() {
    let schema: Value = form::schema().into();
    let report = serde_json::to_value(hostile()).unwrap();
    assert_eq!((&report["kind"], &report["schemaVersion"]), (&json!("HealReport"), &json!(1)));
    let finding = &schema["$defs"]["HealFinding"];
    for (value, of) in [(&report, &schema), (&report["findings"][0], finding)] {
        let known = of["properties"].as_object().unwrap();
        assert!(value.as_object().unwrap().keys().all(|key| known.contains_key(key)), "{value:#}");
        for required in of["required"].as_array().unwrap() {
            assert!(!value[required.as_str().unwrap()].is_null(), "{required}: {value:#}");
        }
    }
}
