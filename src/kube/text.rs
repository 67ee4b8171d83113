//! Text of others on its way to a person: cut, on one line, and without characters that change what is seen.
//!
//! It must not know what the text is about.

/// The text on one line, at most `most` characters of it.
pub(super) fn plain(text: &str, most: usize) -> String {
    text.trim().chars().map(visible).take(most).collect()
}

/// The text on one line, at most `most` bytes of it, cut at a character's boundary; what was cut shows as `…`.
pub(super) fn plain_bytes(text: &str, most: usize) -> String {
    const CUT: char = '…';
    let whole: String = text.trim().chars().map(visible).collect();
    if whole.len() <= most {
        return whole;
    }
    let end = whole.floor_char_boundary(most.saturating_sub(CUT.len_utf8()));
    format!("{}{CUT}", &whole[..end])
}

/// Control characters break lines; marks of direction show a text in another order than it has.
fn visible(c: char) -> char {
    let turns =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    if c.is_control() || turns { ' ' } else { c }
}
