//! What is well, what is not, and how to mend it: values in, lines out. Pure.
//!
//! Must not know: how the values were read, how the lines are printed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::seen::{AgentPod, Cluster, Purpose, Right, Seen, Served, Watchdog};
use crate::domain::{CiliumVersion, IpamMode, VERSIONS, known_mode, known_version, known_versions};
use retirement::retirement;
use safety::{fence, leases, pause};

mod retirement;
mod safety;

/// The oldest minor version of Kubernetes 1.
const KUBERNETES: u32 = 25;
/// Names that one line shows at most.
const MOST_NAMES: usize = 5;
/// The fence first: the right to delete pods is not to be there without it.
const HEAL: &str = "kubectl apply -f rbac/fence.yaml, then kubectl apply -f rbac/heal.yaml";
const RESTART: &str = "kubectl apply -f rbac/restart-agent.yaml, after fence.yaml and heal.yaml";

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    /// Something works less well, or could not be looked at.
    Warn,
    /// Something that is needed is missing.
    Fail,
}

impl Level {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) check: &'static str,
    pub(super) level: Level,
    pub(super) seen: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mend: Option<String>,
}

fn ok(check: &'static str, seen: impl Into<String>) -> Line {
    Line { check, level: Level::Ok, seen: seen.into(), mend: None }
}

fn warn(check: &'static str, seen: impl Into<String>, mend: impl Into<String>) -> Line {
    Line { check, level: Level::Warn, seen: seen.into(), mend: Some(mend.into()) }
}

fn fail(check: &'static str, seen: impl Into<String>, mend: impl Into<String>) -> Line {
    Line { check, level: Level::Fail, seen: seen.into(), mend: Some(mend.into()) }
}

/// The API server did not answer: nothing else can be looked at.
pub(super) fn no_server(why: &str) -> Line {
    fail(
        "server",
        why,
        "Check the kubeconfig, its context and the way to the API server, then run this again.",
    )
}

/// All lines, in the order of what builds on what.
pub(super) fn lines(cluster: &Cluster) -> Vec<Line> {
    let mut lines = vec![server(&cluster.version)];
    lines.extend(rights(cluster));
    lines.push(fence(cluster));
    lines.push(leases(cluster));
    lines.extend(served(&cluster.served));
    lines.extend(agents(cluster));
    lines.extend(cluster.told.as_ref().map(|(node, told)| reachable(node, told)));
    lines.push(ipam(cluster));
    lines.push(watchdog(cluster));
    lines.push(pause(cluster));
    lines.push(retirement(&cluster.agents, &VERSIONS));
    lines
}

fn server(version: &str) -> Line {
    let minor =
        version.trim_start_matches("v1.").split('.').next().and_then(|minor| minor.parse::<u32>().ok());
    match minor {
        Some(minor) if version.starts_with("v1.") && minor < KUBERNETES => warn(
            "server",
            format!("Kubernetes {version}"),
            format!("Kubernetes 1.{KUBERNETES} or newer is what this program is made for."),
        ),
        _ => ok("server", format!("Kubernetes {version}")),
    }
}

/// One line for each purpose that was asked about.
fn rights(cluster: &Cluster) -> Vec<Line> {
    let purposes = [
        (Purpose::Observe, "rights for observe"),
        (Purpose::Heal, "rights for heal"),
        (Purpose::RestartAgent, "rights for restart"),
        (Purpose::Auth, "rights for auth"),
        (Purpose::Scan, "rights for scan"),
        (Purpose::Excess, "excess rights"),
    ];
    let asked = purposes
        .into_iter()
        .filter(|(purpose, _)| cluster.rights.iter().any(|(right, _)| right.purpose == *purpose));
    asked.map(|(purpose, check)| rights_for(cluster, purpose, check)).collect()
}

