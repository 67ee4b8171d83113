//! Flags that say which watchdogs are meant, and how they are reached.

use clap::Args;
use kube::Client;

use super::directory::Search;
use super::wire::{Via, Wire};
use crate::cli::connection::ConnectionArgs;
use crate::domain::NodeName;
use crate::kube::{ClientOptions, LabelMatch, PodStore, Reader};

#[derive(Debug, Args)]
pub(in crate::cli) struct WatchdogArgs {
    /// Namespace of the watchdog's pods.
    #[arg(
        short = 'n',
        long,
        visible_alias = "namespace",
        value_name = "NAMESPACE",
        default_value = "cilium-leak-healer",
        env = "CILIUM_LEAK_HEALER_WATCHDOG_NAMESPACE"
    )]
    pub(in crate::cli) watchdog_namespace: String,

    /// Labels of the watchdog's pods.
    #[arg(short = 'l', long, value_name = "KEY=VALUE,…", default_value = "app.kubernetes.io/name=cilium-leak-healer", value_parser = selector)]
    pub(in crate::cli) selector: String,

    /// Only these nodes.
    #[arg(long, value_name = "NODE,…", value_delimiter = ',')]
    pub(in crate::cli) node: Vec<NodeName>,

    /// Port of the watchdog's HTTP.
    #[arg(long, value_name = "PORT", default_value_t = 9969, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// How the watchdogs are reached.
    #[arg(long, value_enum, default_value_t = Via::PortForward, value_name = "WAY")]
    via: Via,

    #[command(flatten)]
    connection: ConnectionArgs,
}

impl WatchdogArgs {
    pub(in crate::cli) fn options(&self) -> ClientOptions {
        self.connection.options()
    }

    /// What finds their pods.
    pub(in crate::cli) fn search(&self, client: Client) -> Search {
        Search {
            reader: Reader::new(client, self.options().timeout, PodStore::default()),
            namespace: self.watchdog_namespace.clone(),
            selector: self.selector.clone(),
            nodes: self.node.iter().map(ToString::to_string).collect(),
        }
    }

    /// The way to them.
    pub(in crate::cli) fn wire(&self, client: Client) -> Wire {
        Wire {
            client,
            namespace: self.watchdog_namespace.clone(),
            port: self.port,
            via: self.via,
            timeout: self.options().timeout,
        }
    }
}

fn selector(text: &str) -> Result<String, String> {
    text.parse::<LabelMatch>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}
