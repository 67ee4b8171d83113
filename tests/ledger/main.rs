//! `ledger`, as the real binary: on directories made by hand, for people and for programs.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows them in functions that are tests, and these serve nothing else"
)]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

#[path = "../support/daemon.rs"]
mod daemon;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use daemon::run_to_end;

struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

async fn run(args: &[&str], env: &[(&str, &str)]) -> Run {
    let all: Vec<&str> = ["ledger"].into_iter().chain(args.iter().copied()).collect();
    let output = run_to_end(&all, env).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let run = Run { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
    assert!(!run.err.contains("panicked"), "{}", run.err);
    run
}

async fn on(dir: &Path, form: &str) -> Run {
    run(&["--state-dir", &dir.display().to_string(), "-o", form], &[]).await
}

const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}gone\r\nlevel=info";

fn intent(remedy: &str, pod: &str, ip: &str) -> Value {
    json!({
        "remedy": remedy, "pod": pod, "podUid": "u-1",
        "cause": {"of": "ReplicaSet/shop/web/c-1", "ip": ip},
        "target": "cni-attachment-id:a:eth0", "container": "a",
        "verdict": "stale-endpoint", "reason": "its owner shop/old is gone", "correlationId": "w-1",
    })
}

fn ledger() -> Value {
    let bucket = |tokens: u32| json!({"tokens": tokens, "at": "2026-06-18T10:00:00Z"});
    json!({
        "format": "cilium-leak-healer/ledger", "version": 1, "node": "node-1", "written": "2026-06-18T10:05:00Z",
        "bounds": {
            "disconnect": {"burst": 30, "refillMs": 6_000},
            "deletePod": {"burst": 3, "refillMs": 600_000},
            "restartAgent": {"burst": 1, "refillMs": 9_000_000_000_000_u64},
            "breaker": {"floor": 3, "sharePercent": 20, "window": 50, "spanMs": 3_600_000, "coolDownMs": 1_800_000},
            "keepFutileMs": 86_400_000,
        },
        "state": {
            "nextId": 4,
            "budgets": {"disconnect": bucket(2), "deletePod": bucket(1), "restartAgent": bucket(0)},
            "breaker": {"from": 0, "opened": {"until": "2199-01-01T00:00:00Z", "why": "3 of the last 3 acts did not help", "trial": null}},
            "futile": [{"remedy": "delete-pod", "cause": {"of": "ReplicaSet/shop/web/c-1", "ip": "10.0.0.9"}, "since": "2026-06-18T10:01:00Z", "act": 1, "how": "deleted"}],
            "acts": [
                {"id": 1, "began": "2026-06-18T10:01:00Z", "intent": intent("delete-pod", "shop/web-1", "10.0.0.9"), "sent": null,
                 "ended": {"at": "2026-06-18T10:01:02Z", "outcome": "deleted", "note": "the API server took the deletion"}},
                {"id": 2, "began": "2026-06-18T10:02:00Z", "intent": intent("disconnect-endpoint", "shop/web-2", "fd00::2"),
                 "sent": {"at": "2026-06-18T10:02:01Z", "note": HOSTILE}, "ended": null},
                {"id": 3, "began": "2026-06-18T10:03:00Z", "intent": intent("disconnect-endpoint", "shop/web-3", "10.0.0.3"), "sent": null,
                 "ended": {"at": "2026-06-18T10:04:00Z", "outcome": "not-healed", "note": "the pod did not get its sandbox in time"}},
            ],
            "refusals": [
                {"refusal": {"pod": "shop/web-4", "podUid": "u-4", "ip": null, "verdict": "live-duplicate", "remedy": null,
                             "word": "live-duplicate", "why": "the owner shop/db-0 is alive", "correlationId": "w-4"},
                 "first": "2026-06-18T10:00:00Z", "last": "2026-06-18T10:04:30Z", "count": 7},
            ],
        },
    })
}

fn put(text: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("ledger.json"), text).unwrap();
    dir
}

#[tokio::test]
async fn a_person_reads_what_was_done_and_what_may_be_done() {
    let dir = put(&ledger().to_string());
    let run = on(dir.path(), "text").await;
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let text = run.out.replace(&dir.path().display().to_string(), "DIR");
    insta::assert_snapshot!("text", text);
}

#[tokio::test]
async fn a_program_reads_the_same_in_its_documented_form() {
    let dir = put(&ledger().to_string());
    let run = on(dir.path(), "json").await;
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let mut wanted = ledger();
    wanted["state"]["acts"][1]["sent"]["note"] = json!(" [2J ]0;owned  31m gone  level=info");
    assert_eq!(serde_json::from_str::<Value>(&run.out).unwrap(), wanted);
    assert!(run.out.chars().all(|c| c == '\n' || !c.is_control()), "{}", run.out);
}

#[tokio::test]
async fn the_environment_names_the_directory_too() {
    let dir = put(&ledger().to_string());
    let path = dir.path().display().to_string();
    let run = run(&[], &[("CILIUM_LEAK_HEALER_STATE_DIR", &path)]).await;
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.out.contains("Ledger of node-1"), "{}", run.out);
}

async fn refused(dir: &Path, why: &[&str]) {
    for form in ["text", "json"] {
        let run = on(dir, form).await;
        assert_eq!((run.code, run.out.as_str()), (Some(1), ""), "{}", run.err);
        for why in ["error: --state-dir ", "ledger.json: "].iter().chain(why) {
            assert!(run.err.contains(why), "no {why:?} in {}", run.err);
        }
        assert!(run.err.trim_end().chars().all(|c| !c.is_control()), "{:?}", run.err);
    }
}

#[tokio::test]
async fn where_there_is_none_it_says_what_to_do() {
    let dir = TempDir::new().unwrap();
    let why = ["no watchdog has written here", "there is no ledger"];
    refused(dir.path(), &why).await;
    refused(&dir.path().join("nowhere"), &why).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    refused(file.path(), &["cannot be read"]).await;
}

#[tokio::test]
async fn files_that_are_no_ledger() {
    let good = ledger().to_string();
    let bad = "this is no ledger that this version reads";
    for (text, why) in [
        ("", "torn"),
        (&good[..good.len() / 2], "torn"),
        ("{\"format\": \"\u{1b}[2J\", \"version\": 1}", "no ledger"),
        ("{\"format\": \"other\", \"version\": 1}", "no ledger"),
        (&good.replace("\"version\":1", "\"version\":7"), "version is 7"),
        (&good.replace("\"outcome\":\"deleted\"", "\"outcome\":\"\\u001b[2J\""), "no such word"),
        (&good.replace("\"shop/web-1\"", "\"shop/\\u001b[2J\""), "no pod name"),
        (&good.replace("c-1", "c\\u001b-1"), "contradicts itself"),
    ] {
        refused(put(text).path(), &[bad, why]).await;
    }
    let dir = TempDir::new().unwrap();
    std::os::unix::fs::symlink("/etc/hostname", dir.path().join("ledger.json")).unwrap();
    refused(dir.path(), &[bad, "no regular file"]).await;
}
