//! The texts for each verdict: what it means, which rule decides it, what would change it, what a person can do.
//!
//! This is the one place for them; `docs/verdicts.md` is held to it by a test. `{words}` in braces stand for what was
//! seen and are filled in by `fill`; a step whose word has no value is left out.
//!
//! Must not know: how it is printed.

use crate::domain::{AnomalyKind, Check, Proof, Refusal, Verdict, Withheld, refusal};

/// One thing that a person can do now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) text: &'static str,
    /// Shell commands, in their order.
    pub(super) commands: &'static [&'static str],
    pub(super) when: When,
}

/// Whether a step is of use for this very wedge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// The wedged pod has a controller that makes it again with another address.
    Movable,
    /// It has none, or would come back as it is.
    NotMovable,
    /// Heal mode would act.
    Remedy,
    /// A remedy is withheld.
    Withheld,
}

/// Everything to say about a verdict.
#[derive(Debug, Clone, Copy)]
pub(super) struct Advice {
    /// What it means, as in `docs/verdicts.md`.
    pub(super) meaning: &'static str,
    /// The rule of its row.
    pub(super) rule: &'static str,
    /// What a person can do, in one line, as in `docs/verdicts.md`.
    pub(super) person: &'static str,
    /// What would make the verdict another one.
    pub(super) changes: &'static [&'static str],
    /// What a person can do, with commands.
    pub(super) steps: &'static [Step],
}

/// What to say about a finding without a wedge.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnomalyAdvice {
    pub(super) meaning: &'static str,
    pub(super) person: &'static str,
    pub(super) steps: &'static [Step],
}

const AGENT: &str =
    "agent=$(kubectl -n {agent-ns} get pod -o name -l {agent-label} --field-selector spec.nodeName={node})";
const GET_HOLDER: &str =
    "kubectl -n {agent-ns} exec \"$agent\" -c {agent-container} -- cilium-dbg endpoint get {registry-id}";
const AGENT_LOG: &str = "kubectl -n {agent-ns} logs \"$agent\" -c {agent-container} --since=15m";
const DESCRIBE: &str = "kubectl -n {ns} describe pod {pod}";

const LOOK_AT_HOLDER: Step =
    always("Look at the holder yourself, in the agent's pod of this node.", &[AGENT, GET_HOLDER]);
const JUDGE_AGAIN: Step = always("Judge again.", &["{self} explain {ns}/{pod}"]);
const DELETE_WEDGED: Step = Step {
    text: "To help this pod at once, delete it: its controller makes another one, usually with another address. The cause stays.",
    commands: &["kubectl -n {ns} delete pod {pod}"],
    when: When::Movable,
};

const MAKE_ANEW: Step = Step {
    text: "Nothing makes this pod again with another address. If you can do without it, delete it and make it anew yourself, with another address.",
    commands: &[],
    when: When::NotMovable,
};

