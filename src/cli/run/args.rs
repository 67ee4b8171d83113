//! The flags of `run`, each with its twin in the environment, and what they mean to the parts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::JUDGE_TIMEOUT;
use crate::admin::Auth;
use crate::cli::connection::ConnectionArgs;
use crate::cli::duration;
use crate::cli::log::LogArgs;
use crate::clock::WallClock;
use crate::domain::{Limits, NodeName, RemedyKind, judge};
use crate::engine::{EngineOptions, Mode, Namespaces};
use crate::kube::{LabelMatch, WatchOptions};
use crate::ledger::{BoundOptions, BreakerOptions, BucketOptions};

/// The usage is what is printed of a missing node name: it names both ways to give it.
#[derive(Debug, Args)]
#[command(
    override_usage = "cilium-leak-healer run --node-name <NODE> [OPTIONS]\n       CILIUM_LEAK_HEALER_NODE_NAME=<NODE> cilium-leak-healer run [OPTIONS]"
)]
pub(in crate::cli) struct RunArgs {
    /// Name of the node, as in spec.nodeName of its pods.
    #[arg(long, value_name = "NODE", env = "CILIUM_LEAK_HEALER_NODE_NAME")]
    pub(super) node_name: NodeName,

    /// Whether to act: observe only tells.
    #[arg(long, value_enum, default_value_t = ModeArg::Observe, env = "CILIUM_LEAK_HEALER_MODE")]
    pub(super) mode: ModeArg,

    /// Remedies that mode heal may use, separated by commas. restart-agent needs rights of its own.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [RemedyArg::DisconnectEndpoint, RemedyArg::DeletePod], env = "CILIUM_LEAK_HEALER_REMEDIES")]
    pub(super) remedies: Vec<RemedyArg>,

    /// Addresses of the HTTP server, separated by commas: /livez, /readyz, /healthz, /metrics, /v1/events, /v1/state. Port 0 takes a free one.
    #[arg(
        long,
        value_name = "ADDRESSES",
        value_delimiter = ',',
        default_value = "127.0.0.1:9965",
        env = "CILIUM_LEAK_HEALER_LISTEN"
    )]
    pub(super) listen: Vec<SocketAddr>,

    /// What is asked of clients of /v1 that do not come over loopback: nothing, or a bearer token whose user may `get` the
    /// path by RBAC (rbac/auth.yaml). Without this flag they are turned away.
    #[arg(long, value_enum, env = "CILIUM_LEAK_HEALER_AUTH")]
    pub(super) auth: Option<AuthArg>,

    /// Streams of /v1/events that may be open at one time; a further one gets 503.
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = stream_clients, env = "CILIUM_LEAK_HEALER_STREAM_CLIENTS")]
    pub(super) stream_clients: usize,

    #[command(flatten)]
    pub(super) safety: SafetyArgs,

    #[command(flatten)]
    pub(super) bounds: BoundArgs,

    #[command(flatten)]
    pub(super) agent: AgentArgs,

    #[command(flatten)]
    pub(super) pace: PaceArgs,

    #[command(flatten)]
    pub(super) limits: LimitArgs,

    #[command(flatten)]
    pub(super) connection: ConnectionArgs,

    #[command(flatten)]
    pub(super) log: LogArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ModeArg {
    Observe,
    Heal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RemedyArg {
    DisconnectEndpoint,
    DeletePod,
    RestartAgent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum AuthArg {
    None,
    Token,
}

/// A word for yes or no after the flag: `--require-fence=false`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Safety")]
pub(super) struct SafetyArgs {
    /// Namespace of the watchdog itself: its Leases, and the annotation cilium-leak-healer/paused that stops all acts.
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "cilium-leak-healer",
        env = "CILIUM_LEAK_HEALER_OWN_NAMESPACE"
    )]
    pub(super) own_namespace: String,

    /// Directory of the ledger: what was done, the budgets, the breaker. It must outlive the pod.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/cilium-leak-healer",
        env = "CILIUM_LEAK_HEALER_STATE_DIR"
    )]
    pub(super) state_dir: PathBuf,

    /// Act only while the self-test finds the admission fence (rbac/fence.yaml) at work. Off: a stolen token can delete pods.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, env = "CILIUM_LEAK_HEALER_REQUIRE_FENCE")]
    pub(super) require_fence: bool,

    /// Heal only this long after the namespace of --own-namespace was made; after that, observe. For test installations.
    #[arg(long, value_name = "DURATION", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_HEAL_FOR")]
    pub(super) heal_for: Option<Duration>,

    /// Act on versions and IPAM modes of Cilium that this program does not know, too.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set, env = "CILIUM_LEAK_HEALER_ALLOW_UNKNOWN_CILIUM")]
    pub(super) allow_unknown_cilium: bool,

    /// Act for pods of these namespaces only, separated by commas. Also the only way to have pods of kube-system deleted.
    #[arg(
        long,
        value_name = "NAMESPACES",
        value_delimiter = ',',
        value_parser = namespace,
        env = "CILIUM_LEAK_HEALER_NAMESPACE_ALLOW"
    )]
    pub(super) namespace_allow: Vec<String>,

    /// Never act for pods of these namespaces, separated by commas. Wins over the other list.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',', value_parser = namespace, env = "CILIUM_LEAK_HEALER_NAMESPACE_DENY")]
    pub(super) namespace_deny: Vec<String>,
}

