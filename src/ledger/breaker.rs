//! The breaker: too many acts that did not help, or are not known to have helped, hold back the next.
//!
//! Must not know what an act does.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::act::{Act, ActId};
use super::bound::Bound;
use super::form::{later, since};
use super::options::BreakerOptions;
use super::text::kept;

/// What is kept of it; the acts themselves are kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Breaker {
    /// Acts before this one do not count: the window began anew.
    pub(super) from: ActId,
    /// It opened, and no act has helped since.
    pub(super) opened: Option<Opened>,
}

/// It is open until then, and half-open afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Opened {
    pub(super) until: Timestamp,
    pub(super) why: String,
    /// The act that tries whether things are well again.
    pub(super) trial: Option<ActId>,
}

/// The breaker as one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BreakerView {
    /// Acts may begin.
    Closed,
    /// None may.
    Open {
        /// Until then.
        until: Timestamp,
        /// Why it opened.
        why: String,
    },
    /// One at a time may, until one has helped.
    HalfOpen,
}

impl BreakerView {
    /// The word for it in all outputs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen => "half-open",
        }
    }
}

/// The acts of the window, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    /// They did not help.
    pub(super) unhelpful: u32,
    /// They have no outcome.
    pub(super) pending: u32,
    /// Their outcome says whether they helped.
    pub(super) told: u32,
}

impl Breaker {
    pub(super) fn closed() -> Self {
        Self { from: ActId(0), opened: None }
    }

    /// Whether an act tells the breaker something: it has no outcome, or one that says whether it helped.
    pub(super) fn counts(&self, act: &Act) -> bool {
        act.id >= self.from && (act.is_open() || act.helped().is_some())
    }

    /// The window as it would be with one more act in it, which is not counted: that act pushes out an older one.
    pub(super) fn tally(&self, acts: &[Act], now: Timestamp, options: &BreakerOptions) -> Tally {
        let mut tally = Tally { unhelpful: 0, pending: 0, told: 0 };
        tally.pending = acts.iter().filter(|act| act.is_open()).fold(0, |count, _| count + 1);
        let window = acts.iter().rev().filter(|act| self.counts(act)).take(options.looked_at() - 1);
        for end in window.filter_map(|act| act.ended.as_ref()) {
            if since(end.at, now) <= options.span {
                tally.told += 1;
                tally.unhelpful += u32::from(end.outcome.helped() == Some(false));
            }
        }
        tally
    }

    /// Whether another act may begin.
    pub(super) fn check(&self, acts: &[Act], now: Timestamp, options: &BreakerOptions) -> Result<(), Bound> {
        let Tally { unhelpful, pending, told } = self.tally(acts, now, options);
        if let Some(opened) = &self.opened {
            return if now < opened.until {
                Err(Bound::Breaker { until: opened.until, why: opened.why.clone() })
            } else if pending > 0 {
                Err(Bound::HalfOpen { pending })
            } else {
                Ok(())
            };
        }
        let most = options.allowance(told);
        if unhelpful >= most {
            Err(Bound::Breaker { until: later(now, options.cool_down), why: why(unhelpful, told) })
        } else if unhelpful + pending >= most.max(told - unhelpful) {
            Err(Bound::Unproven { pending })
        } else {
            Ok(())
        }
    }

    /// An act begins, which was allowed.
    pub(super) fn began(&mut self, act: ActId) {
        if let Some(opened) = &mut self.opened {
            opened.trial = Some(act);
        }
    }

    /// An act has its outcome, which `acts` has already.
    pub(super) fn ended(&mut self, act: &Act, acts: &[Act], now: Timestamp, options: &BreakerOptions) {
        let trial = self.opened.as_ref().and_then(|opened| opened.trial) == Some(act.id);
        match act.helped() {
            Some(true) if trial => *self = Self { from: ActId(act.id.0.saturating_add(1)), opened: None },
            Some(false) if trial => self.open("the act after a cool-down did not help", now, options),
            // It says nothing: another one may try.
            None if trial => {
                if let Some(opened) = &mut self.opened {
                    opened.trial = None;
                }
            }
            // One that began before it opened: things are no better than they were.
            Some(false) => self.trip(acts, now, options),
            Some(true) | None => {}
        }
    }

    /// Opens where the acts that did not help alone reach what is allowed.
    fn trip(&mut self, acts: &[Act], now: Timestamp, options: &BreakerOptions) {
        let tally = self.tally(acts, now, options);
        if tally.unhelpful >= options.allowance(tally.told) {
            self.open(&why(tally.unhelpful, tally.told), now, options);
        }
    }

    /// Opens for one cool-down.
    pub(super) fn open(&mut self, why: &str, now: Timestamp, options: &BreakerOptions) {
        self.opened = Some(Opened { until: later(now, options.cool_down), why: kept(why), trial: None });
    }

    /// Follows the clock: opens where acts that helped have left the window, and bounds a time that a clock which was
    /// ahead has left.
    pub(super) fn catch_up(&mut self, acts: &[Act], now: Timestamp, options: &BreakerOptions) {
        match &mut self.opened {
            None => self.trip(acts, now, options),
            Some(opened) => opened.until = opened.until.min(later(now, options.cool_down)),
        }
    }
}

fn why(unhelpful: u32, told: u32) -> String {
    format!("{unhelpful} of the last {told} acts did not help")
}