const fn always(text: &'static str, commands: &'static [&'static str]) -> Step {
    Step { text, commands, when: When::Always }
}

/// The texts for a verdict on a wedge.
pub(super) fn of_verdict(verdict: Verdict) -> Advice {
    match verdict {
        Verdict::AgentUnknown => AGENT_UNKNOWN,
        Verdict::ReservedHolder => RESERVED_HOLDER,
        Verdict::NotHeld => NOT_HELD,
        Verdict::Settling => SETTLING,
        Verdict::InsufficientEvidence => INSUFFICIENT_EVIDENCE,
        Verdict::UnmanagedHolder => UNMANAGED_HOLDER,
        Verdict::SharedByDesign => SHARED_BY_DESIGN,
        Verdict::LiveDuplicate => LIVE_DUPLICATE,
        Verdict::StaleEndpoint => STALE_ENDPOINT,
    }
}

const AGENT_UNKNOWN: Advice = Advice {
    meaning: "the agent did not say who has the address: it timed out, refused, was overloaded, or its answer could not be understood",
    rule: "The look-up by address gave anything but an endpoint or an empty 404. That is never read as \"nobody has it\".",
    person: "look at the agent of that node; the watchdog asks again",
    changes: &[
        "The agent answers. With an endpoint, the rows below this one decide. With an empty 404 it is not-held.",
    ],
    steps: &[
        always(
            "See whether the agent of this node is up, and what it says.",
            &[
                "kubectl -n {agent-ns} get pod -o wide -l {agent-label} --field-selector spec.nodeName={node}",
                AGENT,
                AGENT_LOG,
            ],
        ),
        always(
            "Ask it yourself. Exit status 0 is an endpoint; \"404\" or \"not found\" means that nobody has the address.",
            &[GET_HOLDER],
        ),
        JUDGE_AGAIN,
    ],
};

const RESERVED_HOLDER: Advice = Advice {
    meaning: "the address is the ingress, health or router address of this node, or the holder is one of Cilium's own endpoints",
    rule: "The address is in this node's CiliumNode (ingress, health, CiliumInternalIP), or the holder has a reserved: label other than reserved:init. Such an endpoint is never disconnected, and the agent is never restarted for it.",
    person: "two IPAMs hand out one range: take the range of one away from the other",
    changes: &[
        "The pod gets another address: it is made again, or the ranges no longer overlap.",
        "Cilium moves off the address. The health address changes at an agent restart, the ingress address stays.",
    ],
    steps: &[
        always(
            "See which addresses Cilium uses on this node, and from which range.",
            &["kubectl get ciliumnode {node} -o yaml"],
        ),
        always(
            "Find the other IPAM that gave the pod this address: the CNI configuration of the node, or of the plugin that Cilium is chained behind. Take Cilium's range out of its range.",
            &[],
        ),
        DELETE_WEDGED,
        MAKE_ANEW,
    ],
};

const NOT_HELD: Advice = Advice {
    meaning: "the agent does not have the address any more",
    rule: "The look-up by address gave an empty 404: no endpoint of this agent has it now.",
    person: "nothing: the kubelet's next try succeeds",
    changes: &[
        "The pod gets its sandbox: then it is no wedge any more.",
        "A newer failure says the same, and an endpoint has the address again.",
    ],
    steps: &[
        always(
            "Wait for the kubelet's next try, 10 to 15 s after the last one, and look at the Events.",
            &[DESCRIBE],
        ),
        JUDGE_AGAIN,
    ],
};

const SETTLING: Advice = Advice {
    meaning: "the agent started less than 2 min ago or after the failure; the holder is on its way up or down; or the pod failed once, less than 5 s ago",
    rule: "What was seen may be gone by itself in a moment: the agent started less than 2 min ago or after the newest failure (an unknown start counts as just now), or the holder is on its way up or down and its newest log entry is younger than 10 min, or the pod failed once, less than 5 s ago.",
    person: "wait",
    changes: &[
        "Time: once the agent is up for 2 min, and the holder is at rest or its newest log entry 10 min old.",
        "A newer failure, which the agent that runs now has answered.",
    ],
    steps: &[
        always(
            "Wait, then judge again. Do not restart the agent: that starts the wait anew.",
            &["{self} explain {ns}/{pod}"],
        ),
        always("If it lasts longer than 10 min, look at the agent of this node.", &[AGENT, AGENT_LOG]),
    ],
};

const INSUFFICIENT_EVIDENCE: Advice = Advice {
    meaning: "something that must be known could not be read, or proves nothing: the reason says what",
    rule: "Something that a proof needs is unknown or says nothing. An unknown is never part of a proof.",
    person: "give the missing right, or look at what could not be read",
    changes: &[],
    steps: &[LOOK_AT_HOLDER, JUDGE_AGAIN],
};

/// A failure that disputes no single address.
pub(super) const TWO_ADDRESSES: &str = "A newest failure that names two different addresses disputes none of them: nobody is asked, and nothing is done. Only the rules about time apply besides.";

/// What a person can do where disconnecting is withheld, in one line.
pub(super) const WITHHELD_PERSON: &str =
    "do not disconnect by hand: the remedy is withheld, as told above; give the pod another address";

/// What a person can do about it, in one line.
pub(super) const TWO_ADDRESSES_PERSON: &str =
    "look at both holders; a newer failure may name one address only";

/// The last row: nothing was unknown, and still no proof holds.
pub(super) const LAST_ROW: &str =
    "No row above applies: everything could be read, and no proof says that the holder is left over.";

const UNMANAGED_HOLDER: Advice = Advice {
    meaning: "the holder names no pod, and nothing tells whose it is",
    rule: "The holder names no pod, is none of Cilium's own, and has no namespace label or an attachment of another interface than eth0.",
    person: "`cilium-dbg endpoint get ID` in the agent's pod",
    changes: &[
        "Something names the owner: a CiliumEndpoint with the same id and attachment, owned by a pod.",
        "The holder goes away: then it is not-held.",
    ],
    steps: &[
        LOOK_AT_HOLDER,
        always(
            "See which CiliumEndpoints have the address.",
            &["kubectl get ciliumendpoints -A -o wide | grep -wF {ip}"],
        ),
        DELETE_WEDGED,
    ],
};

const SHARED_BY_DESIGN: Advice = Advice {
    meaning: "two pods have the address on purpose: launchers of one virtual machine, or pods in separate kube-ovn networks",
    rule: "The owner is another pod that has not ended, and both carry the same virtual machine's label, or both addresses are fixed by kube-ovn in separate networks.",
    person: "nothing, or keep such pods on different nodes",
    changes: &[
        "The owner ends: then its endpoint goes, or is judged as left over.",
        "The two pods no longer carry the same label, or no longer have the address fixed.",
    ],
    steps: &[
        always(
            "See both pods.",
            &["kubectl -n {owner-ns} get pod {owner-name} -o wide", "kubectl -n {ns} get pod {pod} -o wide"],
        ),
        always(
            "For a virtual machine that migrates: wait until the old launcher has ended. Else keep such pods on different nodes.",
            &[],
        ),
    ],
};

const LIVE_DUPLICATE: Advice = Advice {
    meaning: "the owner, or another pod with this address, is alive",
    rule: "The owner is alive and no proof says that the endpoint is not its own, or another live pod lists the address. Disconnecting would cut a live pod off.",
    person: "find out which IPAM gave one address twice; deleting the newer pod helps it, not the cause",
    changes: &[
        "The live pod that is named above ends or is deleted: an endpoint that outlives it is stale-endpoint.",
        "The holder goes away: then it is not-held.",
    ],
    steps: &[
        always(
            "See the owner. Leave its endpoint alone.",
            &["kubectl -n {owner-ns} get pod {owner-name} -o wide"],
        ),
        always(
            "See which pods list the address.",
            &["kubectl get pods -A -o wide --field-selector status.podIP={ip}"],
        ),
        DELETE_WEDGED,
        always(
            "Find out which IPAM gave one address twice: see the ranges of this node.",
            &["kubectl get ciliumnode {node} -o yaml"],
        ),
    ],
};

const STALE_ENDPOINT: Advice = Advice {
    meaning: "the holder is left over, by one of the proofs below",
    rule: "The holder is left over, by a proof from live reads.",
    person: "nothing in the mode `heal`; in the mode `observe`: `cilium-dbg endpoint disconnect ID` after you checked the evidence",
    changes: &[
        "A pod that may own the endpoint comes up on this node, or a live pod lists the address: live-duplicate.",
        "The agent lets go of the address: not-held.",
        "Something that the proof rests on can no longer be read: insufficient-evidence.",
        "The agent restarts: settling, for 2 min.",
    ],
    steps: &[
        always(
            "Check the evidence right before you act: the holder must still be this endpoint.",
            &[AGENT, GET_HOLDER],
        ),
        always(
            "The owner must still be as told above.",
            &["kubectl -n {owner-ns} get pod {owner-name} -o wide"],
        ),
        Step {
            text: "Then disconnect this one endpoint, by this id and no other. Addresses and numbers are used again.",
            commands: &[
                "kubectl -n {agent-ns} exec \"$agent\" -c {agent-container} -- cilium-dbg endpoint disconnect {target}",
            ],
            when: When::Remedy,
        },
        Step {
            text: "Disconnecting is withheld, for the reason above: do not disconnect by hand without an answer to it.",
            commands: &[],
            when: When::Withheld,
        },
        Step {
            text: "Or, where the watchdog is installed, let it heal. This changes its mode on all nodes.",
            commands: &[
                "kubectl -n cilium-leak-healer set env daemonset/cilium-leak-healer CILIUM_LEAK_HEALER_MODE=heal",
            ],
            when: When::Remedy,
        },
        DELETE_WEDGED,
    ],
};

/// The texts for a finding without a wedge.
pub(super) fn of_anomaly(kind: AnomalyKind) -> AnomalyAdvice {
    match kind {
        AnomalyKind::OverlappingIpam => OVERLAPPING_IPAM,
        AnomalyKind::OrphanCep => ORPHAN_CEP,
        AnomalyKind::CepMismatch => CEP_MISMATCH,
        AnomalyKind::CepMissing => CEP_MISSING,
    }
}

const OVERLAPPING_IPAM: AnomalyAdvice = AnomalyAdvice {
    meaning: "a live pod has an address that Cilium uses itself, or the pod CIDRs of two nodes overlap",
    person: "take the range of one IPAM away from the other; the pod needs another address",
    steps: &[always(
        "See the ranges and Cilium's own addresses of each node.",
        &["kubectl get ciliumnodes -o yaml"],
    )],
};

const ORPHAN_CEP: AnomalyAdvice = AnomalyAdvice {
    meaning: "a CiliumEndpoint older than 10 min is of a pod that does not exist",
    person: "delete it, unless the agent still holds the endpoint: it would write it again. That frees no address",
    steps: &[always("See who owns it.", &["kubectl -n {ns} get ciliumendpoint {pod} -o yaml"])],
};

const CEP_MISMATCH: AnomalyAdvice = AnomalyAdvice {
    meaning: "a CiliumEndpoint has another owner UID or address than the live pod of its name",
    person: "leave it: deleting the CiliumEndpoint of a live pod makes things worse; recreate the pod when you can",
    steps: &[always(
        "Compare the two.",
        &["kubectl -n {ns} get ciliumendpoint {pod} -o yaml", "kubectl -n {ns} get pod {pod} -o wide"],
    )],
};

const CEP_MISSING: AnomalyAdvice = AnomalyAdvice {
    meaning: "a running pod has an endpoint in the agent and no CiliumEndpoint",
    person: "other nodes may not know the pod: look at the agent's log, recreate the pod when you can",
    steps: &[always("Look at the agent of its node.", &[AGENT, AGENT_LOG])],
};

/// Why a remedy is withheld, as in `docs/verdicts.md`, and what would lift that.
pub(super) fn of_withheld(why: Withheld) -> (&'static str, &'static str) {
    match why {
        Withheld::IpamMode => (
            "in the IPAM modes `eni`, `azure` and `alibabacloud` the old endpoint's teardown can remove rules of the address's new owner",
            "Nothing lifts this on released versions of Cilium. Where the pod can be made again, let it get another address.",
        ),
        Withheld::IpamModeUnknown => (
            "the agent did not say which mode it runs",
            "The agent tells its configuration (GET /v1/config).",
        ),
        Withheld::NoIdentifier => (
            "the holder shows neither a `cni-attachment-id` nor a `container-id`",
            "The agent shows an id that is never used again. An address or a number is none.",
        ),
        Withheld::NotMovable => (
            "the pod has no controller, is a mirror pod, may have run, or would come back to the same address",
            "The pod gets a controller that makes it again with another address.",
        ),
        Withheld::Timing => (
            "the agent or the failure is too young, or the failure too old",
            "Time, or a newer failure: an agent that is up for 2 min, and a failure that is younger than 10 min.",
        ),
    }
}

/// The text of a proof, as in `docs/verdicts.md`.
pub(super) fn of_proof(proof: Proof) -> &'static str {
    match proof {
        Proof::OwnerGone => "The API server has no pod of the owner's name.",
        Proof::OwnerEnded => "That pod is `Succeeded` or `Failed`, and no container of it runs.",
        Proof::FormerIncarnation => {
            "That pod has another UID than the endpoint, by Cilium's own objects, and the address is not that pod's."
        }
        Proof::BoundElsewhere => "That pod is bound to another node, or to none.",
        Proof::EarlierSandbox => {
            "The owner is the wedged pod itself, and the holder is an earlier sandbox of it."
        }
        Proof::NoPossibleOwner => {
            "Nothing names the owner, and no live pod of its namespace on this node can be it."
        }
    }
}

