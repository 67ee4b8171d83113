"""Makes what is installed from its sources: rbac/, deploy/daemonset.yaml, deploy/prometheus, deploy/grafana and the chart's schema.

Each replacement has to hit as often as it says: a source that changes its form breaks this loudly.
"""

import json
import pathlib
import re

import yaml

CHART = "deploy/helm/cilium-leak-healer"
MADE = "# Made by .ci/manifests from {}. Change that, and run `python3 .ci/manifests --write`.\n"
ACCOUNT = '{{ include "cilium-leak-healer.account" . }}'


def read(path: str) -> str:
    return pathlib.Path(path).read_text(encoding="utf-8")


def documents(path: str) -> list[str]:
    """The YAML documents of a file as text, without the comment at its head."""
    return [part.strip("\n") + "\n" for part in re.split(r"^---\n", read(path), flags=re.MULTILINE)[1:]]


def swap(text: str, old: str, new: str, times: int | None = None) -> str:
    """Replaces each `old`; at least one, or exactly so many."""
    found = text.count(old)
    if found == 0 or times not in (None, found):
        raise SystemExit(f"{found} and not {times or 'some'} times in a source: {old!r}")
    return text.replace(old, new)


# ------------------------------------------------------------------------------------------------------------- the chart's rights


def template(document: str) -> str:
    """A document of rbac/ with the release's namespace, account, labels and the agent's place in it."""
    kind = yaml.safe_load(document)["kind"]
    text = swap(document, "  labels:\n    app.kubernetes.io/name: cilium-leak-healer\n",
                '  {{- include "cilium-leak-healer.meta" . | nindent 2 }}\n', 1)
    text = text.replace("namespace: cilium-leak-healer\n", "namespace: {{ .Release.Namespace }}\n")
    text = text.replace("namespace: kube-system\n", "namespace: {{ .Values.agent.namespace }}\n")
    if kind in ("ClusterRoleBinding", "RoleBinding"):
        text = swap(text, "- kind: ServiceAccount\n    name: cilium-leak-healer\n", f"- kind: ServiceAccount\n    name: {ACCOUNT}\n", 1)
    if kind == "ValidatingAdmissionPolicy":
        text = swap(text, "system:serviceaccount:cilium-leak-healer:cilium-leak-healer",
                    f"system:serviceaccount:{{{{ .Release.Namespace }}}}:{ACCOUNT}", 1)
        text = agent_place(text)
    return text


def agent_place(text: str) -> str:
    if "'kube-system'" in text:
        text = swap(text, "'kube-system'", "'{{ .Values.agent.namespace }}'", 1)
        text = swap(text, "labels[?'k8s-app'].orValue('') == 'cilium'",
                    "labels[?'{{ include \"cilium-leak-healer.agentLabelKey\" . }}'].orValue('') == "
                    "'{{ include \"cilium-leak-healer.agentLabelValue\" . }}'", 1)
    return text


