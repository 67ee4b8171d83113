//! Flags that say how to reach the API server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;
use crate::kube::ClientOptions;

#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct ConnectionArgs {
    /// Kubeconfig file; without it $KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long, value_name = "FILE", env = "CILIUM_LEAK_HEALER_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig, if not its current one.
    #[arg(long, value_name = "NAME", env = "CILIUM_LEAK_HEALER_CONTEXT")]
    context: Option<String>,

    /// Time-out of one request to the API server.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_API_TIMEOUT")]
    api_timeout: Duration,
}

impl ConnectionArgs {
    /// The flags that lead to the same cluster, as kubectl has them too; empty without any.
    pub(super) fn flags(&self) -> String {
        let file = self.kubeconfig.as_ref().map(|path| ("--kubeconfig", path.display().to_string()));
        let context = self.context.as_ref().map(|name| ("--context", name.clone()));
        let quoted = |(flag, value): (&str, String)| format!("{flag} {}", quoted(&value));
        [file, context].into_iter().flatten().map(quoted).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn options(&self) -> ClientOptions {
        ClientOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            timeout: self.api_timeout,
        }
    }
}

/// A word for a POSIX shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