/// Where something is unknown or proves nothing: what would let the rules go on from this check.
pub(super) fn of_open_check(check: Check) -> &'static str {
    match check {
        Check::WaitingPod => "The pod waits for a sandbox.",
        Check::PodEvents => {
            "The pod's Events can be read: the right `list events` in its namespace, or an API server that answers."
        }
        Check::NewestFailure => "A newer failure names one address only.",
        Check::FailureAge => "A newer failure comes: one that is younger than 10 min and not in the future.",
        Check::AgentStart => "The start of the agent is known.",
        Check::AgentLookup => "The agent answers the look-up by address.",
        Check::CiliumNode => "This node's CiliumNode is there and can be read: the right `get ciliumnodes`.",
        Check::ReservedHolder => "The address is none of Cilium's own.",
        Check::MovablePod => "The wedged pod may be moved.",
        Check::HolderState => "The holder comes to rest.",
        Check::HolderAddress => "The agent answers with an endpoint that carries the disputed address.",
        Check::OwnerName => {
            "Something names the owner: the holder's identifiers, its controller, or its CiliumEndpoint."
        }
        Check::CiliumEndpoints => {
            "CiliumEndpoints can be read: the right `get ciliumendpoints` in the holder's namespace."
        }
        Check::OwnerPod => {
            "The owner can be read, and is gone, has ended or is bound elsewhere, or a proof shows that the endpoint is not that pod's."
        }
        Check::AddressUsers => {
            "All pods can be read, and each address that they list: the right `list pods` in all namespaces."
        }
        Check::NodePods => {
            "No live pod of the holder's namespace on this node can be the owner: each lists another address, started later, or is gone."
        }
        Check::SharedByDesign => "The two pods do not share the address on purpose.",
        Check::Staleness => {
            "A proof holds: the owner is gone, has ended, is bound elsewhere, or is of another UID."
        }
        Check::IpamMode => "The agent's IPAM mode is known and allows a disconnect.",
        Check::DisconnectTarget => "The holder shows an id by which it can be disconnected.",
    }
}

