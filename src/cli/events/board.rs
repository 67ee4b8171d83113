//! How it stands with each node, and so which of them are missing in the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::follow::Told;

/// Where a node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// No answer yet.
    Asked,
    /// What was kept is read.
    CaughtUp,
    /// Its stream is open.
    Open,
    /// It cannot be read now.
    Away(String),
    /// It cannot be read, and is not tried again.
    Failed(String),
}

#[derive(Debug)]
struct Seen {
    state: State,
    /// Something of it could be read.
    reached: bool,
    /// Its stream was open before, or it came later than the start.
    noted: bool,
    /// The trouble that was said last.
    said: Option<String>,
}

/// What is to be said of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Say {
    /// Among the events.
    Note(&'static str),
    /// On standard error.
    Trouble(String),
    Nothing,
}

/// All nodes.
#[derive(Debug, Default)]
pub(super) struct Board(BTreeMap<Arc<str>, Seen>);

impl Board {
    /// A node that is asked from now on; `late`: it was not there at the start. Whether it is a new one.
    pub(super) fn expect(&mut self, node: &Arc<str>, late: bool) -> bool {
        if self.0.contains_key(node) {
            return false;
        }
        let seen = Seen { state: State::Asked, reached: false, noted: late, said: None };
        self.0.insert(Arc::clone(node), seen);
        true
    }

    /// Takes a change in.
    pub(super) fn told(&mut self, node: &Arc<str>, told: &Told) -> Say {
        let Some(seen) = self.0.get_mut(node) else {
            return Say::Nothing;
        };
        match told {
            Told::Line(_) => seen.reached = true,
            Told::CaughtUp => {
                seen.reached = true;
                seen.state = State::CaughtUp;
            }
            Told::Open => {
                seen.state = State::Open;
                seen.said = None;
                if std::mem::replace(&mut seen.noted, true) {
                    return Say::Note("the stream is open");
                }
            }
            Told::Ended => {
                seen.state = State::Away("its stream has ended".to_owned());
                return Say::Note("the stream has ended; it is opened again");
            }
            Told::Trouble(why) => {
                seen.state = State::Away(why.clone());
                if seen.said.as_ref() != Some(why) {
                    seen.said = Some(why.clone());
                    return Say::Trouble(why.clone());
                }
            }
            Told::Failed(why) => seen.state = State::Failed(why.clone()),
            Told::Gone => {
                self.0.remove(node);
                return Say::Note("the node has no watchdog any more");
            }
        }
        Say::Nothing
    }

    /// Whether the first answer of some node is still to come.
    pub(super) fn waits(&self) -> bool {
        self.0.values().any(|seen| seen.state == State::Asked)
    }

    /// Whether all that is kept is read, as far as it can be.
    pub(super) fn is_done(&self) -> bool {
        self.0.values().all(|seen| matches!(seen.state, State::CaughtUp | State::Failed(_)))
    }

    /// Whether each node was tried and nothing of any could be read.
    pub(super) fn none_reached(&self) -> bool {
        !self.waits() && self.0.values().all(|seen| !seen.reached)
    }

    /// The nodes of which something is missing, and why. `follow`: their streams should be open.
    pub(super) fn missing(&self, follow: bool) -> Vec<(&str, &str)> {
        self.0.iter().filter_map(|(node, seen)| Some((&**node, seen.missing(follow)?))).collect()
    }
}

impl Seen {
    fn missing(&self, follow: bool) -> Option<&str> {
        match &self.state {
            State::Asked => Some("it has not answered yet"),
            State::CaughtUp if follow => Some("its stream is not open yet"),
            State::CaughtUp | State::Open => None,
            State::Away(why) | State::Failed(why) => Some(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(told: &[(&str, Told)]) -> (Board, Vec<Say>) {
        let mut board = Board::default();
        for node in ["n", "m"] {
            assert!(board.expect(&node.into(), false));
        }
        let said = told.iter().map(|(node, told)| board.told(&(*node).into(), told)).collect();
        (board, said)
    }

    #[test]
    fn a_node_that_has_not_answered_is_missing() {
        let (board, _) = board(&[("n", Told::CaughtUp)]);
        assert!(board.waits() && !board.is_done() && !board.none_reached());
        assert_eq!(board.missing(false), [("m", "it has not answered yet")]);
    }

    #[test]
    fn a_stream_that_is_not_open_in_the_end_is_missing() {
        let (board, said) = board(&[
            ("n", Told::CaughtUp),
            ("n", Told::Open),
            ("m", Told::Open),
            ("m", Told::Ended),
            ("m", Told::Trouble("gone".to_owned())),
            ("m", Told::Trouble("gone".to_owned())),
        ]);
        assert_eq!(board.missing(true), [("m", "gone")]);
        assert_eq!(said[1], Say::Nothing, "the first time goes without saying");
        assert!(matches!(said[3], Say::Note(_)), "{said:?}");
        assert_eq!(said[4..], [Say::Trouble("gone".to_owned()), Say::Nothing], "once");
    }

    #[test]
    fn a_stream_that_is_open_again_is_said_and_its_next_trouble_too() {
        let why = || Told::Trouble("away".to_owned());
        let (_, said) = board(&[("n", Told::Open), ("n", why()), ("n", Told::Open), ("n", why())]);
        assert_eq!(said[2], Say::Note("the stream is open"));
        assert_eq!(said[3], Say::Trouble("away".to_owned()));
    }

    #[test]
    fn nobody_is_reached_where_all_fail() {
        let why = || Told::Failed("away".to_owned());
        let (board, _) = board(&[("n", why()), ("m", why())]);
        assert!(board.none_reached() && board.is_done());
        assert_eq!(board.missing(false), [("m", "away"), ("n", "away")]);
    }

    #[test]
    fn a_node_without_a_watchdog_is_not_missing() {
        let (board, _) = board(&[("n", Told::Open), ("m", Told::Gone)]);
        assert_eq!(board.missing(true), []);
    }
}
