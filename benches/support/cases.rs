//! The case corpus, as the tests have it.

use std::path::{Path, PathBuf};

/// All case files, by name.
pub fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = std::fs::read_dir(dir).expect("the cases").map(|file| file.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|file| file.extension().is_some_and(|end| end == "yaml")).collect();
    files.sort();
    assert!(files.len() > 50, "only {} case files: is tests/cases whole?", files.len());
    files
}
