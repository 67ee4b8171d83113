//! `doctor`: what works, what is missing, how to mend it. It reads, and asks for access reviews; it changes nothing.

mod checks;
mod probe;
mod seen;

use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use clap::Args;
use serde::Serialize;

use super::Output;
use super::connection::ConnectionArgs;
use super::scan::{AgentArgs, OneByOne};
use super::wrap::wrap;
use crate::kube::connect;
use crate::metrics::Metrics;
use checks::{Level, Line};
use probe::Probe;

const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Look at the rights of this service account, not at the caller's.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = account, env = "CILIUM_LEAK_HEALER_AS_SERVICE_ACCOUNT")]
    as_service_account: Option<(String, String)>,

    /// Namespace of the watchdog's DaemonSet.
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "cilium-leak-healer",
        env = "CILIUM_LEAK_HEALER_WATCHDOG_NAMESPACE"
    )]
    watchdog_namespace: String,

    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,

    #[command(flatten)]
    agent: AgentArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    kind: &'static str,
    schema_version: u32,
    healthy: bool,
    checks: &'a [Line],
}

/// `NAMESPACE/NAME`.
fn account(text: &str) -> Result<(String, String), String> {
    let name: crate::domain::PodName =
        text.parse().map_err(|_| format!("{text:?} is no NAMESPACE/NAME of a service account"))?;
    Ok((name.namespace().to_owned(), name.name().to_owned()))
}

/// Whether nothing failed.
pub(super) async fn doctor(args: DoctorArgs) -> Result<bool> {
    let options = args.connection.options();
    let timeout = options.timeout;
    let (client, _) = connect(&options, &Arc::new(Metrics::new())).await?;
    let (namespace, selector, container) = args.agent.place();
    let probe = Probe {
        client,
        timeout,
        exec: OneByOne::new(&args.connection, &args.agent).await?,
        account: args.as_service_account.clone(),
        agent_namespace: namespace.map(str::to_owned),
        selector: selector.to_owned(),
        container: container.to_owned(),
        watchdog_namespace: args.watchdog_namespace.clone(),
    };
    let lines = match probe.version().await {
        Ok(version) => checks::lines(&probe.look(version).await),
        Err(why) => vec![checks::no_server(&why)],
    };
    let healthy = lines.iter().all(|line| line.level != Level::Fail);
    let text = match args.output {
        Output::Text => text(&lines),
        Output::Json => {
            let report =
                Report { kind: "DoctorReport", schema_version: SCHEMA_VERSION, healthy, checks: &lines };
            format!("{}\n", serde_json::to_string_pretty(&report)?)
        }
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| anyhow!("standard output: {error}"))?;
    Ok(healthy)
}

/// The lines for people, and what they come to.
fn text(lines: &[Line]) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in lines {
        out.extend(wrap(&format!("{:<5} {:<19} ", line.level.as_str(), line.check), &line.seen));
        if let Some(mend) = &line.mend {
            out.extend(wrap(&format!("{:26}mend: ", ""), mend));
        }
    }
    let count = |level| lines.iter().filter(|line| line.level == level).count();
    out.push(format!(
        "\n{} ok, {} warn, {} fail\n",
        count(Level::Ok),
        count(Level::Warn),
        count(Level::Fail)
    ));
    out.join("\n")
}
