//! What holds a watchdog back: the admission fence, the Leases, the pause switch.

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicyBindingSpec,
    ValidatingAdmissionPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::super::seen::{Cluster, Fence, Policy, Watchdog};
use super::{Line, fail, ok, warn};
use crate::kube::{FENCE, PAUSED};

const FENCE_CHECK: &str = "fence";
/// The condition by which the strict policy lets go of the agent's pods.
const NOT_THE_AGENT: &str = "not-the-agent";
/// The conditions that the manifests have besides the user.
const KNOWN_CONDITIONS: [&str; 2] = [NOT_THE_AGENT, "the-agent"];

const APPLY_FENCE: &str = "kubectl apply -f rbac/fence.yaml";
const APPLY_BOTH: &str = "kubectl apply -f rbac/fence.yaml, then kubectl apply -f rbac/restart-agent.yaml";

/// What is wrong with the fence.
#[derive(Debug, Default)]
struct Faults {
    /// It does not hold everything that it should.
    holes: Vec<String>,
    /// It may hold too much.
    doubts: Vec<String>,
}

/// The admission fence around the right to delete pods.
pub(super) fn fence(cluster: &Cluster) -> Line {
    let deletes = cluster.installed().is_some_and(Watchdog::deletes);
    let worse = |seen: String, mend: String| {
        if deletes {
            fail(FENCE_CHECK, seen, mend)
        } else {
            warn(FENCE_CHECK, seen, format!("Only for the mode heal: {mend}"))
        }
    };
    let (all, agents) = match &cluster.fence {
        Err(why) => {
            return warn(
                FENCE_CHECK,
                format!("could not be read: {why}"),
                "Ask as somebody who may `get validatingadmissionpolicies` and `validatingadmissionpolicybindings`.",
            );
        }
        Ok(None) => {
            return worse(
                format!("Kubernetes {} has no ValidatingAdmissionPolicy", cluster.version),
                "Kubernetes 1.30 or newer. On an older one the mode heal does not act.".to_owned(),
            );
        }
        Ok(Some(Fence { all, agents })) => (all, agents),
    };
    let user = &cluster.fenced_user;
    let mut faults = Faults::default();
    examine(FENCE, all, user, &mut faults);
    let lets_agents_go = conditions(all).any(|(name, _)| name == NOT_THE_AGENT);
    let restarts = cluster.installed().is_some_and(|it| it.uses("restart-agent"));
    if lets_agents_go || restarts {
        examine(&format!("{FENCE}-restart-agent"), agents, user, &mut faults);
        if agents.policy.is_some() && !lets_agents_go {
            let doubt = format!("{FENCE} holds the agent's pods too, so none can be restarted");
            faults.doubts.push(doubt);
        }
    }
    let mend = if lets_agents_go || restarts { APPLY_BOTH } else { APPLY_FENCE };
    if !faults.holes.is_empty() {
        faults.holes.append(&mut faults.doubts);
        return worse(faults.holes.join("; "), mend.to_owned());
    }
    if !faults.doubts.is_empty() {
        return warn(FENCE_CHECK, faults.doubts.join("; "), mend);
    }
    let of_agents = if lets_agents_go { ", with rules of its own for the agent's pods" } else { "" };
    ok(FENCE_CHECK, format!("the deletes of {user} are held to its rules{of_agents}"))
}

fn conditions(policy: &Policy) -> impl Iterator<Item = (&str, &str)> {
    let spec = policy.policy.as_ref().and_then(|policy| policy.spec.as_ref());
    let conditions = spec.and_then(|spec| spec.match_conditions.as_ref()).into_iter().flatten();
    conditions.map(|it| (it.name.as_str(), it.expression.as_str()))
}

/// One policy and its binding.
fn examine(name: &str, seen: &Policy, user: &str, faults: &mut Faults) {
    let Policy { policy, binding } = seen;
    match policy {
        None => faults.holes.push(format!("there is no ValidatingAdmissionPolicy {name}")),
        Some(found) => {
            let spec = found.spec.as_ref().map(policy_holes).unwrap_or_default();
            let holes = spec.into_iter().chain(user_holes(seen, user));
            faults.holes.extend(holes.map(|why| format!("{name} {why}")));
            let warnings = found
                .status
                .iter()
                .filter_map(|status| status.type_checking.as_ref()?.expression_warnings.as_ref())
                .flatten();
            faults.doubts.extend(
                warnings.map(|it| format!("the API server warns of {} of {name}", it.field_ref)).take(1),
            );
        }
    }
    match binding {
        None => faults.holes.push(format!("there is no ValidatingAdmissionPolicyBinding {name}")),
        Some(binding) => {
            let holes = binding_holes(name, &binding.spec);
            faults.holes.extend(holes.into_iter().map(|why| format!("the binding {name} {why}")));
        }
    }
}

fn policy_holes(spec: &ValidatingAdmissionPolicySpec) -> Vec<String> {
    let mut holes = Vec::new();
    if let Some(policy) = spec.failure_policy.as_deref().filter(|policy| *policy != "Fail") {
        holes.push(format!("has the failurePolicy {policy} and not Fail"));
    }
    if spec.validations.iter().flatten().next().is_none() {
        holes.push("has no rules".to_owned());
    }
    if spec.param_kind.is_some() {
        holes.push("takes parameters".to_owned());
    }
    let matches = spec.match_constraints.as_ref();
    let rules = matches.and_then(|it| it.resource_rules.as_ref()).into_iter().flatten();
    if !rules.into_iter().any(deletes_pods) {
        holes.push("is not for DELETE pods".to_owned());
    }
    holes.extend(matches.into_iter().flat_map(left_out).map(|field| format!("leaves pods out by {field}")));
    holes
}

