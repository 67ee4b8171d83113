//! The end of each note, which programs read: written and read here, so that both cannot differ.
//!
//! Everything else that a reader needs is in fields of the Event: `reason`, `regarding` and `related`, which name the pod.

use std::fmt;
use std::net::IpAddr;

use crate::domain::{Remedy, Verdict};
use crate::engine::gates::By;
use crate::engine::options::Mode;
use crate::kube::NOTE_LIMIT;
use crate::stream::{Event, Judged};
use crate::text::{cut, one_line};

/// What the end of a note says. The words are those of the event stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteTail {
    /// The verdict at this time.
    pub verdict: Option<String>,
    /// The disputed address.
    pub ip: Option<IpAddr>,
    /// How an act ended, or a step of it.
    pub outcome: Option<String>,
    /// What holds an act back.
    pub held_back_by: Option<String>,
    /// Why a remedy is withheld.
    pub withheld: Option<String>,
    /// The node.
    pub node: String,
    /// The id that joins all that is told of this wedge.
    pub correlation_id: String,
}

const VERDICT: &str = "verdict ";
const ADDRESS: &str = "address ";
const OUTCOME: &str = "outcome ";
const HELD_BACK: &str = "held back by ";
const WITHHELD: &str = "withheld by ";
const NODE: &str = "(node ";
const CORRELATION: &str = ", correlation id ";
/// On the controller and on the Node: in front of the sentence.
const POD: &str = "pod ";

impl NoteTail {
    /// That of an event; `None`: it is about no wedge.
    pub(super) fn of(event: &Event, mode: Mode) -> Option<Self> {
        let about = event.about()?;
        let mut tail = Self {
            verdict: about.verdict.clone(),
            ip: about.ip,
            outcome: None,
            held_back_by: None,
            withheld: None,
            node: about.node.clone(),
            correlation_id: about.correlation_id.clone(),
        };
        match event {
            Event::Judged(Judged { withheld, remedy, .. }) => {
                tail.withheld.clone_from(withheld);
                if mode == Mode::Observe && remedy != Remedy::None.as_str() {
                    tail.held_back_by = Some(By::Mode.as_str().to_owned());
                }
            }
            Event::HeldBack(held) => tail.held_back_by = Some(held.by.clone()),
            Event::Acted(acted) => tail.outcome = Some(acted.outcome.clone()),
            _ => {}
        }
        Some(tail)
    }

    /// A sentence with this end, within a note: a sentence that is too long is cut.
    pub(super) fn behind(&self, text: &str) -> String {
        let end = self.to_string();
        let room = NOTE_LIMIT.saturating_sub(end.len() + 1);
        format!("{} {end}", cut(one_line(text.trim()), room))
    }

    /// The sentence on an object that is not the pod.
    pub(super) fn of_pod(pod: &str, text: &str) -> String {
        format!("{POD}{pod}: {text}")
    }

    /// Reads a note: its end, and the sentence before it. `None`: it has no such end.
    pub fn read(whole: &str) -> Option<(Self, &str)> {
        let (text, end) = whole.rsplit_once(" [")?;
        let (words, origin) = end.split_once("] ")?;
        let (node, correlation_id) = origin.strip_prefix(NODE)?.strip_suffix(')')?.split_once(CORRELATION)?;
        let words = || words.split(", ");
        let word = |name| words().find_map(|word| word.strip_prefix(name)).map(str::to_owned);
        let tail = Self {
            verdict: word(VERDICT),
            ip: word(ADDRESS).and_then(|ip| ip.parse().ok()),
            outcome: word(OUTCOME),
            held_back_by: word(HELD_BACK),
            withheld: word(WITHHELD),
            node: node.to_owned(),
            correlation_id: correlation_id.to_owned(),
        };
        Some((tail, text))
    }

    /// The sentence of a note on the pod that it is about, wherever it was written.
    pub fn sentence<'a>(pod: &str, text: &'a str) -> &'a str {
        let rest = text.strip_prefix(POD).and_then(|rest| rest.strip_prefix(pod));
        rest.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text)
    }

    /// For the documentation.
    pub(super) fn example() -> Self {
        Self {
            verdict: Some(Verdict::StaleEndpoint.as_str().to_owned()),
            ip: Some([10, 244, 1, 12].into()),
            outcome: Some("freed".to_owned()),
            held_back_by: None,
            withheld: None,
            node: "worker-1".to_owned(),
            correlation_id: "19abf3c2d41-2".to_owned(),
        }
    }
}