/// Each stream costs a connection and up to its socket buffers: a watchdog is no message broker.
fn stream_clients(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if count > 256 { Err(format!("{count} is more than 256")) } else { Ok(count) }
}

/// The name of a namespace; blanks around it do not count.
fn namespace(text: &str) -> Result<String, String> {
    let name = text.trim();
    let label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(label) {
        return Err(format!("{name:?} is no name of a namespace"));
    }
    Ok(name.to_owned())
}

/// The defaults are those of [`BoundOptions`]; a test holds them to it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Bounds")]
pub(super) struct BoundArgs {
    /// Disconnects that this node may make at once.
    #[arg(long, value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..), env = "CILIUM_LEAK_HEALER_DISCONNECT_BURST")]
    pub(super) disconnect_burst: u32,

    /// Time until this node may make one more disconnect.
    #[arg(long, value_name = "DURATION", default_value = "6s", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_DISCONNECT_REFILL")]
    pub(super) disconnect_refill: Duration,

    /// Pods that this node may delete at once.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), env = "CILIUM_LEAK_HEALER_DELETE_BURST")]
    pub(super) delete_burst: u32,

    /// Time until this node may delete one more pod.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_DELETE_REFILL")]
    pub(super) delete_refill: Duration,

    /// Pods that may be in deletion in the whole cluster: as many Leases are used. The manifests make three.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100), env = "CILIUM_LEAK_HEALER_DELETE_IN_FLIGHT")]
    pub(super) delete_in_flight: u32,

    /// Time until this node may restart its agent once more.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_RESTART_REFILL")]
    pub(super) restart_refill: Duration,

    /// Acts that may not have helped, or not have shown yet that they did, before all acts stop; more by the share, and more without outcome where as many helped.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), env = "CILIUM_LEAK_HEALER_BREAKER_FLOOR")]
    pub(super) breaker_floor: u32,

    /// The same as a share of the recent acts, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100), env = "CILIUM_LEAK_HEALER_BREAKER_SHARE")]
    pub(super) breaker_share: u32,

    /// Time from the opening of the breaker until one act is tried.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_BREAKER_COOL_DOWN")]
    pub(super) breaker_cool_down: Duration,
}

