//! Text of others on its way to a person: on one line, cut, and without characters that change what is seen.
//!
//! It must not know what a text is about, nor who shows it.

/// What stands in the place of all that was cut.
const CUT: char = '…';

/// The text on one line, as a terminal and a log show it and never obey it.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(visible).collect()
}

/// The same, at most `most` characters of it.
pub(crate) fn plain(text: &str, most: usize) -> String {
    text.trim().chars().map(visible).take(most).collect()
}

/// At most `most` bytes of a text, cut at a character's boundary; what was cut shows as `…`.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(CUT.len_utf8())));
        text.push(CUT);
    }
    text
}

/// Control characters break lines; marks of direction show a text in another order than it has, others show nothing.
fn visible(c: char) -> char {
    let steers =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    if c.is_control() || steers { ' ' } else { c }
}
