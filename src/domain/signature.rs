//! The refusal's signature: which address, if any, an Event message says is already in use.
//!
//! The agent answers `[PUT /endpoint/{id}][400] putEndpointIdInvalid "IP ipv4:10.244.1.12 is already in use"`. CNI plugin,
//! container runtime and kubelet each wrap it: older clients write two blanks and no quotes, loggers escape the quotes,
//! and the kubelet cuts messages at 1 kB. The address is parsed, never trusted; a clause that is cut is no match.

use std::net::IpAddr;

use super::ids::ContainerId;

const OPERATION: &str = "putEndpointIdInvalid";
const IN_USE: &str = " is already in use";

/// What a message says about addresses in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No whole refusal clause is in it.
    None,
    /// Each whole refusal clause names this one address.
    Of(IpAddr),
    /// Two clauses name different addresses: nobody knows which one is in the way.
    Several(Vec<IpAddr>),
}

/// Finds the refusal in an Event message, whatever it is wrapped in. Linear in the length of the message.
pub fn refusal(message: &str) -> Refusal {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (at, _) in message.match_indices(OPERATION) {
        if let Some(ip) = clause(&message[at + OPERATION.len()..])
            && !addresses.contains(&ip)
        {
            addresses.push(ip);
        }
    }
    match addresses.as_slice() {
        [] => Refusal::None,
        [ip] => Refusal::Of(*ip),
        _ => Refusal::Several(addresses),
    }
}

/// Parses what follows the operation's name: blanks and quotes, `IP`, family and address, and the words to their end.
fn clause(rest: &str) -> Option<IpAddr> {
    let inner = rest.trim_start_matches([' ', '\t', '"', '\'', '\\']);
    if inner.len() == rest.len() {
        return None;
    }
    let inner = inner.strip_prefix("IP ")?;
    let (is_v4, inner) = match inner.strip_prefix("ipv4:") {
        Some(inner) => (true, inner),
        None => (false, inner.strip_prefix("ipv6:")?),
    };
    // The longest text of an address has 45 characters; looking no further keeps this linear.
    let end = inner.bytes().take(46).position(|b| b == b' ')?;
    let (address, after) = inner.split_at(end);
    let after = after.strip_prefix(IN_USE)?;
    if after.starts_with(|next: char| next.is_alphanumeric() || next == '_' || next == '-') {
        return None;
    }
    match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(v4) if is_v4 => Some(IpAddr::V4(v4)),
        // The agent never holds a mapped address under ipv6: such a text is not its own.
        IpAddr::V6(v6) if !is_v4 && v6.to_ipv4_mapped().is_none() => Some(IpAddr::V6(v6)),
        _ => None,
    }
}

/// The ids of sandboxes that a message names, each once: words of 64 hexadecimal digits, and what stands in quotes
/// behind the word `sandbox`.
pub fn sandbox_ids(message: &str) -> Vec<ContainerId> {
    let hex = message
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit()));
    let quoted = message.split("sandbox ").skip(1).filter_map(|rest| {
        // `sandbox container "…"` is dockershim's.
        let inner =
            rest.strip_prefix("container ").unwrap_or(rest).trim_start_matches('\\').strip_prefix('"')?;
        let end = inner.bytes().take(129).position(|b| b == b'"' || b == b'\\')?;
        inner.get(..end)
    });
    let mut ids: Vec<ContainerId> = Vec::new();
    for id in hex.chain(quoted).filter_map(|word| word.parse().ok()) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}
