//! Runs a program in a container of a pod (`pods/exec` over a WebSocket) and tells all ends of that apart.
//!
//! An argv and no shell: the image may have none, and nothing is there to be quoted wrongly. It must not know what the
//! program is, nor what its output means.

use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::AttachParams;
use kube::{Api, Client};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::reader::describe;
use crate::domain::{PodName, ReadFailure, Unreadable};
use crate::text::plain;

/// Bytes of each stream that are read: the list of a full node's endpoints has about 2 MiB.
const OUTPUT_LIMIT: usize = 16 * 1024 * 1024;
/// Bytes of a message that are kept.
const MESSAGE_LIMIT: usize = 512;

/// What a program left behind that ran to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutcome {
    /// Its exit status.
    pub code: i32,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

/// Why there is no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    /// 401 or 403: the caller lacks the right.
    #[error("{status}: the right to get and create pods/exec in namespace {namespace} is missing: {message}")]
    Forbidden {
        /// 401 or 403.
        status: u16,
        /// Where it is needed.
        namespace: String,
        /// The server's words.
        message: String,
    },
    /// No such pod, or no such container in it, or it does not run.
    #[error("no such pod or container: {0}")]
    NotFound(String),
    /// The container has no such program.
    #[error("the container has no program {0:?}")]
    NoSuchProgram(String),
    /// It did not end in time.
    #[error("no end within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// It wrote more than this many bytes.
    #[error("more than {0} bytes of output")]
    TooMuchOutput(usize),
    /// Another status that is no answer.
    #[error("{status} {message}")]
    Status {
        /// HTTP status.
        status: u16,
        /// The server's words.
        message: String,
    },
    /// No connection, or it broke before the program's exit status came.
    #[error("no connection: {0}")]
    Connection(String),
}

impl ExecError {
    /// As the domain's unknown; `what` is the command in words a person knows.
    pub fn to_unreadable(&self, what: &str) -> Unreadable {
        let why = match self {
            // Without the server's words, which name the pod: on many nodes it is one and the same trouble.
            Self::Forbidden { status, namespace, .. } => ReadFailure::Status {
                status: *status,
                message: format!("the right to get and create pods/exec in namespace {namespace} is missing"),
            },
            Self::Status { status, message } => {
                ReadFailure::Status { status: *status, message: message.clone() }
            }
            Self::Timeout(_) => ReadFailure::Timeout,
            Self::TooMuchOutput(_) => ReadFailure::Undecodable(self.to_string()),
            Self::NotFound(_) | Self::NoSuchProgram(_) => ReadFailure::Connection(self.to_string()),
            Self::Connection(why) => ReadFailure::Connection(why.clone()),
        };
        Unreadable { what: what.to_owned(), why }
    }
}

/// Runs `argv` in the container to its end. `timeout` bounds all of it.
pub async fn exec(
    client: &Client,
    pod: &PodName,
    container: &str,
    argv: &[&str],
    timeout: Duration,
) -> Result<ExecOutcome, ExecError> {
    let run = run(client, pod, container, argv);
    tokio::time::timeout(timeout, run).await.unwrap_or(Err(ExecError::Timeout(timeout)))
}

async fn run(
    client: &Client,
    pod: &PodName,
    container: &str,
    argv: &[&str],
) -> Result<ExecOutcome, ExecError> {
    let api: Api<core::Pod> = Api::namespaced(client.clone(), pod.namespace());
    let params = AttachParams::default()
        .container(container)
        .stdin(false)
        .max_stdout_buf_size(64 * 1024)
        .max_stderr_buf_size(64 * 1024);
    let opened = api.exec(pod.name(), argv.iter().copied(), &params).await;
    // Dropped on any way out of here, which ends the connection and with it the program.
    let mut process = opened.map_err(|error| refused(&describe(&error), pod))?;
    let status = process.take_status();
    let (stdout, stderr) = (process.stdout(), process.stderr());
    // kube's streams do not end where the connection breaks; the status does, as none.
    let status = async {
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        let broken = "it broke before the program's exit status came";
        status.ok_or_else(|| ExecError::Connection(broken.to_owned()))
    };
    let (stdout, stderr, status) = tokio::try_join!(drain(stdout), drain(stderr), status)?;
    ended(&status, argv, stdout, stderr)
}

async fn drain(stream: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, ExecError> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let limit = u64::try_from(OUTPUT_LIMIT).unwrap_or(u64::MAX);
        let read = stream.take(limit + 1).read_to_end(&mut bytes).await;
        read.map_err(|error| ExecError::Connection(error.to_string()))?;
    }
    if bytes.len() > OUTPUT_LIMIT { Err(ExecError::TooMuchOutput(OUTPUT_LIMIT)) } else { Ok(bytes) }
}

/// The API server, or the kubelet behind it, would not begin.
fn refused(why: &ReadFailure, pod: &PodName) -> ExecError {
    match why {
        ReadFailure::Status { status: status @ (401 | 403), message } => ExecError::Forbidden {
            status: *status,
            namespace: pod.namespace().to_owned(),
            message: message.clone(),
        },
        ReadFailure::Status { status: 404, message } => ExecError::NotFound(message.clone()),
        ReadFailure::Status { message, .. }
            if ["container not found", "is not valid for pod", "not have a host assigned"]
                .iter()
                .any(|text| message.contains(text)) =>
        {
            ExecError::NotFound(message.clone())
        }
        ReadFailure::Status { status, message } => {
            ExecError::Status { status: *status, message: message.clone() }
        }
        ReadFailure::Timeout => ExecError::Connection("timed out".to_owned()),
        ReadFailure::Connection(why) | ReadFailure::Undecodable(why) => ExecError::Connection(why.clone()),
        ReadFailure::NotAsked => ExecError::Connection("not asked".to_owned()),
    }
}

