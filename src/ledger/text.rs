//! Texts of others, made short and harmless before they are kept. Must not know what they say.

use crate::text::{cut, one_line};

/// No text that is kept is longer, in bytes.
const MOST: usize = 512;

/// Cuts a text at a character's end, and replaces what a terminal would act on.
pub(super) fn kept(text: &str) -> String {
    cut(one_line(text), MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("plain", "plain")]
    #[case("a\u{1b}[31mb\nc\u{202e}d\u{2028}e\u{9b}f", "a [31mb c d e f")]
    fn what_steers_a_terminal_is_replaced(#[case] text: &str, #[case] short: &str) {
        assert_eq!(kept(text), short);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        for text in ["x".repeat(600), "é".repeat(600), "🐝".repeat(600), "x".repeat(513)] {
            let short = kept(&text);
            assert!(short.len() <= MOST && short.len() > MOST - 8, "{}", short.len());
            assert!(short.ends_with('…') && text.starts_with(short.trim_end_matches('…')));
        }
        assert_eq!(kept(&"x".repeat(512)).len(), 512);
    }
}