fn deletes_pods(rule: &NamedRuleWithOperations) -> bool {
    let has =
        |list: &Option<Vec<String>>, word: &str| list.iter().flatten().any(|it| it == word || it == "*");
    has(&rule.operations, "DELETE")
        && has(&rule.api_groups, "")
        && has(&rule.api_versions, "v1")
        && has(&rule.resources, "pods")
        && rule.resource_names.iter().flatten().next().is_none()
        && rule.scope.as_deref() != Some("Cluster")
}

/// The fields that narrow what is matched.
fn left_out(matches: &MatchResources) -> Vec<&'static str> {
    let narrows = |selector: &Option<LabelSelector>| {
        selector.as_ref().is_some_and(|it| {
            it.match_labels.iter().flatten().next().is_some()
                || it.match_expressions.iter().flatten().next().is_some()
        })
    };
    let fields = [
        ("namespaceSelector", narrows(&matches.namespace_selector)),
        ("objectSelector", narrows(&matches.object_selector)),
        ("excludeResourceRules", matches.exclude_resource_rules.iter().flatten().next().is_some()),
    ];
    fields.into_iter().filter(|(_, narrows)| *narrows).map(|(field, _)| field).collect()
}

/// Each condition must hold before a rule is asked at all.
fn user_holes(policy: &Policy, user: &str) -> Vec<String> {
    let of_user = format!("request.userInfo.username=='{user}'");
    let squeezed = |text: &str| text.replace([' ', '\n'], "").replace('"', "'");
    let mut holes = Vec::new();
    if !conditions(policy).any(|(_, expression)| squeezed(expression) == of_user) {
        holes.push(format!("is not about the user {user}"));
    }
    let others = conditions(policy)
        .filter(|(name, expression)| squeezed(expression) != of_user && !KNOWN_CONDITIONS.contains(name));
    holes.extend(
        others.map(|(name, _)| format!("lets deletes by for which its condition {name} does not hold")),
    );
    holes
}

fn binding_holes(policy: &str, spec: &ValidatingAdmissionPolicyBindingSpec) -> Vec<String> {
    let mut holes = Vec::new();
    if spec.policy_name != policy {
        holes.push(format!("is of the policy {:?}", spec.policy_name));
    }
    if !spec.validation_actions.iter().any(|action| action == "Deny") {
        holes.push("does not Deny".to_owned());
    }
    let Some(matches) = &spec.match_resources else {
        return holes;
    };
    let mut rules = matches.resource_rules.iter().flatten().peekable();
    if rules.peek().is_some() && !rules.any(deletes_pods) {
        holes.push("is not for DELETE pods".to_owned());
    }
    holes.extend(left_out(matches).into_iter().map(|field| format!("leaves pods out by {field}")));
    holes
}

/// The Leases that bound how much is done in the cluster at one time.
pub(super) fn leases(cluster: &Cluster) -> Line {
    let at = &cluster.watchdog_namespace;
    let leases = match &cluster.leases {
        Ok(leases) => leases,
        Err(why) => {
            let mend =
                format!("Ask as somebody who may `get leases.coordination.k8s.io` in the namespace {at}.");
            return warn("leases", format!("could not be read: {why}"), mend);
        }
    };
    let there = leases.iter().filter(|lease| lease.there).count();
    let held: Vec<String> = leases
        .iter()
        .filter_map(|lease| Some(format!("{} by {}", short(&lease.name), lease.holder.as_ref()?)))
        .collect();
    let held = if held.is_empty() { "none held".to_owned() } else { format!("held: {}", held.join(", ")) };
    let missing: Vec<&str> =
        leases.iter().filter(|lease| !lease.there).map(|lease| short(&lease.name)).collect();
    let seen = format!("{there} of {} in the namespace {at}, {held}", leases.len());
    if missing.is_empty() {
        return ok("leases", seen);
    }
    let seen = format!("{seen}; missing: {}", missing.join(", "));
    let mend = if missing.contains(&"restart-agent") {
        "kubectl apply -f rbac/heal.yaml, then kubectl apply -f rbac/restart-agent.yaml"
    } else {
        "kubectl apply -f rbac/heal.yaml. It makes three: more for a higher --delete-in-flight are made by hand, with their rights."
    };
    if cluster.installed().is_some_and(Watchdog::deletes) {
        fail("leases", seen, mend)
    } else {
        warn("leases", seen, format!("Only for the mode heal: {mend}"))
    }
}

/// A Lease without what all their names begin with.
fn short(name: &str) -> &str {
    name.strip_prefix(FENCE).and_then(|rest| rest.strip_prefix('-')).unwrap_or(name)
}

/// The switch that stops all acts.
pub(super) fn pause(cluster: &Cluster) -> Line {
    let at = &cluster.watchdog_namespace;
    match &cluster.paused {
        Err(why) => warn(
            "pause",
            format!("could not be read: {why}"),
            format!(
                "Ask as somebody who may `get namespaces`: the annotation {PAUSED} of {at} stops all acts."
            ),
        ),
        Ok(None) => ok("pause", "not paused"),
        Ok(Some(paused)) => {
            let since = paused.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
            let why = if paused.why.is_empty() { String::new() } else { format!(": {}", paused.why) };
            let mend = format!("When it is over: kubectl annotate namespace {at} {PAUSED}-");
            warn("pause", format!("all acts are paused{since}{why}"), mend)
        }
    }
}

#[cfg(test)]
mod tests;