/// What the status of the fourth channel says: `Success`, an exit code among its causes, or that nothing was started.
fn ended(status: &Status, argv: &[&str], stdout: Vec<u8>, stderr: Vec<u8>) -> Result<ExecOutcome, ExecError> {
    if status.status.as_deref() == Some("Success") {
        return Ok(ExecOutcome { code: 0, stdout, stderr });
    }
    let message = plain(status.message.as_deref().unwrap_or_default(), MESSAGE_LIMIT);
    let program = argv.first().copied().unwrap_or_default();
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let mut codes = causes
        .filter(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .filter_map(|cause| cause.message.as_deref()?.parse::<i32>().ok());
    match codes.next() {
        // Docker and some CRI-O versions start nothing and say so as if the program had written it.
        Some(126 | 127) if lacks(program, &text(&stdout)) || lacks(program, &text(&stderr)) => {
            Err(ExecError::NoSuchProgram(program.to_owned()))
        }
        Some(code) => Ok(ExecOutcome { code, stdout, stderr }),
        None if lacks(program, &message) => Err(ExecError::NoSuchProgram(program.to_owned())),
        None if message.contains("container not found") => Err(ExecError::NotFound(message)),
        None => {
            let code = status.code.and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
            Err(ExecError::Status { status: code, message })
        }
    }
}

/// runc: `exec: "cilium-dbg": executable file not found in $PATH`; crun: ``executable file `cilium-dbg` not found``.
fn lacks(program: &str, message: &str) -> bool {
    let names = [format!("\"{program}\""), format!("`{program}`"), format!("\\\"{program}\\\"")];
    names.iter().any(|name| message.contains(name))
        && message.contains("executable file")
        && message.contains("not found")
}

fn text(bytes: &[u8]) -> String {
    plain(&String::from_utf8_lossy(bytes), MESSAGE_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGV: [&str; 2] = ["cilium-dbg", "version"];

    fn status(json: &str) -> Status {
        serde_json::from_str(json).expect("a status")
    }

    fn end(json: &str) -> Result<ExecOutcome, ExecError> {
        ended(&status(json), &ARGV, b"out".to_vec(), b"err".to_vec())
    }

    #[test]
    fn success_is_exit_status_0() {
        let outcome = end(r#"{"metadata":{},"status":"Success"}"#).expect("an outcome");
        assert_eq!((outcome.code, outcome.stdout, outcome.stderr), (0, b"out".to_vec(), b"err".to_vec()));
    }

    #[test]
    fn another_exit_status_is_an_outcome_too() {
        let json = r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: exit status 1","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"1"}]}}"#;
        assert_eq!(end(json).map(|outcome| outcome.code), Ok(1));
    }

    #[rstest::rstest]
    #[case::containerd_runc(
        r#"{"status":"Failure","code":500,"reason":"InternalError","message":"Internal error occurred: Internal error occurred: error executing command in container: failed to exec in container: failed to start exec \"8a\": OCI runtime exec failed: exec failed: unable to start container process: exec: \"cilium-dbg\": executable file not found in $PATH: unknown"}"#
    )]
    #[case::crio_crun(
        r#"{"status":"Failure","code":500,"message":"Internal error occurred: error executing command in container: command error: executable file `cilium-dbg` not found in $PATH: No such file or directory, exit code 1"}"#
    )]
    fn a_program_that_is_not_there(#[case] json: &str) {
        assert_eq!(end(json), Err(ExecError::NoSuchProgram("cilium-dbg".to_owned())));
    }

    #[test]
    fn a_program_that_is_not_there_as_docker_says_it() {
        let json = r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"126"}]}}"#;
        let said = b"OCI runtime exec failed: exec failed: container_linux.go:380: starting container process caused: exec: \"cilium-dbg\": executable file not found in $PATH: unknown\r\n";
        let end = ended(&status(json), &ARGV, said.to_vec(), Vec::new());
        assert_eq!(end, Err(ExecError::NoSuchProgram("cilium-dbg".to_owned())));
    }

    #[test]
    fn a_failure_without_exit_status_is_no_outcome() {
        let json = r#"{"status":"Failure","code":500,"message":"Internal error occurred: error dialing backend: dial tcp 10.0.0.9:10250: i/o timeout"}"#;
        assert!(matches!(end(json), Err(ExecError::Status { status: 500, .. })));
    }

    fn refusal(status: u16, message: &str) -> ExecError {
        let pod = PodName::new("kube-system", "cilium-x").expect("a name");
        refused(&ReadFailure::Status { status, message: message.to_owned() }, &pod)
    }

    #[test]
    fn refusals_are_told_apart() {
        let forbidden = refusal(403, "pods \"cilium-x\" is forbidden").to_string();
        assert!(forbidden.contains("get and create pods/exec in namespace kube-system"), "{forbidden}");
        assert!(matches!(refusal(404, "pods \"cilium-x\" not found"), ExecError::NotFound(_)));
        let container = "container agent is not valid for pod cilium-x";
        assert!(matches!(refusal(400, container), ExecError::NotFound(_)));
        let stopped = "unable to upgrade connection: container not found (\"cilium-agent\")";
        assert!(matches!(refusal(500, stopped), ExecError::NotFound(_)));
        assert!(matches!(refusal(503, "busy"), ExecError::Status { status: 503, .. }));
    }
}
