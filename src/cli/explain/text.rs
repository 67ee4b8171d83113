//! The story as text for a person: sections in the order of the questions that are asked at night.
//!
//! Must not know: the domain. It prints what is in the story.

use super::facts::{Call, FailureFacts, Heal, HolderFacts, Story};
use super::story::{clock_time, span};
use crate::cli::wrap::{clean, wrap, wrap_command};

/// Identity labels shown at most: the rest says little.
const MOST_LABELS: usize = 6;

/// The whole text, with a line end at its end.
pub(super) fn text(story: &Story) -> String {
    let mut page = Page(Vec::new());
    page.head(story);
    page.kubelet(story);
    if let Some(holder) = &story.holder {
        page.holder(story, holder);
    }
    page.owner(story);
    page.checks(story);
    page.rule(story);
    page.heal(story);
    page.list("What would change the verdict", &story.changes);
    page.steps(story);
    page.also(story);
    page.0.push(String::new());
    page.0.join("\n")
}

struct Page(Vec<String>);

impl Page {
    fn title(&mut self, title: &str) {
        self.0.push(String::new());
        self.0.push(title.to_owned());
    }

    fn line(&mut self, first: &str, text: &str) {
        self.0.extend(wrap(first, text));
    }

    fn list(&mut self, title: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.title(title);
        for item in items {
            self.line("  - ", item);
        }
    }

    fn head(&mut self, story: &Story) {
        let name = format!("{}/{}", story.subject.namespace, story.subject.name);
        let node = story.node.as_ref().map(|node| format!(" on node {node}")).unwrap_or_default();
        match story.verdict {
            Some(verdict) => {
                let about = story.ip.map(|ip| format!(" over {ip}")).unwrap_or_default();
                self.line("", &format!("Pod {name}{node} is wedged{about}: {verdict}"));
            }
            None => self.line("", &format!("Pod {name}{node} is not wedged by a held address.")),
        }
        self.line("  ", &format!("{}.", capital(&story.reason)));
        if let (Some(verdict), Some(meaning)) = (story.verdict, story.meaning) {
            self.line("  ", &format!("({verdict} means: {meaning}.)"));
        }
        let controller = story
            .pod
            .controller
            .as_ref()
            .map_or_else(|| "no controller".to_owned(), |controller| format!("made by {controller}"));
        let created = story.pod.created.map_or_else(
            || "of unknown age".to_owned(),
            |at| format!("created {} ({} ago)", clock_time(at), age(story, at)),
        );
        let addresses: Vec<String> = story.pod.addresses.iter().map(ToString::to_string).collect();
        let has =
            if addresses.is_empty() { String::new() } else { format!(", has {}", addresses.join(", ")) };
        self.line("  ", &format!("It is {}, {created}, {controller}{has}.", story.pod.phase));
        let from = if story.mode == "live" { "Looked at" } else { "As the snapshot of" };
        let tells = if story.mode == "live" { "." } else { " tells." };
        self.line("  ", &format!("{from} {}{tells}", clock_time(story.taken_at)));
    }

    fn kubelet(&mut self, story: &Story) {
        match (&story.failure, story.wedged) {
            (Some(failure), true) => {
                self.title("What the kubelet says");
                self.failure(story, failure);
            }
            (Some(failure), false) => {
                self.title("Its newest failure instead");
                self.failure(story, failure);
            }
            (None, true) => {
                self.title("What the kubelet says");
                self.line("  ", "Its Events could not be read.");
            }
            (None, false) => {
                self.title("Its newest failure instead");
                self.line("  ", "No Event of this pod tells of a failure.");
            }
        }
    }

    fn failure(&mut self, story: &Story, failure: &FailureFacts) {
        let at = failure.at.map_or_else(
            || "at an unknown time".to_owned(),
            |at| format!("last {} ({} ago)", clock_time(at), age(story, at)),
        );
        let times = if failure.count == 1 { "once".to_owned() } else { format!("{} times", failure.count) };
        self.line("  ", &format!("{}, {times}, {at}:", failure.reason));
        self.line("    ", &failure.message);
        if let Some(meaning) = failure.meaning {
            self.line("  ", meaning);
        }
        for sandbox in &failure.sandboxes {
            self.line("  refused sandbox ", sandbox);
        }
    }

