//! Rules of the refusal's parser: an address comes from a whole clause alone, and from each.

use std::net::IpAddr;

use cilium_leak_healer::domain::{Refusal, refusal, sandbox_ids};

use super::reader::Checked;

pub(crate) const WORDS: &[&str] = &[
    "putEndpointIdInvalid",
    "putEndpointIdInvalid \"",
    "putEndpointIdFailed",
    "IP ipv4:",
    "IP ipv6:",
    "ipv4:",
    "10.0.0.1",
    "fd00::1",
    "::ffff:10.0.0.1",
    "fe80::1%eth0",
    "010.0.0.1",
    " is already in use",
    " is already in use\"",
    "d",
    "-",
    "é",
    "\\\"",
    " ",
    "\t",
    "...",
    "sandbox \"",
    "sandbox container \"",
    "5f0c",
    "4a9cc5d94bccbcd8ba78a6dc7d8eb3ac44acc5d85a3f8466a6886d4ddde9d144",
];
const IN_USE: &str = " is already in use";

/// A clause that stands in a text, found from its end: not the way of the parser.
struct Clause {
    ip: IpAddr,
    end: usize,
    /// The last word goes on: `used`.
    goes_on: bool,
}

fn clauses(text: &str) -> Vec<Clause> {
    let clause = |(at, _): (usize, &str)| {
        let (before, end) = (&text[..at], at + IN_USE.len());
        let (head, address) = before.rsplit_once("IP ipv")?;
        let operation = head.trim_end_matches(|c| " \t\"'\\".contains(c));
        if operation.len() == head.len() || !operation.ends_with("putEndpointIdInvalid") {
            return None;
        }
        let ip = match address.split_once(':')? {
            ("4", v4) => IpAddr::V4(v4.parse().ok()?),
            ("6", v6) => IpAddr::V6(v6.parse().ok()?),
            _ => return None,
        };
        let is_mapped = matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        let goes_on =
            text[end..].chars().next().is_some_and(|next| next.is_alphanumeric() || "-_".contains(next));
        (!is_mapped).then_some(Clause { ip, end, goes_on })
    };
    text.match_indices(IN_USE).filter_map(clause).collect()
}

fn addresses(text: &str) -> Vec<IpAddr> {
    match refusal(text) {
        Refusal::None => Vec::new(),
        Refusal::Of(ip) => vec![ip],
        Refusal::Several(all) => all,
    }
}

pub(crate) fn check(input: &[u8]) -> Checked {
    let text = String::from_utf8_lossy(input);
    let (found, clauses) = (addresses(&text), clauses(&text));
    let mut whole: Vec<IpAddr> = Vec::new();
    for clause in clauses.iter().filter(|clause| !clause.goes_on) {
        if !whole.contains(&clause.ip) {
            whole.push(clause.ip);
        }
    }
    if found != whole {
        return Err(format!("{found:?} was found where the clauses say {whole:?}"));
    }
    for ip in &found {
        let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
        let again = format!(
            "[PUT /endpoint/{{id}}][400] putEndpointIdInvalid \"IP {family}:{ip} is already in use\""
        );
        if refusal(&again) != Refusal::Of(*ip) {
            return Err(format!("{ip} is not found in {again}"));
        }
    }
    cuts(&text, &clauses)?;
    ids(&text)?;
    Ok(!found.is_empty())
}

/// Wherever a message is cut, an address comes only from a clause before that place.
fn cuts(text: &str, clauses: &[Clause]) -> Result<(), String> {
    let step = 1 + text.len() / 1024;
    for (cut, _) in text.char_indices().step_by(step) {
        for end in ["", "..."] {
            let cut_text = format!("{}{end}", &text[..cut]);
            for ip in addresses(&cut_text) {
                if !clauses.iter().any(|clause| clause.ip == ip && clause.end <= cut) {
                    return Err(format!(
                        "{ip} comes from the first {cut} bytes, where no clause has its end"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The ids of sandboxes are words of the text, each once.
fn ids(text: &str) -> Result<(), String> {
    let ids = sandbox_ids(text);
    for (at, id) in ids.iter().enumerate() {
        if !text.contains(id.as_str()) || ids[..at].contains(id) {
            return Err(format!("the sandbox id {id} is not in the text, or there twice"));
        }
    }
    Ok(())
}
