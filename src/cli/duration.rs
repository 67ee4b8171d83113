//! Durations on the command line: a number with its unit.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses `500ms`, `10s`, `2m`, `1h 30m`. A bare number is an error: its unit would be a guess.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: give a number with its unit, such as 500ms, 10s or 2m");
    let signed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| wrong())
}

/// Parses a duration that may not be zero.
pub(super) fn positive(text: &str) -> Result<Duration, String> {
    parse(text).and_then(|duration| {
        if duration.is_zero() { Err("it must be longer than zero".to_owned()) } else { Ok(duration) }
    })
}

/// Parses a margin between times that Events tell in whole seconds.
pub(super) fn whole_second(text: &str) -> Result<Duration, String> {
    parse(text).and_then(|duration| {
        if duration < Duration::from_secs(1) {
            Err("it must be 1s or longer: Events tell whole seconds".to_owned())
        } else {
            Ok(duration)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("500ms", Some(500))]
    #[case("10s", Some(10_000))]
    #[case("2m", Some(120_000))]
    #[case("1h 30m", Some(5_400_000))]
    #[case("0s", Some(0))]
    #[case("10", None)]
    #[case("-3s", None)]
    #[case("", None)]
    #[case("1 lightyear", None)]
    #[case("99999999999999999999h", None)]
    fn durations_need_a_unit(#[case] text: &str, #[case] millis: Option<u64>) {
        assert_eq!(parse(text).ok(), millis.map(Duration::from_millis));
    }
}