fn rights_for(cluster: &Cluster, purpose: Purpose, check: &'static str) -> Line {
    let who = cluster
        .account
        .as_ref()
        .map_or_else(|| "the caller".to_owned(), |name| format!("service account {name}"));
    let asked: Vec<&(Right, Seen<bool>)> =
        cluster.rights.iter().filter(|(right, _)| right.purpose == purpose).collect();
    let with = |answer: bool| -> Vec<String> {
        asked
            .iter()
            .filter(|(_, seen)| *seen == Ok(answer))
            .map(|(right, _)| right.wish.to_string())
            .collect()
    };
    // A right too many is one, also where another could not be asked about.
    let many = if purpose == Purpose::Excess { with(true) } else { Vec::new() };
    if !many.is_empty() {
        return fail(
            check,
            format!("{who} has: {}", many.join(", ")),
            "Find the binding with kubectl get clusterrolebindings,rolebindings -A -o wide, and take it away: with it a \
             stolen token can do more than the fence holds back, so the mode heal does nothing.",
        );
    }
    if let Some((_, Err(why))) = asked.iter().find(|(_, seen)| seen.is_err()) {
        let mend = match cluster.account {
            Some(_) => "Ask as somebody who may `create subjectaccessreviews.authorization.k8s.io`.",
            None => "Run this again when the API server answers.",
        };
        return warn(check, format!("could not be asked: {why}"), mend);
    }
    if purpose == Purpose::Excess {
        return ok(check, format!("{who} has none of the {} that it must not have", asked.len()));
    }
    let missing = with(false);
    if missing.is_empty() {
        return ok(check, format!("{who} has {0} of {0}", asked.len()));
    }
    let seen = format!("{who} lacks: {}", missing.join(", "));
    let heals = cluster.installed().is_some_and(Watchdog::heals);
    match (purpose, cluster.account.is_some()) {
        (Purpose::Observe | Purpose::Excess, true) => fail(check, seen, "kubectl apply -f rbac/observe.yaml"),
        (Purpose::Observe | Purpose::Excess, false) => fail(
            check,
            seen,
            "Bind the ClusterRole of rbac/observe.yaml to this user, or use a context that has these rights.",
        ),
        (Purpose::Heal, true) if heals => fail(check, seen, HEAL),
        (Purpose::Heal, true) => warn(check, seen, format!("Only for the mode heal: {HEAL}")),
        (Purpose::RestartAgent, true) if heals => fail(check, seen, RESTART),
        (Purpose::RestartAgent, true) => warn(check, seen, format!("Only for the mode heal: {RESTART}")),
        (Purpose::Auth, true) => fail(check, seen, "kubectl apply -f rbac/auth.yaml"),
        (Purpose::Heal | Purpose::RestartAgent | Purpose::Auth, false) => {
            warn(check, seen, "Nothing, unless the watchdog runs as this user: scan and explain never write.")
        }
        (Purpose::Scan, _) => warn(
            check,
            seen,
            "scan and explain work without, and say what they could not read. Without pods/exec each wedge is agent-unknown.",
        ),
    }
}

fn served(served: &Seen<Served>) -> Vec<Line> {
    let served = match served {
        Ok(served) => served,
        Err(why) => {
            return vec![warn(
                "cilium resources",
                format!("could not be asked: {why}"),
                "Run this again when the API server answers.",
            )];
        }
    };
    let nodes = if served.nodes {
        ok("ciliumnodes", "served (cilium.io/v2)")
    } else {
        fail(
            "ciliumnodes",
            "not served",
            "Is this the right cluster? Cilium registers them at its first start.",
        )
    };
    let endpoints = if served.endpoints {
        ok("ciliumendpoints", "served (cilium.io/v2)")
    } else {
        warn(
            "ciliumendpoints",
            "not served",
            "Nothing, if Cilium runs without them on purpose: owners of nameless holders and former pods of one name are told apart less often.",
        )
    };
    let slices = match (served.slices, served.slices_in_use) {
        (false, _) => ok("slices", "not served"),
        (true, Some(true)) => ok("slices", "served and in use (cilium.io/v2alpha1)"),
        (true, Some(false)) => ok("slices", "served, none is there"),
        (true, None) => ok("slices", "served; whether they are used could not be read"),
    };
    vec![nodes, endpoints, slices]
}

