"""What is made is up to date, and chart, Kustomize and one-file installs come to the objects of the sources.

Renders are left in target/manifests, for who validates them.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import yaml

import generate
import reach
from generate import CHART, E2E, HEAL, read

NAMESPACE = "cilium-leak-healer"
GOLDEN = pathlib.Path("tests/manifests/golden")
OUT = pathlib.Path("target/manifests")
# What Helm adds to each object.
HELMS = ("app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")
ALL_REMEDIES = "remedies={disconnect-endpoint,delete-pod,restart-agent}"
OBSERVE, FENCED = ["rbac/observe.yaml"], ["rbac/observe.yaml", "rbac/fence.yaml", "rbac/heal.yaml"]

# Name: values, files that it comes to, environment of the DaemonSet that differs. A later file's object replaces an earlier one's.
MODES = {
    "observe": ([], OBSERVE, {}),
    "heal": (["--set", "mode=heal"], FENCED, HEAL),
    "restart-agent": (["--set", "mode=heal", "--set", ALL_REMEDIES], [*FENCED, "rbac/restart-agent.yaml"],
                      {**HEAL, "REMEDIES": "disconnect-endpoint,delete-pod,restart-agent"}),
    "auth": (["--set", "auth=token"], [*OBSERVE, "rbac/auth.yaml"], {"AUTH": "token"}),
    "e2e": (["--values", "deploy/e2e/values.yaml"], FENCED, E2E),
}

wrong: list[str] = []


def expect(holds: bool, what: str) -> None:
    if not holds:
        wrong.append(what)
        print("!!!", what)


def helms() -> list[str]:
    return [name for name in os.environ.get("HELM", "helm").split(",") if shutil.which(name)]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def ran(*words: str) -> str:
    done = run(*words)
    if done.returncode != 0:
        expect(False, f"{shlex.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def render(helm: str, *values: str, namespace: str = NAMESPACE) -> str:
    return ran(helm, "template", NAMESPACE, CHART, "--namespace", namespace, "--kube-version", "1.30.0", *values)


def objects(text: str) -> list[dict]:
    return [found for found in yaml.safe_load_all(text) if found]


def key(found: dict) -> tuple[str, str, str]:
    return found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"]


def plain(found: dict) -> dict:
    """An object without what Helm adds, its environment in the order of names."""
    for rule in found.get("spec", {}).get("validations", []):
        # Kustomize writes a folded text with an empty line more, which CEL does not see.
        rule["expression"] = re.sub(r"\n+", "\n", rule["expression"])
    for metadata in (found["metadata"], found.get("spec", {}).get("template", {}).get("metadata", {})):
        for label in HELMS:
            metadata.get("labels", {}).pop(label, None)
    for container in found.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
        container["env"].sort(key=lambda it: it["name"])
    return found


def keyed(all_of_them: list[dict]) -> dict[tuple[str, str, str], dict]:
    is_hook = lambda it: "helm.sh/hook" in it["metadata"].get("annotations", {})
    return {key(found): plain(found) for found in all_of_them if not is_hook(found)}


def sources(files: list[str], env: dict[str, str]) -> dict[tuple[str, str, str], dict]:
    found = [it for path in files for it in objects(read(path))]
    daemonset = generate.documents("deploy/daemonset.yaml")[0]
    found += objects(generate.set_env(daemonset, env) if "MODE" in env else daemonset)
    if env and "MODE" not in env:
        found[-1]["spec"]["template"]["spec"]["containers"][0]["env"] += [
            {"name": f"CILIUM_LEAK_HEALER_{name}", "value": text} for name, text in env.items()]
    return keyed(found)


def same(what: str, got: dict, wanted: dict) -> None:
    expect(got.keys() == wanted.keys(), f"{what}: objects {sorted(got.keys() ^ wanted.keys())}")
    for name in got.keys() & wanted.keys():
        expect(got[name] == wanted[name], f"{what}: {' '.join(name)} is not as in its source")


def up_to_date() -> None:
    for path, text in generate.everything().items():
        file = pathlib.Path(path)
        expect(file.exists() and file.read_text(encoding="utf-8") == text, f"{path} is not up to date: python3 .ci/manifests --write")


def chart(helm: str) -> None:
    ran(helm, "lint", "--strict", CHART)
    for name, (values, files, env) in MODES.items():
        ran(helm, "lint", "--strict", CHART, *values)
        text = render(helm, *values)
        wanted = {it: found for it, found in sources(files, env).items() if it[0] != "Namespace"}
        same(f"{helm}, {name}", keyed(objects(text)), wanted)
        golden = GOLDEN / f"{name}.yaml"
        expect(golden.exists() and golden.read_text(encoding="utf-8") == text, f"{helm}: {golden} is not what the chart renders")
        (OUT / f"chart-{name}.yaml").write_text(text, encoding="utf-8")
    with tempfile.TemporaryDirectory() as there:
        ran(helm, "package", CHART, "--destination", there)
        for package in pathlib.Path(there).glob("*.tgz"):
            ran(helm, "template", NAMESPACE, str(package), "--set", "mode=heal", "--kube-version", "1.30.0")
    monitoring(helm)
    elsewhere(helm)
    rights_follow_the_remedies(helm)


def monitoring(helm: str) -> None:
    """What is off by default: rules and dashboard as they are in deploy/; what is no custom resource is left to be validated."""
    all_of_them = objects(render(helm, "--values", "tests/manifests/context.yaml"))
    found = {it["kind"]: it for it in all_of_them}
    rules = objects(read("deploy/prometheus/prometheusrule.yaml"))[0]
    expect(found["PrometheusRule"]["spec"] == rules["spec"], f"{helm}: the alerts are not those of deploy/prometheus")
    dashboard = json.loads(found["ConfigMap"]["data"]["cilium-leak-healer.json"])
    expect(dashboard == json.loads(read("deploy/grafana/dashboard.json")), f"{helm}: the dashboard is not that of deploy/grafana")
    name = found["PodMonitor"]["metadata"]["name"]
    expect(name == found["Service"]["metadata"]["name"] == "cilium-leak-healer", f"{helm}: the alerts want that job's name")
    plain_ones = [it for it in all_of_them if not it["apiVersion"].startswith("monitoring.coreos.com/")]
    (OUT / "chart-monitoring.yaml").write_text(yaml.safe_dump_all(plain_ones), encoding="utf-8")


def elsewhere(helm: str) -> None:
    """Another namespace, account and home of Cilium: nothing is left of the usual ones."""
    text = render(helm, "--set", "mode=heal", "--set", ALL_REMEDIES, "--set", "serviceAccount.name=guard",
                  "--set", "agent.namespace=cilium", "--set", "agent.podSelector=app=agent", namespace="ops")
    for found in objects(text):
        expect(found["metadata"].get("namespace", "ops") in ("ops", "cilium"), f"{helm}, elsewhere: {key(found)}")
        for subject in found.get("subjects", []):
            expect((subject["namespace"], subject["name"]) == ("ops", "guard"), f"{helm}, elsewhere: {subject}")
        if found["kind"] == "ValidatingAdmissionPolicy":
            conditions = {it["name"]: it["expression"] for it in found["spec"]["matchConditions"]}
            expect(conditions["watchdog"] == "request.userInfo.username == 'system:serviceaccount:ops:guard'", f"{helm}: {conditions}")
    for word in ("kube-system", "'k8s-app'", "== 'cilium'\n        && oldObject.metadata.?owner"):
        expect(word not in text, f"{helm}, elsewhere: {word} is left")
    expect("labels[?'app'].orValue('') == 'agent'" in text, f"{helm}, elsewhere: the agent's label")


def rights_follow_the_remedies(helm: str) -> None:
    only = render(helm, "--set", "mode=heal", "--set", "remedies={disconnect-endpoint}")
    rules = [rule for found in objects(only) for rule in found.get("rules", []) or []]
    expect(not any("delete" in rule["verbs"] for rule in rules), f"{helm}: a right to delete that no remedy needs")
    expect(not any(found["kind"] in ("Lease", "ValidatingAdmissionPolicy") for found in objects(only)), f"{helm}: Leases or a fence for nothing")
    more = [key(found)[2] for found in objects(render(helm, "--set", "mode=heal", "--set", "budgets.delete.inFlight=5")) if found["kind"] == "Lease"]
    expect(len(more) == 5, f"{helm}: Leases {more}")
    old = run(helm, "template", CHART, "--set", "mode=heal", "--kube-version", "1.29.0")
    expect(old.returncode != 0 and "fence.create" in old.stderr, f"{helm}: Kubernetes 1.29 with a fence: {old.stderr}")


def kustomize() -> None:
    for name, path in (("observe", "deploy/install-observe.yaml"), ("heal", "deploy/install-heal.yaml"), ("e2e", "deploy/e2e/install.yaml")):
        _, files, env = MODES[name]
        same(path, keyed(objects(read(path))), sources(files, env))
        built = ran("kubectl", "kustomize", f"deploy/kustomize/overlays/{name}")
        same(f"overlay {name}", keyed(objects(built)), sources(files, env))
        (OUT / f"overlay-{name}.yaml").write_text(built, encoding="utf-8")
    moved()


def moved() -> None:
    """The example of docs/install.md for another namespace: the fence follows."""
    page = read("docs/install.md")
    example = page.split("# kustomization.yaml\n")[1].split("\n\n")[0]
    with tempfile.TemporaryDirectory(dir="target") as there:
        text = "\n".join(line.removeprefix("    ") for line in example.splitlines()).replace("- DIRECTORY", "- ../../deploy")
        (pathlib.Path(there) / "kustomization.yaml").write_text(text, encoding="utf-8")
        built = ran("kubectl", "kustomize", there)
    expect("cilium-leak-healer:cilium-leak-healer'" not in built and "system:serviceaccount:ops:cilium-leak-healer'" in built, "moved: the fence")
    for found in objects(built):
        named = found["metadata"].get("namespace", "ops") if found["kind"] != "Namespace" else found["metadata"]["name"]
        expect(named == "ops", f"moved: {key(found)}")
        for subject in found.get("subjects", []):
            expect(subject["namespace"] == "ops", f"moved: {key(found)}")


def write_golden() -> None:
    found = helms()
    if not found:
        sys.exit("no helm: the golden renders are not written anew")
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, (values, _, _) in MODES.items():
        (GOLDEN / f"{name}.yaml").write_text(render(found[0], *values), encoding="utf-8")


def all_of_it() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    found = helms()
    expect(bool(found), "helm is not installed")
    up_to_date()
    kustomize()
    for helm in found:
        print("chart,", ran(helm, "version", "--short").strip())
        chart(helm)
        reach.wrong_values(helm, expect)
    if found:
        reach.every_value(found[0], expect)
    print(f"{len(wrong)} things are wrong" if wrong else "manifests: all as their sources")
    return 1 if wrong else 0
