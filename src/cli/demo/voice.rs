//! What the demo prints, and how.

use std::io::{IsTerminal, Write, stdout};

use serde_json::Value;

/// Writes the story to standard output; in colour on a terminal, unless `NO_COLOR` is set.
pub(super) struct Voice {
    colour: bool,
}

impl Default for Voice {
    fn default() -> Self {
        Self { colour: stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }
}

const WIDTH: usize = 100;

impl Voice {
    /// A chapter.
    pub(super) fn title(&self, text: &str) {
        let (on, off) = if self.colour { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        Self::line(&format!("\n{on}{text}{off}"));
    }

    /// A sentence.
    pub(super) fn say(text: &str) {
        Self::line(text);
    }

    /// One of several things.
    pub(super) fn point(text: &str) {
        Self::line(&format!("  - {text}"));
    }

    /// What the kubelet says, without its wrapping.
    pub(super) fn quote(message: &str) {
        let from = message.find("unable to create endpoint").unwrap_or(0);
        Self::line(&format!("  kubelet:  {}", &message[from..]));
    }

    /// A judgement with its evidence.
    pub(super) fn judgement(&self, judged: &Value) {
        let field = |name: &str| judged.get(name).and_then(Value::as_str).unwrap_or_default();
        let (on, off) = if self.colour { ("\x1b[36m", "\x1b[0m") } else { ("", "") };
        Self::line(&format!("  verdict:  {on}{}{off}, remedy {}", field("verdict"), field("remedy")));
        Self::wrapped("  reason:   ", field("reason"));
        for check in field("evidence").split("; ") {
            Self::wrapped("    ", check);
        }
    }

    /// What was done about it.
    pub(super) fn act(&self, text: &str) {
        let (on, off) = if self.colour { ("\x1b[32m", "\x1b[0m") } else { ("", "") };
        Self::line(&format!("  {on}{text}{off}"));
    }

    fn wrapped(indent: &str, text: &str) {
        let mut line = indent.to_owned();
        for word in text.split(' ') {
            if line.len() + word.len() > WIDTH && line.trim_end().len() > indent.trim_end().len() {
                Self::line(line.trim_end());
                line = " ".repeat(indent.len() + 2);
            }
            line.push_str(word);
            line.push(' ');
        }
        Self::line(line.trim_end());
    }

    fn line(text: &str) {
        // Who closes the pipe has read enough.
        drop(writeln!(stdout().lock(), "{text}"));
    }
}