fn agents(cluster: &Cluster) -> Vec<Line> {
    let agents = match &cluster.agents {
        Ok(agents) => agents,
        Err(why) => {
            return vec![warn(
                "agents",
                format!("could not be listed: {why}"),
                "Give the right to list pods in all namespaces.",
            )];
        }
    };
    if agents.is_empty() {
        return vec![fail(
            "agents",
            format!("no pod with the label {}", cluster.selector),
            "Name the label of your agent's pods: --agent-pod-selector KEY=VALUE",
        )];
    }
    vec![agents_ready(cluster, agents), cilium_version(agents)]
}

fn agents_ready(cluster: &Cluster, agents: &[AgentPod]) -> Line {
    let ready = agents.iter().filter(|agent| agent.ready).count();
    let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
    for agent in agents.iter().filter(|agent| agent.ready) {
        *by_node.entry(agent.node.as_str()).or_default() += 1;
    }
    let spaces: BTreeSet<&str> = agents.iter().map(|agent| agent.namespace.as_str()).collect();
    let spaces: Vec<&str> = spaces.into_iter().collect();
    let nodes = match &cluster.nodes {
        Ok(nodes) if nodes.len() == 1 => ", for 1 node".to_owned(),
        Ok(nodes) => format!(", for {} nodes", nodes.len()),
        Err(why) => format!("; nodes could not be listed: {why}"),
    };
    let seen = format!("{} found in {}, {ready} ready{nodes}", agents.len(), spaces.join(", "));
    let unready: BTreeSet<String> = agents
        .iter()
        .filter(|agent| !agent.ready && !by_node.contains_key(agent.node.as_str()))
        .map(|agent| agent.node.clone())
        .collect();
    let without =
        cluster.nodes.iter().flatten().filter(|node| !agents.iter().any(|agent| agent.node == **node));
    let without: BTreeSet<String> = without.cloned().collect();
    let twice: BTreeSet<String> =
        by_node.iter().filter(|(_, count)| **count > 1).map(|(node, _)| (*node).to_owned()).collect();
    let mut wrong = Vec::new();
    if !unready.is_empty() {
        wrong.push(format!("no ready agent on {}", names(&unready)));
    }
    if !without.is_empty() {
        wrong.push(format!("no agent on {}", names(&without)));
    }
    if !twice.is_empty() {
        wrong.push(format!("more than one ready agent on {}", names(&twice)));
    }
    if ready == 0 {
        return fail("agents", seen, "Look at the agents: no wedge can be judged without them.");
    }
    if wrong.is_empty() {
        return ok("agents", seen);
    }
    warn(
        "agents",
        format!("{seen}; {}", wrong.join("; ")),
        "Look at these nodes: a wedge there is agent-unknown.",
    )
}

fn names(names: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = names.iter().take(MOST_NAMES).map(String::as_str).collect();
    let more = names.len().saturating_sub(MOST_NAMES);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// By the tags of the agents' images.
fn cilium_version(agents: &[AgentPod]) -> Line {
    let tags: BTreeSet<String> =
        agents.iter().filter_map(|agent| tag(&agent.image)).map(str::to_owned).collect();
    let versions: Vec<Option<CiliumVersion>> = tags.iter().map(|tag| tag.parse().ok()).collect();
    let seen = tags.iter().cloned().collect::<Vec<_>>().join(", ");
    if versions.is_empty() || versions.iter().any(Option::is_none) {
        let seen = if seen.is_empty() {
            "the agents' images have no tag".to_owned()
        } else {
            format!("{seen}, by the images' tags")
        };
        return warn(
            "cilium version",
            seen,
            format!("See to it that it is {}: the tag does not tell.", known_versions()),
        );
    }
    if versions.iter().flatten().any(|version| known_version(*version).is_none()) {
        let mend = format!("This program knows {}. Stay in the mode observe.", known_versions());
        return warn("cilium version", seen, mend);
    }
    if tags.len() > 1 {
        return warn(
            "cilium version",
            seen,
            "Nothing while Cilium is being updated; else find out why the agents differ.",
        );
    }
    ok("cilium version", seen)
}

/// The tag of an image, if it has one.
fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next().unwrap_or(image);
    let (_, last) = name.rsplit_once('/').unwrap_or(("", name));
    last.split_once(':').map(|(_, tag)| tag)
}

