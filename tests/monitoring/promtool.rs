//! Prometheus's own tool, where it is installed.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `promtool` in a directory. `None` where it is not installed: in CI that is a failure, elsewhere it is said.
pub fn promtool(args: &[&str], dir: &Path, stdin: &str) -> Option<Output> {
    let mut command = Command::new("promtool");
    command.args(args).current_dir(dir);
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            let missing = format!("promtool {args:?} cannot be run: {error}");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
            // Past the harness, which shows what a test prints only where it fails.
            let _ = writeln!(std::io::stderr(), "!!! SKIPPED a part of the monitoring tests: {missing}");
            return None;
        }
    };
    child.stdin.take().expect("a pipe").write_all(stdin.as_bytes()).expect("it reads");
    Some(child.wait_with_output().expect("it ends"))
}

/// The same, and it must go well.
pub fn must_pass(args: &[&str], dir: &Path, stdin: &str) {
    if let Some(output) = promtool(args, dir, stdin) {
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "promtool {args:?}:\n{}\n{}", said[0], said[1]);
    }
}
