//! Why a watchdog's events could not be read, in one line for people.

use crate::text::plain;

/// Characters of a reason that are shown.
const SHOWN: usize = 400;

/// A reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Trouble {
    pub(in crate::cli) why: String,
    /// Trying again changes nothing until a person does something.
    pub(in crate::cli) lasting: bool,
}

impl Trouble {
    pub(in crate::cli) fn passing(why: &str) -> Self {
        Self { why: plain(why, SHOWN), lasting: false }
    }

    pub(in crate::cli) fn lasting(why: &str) -> Self {
        Self { why: plain(why, SHOWN), lasting: true }
    }
}

/// The API server lacks a right for the caller.
pub(in crate::cli) fn forbidden(code: u16, right: &str, namespace: &str, message: &str) -> Trouble {
    Trouble::lasting(&format!("{code}: the right to {right} in namespace {namespace} is missing: {message}"))
}

/// The watchdog answers, and not with events.
pub(in crate::cli) fn refusal(code: u16, body: &[u8]) -> Trouble {
    let said = String::from_utf8_lossy(body);
    let said = said.lines().next().unwrap_or_default();
    match code {
        401 | 403 => Trouble::lasting(&format!("{code}: the watchdog turns it away: {said}")),
        404 => Trouble::lasting("404: no /v1/events there: an older watchdog, or another program (--port)"),
        400 => Trouble::lasting(&format!("400: {said}")),
        _ => Trouble::passing(&format!("{code} {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::off_loopback(
        403,
        "this page is open on",
        true,
        "the watchdog turns it away: this page is open on"
    )]
    #[case::older(404, "", true, "an older watchdog")]
    #[case::full(503, "16 streams are open\nmore", false, "503 16 streams are open")]
    #[case::hostile(500, "a\u{1b}[31mb", false, "500 a [31mb")]
    fn what_a_watchdog_answers(
        #[case] code: u16,
        #[case] body: &str,
        #[case] lasting: bool,
        #[case] why: &str,
    ) {
        let trouble = refusal(code, body.as_bytes());
        assert!(trouble.why.contains(why), "{trouble:?}");
        assert_eq!(trouble.lasting, lasting);
    }
}
