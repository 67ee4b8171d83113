//! The agent's API as seen through its own command line (`cilium-dbg`, up to 1.14 `cilium`), for who has no socket.
//!
//! Pure: an argv out, an exit status and two streams in. It must not know how the program is run. Formats and exit
//! statuses are those of `cilium-dbg/cmd` (seen on 1.20.2): JSON on standard output and 0, or `Error: …` on standard
//! error and 1, with the text of the generated API client inside: `[GET /endpoint/{id}][404] getEndpointIdNotFound`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::call_error::CallError;
use super::lenient::Object;
use super::model::{EndpointModel, LogModel, log_entries};
use crate::domain::{IpamMode, canonical_ip};
use crate::text::plain;

/// The names of the program, the newer one first.
pub const DBG_PROGRAMS: [&str; 2] = ["cilium-dbg", "cilium"];
/// How long the program itself waits for the agent.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Characters that are kept of what it says.
const MESSAGE_LIMIT: usize = 512;
/// It says so on standard output where somebody left a `.cilium.yaml` in the container's home.
const CONFIG_LINE: &[u8] = b"Using config file:";

/// One command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DbgCall {
    /// The endpoint that holds an address.
    Endpoint(IpAddr),
    /// The whole log of the endpoint that holds an address.
    EndpointLog(IpAddr),
    /// All endpoints.
    Endpoints,
    /// The configuration; its map of read-only settings has the IPAM mode.
    Config,
}

/// What one run left behind.
#[derive(Debug, Clone, Copy)]
pub struct DbgOutput<'a> {
    /// Exit status.
    pub code: i32,
    /// Standard output.
    pub stdout: &'a [u8],
    /// Standard error.
    pub stderr: &'a [u8],
}

impl DbgCall {
    /// The arguments after the program's name.
    pub fn args(self) -> Vec<String> {
        let words: Vec<String> = match self {
            Self::Endpoint(ip) => vec!["endpoint".into(), "get".into(), ip_id(ip)],
            Self::EndpointLog(ip) => vec!["endpoint".into(), "log".into(), ip_id(ip)],
            Self::Endpoints => vec!["endpoint".into(), "list".into()],
            Self::Config => vec!["config".into(), "-r".into()],
        };
        words.into_iter().chain(["-o".to_owned(), "json".to_owned()]).collect()
    }

    /// The call's name in a snapshot's `failures`; `None` where a failure is carried otherwise.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Endpoint(_) => Some("get-endpoint"),
            Self::EndpointLog(_) => None,
            Self::Endpoints => Some("list-endpoints"),
            Self::Config => Some("get-config"),
        }
    }

    /// The id that it asks for.
    pub fn id(self) -> Option<String> {
        match self {
            Self::Endpoint(ip) | Self::EndpointLog(ip) => Some(ip_id(ip)),
            Self::Endpoints | Self::Config => None,
        }
    }
}

fn ip_id(ip: IpAddr) -> String {
    let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
    format!("{family}:{}", canonical_ip(ip))
}

/// The answer of [`DbgCall::Endpoint`]; `None`: nobody holds the address, which is believed of the registry's own
/// words only.
pub fn dbg_endpoint(ip: IpAddr, output: &DbgOutput<'_>) -> Result<Option<EndpointModel>, CallError> {
    let id = ip_id(ip);
    let none = format!("Error: Cannot get endpoint {id}: [GET /endpoint/{{id}}][404] getEndpointIdNotFound");
    if output.code == 1
        && output.stdout.trim_ascii().is_empty()
        && output.stderr.trim_ascii() == none.as_bytes()
    {
        return Ok(None);
    }
    let mut models = endpoints(output)?;
    match (models.pop(), models.len()) {
        (Some(model), 0) => Ok(Some(model)),
        (last, before) => {
            let count = before + usize::from(last.is_some());
            Err(CallError::Undecodable(format!("{count} endpoints where one has to be")))
        }
    }
}

/// The answer of [`DbgCall::EndpointLog`], newest first, with all timestamps. One that cannot be read makes the whole
/// log unknown: it could be the newest.
pub fn dbg_endpoint_log(output: &DbgOutput<'_>) -> Result<Vec<LogModel>, CallError> {
    let log: Option<Vec<Option<Object<LogModel>>>> = json(output)?;
    let log: Vec<Option<LogModel>> =
        log.into_iter().flatten().map(|entry| entry.map(|Object(entry)| entry)).collect();
    if log_entries(&log).is_none() {
        return Err(CallError::Undecodable("a log entry without a proper timestamp".to_owned()));
    }
    Ok(log.into_iter().flatten().collect())
}

