//! The layout of the tree: which module may import which, and that the tests which the docs name are there.
#![allow(clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

const ALL: [&str; 9] = ["admin", "cilium", "cli", "engine", "kube", "ledger", "metrics", "sim", "snapshot"];

/// The files with an extension at a path or below it.
fn files(path: &Path, extension: &str) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    entries
        .flat_map(|entry| files(&entry.expect("an entry").path(), extension))
        .filter(|file| file.extension().is_some_and(|ext| ext == extension))
        .collect()
}

/// The lines of a module that are code.
fn code(module: &str) -> Vec<(PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    for path in [src.join(module), src.join(format!("{module}.rs"))] {
        if path.exists() {
            sources.extend(files(&path, "rs"));
        }
    }
    assert!(!sources.is_empty(), "no module {module}");
    let lines = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("a source file");
        text.lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .map(|line| (file.clone(), line.to_owned()))
            .collect::<Vec<_>>()
    };
    sources.into_iter().flat_map(lines).collect()
}

fn imports(line: &str, module: &str) -> bool {
    // `crate::{admin::…, kube::…}` is not the house's style and would be missed: it counts as each of them.
    line.contains(&format!("crate::{module}::"))
        || line.contains(&format!("use crate::{module};"))
        || line.contains("crate::{")
}

fn check(module: &str, forbidden: &[&str]) {
    for (file, line) in code(module) {
        for other in forbidden.iter().filter(|other| **other != module) {
            assert!(!imports(&line, other), "{} imports crate::{other}: {line}", file.display());
        }
    }
}

#[test]
fn the_domain_imports_no_other_module_and_no_io() {
    check("domain", &ALL);
    for (file, line) in code("domain") {
        for library in [
            "tokio",
            "kube::",
            "k8s_openapi",
            "hyper",
            "axum",
            "std::fs",
            "std::net::Tcp",
            "std::time::SystemTime",
            "Timestamp::now",
        ] {
            assert!(!line.contains(library), "{} uses {library}: {line}", file.display());
        }
    }
}

#[test]
fn kube_and_cilium_know_neither_each_other_nor_the_engine() {
    check("kube", &["cilium", "engine", "admin", "cli", "sim"]);
    check("cilium", &["kube", "engine", "admin", "cli", "sim"]);
}

#[test]
fn the_ledger_knows_the_domain_alone_and_is_given_the_time() {
    let others: Vec<&str> = ALL.into_iter().filter(|other| *other != "ledger").collect();
    check("ledger", &others);
    for (file, line) in
        code("ledger").into_iter().filter(|(file, _)| !file.iter().any(|part| part == "tests"))
    {
        for library in ["tokio", "std::time::SystemTime", "Instant", "Timestamp::now"] {
            assert!(!line.contains(library), "{} uses {library}: {line}", file.display());
        }
    }
}

#[test]
fn metrics_and_http_know_nobody_who_uses_them() {
    check("metrics", &["admin", "cilium", "cli", "engine", "kube", "sim"]);
    check("admin", &["cilium", "cli", "engine", "kube", "sim"]);
}

#[test]
fn the_simulated_cluster_shares_no_code_with_what_it_tests() {
    check("sim", &["admin", "cilium", "cli", "domain", "engine", "kube", "metrics"]);
}

/// Backquoted `FILE::NAME`s of a page, the file below src or tests.
fn named_tests(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split('`')
        .filter_map(|quoted| quoted.split_once(".rs::"))
        .filter(|(file, _)| file.starts_with("src/") || file.starts_with("tests/"))
}

#[test]
fn the_tests_that_the_docs_name_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = files(&root.join("docs"), "md");
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|page| root.join(page)));
    let mut count = 0;
    let mut missing = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page");
        for (file, name) in named_tests(&text) {
            count += 1;
            let source = fs::read_to_string(root.join(file).with_extension("rs")).unwrap_or_default();
            if !source.contains(&format!("fn {name}(")) {
                missing.push(format!("{}: there is no test {file}.rs::{name}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(count > 100, "only {count} tests are named");
}