def when(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def asked(what: str, text: str) -> str:
    return when(f'include "cilium-leak-healer.{what}" .', text)


def file(source: str, parts: list[str]) -> str:
    return "{{- /* " + MADE.format(source).strip("# \n") + " */ -}}\n" + "".join(parts)


def observe() -> str:
    parts = []
    for document in documents("rbac/observe.yaml"):
        kind = yaml.safe_load(document)["kind"]
        if kind == "Namespace":
            continue  # The release's; it has to be there before the release.
        text = template(document)
        if kind == "ServiceAccount":
            text = swap(text, "  name: cilium-leak-healer\n", f"  name: {ACCOUNT}\n", 1)
            text = swap(text, '  {{- include "cilium-leak-healer.meta" . | nindent 2 }}\n', (
                "  labels:\n"
                '    {{- include "cilium-leak-healer.labels" . | nindent 4 }}\n'
                "  {{- with merge (deepCopy .Values.serviceAccount.annotations) .Values.annotations }}\n"
                "  annotations:\n"
                "    {{- toYaml . | nindent 4 }}\n"
                "  {{- end }}\n"), 1)
            text = when(".Values.serviceAccount.create", f"---\n{text}")
        else:
            text = f"---\n{text}"
        parts.append(text)
    return file("rbac/observe.yaml", parts)


def heal() -> str:
    leases = 0
    parts = []
    for document in documents("rbac/heal.yaml"):
        seen, text = yaml.safe_load(document), template(document)
        if seen["kind"] == "ClusterRole":
            rule = re.compile(r"  # The remedy `delete-pod`.*?verbs: \[delete\]\n", re.DOTALL)
            text, hits = rule.subn(lambda found: "  " + asked("deletes", found[0]).replace("{{- end }}", "  {{- end }}"), text)
            if hits != 1:
                raise SystemExit("rbac/heal.yaml: no rule for the remedy `delete-pod`")
            parts.append(f"---\n{text}")
        elif seen["kind"] == "ClusterRoleBinding":
            parts.append(f"---\n{text}")
        elif seen["kind"] == "Lease":
            if leases == 0:
                text = swap(text, "  name: cilium-leak-healer-delete-pod-0\n", "  name: {{ . }}\n", 1)
                text = text.replace(".Release", "$.Release").replace('meta" .', 'meta" $')
                names = 'include "cilium-leak-healer.deleteLeases" . | fromYamlArray'
                text = f"{{{{- range {names} }}}}\n---\n{text}{{{{- end }}}}\n"
                parts.append("{{- if include \"cilium-leak-healer.movesPods\" . }}\n" + text)
            leases += 1
        else:
            if seen["kind"] == "Role":
                text, hits = re.subn(r"resourceNames: \[.*?\]", 'resourceNames: {{ include "cilium-leak-healer.deleteLeases" . }}', text)
                if hits != 1:
                    raise SystemExit("rbac/heal.yaml: no Role for the Leases")
            parts.append(f"---\n{text}")
    if leases != 3:
        raise SystemExit(f"rbac/heal.yaml: {leases} Leases")
    return file("rbac/heal.yaml", [asked("heals", "".join(parts) + "{{- end }}\n")])


def restart_agent() -> tuple[list[str], list[str], str]:
    """The fence for the agent's pods, what else the remedy needs, and the condition that leaves those pods to that fence."""
    fence, rest, condition = [], [], ""
    for document in documents("rbac/restart-agent.yaml"):
        seen = yaml.safe_load(document)
        if seen["metadata"]["name"] == "cilium-leak-healer":
            found = re.search(r"^    - name: not-the-agent\n(?:      .*\n)+", document, re.MULTILINE)
            if not found:
                raise SystemExit("rbac/restart-agent.yaml: no condition `not-the-agent`")
            condition = agent_place(found[0])
        elif seen["kind"].startswith("Validating"):
            fence.append(f"---\n{template(document)}")
        else:
            rest.append(f"---\n{template(document)}")
    return fence, rest, condition


def fence() -> str:
    of_agents, _, condition = restart_agent()
    parts = []
    for document in documents("rbac/fence.yaml"):
        text = template(document)
        if yaml.safe_load(document)["kind"] == "ValidatingAdmissionPolicy":
            variables = "  variables:\n"
            text = swap(text, variables, "    " + asked("restarts", condition).replace("{{- end }}", "    {{- end }}") + variables, 1)
        parts.append(f"---\n{text}")
    both = asked("restarts", "".join(of_agents)) + "".join(parts)
    return file("rbac/fence.yaml and rbac/restart-agent.yaml", [asked("fenced", both)])


def templates() -> dict[str, str]:
    auth = [f"---\n{template(document)}" for document in documents("rbac/auth.yaml")]
    return {
        f"{CHART}/templates/observe.yaml": observe(),
        f"{CHART}/templates/fence.yaml": fence(),
        f"{CHART}/templates/heal.yaml": heal(),
        f"{CHART}/templates/restart-agent.yaml": file("rbac/restart-agent.yaml", [asked("restarts", "".join(restart_agent()[1]))]),
        f"{CHART}/templates/auth.yaml": file("rbac/auth.yaml", [when('eq (.Values.auth | default "") "token"', "".join(auth))]),
        f"{CHART}/files/prometheusrule.yaml": MADE.format("deploy/prometheus/prometheusrule.yaml")
        + read("deploy/prometheus/prometheusrule.yaml"),
        f"{CHART}/files/dashboard.json": read("deploy/grafana/dashboard.json"),
    }


# ----------------------------------------------------------------------------------------------------- values and their table


def leaves(schema: dict, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], dict]]:
    """What can be set, with where it stands. An object of our own is a group; a free one is a value."""
    if "default" in schema or schema.get("x-hidden"):
        return [] if schema.get("x-hidden") else [(path, schema)]
    return [leaf for name, below in schema["properties"].items() for leaf in leaves(below, (*path, name))]


def schema() -> dict:
    return json.loads(read(f"{CHART}/values.schema.json"))


def value(found: object) -> str:
    return "null" if found is None else json.dumps(found, ensure_ascii=False)


def remark(leaf: dict) -> str:
    flag = f" `{leaf['x-flag']}`." if "x-flag" in leaf else ""
    own = f" Null: the program's own, {leaf['x-program-default']}." if "x-program-default" in leaf else ""
    return leaf["description"] + own + flag


