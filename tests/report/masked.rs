//! What differs from run to run, out of a text: times, ids, who was quicker.

/// The text without it.
pub(crate) fn masked(text: &str) -> String {
    let mut out = String::new();
    let mut last = String::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let same = |c: char| is_word(c) == is_word(first);
        let end = rest.find(|c| !same(c)).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        rest = after;
        if !is_word(first) {
            out.push_str(part);
        } else if digits(part) && (last == "endpoint" || rest.starts_with(" s old")) {
            out.push('N');
        } else {
            out.push_str(&mask(part));
        }
        if is_word(first) {
            part.clone_into(&mut last);
        }
    }
    // The kubelet's next try may have come before or after the look.
    let out = out.replace("; endpoint N has the address now", "").replace("CLOCK to CLOCK", "CLOCK");
    let counted = |part: &str| part.trim_start_matches(|c| !"\"|\n<".contains(c)).to_owned();
    let mut parts = out.split("counted ");
    let head = parts.next().unwrap_or_default().to_owned();
    parts.fold(head, |out, part| out + "counted …" + &counted(part))
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn hex(text: &str) -> bool {
    text.len() >= 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn mask(word: &str) -> String {
    let bare = word.trim_end_matches(['.', ':']);
    let end = &word[bare.len()..];
    let (dashes, colons): (Vec<_>, Vec<_>) = (bare.split('-').collect(), bare.split(':').collect());
    let is_date = dashes.len() == 3 && dashes[0].len() == 4 && digits(dashes[0]) && digits(dashes[1]);
    if let Some(sandbox) = colons.iter().find(|part| part.len() == 64 && hex(part)) {
        return word.replace(sandbox, "SANDBOX");
    }
    let masked = if is_date && bare.contains('T') {
        "TIME"
    } else if is_date {
        "DATE"
    } else if colons.len() == 3 && colons.iter().all(|part| digits(part)) {
        "CLOCK"
    } else if bare.len() == 36 && dashes.len() == 5 {
        "UID"
    } else if dashes.len() == 2 && hex(dashes[0]) && digits(dashes[1]) {
        "CORRELATION"
    } else {
        bare
    };
    format!("{masked}{end}")
}
