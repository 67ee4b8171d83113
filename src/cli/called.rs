//! How this program was called: as itself, or by kubectl as its plugin.
//!
//! Must not know: the verbs.

use std::ffi::OsStr;
use std::path::Path;

/// The program's own name.
pub(super) const NAME: &str = "cilium-leak-healer";

/// The words that a person types before the verb. kubectl finds `kubectl-cilium_leak` for `kubectl cilium-leak` (and for
/// `kubectl cilium_leak`), and `kubectl-cilium-leak` for `kubectl cilium leak`: a dash of the file parts words, an
/// underscore stands for a dash.
pub(super) fn called(program: Option<&OsStr>) -> String {
    let file = program.and_then(|path| Path::new(path).file_name()?.to_str()).unwrap_or(NAME);
    match file.strip_suffix(".exe").unwrap_or(file).strip_prefix("kubectl-").filter(|rest| !rest.is_empty()) {
        Some(rest) => format!("kubectl {}", rest.replace('-', " ").replace('_', "-")),
        None => NAME.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("/usr/local/bin/cilium-leak-healer", NAME)]
    #[case("/usr/local/bin/kubectl-cilium_leak", "kubectl cilium-leak")]
    #[case("kubectl-cilium-leak", "kubectl cilium leak")]
    #[case("kubectl-", NAME)]
    #[case("clh", NAME)]
    fn the_name_follows_the_file(#[case] program: &str, #[case] name: &str) {
        assert_eq!(called(Some(OsStr::new(program))), name);
    }
}
