//! What a row says, and the evidence gathered on the way.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::domain::evidence::{Check, Evidence, Outcome};
use crate::domain::failure::Failure;
use crate::domain::ids::PodName;
use crate::domain::proof::Proof;
use crate::domain::verdict::{Finding, Remedy, Verdict, Withheld};

/// The evidence so far.
#[derive(Default)]
pub(super) struct Trail(pub(super) Vec<Evidence>);

impl Trail {
    fn note(&mut self, check: Check, outcome: Outcome, observed: impl Into<String>) {
        self.0.push(Evidence { check, outcome, observed: observed.into() });
    }

    pub(super) fn pass(&mut self, check: Check, observed: impl Into<String>) {
        self.note(check, Outcome::Pass, observed);
    }

    pub(super) fn fail(&mut self, check: Check, observed: impl Into<String>) {
        self.note(check, Outcome::Fail, observed);
    }

    pub(super) fn unknown(&mut self, check: Check, observed: impl Into<String>) {
        self.note(check, Outcome::Unknown, observed);
    }
}

/// What a row says when it applies.
pub(super) struct Ruling {
    pub(super) verdict: Verdict,
    pub(super) remedy: Remedy,
    pub(super) withheld: Option<Withheld>,
    pub(super) proof: Option<Proof>,
    pub(super) reason: String,
    pub(super) look_again: Option<Timestamp>,
}

impl Ruling {
    pub(super) fn refuse(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self {
            verdict,
            remedy: Remedy::None,
            withheld: None,
            proof: None,
            reason: reason.into(),
            look_again: None,
        }
    }

    pub(super) fn until(self, look_again: Option<Timestamp>) -> Self {
        Self { look_again, ..self }
    }

    pub(super) fn finding(
        self,
        ip: Option<IpAddr>,
        owner: Option<PodName>,
        failure: Option<Failure>,
        trail: Trail,
    ) -> Finding {
        let Self { verdict, remedy, withheld, proof, reason, look_again } = self;
        Finding {
            ip,
            verdict,
            remedy,
            withheld,
            proof,
            owner,
            reason,
            evidence: trail.0,
            failure,
            look_again,
        }
    }
}