impl fmt::Display for NoteTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = self.ip.map(|ip| ip.to_string());
        let words = [
            (VERDICT, &self.verdict),
            (ADDRESS, &ip),
            (OUTCOME, &self.outcome),
            (HELD_BACK, &self.held_back_by),
            (WITHHELD, &self.withheld),
        ];
        let words = words.into_iter().filter_map(|(name, word)| Some(format!("{name}{}", word.as_ref()?)));
        let words = words.collect::<Vec<_>>().join(", ");
        write!(f, "[{words}] {NODE}{}{CORRELATION}{})", self.node, self.correlation_id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::domain::{ActOutcome, RemedyKind, Withheld};
    use crate::engine::NOTES;
    use crate::stream::{About, Acted, Acting, HeldBack, Over};

    fn words() -> impl Strategy<Value = NoteTail> {
        let verdict = prop::option::of(prop::sample::select(Verdict::ALL.to_vec()));
        let outcome = prop::option::of(prop::sample::select(ActOutcome::ALL.to_vec()));
        let withheld = prop::option::of(prop::sample::select(Withheld::ALL.to_vec()));
        let held = prop::option::of("[a-z-]{1,20}");
        let ip = prop::option::of(any::<IpAddr>());
        (verdict, outcome, withheld, held, ip, "[a-z0-9.-]{1,253}", "[0-9a-f]{11}-[0-9]{1,6}").prop_map(
            |(verdict, outcome, withheld, held_back_by, ip, node, correlation_id)| NoteTail {
                verdict: verdict.map(|it| it.to_string()),
                ip,
                outcome: outcome.map(|it| it.to_string()),
                held_back_by,
                withheld: withheld.map(|it| it.as_str().to_owned()),
                node,
                correlation_id,
            },
        )
    }

    proptest! {
        /// Whatever the sentence says, also what looks like an end.
        #[test]
        fn what_is_written_is_read(tail in words(), text in "\\PC{0,1500}", forged in words()) {
            for text in [format!("a{text}"), format!("a{text} {forged} {text}")] {
                let note = tail.behind(&NoteTail::of_pod("shop/web", &text));
                prop_assert!(note.len() <= NOTE_LIMIT, "{}", note.len());
                let (read, sentence) = NoteTail::read(&note).unwrap();
                prop_assert_eq!(&read, &tail);
                let whole = one_line(text.trim());
                let sentence = NoteTail::sentence("shop/web", sentence).trim_end_matches('…');
                prop_assert!(whole.trim().starts_with(sentence.trim()), "{sentence:?} {whole:?}");
            }
        }
    }

    fn about() -> About {
        About {
            node: "n1".to_owned(),
            pod: "shop/web".to_owned(),
            pod_uid: "u-1".to_owned(),
            controller: None,
            ip: "10.0.2.7".parse().ok(),
            verdict: Some("stale-endpoint".to_owned()),
            correlation_id: "1f-1".to_owned(),
        }
    }

    fn judged(remedy: &str, withheld: Option<&str>) -> Event {
        Event::Judged(Judged {
            about: about(),
            remedy: remedy.to_owned(),
            target: None,
            withheld: withheld.map(str::to_owned),
            owner: None,
            waiting_since: jiff::Timestamp::UNIX_EPOCH,
            reason: String::new(),
            evidence: Vec::new(),
        })
    }

    fn held_back() -> Event {
        let (remedy, by) = ("delete-pod".to_owned(), "paused".to_owned());
        Event::HeldBack(HeldBack { about: about(), remedy, by, reason: String::new() })
    }

    fn acting() -> Event {
        let remedy = "delete-pod".to_owned();
        Event::Acting(Acting { about: about(), remedy, target: None, reason: String::new() })
    }

    fn acted() -> Event {
        Event::Acted(Acted {
            about: about(),
            remedy: "delete-pod".to_owned(),
            outcome: "freed".to_owned(),
            is_final: false,
            heal_latency_seconds: None,
            reason: String::new(),
        })
    }

    /// The words behind verdict and address, while observing and while healing.
    #[rstest]
    #[case::a_remedy(judged("delete-pod", None), ", held back by observe-mode", "")]
    #[case::no_remedy(judged("none", None), "", "")]
    #[case::a_remedy_that_is_withheld(
        judged("none", Some("timing")),
        ", withheld by timing",
        ", withheld by timing"
    )]
    #[case::held_back(held_back(), ", held back by paused", ", held back by paused")]
    #[case::an_act_begins(acting(), "", "")]
    #[case::an_act_ends(acted(), ", outcome freed", ", outcome freed")]
    #[case::over(Event::Over(Over { about: about(), reason: String::new() }), "", "")]
    fn the_end_of_an_event(#[case] event: Event, #[case] observing: &str, #[case] healing: &str) {
        for (mode, words) in [(Mode::Observe, observing), (Mode::Heal, healing)] {
            let end = NoteTail::of(&event, mode).unwrap().to_string();
            let want = "[verdict stale-endpoint, address 10.0.2.7";
            assert_eq!(end, format!("{want}{words}] (node n1, correlation id 1f-1)"), "{mode:?}");
        }
    }

    #[rstest]
    #[case::that_just_fits(0)]
    #[case::that_is_too_long(1)]
    fn a_sentence_is_read_as_it_was_written_if_there_is_room(#[case] over: usize) {
        let tail = NoteTail::of(&held_back(), Mode::Heal).unwrap();
        let room = NOTE_LIMIT - tail.to_string().len() - 1;
        let text = "x".repeat(room + over);
        let note = tail.behind(&text);
        assert_eq!(note.len(), NOTE_LIMIT);
        let (read, sentence) = NoteTail::read(&note).unwrap();
        assert_eq!((read, sentence == text, sentence.ends_with('…')), (tail, over == 0, over > 0));
    }

    #[rstest]
    #[case("")]
    #[case("10.0.0.1 is in use (node n1, correlation id 1f-1)")]
    #[case("a [verdict stale-endpoint] (node n1)")]
    #[case("a [verdict stale-endpoint]")]
    fn a_note_of_somebody_else_has_no_end(#[case] note: &str) {
        assert_eq!(NoteTail::read(note), None);
    }

    /// Each reason of an act leads back to it, and no other does.
    #[test]
    fn a_reason_tells_of_one_act() {
        let acts: Vec<_> = NOTES.iter().filter_map(|row| row.reason.act()).collect();
        let both = |remedy| [(remedy, true), (remedy, false)];
        assert_eq!(acts, RemedyKind::ALL.into_iter().flat_map(both).collect::<Vec<_>>());
        assert!(NOTES.iter().all(|row| crate::engine::NoteReason::of_word(row.word) == Some(row.reason)));
    }
}
