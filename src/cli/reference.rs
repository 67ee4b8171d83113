//! The page on the command line, from its definition. Only tests make it.
//!
//! Must not know: what any verb does. Text that is wrong there is wrong in `--help` too, and is mended at the flag.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::Cli;
use crate::stored::{Made, is_stored};

const HEAD: &str = "\
# Command line and configuration

This page is made from the command line's definition; `UPDATE_DOCS=1 cargo test --lib cli::reference` writes it anew.

Settings are flags, and most flags have a twin in the environment, which the manifests use. A flag wins over its twin, and there is no
configuration file. A duration is a number with its unit: `500ms`, `10s`, `2m`, `1h 30m`. A flag that is marked \\* has to be set, by itself or by
its twin. Every verb has `--help`; `--version` tells the program's version.

Exit status: 0 done, 1 it could not be done, 2 the command line is wrong; where a verb has another one, it says so. `scan`: 0 nothing found, 1 it
could not be done or the command line is wrong, 2 there are findings.
";

/// What a page says of a verb before its flags, where its help does not.
fn preface(verb: &str) -> Option<&'static str> {
    match verb {
        "run" => Some(
            "The verb of the DaemonSet: what follows is the configuration of the watchdog. \
             [`bounds.md`](bounds.md#flags) says what the bounds among them do, [`modes.md`](modes.md) what the modes are.",
        ),
        "scan" => Some("[The verdicts](verdicts.md) that it prints."),
        "explain" | "doctor" => Some("[`explain.md`](explain.md) shows what it reads and prints."),
        "events" => Some("[`events.md`](events.md) has the events."),
        "ledger" => Some("[`bounds.md`](bounds.md#the-ledger) says what is in it."),
        "demo" => Some("Not in the image, which is built without the simulator."),
        _ => None,
    }
}

/// Text as Markdown shows it: what would be markup is escaped, flags are code. Code stays as it is, but for what ends a cell.
fn text(plain: &str) -> String {
    let mut out = String::new();
    // The odd parts are between backticks.
    for (at, part) in plain.split('`').enumerate() {
        if at % 2 == 1 {
            let _ = write!(out, "`{}`", part.replace('|', "\\|"));
            continue;
        }
        let words: Vec<String> = part.split(' ').map(word).collect();
        out.push_str(&words.join(" "));
    }
    out.replace('\n', " ")
}

fn word(word: &str) -> String {
    let end = word.trim_end_matches(['.', ',', ':', ';', ')']);
    let start = end.trim_start_matches('(');
    if start.starts_with("--") || start.starts_with('/') || start.contains("cilium-leak-healer/") {
        let before = &end[..end.len() - start.len()];
        return format!("{before}`{start}`{}", &word[end.len()..]);
    }
    let mut out = String::new();
    for letter in word.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '|' | '*' | '_' | '[' | ']' | '~' | '\\' => {
                out.push('\\');
                out.push(letter);
            }
            _ => out.push(letter),
        }
    }
    out
}

/// Code in a cell of a table.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

fn values(arg: &Arg) -> String {
    let names: Vec<&str> =
        arg.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect();
    names.join(" ")
}

/// How the argument is written, all its names.
fn names(arg: &Arg) -> String {
    if arg.is_positional() {
        return code(&values(arg));
    }
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let aliases = arg.get_visible_aliases().unwrap_or_default().into_iter().map(|alias| format!("--{alias}"));
    let flags: Vec<String> = short.into_iter().chain(long).chain(aliases).collect();
    let value = match (arg.get_action().takes_values(), arg.is_require_equals_set()) {
        (false, _) => String::new(),
        (true, true) => format!("[={}]", values(arg)),
        (true, false) => format!(" {}", values(arg)),
    };
    let mut out: Vec<String> = flags.iter().map(|flag| code(flag)).collect();
    if let Some(last) = out.last_mut() {
        *last = code(&format!("{}{value}", flags.last().unwrap()));
    }
    out.join(", ")
}

fn default(arg: &Arg) -> String {
    let delimiter = arg.get_value_delimiter().unwrap_or(' ').to_string();
    let values: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_str().unwrap().to_owned()).collect();
    // A switch is off; clap has its default as a word.
    if values.is_empty() || !arg.get_action().takes_values() {
        return String::new();
    }
    code(&values.join(&delimiter))
}

/// Help as sentences: clap takes the last full stop away.
fn sentence(plain: &str) -> String {
    let mut out = text(plain.trim());
    if !out.ends_with(['.', ':']) {
        out.push('.');
    }
    out
}

