//! Runs the binary, and makes snapshots out of case files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The command, without the environment's own settings for it.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CILIUM_LEAK_HEALER_")) {
        command.env_remove(name);
    }
    command
}

pub(crate) fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_cilium-leak-healer"))
}

pub(crate) fn run(args: &[&str]) -> Output {
    command(&binary()).args(args).output().expect("it can be started")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn case(name: &str) -> String {
    format!("{}/tests/cases/{name}.yaml", env!("CARGO_MANIFEST_DIR"))
}

/// A case file as JSON.
pub(crate) fn load(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A snapshot file that goes away with the value.
pub(crate) fn file(snapshot: &Value) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), snapshot.to_string()).expect("it is written");
    file
}

pub(crate) fn explain(from: &str, target: &str) -> Output {
    run(&["explain", "--from", from, target])
}

pub(crate) fn explain_json(from: &str, target: &str) -> Value {
    let output = run(&["explain", "--from", from, target, "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{from} {target}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("JSON")
}