    fn holder(&mut self, story: &Story, holder: &HolderFacts) {
        match story.ip {
            Some(ip) => self.title(&format!("Who holds {ip}")),
            None => self.title("Who holds the address"),
        }
        self.line("  ", &format!("{}.", capital(&holder.text)));
        if let Some(attachment) = &holder.attachment {
            self.line("  attachment  ", attachment);
        } else if let Some(container) = &holder.container {
            self.line("  container   ", container);
        }
        if let Some(oldest) = holder.oldest_log_entry {
            let newest = holder.newest_log_entry.unwrap_or(oldest);
            self.line(
                "  its log     ",
                &format!(
                    "from {} ({} ago) to {} ({} ago)",
                    clock_time(oldest),
                    age(story, oldest),
                    clock_time(newest),
                    age(story, newest)
                ),
            );
        }
        if !holder.labels.is_empty() {
            let shown = &holder.labels[..holder.labels.len().min(MOST_LABELS)];
            let more = holder.labels.len() - shown.len();
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            self.line("  labels      ", &format!("{}{more}", shown.join(", ")));
        }
    }

    fn owner(&mut self, story: &Story) {
        let Some(owner) = &story.owner else {
            return;
        };
        self.title("Who owns the holder");
        match &owner.pod {
            Some(pod) => {
                self.line("  ", &format!("{pod}, named by {}.", owner.named_by));
                self.line("  now: ", &owner.now);
            }
            None => self.line("  ", &format!("{}.", capital(&owner.now))),
        }
    }

    fn checks(&mut self, story: &Story) {
        if story.checks.is_empty() {
            return;
        }
        self.title("Checks (pass: speaks for acting, fail: against, unknown: nobody knows)");
        for check in &story.checks {
            self.line(&format!("  {:<8} {:<17} ", check.outcome, check.check), &check.observed);
        }
    }

    fn rule(&mut self, story: &Story) {
        self.title("The rule that decided");
        let row = story.rule.row.map(|row| format!("Row {row}: ")).unwrap_or_default();
        self.line("  ", &format!("{row}{}", story.rule.text));
        if let Some(proof) = &story.rule.proof {
            self.line("  ", &format!("Proof {}: {}", proof.number, plain(proof.text)));
        }
    }

    fn heal(&mut self, story: &Story) {
        if !story.wedged {
            return;
        }
        self.title("What heal mode would do");
        let Heal { remedy, call, withheld, .. } = &story.heal;
        if let Some(call) = call {
            self.line("  ", &format!("{remedy}, by one call:"));
            self.call(story, call);
            self.line("  ", after(call));
        } else if let Some(withheld) = withheld {
            self.line(
                "  ",
                &format!("Nothing. The remedy is withheld ({}): {}.", withheld.why, plain(withheld.text)),
            );
        } else {
            self.line("  ", "Nothing: this verdict has no remedy.");
        }
    }

    fn call(&mut self, story: &Story, call: &Call) {
        let node = story.node.as_deref().unwrap_or("its node");
        let to = if call.to == "cilium-agent" {
            format!("the agent of {node}, on its socket")
        } else {
            "the API server".to_owned()
        };
        self.line("    to ", &to);
        self.0.push(clean(&format!("    {} {}", call.method, call.path)));
        if let Some(body) = &call.body {
            self.0.push(clean(&format!("    {body}")));
        }
    }

    fn steps(&mut self, story: &Story) {
        if story.steps.is_empty() {
            return;
        }
        self.title("What you can do now");
        if let Some(short) = story.in_short {
            self.line("  ", &format!("In short: {}.", plain(short)));
        }
        for (at, step) in story.steps.iter().enumerate() {
            self.line(&format!("  {}. ", at + 1), &step.text);
            for command in &step.commands {
                self.0.extend(wrap_command(7, command));
            }
        }
    }

    fn also(&mut self, story: &Story) {
        for also in &story.also_found {
            self.title(&format!("Also found: {}", also.verdict));
            self.line("  ", &format!("{}.", capital(&also.reason)));
            self.line("  ", &format!("({} means: {}.)", also.verdict, also.meaning));
            self.line("  ", &format!("In short: {}.", also.in_short));
            for step in &also.steps {
                self.line("  - ", &step.text);
                for command in &step.commands {
                    self.0.extend(wrap_command(7, command));
                }
            }
        }
    }
}

/// Without the marks of the documentation.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

fn after(call: &Call) -> &'static str {
    if call.to == "cilium-agent" {
        "Only after two judgements that agree, and after pod, holder and owner were read again without a change. Then the look-up by address must say that nobody has it, and the pod must get its sandbox."
    } else {
        "Once for a controller, node and address, with the pod's own grace period; the API server refuses if the pod has changed. Only after two judgements that agree."
    }
}

fn age(story: &Story, at: jiff::Timestamp) -> String {
    span(story.taken_at.duration_since(at).as_secs())
}

/// A sentence begins with a capital letter.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    // A name keeps its letters: only a word of letters is the begin of a sentence.
    let word: String = text.chars().take_while(|c| !c.is_whitespace()).collect();
    match chars.next() {
        Some(first) if word.chars().all(|c| c.is_ascii_alphabetic()) => {
            format!("{}{}", first.to_ascii_uppercase(), chars.as_str())
        }
        _ => text.to_owned(),
    }
}