/// The help, with the values that are taken.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).unwrap_or_else(|| panic!("{arg} has no help"));
    let mut out = sentence(&help.to_string());
    let taken: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| code(value.get_name()))
        .collect();
    if !taken.is_empty() {
        let each = if arg.get_value_delimiter().is_some() { "Each one" } else { "One" };
        let _ = write!(out, " {each} of {}.", taken.join(", "));
    }
    out
}

/// The rows of a table of arguments; the twin is under its flag, so that the page stays narrow.
fn table(out: &mut String, args: &[&Arg]) {
    out.push_str("| argument, twin | default | meaning |\n|---|---|---|\n");
    for arg in args {
        let mark = if arg.is_required_set() { " \\*" } else { "" };
        let twin =
            arg.get_env().map(|env| format!("<br>{}", code(env.to_str().unwrap()))).unwrap_or_default();
        let (names, default, meaning) = (names(arg), default(arg), meaning(arg));
        let _ = writeln!(out, "| {names}{mark}{twin} | {default} | {meaning} |");
    }
}

fn verb(out: &mut String, command: &mut Command) {
    let name = command.get_name().to_owned();
    let _ = write!(out, "\n## {name}\n\n");
    if command.is_hide_set() {
        out.push_str("For packagers; `--help` does not list it. ");
    }
    let about = command.get_long_about().or_else(|| command.get_about()).unwrap().to_string();
    let _ = write!(out, "{}\n\n", sentence(&about));
    if let Some(preface) = preface(&name) {
        let _ = write!(out, "{preface}\n\n");
    }
    let usage = command.render_usage().to_string();
    for line in usage.trim_start_matches("Usage:").lines() {
        let _ = writeln!(out, "    {}", line.trim());
    }
    let helps = |arg: &Arg| matches!(arg.get_action(), ArgAction::Help | ArgAction::Version);
    let mut groups: Vec<(Option<&str>, Vec<&Arg>)> = Vec::new();
    for arg in command.get_arguments().filter(|arg| !helps(arg) && !arg.is_hide_set()) {
        let heading = arg.get_help_heading();
        match groups.iter_mut().find(|(of, _)| *of == heading) {
            Some((_, args)) => args.push(arg),
            None => groups.push((heading, vec![arg])),
        }
    }
    for (heading, args) in groups {
        match heading {
            Some(heading) => drop(write!(out, "\n### {name}: {heading}\n\n")),
            None => out.push('\n'),
        }
        table(out, &args);
    }
    if let Some(after) = command.get_after_help() {
        let after = after.to_string();
        for paragraph in after.split("\n\n") {
            let _ = write!(out, "\n{}\n", text(paragraph));
        }
    }
}

fn page() -> String {
    let mut root = Cli::command();
    root.build();
    let (hidden, shown): (Vec<Command>, Vec<Command>) = root
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
        .cloned()
        .partition(Command::is_hide_set);
    let mut out = HEAD.to_owned();
    out.push_str("\n| verb | what it does |\n|---|---|\n");
    for command in shown.iter().chain(&hidden) {
        let name = command.get_name();
        let about = sentence(&command.get_about().unwrap().to_string());
        let _ = writeln!(out, "| [`{name}`](#{name}) | {about} |");
    }
    for command in shown.into_iter().chain(hidden) {
        verb(&mut out, &mut { command });
    }
    out
}

/// `UPDATE_DOCS=1` writes it anew.
#[test]
#[cfg_attr(not(feature = "sim"), ignore = "the page has the verb demo")]
fn the_page_on_the_command_line_is_that_of_clap() {
    is_stored("cli.md", &page(), Made::Page);
}

#[rstest::rstest]
#[case("a <b> | c", "a &lt;b&gt; \\| c")]
#[case("as in `info|kube` here", "as in `info\\|kube` here")]
#[case("With --save: other names.", "With `--save`: other names.")]
#[case("a token (rbac/auth.yaml) or --x=y.", "a token (rbac/auth.yaml) or `--x=y`.")]
#[case("such as /livez, [x] and *", "such as `/livez`, \\[x\\] and \\*")]
fn help_becomes_markdown(#[case] plain: &str, #[case] markdown: &str) {
    assert_eq!(text(plain), markdown);
}

/// Who looks for the setting behind a variable finds one, and what a verb takes from the environment is spelled alike.
#[test]
fn twins_are_named_as_their_flags() {
    let mut root = Cli::command();
    root.build();
    let mut twins = 0;
    for arg in root.get_subcommands().flat_map(Command::get_arguments) {
        let Some(twin) = arg.get_env().map(|twin| twin.to_str().unwrap()) else { continue };
        let flag = arg.get_long().unwrap().to_uppercase().replace('-', "_");
        assert_eq!(twin, format!("CILIUM_LEAK_HEALER_{flag}"), "{arg}");
        twins += 1;
    }
    assert!(twins > 40, "{twins}");
}
