//! Files of `docs` that are made from the code: a test compares each with what the code makes now.

use std::path::Path;
use std::{env, fs};

/// What the file is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// A page; `UPDATE_DOCS=1` writes it anew.
    Page,
    /// A JSON Schema; `UPDATE_SCHEMAS=1` writes it anew.
    Schema,
}

/// Fails unless the file, by its path in `docs`, has this text.
pub(crate) fn is_stored(file: &str, text: &str, made: Made) {
    let variable = match made {
        Made::Page => "UPDATE_DOCS",
        Made::Schema => "UPDATE_SCHEMAS",
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file);
    if env::var_os(variable).is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "{} is old: run the tests with {variable}=1", path.display());
}

/// The same for a schema, which ends with a line feed.
pub(crate) fn schema_is_stored(name: &str, schema: &schemars::Schema) {
    let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
    is_stored(&format!("schema/{name}"), &text, Made::Schema);
}
