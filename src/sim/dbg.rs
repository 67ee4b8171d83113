//! `cilium-dbg` in the agent's container: the agent's API over its socket, printed as Cilium's own program prints it.
//!
//! Must not know: the API server.

use std::path::Path;

use hyper::Method;
use serde_json::Value;

use super::agent::Agent;
use super::exec::ExecReply;
use super::http::{Peer, Reply, call};

/// Runs it with these arguments. The name is `cilium` up to 1.14 and `cilium-dbg` after.
pub(crate) async fn run(agent: Agent, argv: Vec<String>) -> ExecReply {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let (program, words) = words.split_first().map_or(("", [].as_slice()), |(first, rest)| (*first, rest));
    let known = if agent.version().has_dbg() { "cilium-dbg" } else { "cilium" };
    if program != known {
        return ExecReply::NotStarted(format!(
            "error executing command in container: failed to exec in container: failed to start exec: OCI runtime exec failed: exec failed: unable to start container process: exec: {program:?}: executable file not found in $PATH: unknown"
        ));
    }
    let socket = agent.socket().to_owned();
    match words {
        ["endpoint", "get", id, "-o", "json"] => {
            let said = |why: &str| format!("Cannot get endpoint {id}: {why}\n");
            let got = get(&socket, &format!("endpoint/{id}"), "[GET /endpoint/{id}]", "getEndpointId").await;
            ended(got.map(|model| Value::Array(vec![model])), said)
        }
        ["endpoint", "log", id, "-o", "json"] => {
            let said = |why: &str| format!("Cannot get endpoint log {id}: {why}\n");
            let path = format!("endpoint/{id}/log");
            ended(get(&socket, &path, "[GET /endpoint/{id}/log]", "getEndpointIdLog").await, said)
        }
        ["endpoint", "list", "-o", "json"] => {
            let said = |why: &str| format!("cannot get endpoint list: {why}\n");
            ended(get(&socket, "endpoint", "[GET /endpoint]", "getEndpoint").await, said)
        }
        ["config", "-r", "-o", "json"] => {
            let got = get(&socket, "config", "[GET /config]", "getConfig").await;
            // The simulated agent shows its mode where the CNI plugin reads it, and no map.
            let map = got.map(|config| {
                let mode = config.pointer("/status/ipam-mode").cloned().unwrap_or_default();
                serde_json::json!({"IPAM": mode, "IPAMDefaultIPPool": "default"})
            });
            ended(map, |why| format!("Error while retrieving configuration: {why}"))
        }
        _ => ended(Err(format!("unknown command {words:?}")), str::to_owned),
    }
}

/// One call, with the text of the generated API client for what is no 200.
async fn get(socket: &Path, path: &str, call_name: &str, operation: &str) -> Result<Value, String> {
    let url = format!("http://localhost/v1/{path}");
    let reply = call(Peer::Unix(socket), Method::GET, &format!("/v1/{path}"), &[], None).await;
    let Reply { status, body, .. } = reply.map_err(|error| {
        let said = match error.kind() {
            std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
            std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            _ => error.to_string(),
        };
        format!("Get {url:?}: dial unix {}: connect: {said}\nIs the agent running?", socket.display())
    })?;
    let word = match status {
        200 => {
            return serde_json::from_slice(&body).map_err(|error| format!("parsing body: {error}"));
        }
        400 => "Invalid",
        404 => "NotFound",
        429 => "TooManyRequests",
        _ => return Err(format!("{call_name} {operation} (status {status}): {{}}")),
    };
    Err(format!("{call_name}[{status}] {operation}{word}"))
}

fn ended(got: Result<Value, String>, said: impl Fn(&str) -> String) -> ExecReply {
    match got {
        Ok(value) => {
            ExecReply::Ended { code: 0, stdout: format!("{value:#}\n").into_bytes(), stderr: Vec::new() }
        }
        Err(why) => {
            let stderr = format!("Error: {}\n", said(&why)).into_bytes();
            ExecReply::Ended { code: 1, stdout: Vec::new(), stderr }
        }
    }
}
