//! Quantiles, ratios and Markdown tables. Must not know what is measured.

use std::time::Duration;

/// The smallest value that at least this share of all reaches: nothing is made up between two values.
pub(crate) fn quantile(values: &[Duration], percent: usize) -> Duration {
    assert!(!values.is_empty(), "nothing was measured");
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[(sorted.len() * percent).div_ceil(100).clamp(1, sorted.len()) - 1]
}

/// Seconds with one digit after the point.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}

/// Median and 99th percentile, as two cells.
pub(crate) fn middle_and_tail(values: &[Duration]) -> [String; 2] {
    [seconds(quantile(values, 50)), seconds(quantile(values, 99))]
}

/// How many times as much, with two digits.
pub(crate) fn ratio(one: f64, other: f64) -> String {
    if other == 0.0 { "–".to_owned() } else { format!("{:.2}", one / other) }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

/// A count with a comma at each thousand.
pub(crate) fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Prints a table; the first column is text, the others are numbers.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) {
    println!("| {} |", head.join(" | "));
    println!("|---|{}", "---:|".repeat(head.len() - 1));
    for row in rows {
        assert_eq!(row.len(), head.len(), "a row with as many cells as the head: {row:?}");
        println!("| {} |", row.join(" | "));
    }
    println!();
}