def values(below: dict, indent: str = "") -> str:
    text = ""
    for name, found in below["properties"].items():
        if found.get("x-hidden"):
            continue
        if not indent:
            text += "\n"
        if "default" in found:
            text += f"{indent}# {remark(found)}\n{indent}{name}: {value(found['default'])}\n"
        else:
            text += f"{indent}# {found['description']}\n{indent}{name}:\n{values(found, indent + '  ')}"
    return text


def table() -> str:
    rows = ["| value | default | |", "|---|---|---|"]
    for path, leaf in leaves(schema()):
        cells = [f"`{'.'.join(path)}`", f"`{value(leaf['default'])}`", remark(leaf)]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def chart_texts() -> dict[str, str]:
    begin, end = "<!-- values: made from values.schema.json -->\n", "<!-- end of values -->\n"
    page = read(f"{CHART}/README.md")
    head, rest = page.split(begin)
    tail = rest.split(end)[1]
    return {
        f"{CHART}/values.yaml": MADE.format("values.schema.json") + values(schema()),
        f"{CHART}/README.md": f"{head}{begin}\n{table()}\n{end}{tail}",
    }


# ------------------------------------------------------------------------------------------------- Kustomize and the one-file installs

# What a fresh cluster does not need to wait for. docs/e2e.md says why, and what is left as it is.
E2E = {"MODE": "heal", "HEAL_FOR": "2h", "STARTUP_QUIET": "1s", "CONFIRM_GAP": "1s", "EVENT_DELAY": "1s", "AGENT_SETTLE": "30s"}
HEAL = {"MODE": "heal"}

HEADS = {
    "observe": "# All that the mode `observe` needs, in one file:\n#\n#   kubectl apply -f deploy/install-observe.yaml\n",
    "heal": "# All that the mode `heal` needs, in one file (Kubernetes 1.30 or newer):\n#\n#   kubectl apply -f deploy/install-heal.yaml\n",
    "e2e": "# The mode `heal` for a cluster that lives for a test: it ends by itself, and does without some waiting. docs/e2e.md\n#\n"
           "#   kubectl apply -f deploy/e2e/install.yaml\n",
}


def set_env(daemonset: str, env: dict[str, str]) -> str:
    """The DaemonSet's text with these variables; the mode's comes first and is there already."""
    first, *more = env.items()
    new = f"            - name: CILIUM_LEAK_HEALER_{first[0]}\n              value: {first[1]}\n"
    daemonset = swap(daemonset, new.replace(first[1], "observe"), new, 1)
    return swap(daemonset, new, new + "".join(
        f"            - name: CILIUM_LEAK_HEALER_{name}\n              value: {text}\n" for name, text in more), 1)


def one_file(head: str, files: list[str], env: dict[str, str]) -> str:
    parts = [f"---\n{document}" for path in files for document in documents(path)]
    daemonset = documents("deploy/daemonset.yaml")[0]
    sources = ", ".join([*files, "deploy/daemonset.yaml"])
    return HEADS[head] + "#\n" + MADE.format(sources) + "".join(parts) + "---\n" + (set_env(daemonset, env) if env else daemonset)


def patch(env: dict[str, str]) -> str:
    variables = "".join(f"            - name: CILIUM_LEAK_HEALER_{name}\n              value: {text}\n" for name, text in env.items())
    return (
        MADE.format(".ci/manifests/generate.py") + "apiVersion: apps/v1\nkind: DaemonSet\nmetadata:\n  name: cilium-leak-healer\n"
        "  namespace: cilium-leak-healer\nspec:\n  template:\n    spec:\n      containers:\n        - name: cilium-leak-healer\n"
        f"          env:\n{variables}"
    )


def installs() -> dict[str, str]:
    base, overlays = "deploy/kustomize/base", "deploy/kustomize/overlays"
    rights = ["rbac/observe.yaml", "rbac/fence.yaml", "rbac/heal.yaml"]
    copy = {f"{base}/observe.yaml": "rbac/observe.yaml", f"{base}/daemonset.yaml": "deploy/daemonset.yaml",
            f"{overlays}/heal/fence.yaml": "rbac/fence.yaml", f"{overlays}/heal/heal.yaml": "rbac/heal.yaml"}
    return {
        **{to: MADE.format(source) + "---\n" + "---\n".join(documents(source)) for to, source in copy.items()},
        f"{overlays}/heal/mode.yaml": patch(HEAL),
        f"{overlays}/e2e/waits.yaml": patch(E2E),
        "deploy/install-observe.yaml": one_file("observe", rights[:1], {}),
        "deploy/install-heal.yaml": one_file("heal", rights, HEAL),
        "deploy/e2e/install.yaml": one_file("e2e", rights, E2E),
    }


def everything() -> dict[str, str]:
    return {**templates(), **chart_texts(), **installs()}