/// The answer of [`DbgCall::Endpoints`]. One that is none makes the list unreadable.
pub fn dbg_endpoints(output: &DbgOutput<'_>) -> Result<Vec<EndpointModel>, CallError> {
    endpoints(output)
}

/// The IPAM mode in the answer of [`DbgCall::Config`].
pub fn dbg_ipam_mode(output: &DbgOutput<'_>) -> Result<IpamMode, CallError> {
    #[derive(Deserialize)]
    struct Settings {
        #[serde(rename = "IPAM", alias = "ipam")]
        ipam: Option<String>,
    }
    let mode = json::<Object<Settings>>(output)?.0.ipam.filter(|mode| !mode.is_empty());
    mode.map(IpamMode).ok_or_else(|| CallError::Undecodable("no IPAM in the configuration".to_owned()))
}

/// Without what no rule reads: with policy, health and maps a full model has some 20 kB.
fn endpoints(output: &DbgOutput<'_>) -> Result<Vec<EndpointModel>, CallError> {
    // Go prints an empty list as null.
    let models = json::<Option<Vec<Object<EndpointModel>>>>(output)?.unwrap_or_default();
    let mut models: Vec<EndpointModel> = models.into_iter().map(|Object(model)| model).collect();
    for model in &mut models {
        // What the rules cannot read is told now, as the answer that it is, and not by whoever reads the snapshot.
        model.to_holder(None).map_err(|error| CallError::Undecodable(error.0))?;
        model.prune();
    }
    Ok(models)
}

fn json<T: DeserializeOwned>(output: &DbgOutput<'_>) -> Result<T, CallError> {
    if output.code != 0 {
        return Err(failure(output));
    }
    let mut text = output.stdout.trim_ascii_start();
    if text.starts_with(CONFIG_LINE) {
        let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        text = text.get(end..).unwrap_or_default();
    }
    serde_json::from_slice(text).map_err(|error| CallError::Undecodable(error.to_string()))
}

/// What the program says of a failure, as the error that the call itself would have given.
fn failure(output: &DbgOutput<'_>) -> CallError {
    let all =
        format!("{} {}", String::from_utf8_lossy(output.stderr), String::from_utf8_lossy(output.stdout));
    let said = plain(&all, MESSAGE_LIMIT);
    let socket = || PathBuf::from("/var/run/cilium/cilium.sock");
    if let Some(status) = status_in(&said) {
        return match status {
            400 => CallError::BadRequest(said),
            403 => CallError::Forbidden(said),
            404 => CallError::NotFound { body: said },
            422 => CallError::Unprocessable(said),
            429 => CallError::TooManyRequests(said),
            500..=599 => CallError::ServerError { status, message: said },
            _ => CallError::OtherStatus { status, message: said },
        };
    }
    if said.contains("timeout exceeded") || said.contains("deadline exceeded") || said.contains("i/o timeout")
    {
        CallError::Timeout(CLIENT_TIMEOUT)
    } else if said.contains("dial unix") && said.contains("no such file") {
        CallError::NoSocket(socket())
    } else if said.contains("connection refused") {
        CallError::ConnectionRefused(socket())
    } else {
        CallError::Connection(format!("exit status {}: {said}", output.code))
    }
}