impl BoundArgs {
    pub(super) fn options(&self) -> BoundOptions {
        let defaults = BoundOptions::default();
        BoundOptions {
            disconnect: BucketOptions { burst: self.disconnect_burst, refill: self.disconnect_refill },
            delete_pod: BucketOptions { burst: self.delete_burst, refill: self.delete_refill },
            restart_agent: BucketOptions { refill: self.restart_refill, ..defaults.restart_agent },
            breaker: BreakerOptions {
                floor: self.breaker_floor,
                share_percent: self.breaker_share,
                cool_down: self.breaker_cool_down,
                ..defaults.breaker
            },
            ..defaults
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Cilium agent")]
#[expect(clippy::struct_field_names, reason = "the fields name their flags")]
pub(super) struct AgentArgs {
    /// Directory of the agent's cilium.sock. Mount the directory: the agent makes the socket anew at each start.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/cilium",
        env = "CILIUM_LEAK_HEALER_AGENT_SOCKET_DIR"
    )]
    pub(super) agent_socket_dir: PathBuf,

    /// Time-out of one call of the agent's API.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_AGENT_TIMEOUT")]
    pub(super) agent_timeout: Duration,

    /// Labels of the agent's pod, in any namespace: the start of its container counts as the agent's, if later.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        default_value = "k8s-app=cilium",
        env = "CILIUM_LEAK_HEALER_AGENT_POD_SELECTOR"
    )]
    pub(super) agent_pod_selector: LabelMatch,

    /// Namespace of the agent's DaemonSet. Only the remedy restart-agent needs it.
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "kube-system",
        env = "CILIUM_LEAK_HEALER_AGENT_NAMESPACE"
    )]
    pub(super) agent_namespace: String,

    /// Name of the agent's container in that pod.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "cilium-agent",
        env = "CILIUM_LEAK_HEALER_AGENT_CONTAINER"
    )]
    pub(super) agent_container: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Pace")]
pub(super) struct PaceArgs {
    /// No act within this time after the start.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_STARTUP_QUIET")]
    pub(super) startup_quiet: Duration,

    /// Least time between the two judgements that must agree before an act.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_CONFIRM_GAP")]
    pub(super) confirm_gap: Duration,

    /// A pod's Events are read once it has waited this long without a sandbox.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_EVENT_DELAY")]
    pub(super) event_delay: Duration,

    /// Time that an act may take to show: a sandbox after a disconnect, the end of a deleted pod. Ten times as long where the address is free and the
    /// pod was not refused again.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_VERIFY_TIMEOUT")]
    pub(super) verify_timeout: Duration,

    /// Time that a pod may take to get its sandbox after a restart of the agent.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_RESTART_TIMEOUT")]
    pub(super) restart_timeout: Duration,

    /// No act within this time after a restart of the agent by this program.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_RESTART_QUIET")]
    pub(super) restart_quiet: Duration,

    /// On SIGTERM, time for the act in hand to end.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_SHUTDOWN_TIMEOUT")]
    pub(super) shutdown_timeout: Duration,
}

/// The defaults are those of [`Limits`]; a test holds them to it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Time limits of the rules (shorter ones weaken the proof)")]
pub(super) struct LimitArgs {
    /// An agent that started less than this ago is still settling.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_AGENT_SETTLE")]
    agent_settle: Duration,

    /// A holder on its way up or down is left alone until its newest log entry is this old.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_HOLDER_SETTLE")]
    holder_settle: Duration,

    /// A pod's first and only failure must be this old.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_LONE_FAILURE_AGE")]
    lone_failure_age: Duration,

    /// A newest failure older than this proves nothing about now.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::positive, env = "CILIUM_LEAK_HEALER_FAILURE_MAX_AGE")]
    failure_max_age: Duration,

    /// A newest failure further in the future than this comes from a wrong clock.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse, env = "CILIUM_LEAK_HEALER_FAILURE_MAX_SKEW")]
    failure_max_skew: Duration,

    /// A holder counts as older than a failure if its log begins at least this long before it.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::whole_second, env = "CILIUM_LEAK_HEALER_OLDER_MARGIN")]
    older_margin: Duration,