/// Whether an agent answers a command in its container.
fn reachable(node: &str, told: &Seen<String>) -> Line {
    match told {
        Ok(_) => ok("agent by exec", format!("the agent of {node} answers")),
        Err(why) => warn(
            "agent by exec",
            format!("the agent of {node} could not be asked: {why}"),
            "scan and explain ask agents this way: without it each wedge is agent-unknown. The watchdog asks by socket.",
        ),
    }
}

/// As the `ConfigMap` says, else as an agent does.
fn ipam(cluster: &Cluster) -> Line {
    let by_agent = cluster.told.as_ref().and_then(|(_, told)| told.as_ref().ok());
    let by_map = cluster.config.as_ref().ok().and_then(Option::as_ref);
    let chaining = by_map.and_then(|config| config.chaining.clone());
    let mode = match (by_map.and_then(|config| config.ipam.as_ref()).or(by_agent), &cluster.config) {
        (Some(mode), _) => mode.clone(),
        (None, config) => {
            let why = match config {
                Ok(Some(_)) => "the ConfigMap cilium-config does not say".to_owned(),
                Ok(None) => "there is no ConfigMap cilium-config beside the agents".to_owned(),
                Err(why) => format!("the ConfigMap cilium-config could not be read: {why}"),
            };
            return warn(
                "ipam mode",
                why,
                "The watchdog asks its agent; where that does not tell either, disconnecting is withheld.",
            );
        }
    };
    let chained = chaining.filter(|mode| mode != "none").map(|mode| format!(", chained ({mode})"));
    let seen = format!("{mode}{}", chained.unwrap_or_default());
    let mode = IpamMode(mode);
    if known_mode(&mode).is_none() {
        return warn("ipam mode", seen, "This program does not know this mode. Stay in the mode observe.");
    }
    if mode.forbids_disconnect() {
        let mend = "On this mode disconnecting is withheld: the watchdog only tells, or moves pods.";
        return warn("ipam mode", seen, mend);
    }
    ok("ipam mode", seen)
}

fn watchdog(cluster: &Cluster) -> Line {
    let at = &cluster.watchdog_namespace;
    match &cluster.watchdog {
        Err(why) => warn(
            "watchdog",
            format!("could not be looked at: {why}"),
            format!("Give the right to list daemonsets.apps in the namespace {at}."),
        ),
        Ok(None) => {
            ok("watchdog", format!("not installed in the namespace {at}; scan and explain work without it"))
        }
        Ok(Some(Watchdog { desired, ready, mode, .. })) => {
            let mode = mode.as_deref().unwrap_or("observe (the default)");
            let seen = format!("mode {mode}, {ready} of {desired} pods ready");
            if ready < desired {
                let mend = format!(
                    "kubectl -n {at} get pods -o wide, and look at the log of one that is not ready."
                );
                return warn("watchdog", seen, mend);
            }
            if *desired == 0 {
                return warn(
                    "watchdog",
                    seen,
                    "Its DaemonSet matches no node: look at its nodeSelector and tolerations.",
                );
            }
            ok("watchdog", seen)
        }
    }
}

#[cfg(test)]
mod tests;