/// The status in `[GET /endpoint/{id}][429] getEndpointIdTooManyRequests`, or in `… (status 503): …` of one that the
/// API's description does not name.
fn status_in(said: &str) -> Option<u16> {
    let after = |mark: &str, end: char| {
        let rest = &said[said.find(mark)? + mark.len()..];
        rest.split_once(end)?.0.parse::<u16>().ok()
    };
    let call = said.find("[GET /").and_then(|at| {
        let rest = &said[at..];
        let rest = &rest[rest.find("][")? + 2..];
        rest.split_once(']')?.0.parse::<u16>().ok()
    });
    call.or_else(|| after("(status ", ')')).filter(|status| (100..1000).contains(status))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const IP: &str = "10.244.1.12";

    fn ip() -> IpAddr {
        IP.parse().expect("an address")
    }

    fn failed(stderr: &str) -> DbgOutput<'_> {
        DbgOutput { code: 1, stdout: b"", stderr: stderr.as_bytes() }
    }

    fn printed(stdout: &str) -> DbgOutput<'_> {
        DbgOutput { code: 0, stdout: stdout.as_bytes(), stderr: b"" }
    }

    #[test]
    fn commands_are_words_and_no_shell_line() {
        assert_eq!(DbgCall::Endpoint(ip()).args(), ["endpoint", "get", "ipv4:10.244.1.12", "-o", "json"]);
        let v6 = DbgCall::EndpointLog("FD00::A".parse().expect("an address"));
        assert_eq!(v6.args(), ["endpoint", "log", "ipv6:fd00::a", "-o", "json"]);
        assert_eq!(DbgCall::Endpoints.args(), ["endpoint", "list", "-o", "json"]);
        assert_eq!(DbgCall::Config.args(), ["config", "-r", "-o", "json"]);
    }

    #[rstest::rstest]
    #[case::cilium_1_20(
        "Error: Cannot get endpoint ipv4:10.244.1.12: [GET /endpoint/{id}][404] getEndpointIdNotFound\n\n"
    )]
    #[case::blank_at_the_end_before(
        "Error: Cannot get endpoint ipv4:10.244.1.12: [GET /endpoint/{id}][404] getEndpointIdNotFound \n\n"
    )]
    fn only_the_own_words_of_the_registry_say_that_nobody_holds_it(#[case] stderr: &str) {
        assert!(matches!(dbg_endpoint(ip(), &failed(stderr)), Ok(None)));
    }

    #[rstest::rstest]
    #[case::another_address(
        "Error: Cannot get endpoint ipv4:10.244.1.1: [GET /endpoint/{id}][404] getEndpointIdNotFound\n",
        404
    )]
    #[case::something_beside(
        "Error: Cannot get endpoint ipv4:10.244.1.12: [GET /endpoint/{id}][404] getEndpointIdNotFound\nIs the agent running?\n",
        404
    )]
    #[case::too_many(
        "Error: Cannot get endpoint ipv4:10.244.1.12: [GET /endpoint/{id}][429] getEndpointIdTooManyRequests\n",
        429
    )]
    #[case::invalid(
        "Error: Cannot get endpoint x: [GET /endpoint/{id}][400] getEndpointIdInvalid \"unknown endpoint ID prefix\"\n",
        400
    )]
    #[case::not_described(
        "Error: Cannot get endpoint ipv4:10.244.1.12: [GET /endpoint/{id}] GetEndpointID (status 403): {}\n",
        403
    )]
    #[case::older_not_described(
        "Error: Cannot get endpoint ipv4:10.244.1.12: unknown error (status 503): {resp:0xc000}\n",
        503
    )]
    fn every_other_status_is_unknown(#[case] stderr: &str, #[case] status: u16) {
        let error = dbg_endpoint(ip(), &failed(stderr)).expect_err("an error");
        let why = error.to_unreadable("x").why;
        assert!(
            matches!(why, crate::domain::ReadFailure::Status { status: seen, .. } if seen == status),
            "{why:?}"
        );
    }

    #[rstest::rstest]
    #[case(
        "Error: Cannot get endpoint ipv4:10.244.1.12: Get \"http://localhost/v1/endpoint/ipv4:10.244.1.12\": dial unix /var/run/cilium/cilium.sock: connect: no such file or directory\n",
        "no-socket"
    )]
    #[case(
        "Error: Cannot get endpoint ipv4:10.244.1.12: Get \"http://localhost/v1/endpoint/ipv4:10.244.1.12\": dial unix /var/run/cilium/cilium.sock: connect: connection refused\n",
        "refused"
    )]
    #[case("Error: cannot get endpoint list: Cilium API client timeout exceeded\n", "timeout")]
    #[case(
        "Error: Cannot get endpoint ipv4:10.244.1.12: Get \"http://localhost/v1/endpoint/ipv4:10.244.1.12\": context deadline exceeded\n",
        "timeout"
    )]
    #[case("Error: unknown command \"endpoint\" for \"cilium\"\n", "connection")]
    #[case("", "connection")]
    fn what_is_no_answer_is_unknown(#[case] stderr: &str, #[case] outcome: &str) {
        let error = dbg_endpoint(ip(), &failed(stderr)).expect_err("an error");
        assert_eq!(error.outcome(), outcome);
    }

    #[test]
    fn an_endpoint_is_cut_to_what_the_rules_read() {
        let model = json!([{
            "id": 1560, "spec": {"options": {}},
            "status": {
                "state": "ready", "policy": {"realized": {}}, "log": [{"state": "ready", "timestamp": "2026-06-18T10:00:00Z"}],
                "external-identifiers": {"cni-attachment-id": "ab:eth0"},
                "controllers": [{"name": "resolve-labels-a/b", "status": {"success-count": 3}}, {"name": "sync-policymap-1"}],
                "identity": {"id": 7, "labels": ["k8s:app=x", "reserved:init"], "labelsSHA256": "00"},
                "labels": {"security-relevant": ["k8s:io.kubernetes.pod.namespace=a"], "derived": []},
                "networking": {"addressing": [{"ipv4": IP}]},
            },
        }]);
        let text = format!("Using config file: /root/.cilium.yaml\n{model:#}\n");
        let slim = dbg_endpoint(ip(), &printed(&text)).expect("an answer").expect("an endpoint");
        let want = json!({
            "id": 1560,
            "status": {
                "state": "ready", "log": [{"state": "ready", "timestamp": "2026-06-18T10:00:00Z"}],
                "external-identifiers": {"cni-attachment-id": "ab:eth0"},
                "controllers": [{"name": "resolve-labels-a/b"}],
                "identity": {"labels": ["reserved:init"]},
                "labels": {"security-relevant": ["k8s:io.kubernetes.pod.namespace=a"]},
                "networking": {"addressing": [{"ipv4": IP}]},
            },
        });
        assert_eq!(serde_json::to_value(slim).expect("JSON"), want);
    }

    #[rstest::rstest]
    #[case::nothing("")]
    #[case::text("no JSON at all")]
    #[case::cut("[{\"id\": 1")]
    #[case::no_endpoint("[]")]
    #[case::two("[{\"id\": 1}, {\"id\": 2}]")]
    #[case::no_id("[{\"status\": {}}]")]
    #[case::wrong_type("[{\"id\": 1, \"status\": {\"state\": 7}}]")]
    #[case::null("null")]
    fn what_is_no_endpoint_is_unreadable(#[case] stdout: &str) {
        let answer = dbg_endpoint(ip(), &printed(stdout));
        assert!(matches!(answer, Err(CallError::Undecodable(_))), "{answer:?}");
    }

    #[test]
    fn an_empty_list_and_one_bad_entry_of_a_list() {
        assert_eq!(dbg_endpoints(&printed("null\n")).map(|list| list.len()), Ok(0));
        assert_eq!(dbg_endpoints(&printed("[{\"id\": 4}]")).map(|list| list.len()), Ok(1));
        assert!(dbg_endpoints(&printed("[{\"id\": 4}, {\"id\": \"x\"}]")).is_err());
    }

    #[test]
    fn a_log_is_read_whole_or_not_at_all() {
        let log = "[{\"code\": \"OK\", \"message\": \"x\", \"state\": \"ready\", \"timestamp\": \"2026-06-18T10:00:00Z\"}, {\"state\": \"waiting-for-identity\", \"timestamp\": \"2026-06-18T09:00:00Z\"}]";
        let entries = dbg_endpoint_log(&printed(log)).expect("a log");
        let json = serde_json::to_value(&entries).expect("JSON");
        assert_eq!(json.pointer("/1/timestamp"), Some(&json!("2026-06-18T09:00:00Z")));
        assert!(dbg_endpoint_log(&printed("[{\"timestamp\": \"yesterday\"}]")).is_err());
        let gone = "Error: Cannot get endpoint log x: [GET /endpoint/{id}/log][404] getEndpointIdLogNotFound";
        assert!(dbg_endpoint_log(&failed(gone)).is_err());
    }

    #[test]
    fn the_ipam_mode_is_among_the_read_only_settings() {
        assert_eq!(
            dbg_ipam_mode(&printed("{\"IPAM\": \"eni\", \"IPAMDefaultIPPool\": \"default\"}")),
            Ok(IpamMode("eni".to_owned()))
        );
        assert!(dbg_ipam_mode(&printed("{\"IPAM\": \"\"}")).is_err());
        assert!(dbg_ipam_mode(&printed("{}")).is_err());
        assert!(dbg_ipam_mode(&failed("Error: Error while retrieving configuration: x")).is_err());
    }
}
