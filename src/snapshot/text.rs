//! The texts of Events without what would tell whose cluster it is: what the rules read in them stays readable.
//!
//! Addresses, ids and names that the snapshot knows are replaced as everywhere; words of letters stay; anything else
//! (host names, names of other objects, digests) is left out.

use crate::domain::{Refusal, refusal, sandbox_ids};

/// Words of the refusal, which may be names as well.
const PROTECTED: [&str; 13] = [
    "IP",
    "already",
    "cilium-cni",
    "container",
    "endpoint",
    "in",
    "ipv4",
    "ipv6",
    "is",
    "putEndpointIdInvalid",
    "sandbox",
    "to",
    "use",
];
const REDACTED: &str = "redacted";

/// What a text's words are replaced with.
pub(super) trait Replacements {
    /// In place of an address.
    fn address(&self, ip: std::net::IpAddr) -> String;
    /// In place of the id of a sandbox.
    fn sandbox(&self, id: &str) -> String;
    /// In place of a name or a UID that the snapshot knows.
    fn known(&self, word: &str) -> Option<String>;
}

/// The message without what is not for strangers.
pub(super) fn scrub(message: &str, with: &impl Replacements) -> String {
    let scrubbed = words(message, with);
    if says(&scrubbed) == mapped(says(message), with) { scrubbed } else { anew(message, with) }
}

/// What the rules read.
fn says(message: &str) -> (Refusal, Vec<String>) {
    let mut ids: Vec<String> = sandbox_ids(message).iter().map(ToString::to_string).collect();
    ids.sort();
    (refusal(message), ids)
}

fn mapped((refusal, ids): (Refusal, Vec<String>), with: &impl Replacements) -> (Refusal, Vec<String>) {
    let ip = |ip| with.address(ip).parse().unwrap_or(ip);
    let refusal = match refusal {
        Refusal::None => Refusal::None,
        Refusal::Of(address) => Refusal::Of(ip(address)),
        Refusal::Several(all) => Refusal::Several(all.into_iter().map(ip).collect()),
    };
    let mut ids: Vec<String> = ids.iter().map(|id| with.sandbox(id)).collect();
    ids.sort();
    (refusal, ids)
}

/// A message that says the same, where the words of the other one could not be kept.
fn anew(message: &str, with: &impl Replacements) -> String {
    let (refusal, ids) = mapped(says(message), with);
    let addresses = match refusal {
        Refusal::None => Vec::new(),
        Refusal::Of(ip) => vec![ip],
        Refusal::Several(all) => all,
    };
    let sandboxes = ids.iter().map(|id| format!("sandbox \"{id}\""));
    let clauses = addresses.iter().map(|ip| {
        let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
        format!("putEndpointIdInvalid \"IP {family}:{ip} is already in use\"")
    });
    let parts: Vec<String> =
        ["failed to create pod sandbox".to_owned()].into_iter().chain(sandboxes).chain(clauses).collect();
    parts.join(": ")
}

fn words(message: &str, with: &impl Replacements) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(start) = rest.find(is_word) {
        out.push_str(&rest[..start]);
        let tail = &rest[start..];
        let end = tail.find(|c| !is_word(c)).unwrap_or(tail.len());
        out.push_str(&word(&tail[..end], with));
        rest = &tail[end..];
    }
    out.push_str(rest);
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | ':' | '-' | '_')
}

fn word(text: &str, with: &impl Replacements) -> String {
    if let Some(replaced) = whole(text, with) {
        return replaced;
    }
    // An id may stand within a longer word, as in the name of a control group.
    if let Some((before, id, after)) = hex_id(text) {
        return format!("{}{}{}", word(before, with), with.sandbox(id), word(after, with));
    }
    let core = text.trim_matches(['.', ':', '-', '_']);
    if core.is_empty() {
        return text.to_owned();
    }
    if core != text {
        let start = text.find(core).unwrap_or(0);
        return format!("{}{}{}", &text[..start], word(core, with), &text[start + core.len()..]);
    }
    for separator in [':', '_'] {
        if let Some((before, after)) = text.split_once(separator) {
            return format!("{}{separator}{}", word(before, with), word(after, with));
        }
    }
    if let Some((before, after)) = text.split_once('.')
        && PROTECTED.contains(&before)
    {
        return format!("{before}.{}", word(after, with));
    }
    REDACTED.to_owned()
}

/// A word that is one thing: an address, an id, a name, or nobody's.
fn whole(text: &str, with: &impl Replacements) -> Option<String> {
    if PROTECTED.contains(&text) {
        return Some(text.to_owned());
    }
    let (family, address) = match text.split_once(':') {
        Some((family @ ("ipv4" | "ipv6"), address)) => (Some(family), address),
        _ => (None, text),
    };
    if let Ok(ip) = address.parse() {
        let prefix = family.map(|family| format!("{family}:")).unwrap_or_default();
        return Some(prefix + &with.address(ip));
    }
    if let Some(family) = family
        && !address.is_empty()
        && address.trim_end_matches(['.', ':', '-', '_']).parse::<std::net::IpAddr>().is_err()
    {
        return Some(format!("{family}:no-address"));
    }
    if let Some((host, port)) = text.rsplit_once(':')
        && let Ok(ip) = host.parse::<std::net::Ipv4Addr>()
        && port.bytes().all(|b| b.is_ascii_digit())
    {
        return Some(format!("{}:{port}", with.address(ip.into())));
    }
    if let Some(known) = with.known(text) {
        return Some(known);
    }
    let letters = text.bytes().all(|b| b.is_ascii_alphabetic());
    let number = text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
    (letters || number).then(|| text.to_owned())
}

/// The first run of 64 hexadecimal digits that is not a part of a longer run of letters and digits.
fn hex_id(text: &str) -> Option<(&str, &str, &str)> {
    let mut start = 0;
    for run in text.split(|c: char| !c.is_ascii_alphanumeric()) {
        if run.len() == 64 && run.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some((&text[..start], run, &text[start + 64..]));
        }
        start += run.len();
        start += text[start..].chars().next().map_or(0, char::len_utf8);
    }
    None
}