/// What failures that look alike mean, by a part of their message; the first that is in it counts.
const LOOK_ALIKES: [(&str, &str); 10] = [
    (
        "putEndpointIdTooManyRequests",
        "The agent refuses new endpoints for now: too many at once. It passes by itself, or the agent of this node is overloaded.",
    ),
    (
        "Cilium API client timeout exceeded",
        "The agent of this node did not answer the CNI plugin in time: look at the agent.",
    ),
    (
        "range is full",
        "The addresses of this node are used up: enlarge the pod range, or find what holds them.",
    ),
    (
        "already exists",
        "An endpoint of this very number or attachment is there already: an earlier try of the same sandbox is not torn down yet.",
    ),
    (
        "bind: address already in use",
        "A port of the node is taken: that is about a host port or a socket, not about a pod's address.",
    ),
    (
        "failed to reserve sandbox name",
        "The container runtime still has an earlier sandbox of this pod: look at the runtime of this node.",
    ),
    (
        "unable to connect to Cilium agent",
        "The CNI plugin did not reach the agent of this node: look at the agent.",
    ),
    ("cilium.sock", "The CNI plugin did not reach the agent of this node: look at the agent."),
    ("putEndpointIdFailed", "The agent took the endpoint and could not set it up: its log says why."),
    (
        "is already in use",
        "It speaks of an address in use, but it is not the whole refusal of the Cilium agent, so no address is disputed.",
    ),
];