    /// A pod that started more than this after the holder's log began cannot own it.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::whole_second, env = "CILIUM_LEAK_HEALER_START_MARGIN")]
    start_margin: Duration,
}

impl LimitArgs {
    fn limits(&self) -> Limits {
        Limits {
            agent_settle: self.agent_settle,
            holder_settle: self.holder_settle,
            lone_failure_age: self.lone_failure_age,
            failure_max_age: self.failure_max_age,
            failure_max_skew: self.failure_max_skew,
            older_margin: self.older_margin,
            start_margin: self.start_margin,
        }
    }
}

impl RemedyArg {
    fn kind(self) -> RemedyKind {
        match self {
            Self::DisconnectEndpoint => RemedyKind::DisconnectEndpoint,
            Self::DeletePod => RemedyKind::DeletePod,
            Self::RestartAgent => RemedyKind::RestartAgent,
        }
    }
}

impl RunArgs {
    pub(super) fn auth(&self) -> Auth {
        match self.auth {
            None => Auth::Off,
            Some(AuthArg::None) => Auth::None,
            Some(AuthArg::Token) => Auth::Token,
        }
    }

    pub(super) fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            node: self.node_name.clone(),
            mode: match self.mode {
                ModeArg::Observe => Mode::Observe,
                ModeArg::Heal => Mode::Heal,
            },
            own_namespace: self.safety.own_namespace.clone(),
            remedies: self.remedies.iter().map(|remedy| remedy.kind()).collect(),
            namespaces: Namespaces {
                allow: self.safety.namespace_allow.clone(),
                deny: self.safety.namespace_deny.clone(),
            },
            require_fence: self.safety.require_fence,
            heal_for: self.safety.heal_for,
            unknown_versions: self.safety.allow_unknown_cilium,
            judge,
            limits: self.limits.limits(),
            startup_quiet: self.pace.startup_quiet,
            confirm_gap: self.pace.confirm_gap,
            event_delay: self.pace.event_delay,
            verify_timeout: self.pace.verify_timeout,
            restart_timeout: self.pace.restart_timeout,
            restart_quiet: self.pace.restart_quiet,
            judge_timeout: JUDGE_TIMEOUT,
        }
    }

    pub(super) fn watch_options(
        &self,
        timeout: Duration,
        clock: WallClock,
        jitter: Option<u64>,
    ) -> WatchOptions {
        WatchOptions {
            node: self.node_name.clone(),
            agent_labels: self.agent.agent_pod_selector.clone(),
            agent_container: self.agent.agent_container.clone(),
            timeout,
            clock,
            jitter,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Only {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn the_default_limits_and_bounds_are_those_of_the_design() {
        let only = Only::parse_from(["run", "--node-name", "n1"]);
        assert_eq!(only.run.limits.limits(), Limits::default());
        assert_eq!(only.run.bounds.options(), BoundOptions::default());
    }

    #[test]
    fn several_addresses_are_listened_on() {
        let listen = |args: &[&str]| {
            let args = ["run", "--node-name", "n1"].iter().chain(args);
            Only::parse_from(args).run.listen.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(listen(&[]), ["127.0.0.1:9965"]);
        assert_eq!(listen(&["--listen", "127.0.0.1:1,[::1]:2"]), ["127.0.0.1:1", "[::1]:2"]);
        assert_eq!(
            listen(&["--listen", "127.0.0.1:1", "--listen", "10.0.0.5:2"]),
            ["127.0.0.1:1", "10.0.0.5:2"]
        );
    }

    #[test]
    fn namespaces_are_read_without_blanks_and_nothing_else_is_taken() {
        let parse = |list: &str| Only::try_parse_from(["run", "--node-name", "n1", "--namespace-deny", list]);
        assert_eq!(parse("a, b").unwrap().run.safety.namespace_deny, ["a", "b"]);
        for odd in ["a,,b", "A", "a b", ""] {
            assert!(parse(odd).is_err(), "{odd:?}");
        }
    }
}
