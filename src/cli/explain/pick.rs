//! Which pod is meant: a name with or without namespace, or an address.
//!
//! Must not know: where the pods came from. An answer that is a guess is none: what is ambiguous is an error that
//! names the candidates.

use std::net::IpAddr;
use std::str::FromStr;

use crate::domain::{Pod, PodName, parse_ip};

/// Candidates that an error names at most.
const MOST: usize = 8;

/// What a person asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// `NAMESPACE/POD`.
    Pod(PodName),
    /// `POD`, in whatever namespace.
    Name(String),
    /// An address.
    Ip(IpAddr),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(ip) = parse_ip(text) {
            return Ok(Self::Ip(ip.to_canonical()));
        }
        let text = text.strip_prefix("pod/").or_else(|| text.strip_prefix("pods/")).unwrap_or(text);
        let wrong = || format!("{text:?} is neither [NAMESPACE/]POD nor an address");
        if let Some((before, _)) = text.split_once('/') {
            // A prefix, `10.0.0.0/8`, would pass for a pod's name.
            if parse_ip(before).is_some() {
                return Err(wrong());
            }
            return text.parse().map(Self::Pod).map_err(|_| wrong());
        }
        // Any namespace will do for the check of the name.
        PodName::new("x", text).map(|name| Self::Name(name.name().to_owned())).map_err(|_| wrong())
    }
}

impl Target {
    /// Whether the name is that of the pod.
    pub(super) fn may_be(&self, pod: &Pod) -> bool {
        match self {
            Self::Pod(name) => pod.name == *name,
            Self::Name(name) => pod.name.name() == name,
            Self::Ip(_) => false,
        }
    }

    /// With the namespace of `-n`, which a namespace in the name must not contradict.
    pub(super) fn within(self, namespace: Option<&str>) -> Result<Self, String> {
        match (self, namespace) {
            (Self::Name(name), Some(namespace)) => {
                PodName::new(namespace, &name).map(Self::Pod).map_err(|error| error.to_string())
            }
            (Self::Pod(name), Some(namespace)) if name.namespace() != namespace => {
                Err(format!("{name} is not in the namespace {namespace} of --namespace"))
            }
            (target, _) => Ok(target),
        }
    }
}

/// A pod, and the addresses that its newest failure says are in use.
pub(super) struct Candidate<'a> {
    pub(super) pod: &'a Pod,
    pub(super) disputed: &'a [IpAddr],
}

/// The one pod that is meant.
pub(super) fn pick<'a>(target: &Target, pods: &[Candidate<'a>]) -> Result<&'a Pod, String> {
    match target {
        Target::Pod(name) => one(
            &pods.iter().map(|it| it.pod).filter(|pod| pod.name == *name).collect::<Vec<_>>(),
            &format!("{name} is there more than once"),
        )
        .unwrap_or_else(|| Err(absent(&name.to_string(), name.name(), pods))),
        Target::Name(name) => one(
            &pods.iter().map(|it| it.pod).filter(|pod| pod.name.name() == name).collect::<Vec<_>>(),
            &format!("{name} is in more than one namespace"),
        )
        .unwrap_or_else(|| Err(absent(name, name, pods))),
        Target::Ip(ip) => by_address(*ip, pods),
    }
}

fn one<'a>(pods: &[&'a Pod], several: &str) -> Option<Result<&'a Pod, String>> {
    match pods {
        [] => None,
        [pod] => Some(Ok(*pod)),
        _ => Some(Err(format!(
            "{several}; name one of: {}",
            names(pods.iter().map(|pod| pod.name.to_string()))
        ))),
    }
}

/// A pod that waits for the address comes before one that has it.
fn by_address<'a>(ip: IpAddr, pods: &[Candidate<'a>]) -> Result<&'a Pod, String> {
    let waiting: Vec<&Pod> = pods.iter().filter(|it| it.disputed.contains(&ip)).map(|it| it.pod).collect();
    let having: Vec<&Pod> =
        pods.iter().map(|it| it.pod).filter(|pod| pod.lists(ip) && !pod.host_network).collect();
    // A pod that has ended keeps its address in its status.
    let live: Vec<&Pod> = having.iter().copied().filter(|pod| pod.is_live()).collect();
    let having = if live.is_empty() { having } else { live };
    one(&waiting, &format!("more than one pod waits for {ip}"))
        .or_else(|| one(&having, &format!("no pod waits for {ip}, and more than one has it")))
        .unwrap_or_else(|| {
            let disputed: Vec<String> = pods
                .iter()
                .flat_map(|it| it.disputed.iter().map(|ip| format!("{ip} ({})", it.pod.name)))
                .collect();
            let others = if disputed.is_empty() {
                "no pod waits for any address that is in use".to_owned()
            } else {
                format!("addresses that pods wait for: {}", names(disputed.into_iter()))
            };
            Err(format!("no pod waits for {ip} and none has it; {others}"))
        })
}

fn absent(asked: &str, name: &str, pods: &[Candidate<'_>]) -> String {
    let near = |pod: &&Pod| {
        let theirs = pod.name.name();
        theirs.contains(name) || name.contains(theirs) || same_begin(theirs, name)
    };
    let similar: Vec<String> =
        pods.iter().map(|it| it.pod).filter(near).map(|pod| pod.name.to_string()).collect();
    if !similar.is_empty() {
        return format!("there is no pod {asked}; similar ones: {}", names(similar.into_iter()));
    }
    let wedged: Vec<String> =
        pods.iter().filter(|it| !it.disputed.is_empty()).map(|it| it.pod.name.to_string()).collect();
    if wedged.is_empty() {
        format!("there is no pod {asked}")
    } else {
        format!(
            "there is no pod {asked}; pods that wait for an address in use: {}",
            names(wedged.into_iter())
        )
    }
}

/// Pods of one controller differ behind the last dash.
fn same_begin(a: &str, b: &str) -> bool {
    let begin = |name: &str| name.rsplit_once('-').map(|(begin, _)| begin.to_owned());
    begin(a).is_some_and(|ours| !ours.is_empty() && Some(ours) == begin(b))
}

fn names(names: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = names.collect();
    all.sort();
    all.dedup();
    let more = all.len().saturating_sub(MOST);
    all.truncate(MOST);
    if more == 0 { all.join(", ") } else { format!("{} and {more} more", all.join(", ")) }
}
