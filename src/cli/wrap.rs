//! Text for a terminal: wrapped at a width, without anything that could steer the terminal.
//!
//! Must not know: what the text is about.

use crate::text::one_line;

/// The width of all texts that people read.
pub(super) const WIDTH: usize = 100;

/// Takes out what a terminal would act on: what a cluster says is shown, never obeyed.
pub(super) fn clean(text: &str) -> String {
    one_line(text)
}

/// Where a word begins that does not fit behind the indent: an id that is broken cannot be copied.
const OUTDENT: usize = 4;

/// Breaks a text into lines of at most `WIDTH` columns: the first begins with `first`, each further one with blanks of
/// the same width. A word that is too long for that begins further left; one that is longer than a line is broken.
pub(super) fn wrap(first: &str, text: &str) -> Vec<String> {
    let text = clean(text);
    let indent = first.chars().count();
    let mut lines: Vec<String> = Vec::new();
    let mut line = first.to_owned();
    let mut used = indent;
    let mut empty = true;
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        if !empty && used + 1 + word.len() > WIDTH {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            (used, empty) = (indent, true);
        }
        if indent + word.len() > WIDTH {
            if indent > OUTDENT {
                lines.push(std::mem::replace(&mut line, " ".repeat(OUTDENT)));
                used = OUTDENT;
            }
            while used + word.len() > WIDTH {
                let rest = word.split_off(WIDTH - used);
                line.extend(word);
                lines.push(std::mem::replace(&mut line, " ".repeat(used)));
                word = rest;
            }
        }
        if !empty {
            line.push(' ');
            used += 1;
        }
        used += word.len();
        line.extend(word);
        empty = false;
    }
    lines.push(line);
    lines.into_iter().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Breaks a shell command at its blanks, so that it can still be copied as it is. Words are never broken, and no blank
/// within quotes.
pub(super) fn wrap_command(indent: usize, command: &str) -> Vec<String> {
    let command = clean(command);
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".repeat(indent);
    let mut empty = true;
    for word in shell_words(&command) {
        if !empty && line.chars().count() + 1 + word.chars().count() + 2 > WIDTH {
            lines.push(format!("{line} \\"));
            line = " ".repeat(indent + 2);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines
}

/// The parts between blanks that stand outside quotes.
fn shell_words(command: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (at, c) in command.char_indices() {
        if let Some(open) = quote {
            quote = Some(open).filter(|open| *open != c);
        } else if matches!(c, '"' | '\'') {
            quote = Some(c);
        } else if c == ' ' {
            words.push(&command[start..at]);
            start = at + 1;
        }
    }
    words.push(&command[start..]);
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_the_width_and_no_word_is_lost() {
        let text = format!("{} {} end", "word ".repeat(60), "x".repeat(250));
        let lines = wrap("  first: ", &text);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        let joined: String = lines.concat().chars().filter(|c| !c.is_whitespace()).collect();
        let wanted: String = format!("first:{text}").chars().filter(|c| !c.is_whitespace()).collect();
        assert_eq!(joined, wanted);
    }

    #[test]
    fn an_id_that_fits_a_line_is_not_broken() {
        let id = format!("cni-attachment-id:{}:eth0", "a".repeat(64));
        let lines = wrap(&format!("  {:<8} {:<17} ", "pass", "disconnect-target"), &id);
        assert_eq!(lines, ["  pass     disconnect-target".to_owned(), format!("    {id}")]);
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        assert_eq!(clean("a\u{1b}[31mb\u{202e}c\rd"), "a [31mb c d");
    }

    #[test]
    fn a_command_is_continued_outside_quotes_only() {
        let command = format!("kubectl get pod --field-selector 'a b{}' -o name", " c".repeat(40));
        let lines = wrap_command(4, &command);
        assert!(lines.len() > 1, "{lines:?}");
        let joined: Vec<&str> = lines.iter().map(|line| line.trim_start().trim_end_matches(" \\")).collect();
        assert_eq!(joined.join(" "), command);
        assert!(lines.iter().any(|line| line.contains("'a b c")), "{lines:?}");
    }
}