/// What another failure than the refusal means, where that is known.
pub(super) fn of_look_alike(message: &str) -> Option<&'static str> {
    if refusal(message) != Refusal::None {
        return Some("It was this refusal, and something newer says that it is over: the checks tell what.");
    }
    LOOK_ALIKES.into_iter().find(|(part, _)| message.contains(part)).map(|(_, text)| text)
}

/// What a person can do about a pod that is not wedged by this.
pub(super) const NOT_WEDGED_STEPS: &[Step] = &[
    always("See the pod with all its Events.", &[DESCRIBE]),
    always(
        "See its newest Events, in the order of time.",
        &["kubectl -n {ns} get events --field-selector involvedObject.name={pod} --sort-by=.lastTimestamp"],
    ),
];

/// The words that `fill` knows.
#[cfg(test)]
pub(super) const WORDS: [&str; 12] = [
    "{agent-ns}",
    "{agent-label}",
    "{agent-container}",
    "{node}",
    "{registry-id}",
    "{ns}",
    "{pod}",
    "{ip}",
    "{owner-ns}",
    "{owner-name}",
    "{target}",
    "{self}",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn all_steps() -> impl Iterator<Item = Step> {
        let verdicts = Verdict::ALL.into_iter().flat_map(|verdict| of_verdict(verdict).steps);
        let anomalies = AnomalyKind::ALL.into_iter().flat_map(|kind| of_anomaly(kind).steps);
        verdicts.chain(anomalies).chain(NOT_WEDGED_STEPS).copied()
    }

    #[test]
    fn each_word_in_braces_is_known() {
        let changes = Verdict::ALL.into_iter().flat_map(|verdict| of_verdict(verdict).changes).copied();
        let steps = all_steps().flat_map(|step| step.commands.iter().copied().chain([step.text]));
        for text in changes.chain(steps) {
            let mut rest = text.to_owned();
            for word in WORDS {
                rest = rest.replace(word, "");
            }
            assert!(!rest.contains(['{', '}']), "an unknown word: {text}");
        }
    }

    #[test]
    fn only_a_remedy_disconnects_and_nothing_restarts_the_agent() {
        for step in all_steps() {
            for command in step.commands {
                let disconnects = command.contains("disconnect");
                assert!(
                    !disconnects || (step.when == When::Remedy && command.contains("{target}")),
                    "{command}"
                );
                assert!(!command.contains("rollout") && !command.contains("delete pod -l"), "{command}");
                assert!(!command.contains("delete pod") || step.when == When::Movable, "{command}");
            }
        }
    }

    #[test]
    fn the_documentation_says_the_same() {
        let docs = include_str!("../../../docs/verdicts.md");
        let has = |line: &str| assert!(docs.contains(line), "docs/verdicts.md lacks: {line}");
        for (row, verdict) in Verdict::ALL.into_iter().enumerate() {
            let advice = of_verdict(verdict);
            has(&format!("| {} | `{verdict}` | {} | ", row + 1, advice.meaning));
            has(&format!(" | {} |\n", advice.person));
        }
        for kind in AnomalyKind::ALL {
            let advice = of_anomaly(kind);
            has(&format!("| `{}` | {} | {} |", kind.as_str(), advice.meaning, advice.person));
        }
        for why in Withheld::ALL {
            has(&format!("| `{}` | {} |", why.as_str(), of_withheld(why).0));
        }
        for proof in [
            Proof::OwnerGone,
            Proof::OwnerEnded,
            Proof::FormerIncarnation,
            Proof::BoundElsewhere,
            Proof::EarlierSandbox,
            Proof::NoPossibleOwner,
        ] {
            has(&format!("{}. {}\n", proof.number(), of_proof(proof)));
        }
    }
}
