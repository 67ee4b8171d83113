"""Every value of the chart reaches an object, every flag of the program has a value, and a wrong value is named."""

import pathlib
import re
import subprocess
import tempfile

import yaml

import generate
from generate import CHART, read

# Why a flag has no value of its own.
WITHOUT = {
    "--node-name": "each pod has its node's",
    "--own-namespace": "the release's",
    "--kubeconfig": "the pod has its account's token",
    "--context": "the pod has its account's token",
}
BINARY = pathlib.Path("target/debug/cilium-leak-healer")


def helm_template(helm: str, values: dict) -> subprocess.CompletedProcess[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        words = [helm, "template", "x", CHART, "--namespace", "ops", "--kube-version", "1.30.0", "--values", file.name]
        return subprocess.run(words, capture_output=True, text=True, check=False)


def merged(under: dict, over: dict) -> dict:
    both = dict(under)
    for name, found in over.items():
        both[name] = merged(under[name], found) if isinstance(found, dict) and isinstance(under.get(name), dict) else found
    return both


def at(path: tuple[str, ...], found: object) -> dict:
    return {path[0]: at(path[1:], found) if len(path) > 1 else found}


def look(values: dict, path: tuple[str, ...]) -> object:
    for name in path:
        values = values[name]
    return values


def set_leaves(values: dict, known: set[tuple[str, ...]], path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if path in known or not isinstance(values, dict):
        return {path}
    return {leaf for name, below in values.items() for leaf in set_leaves(below, known, (*path, name))}


def environment(text: str) -> dict[str, str]:
    daemonset = next(it for it in yaml.safe_load_all(text) if it and it["kind"] == "DaemonSet")
    return {it["name"]: it.get("value", "") for it in daemonset["spec"]["template"]["spec"]["containers"][0]["env"]}


def as_flag(found: object) -> str:
    if isinstance(found, bool):
        return "true" if found else "false"
    return ",".join(map(str, found)) if isinstance(found, list) else str(found)


def every_value(helm: str, expect) -> None:
    """Each leaf with another value than in the context, by tests/manifests: the render differs, and a flag has that very text."""
    context, others = (yaml.safe_load(read(f"tests/manifests/{name}.yaml")) for name in ("context", "other-values"))
    leaves = dict(generate.leaves(generate.schema()))
    missing = leaves.keys() ^ set_leaves(others, set(leaves))
    expect(not missing, f"tests/manifests/other-values.yaml and the schema differ in {missing}")
    base = helm_template(helm, context)
    expect(base.returncode == 0, base.stderr)
    flags = {}
    for path, leaf in leaves.items():
        name = ".".join(path)
        found = look(others, path)
        got = helm_template(helm, merged(context, at(path, found)))
        expect(got.returncode == 0, f"{name}: {got.stderr}")
        expect(got.stdout != base.stdout, f"{name} reaches no object")
        if "x-flag" in leaf and got.returncode == 0:
            flags[leaf["x-flag"]] = leaf
            variable = "CILIUM_LEAK_HEALER_" + leaf["x-flag"].removeprefix("--").replace("-", "_").upper()
            told = environment(got.stdout).get(variable)
            expect(told == as_flag(found), f"{name}: {variable} is {told} and not {as_flag(found)}")
    the_programs(flags, expect)


def the_programs(flags: dict[str, dict], expect) -> None:
    """The flags of `run --help`, with their environment and defaults."""
    if not BINARY.exists():
        expect(False, f"{BINARY} is not built: its flags cannot be compared")
        return
    words = [str(BINARY), "run", "--help"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^ +(?:-., )?(--[a-z-]+)", re.split(r"^Options:", text, flags=re.MULTILINE)[1], flags=re.MULTILINE)[1:]
    helps = {flag: " ".join(words.split()) for flag, words in zip(parts[::2], parts[1::2])}
    has = {flag for flag in helps if flag not in ("--help", "--version")}
    expect(has - flags.keys() == set(WITHOUT), f"flags without a value of the chart: {sorted(has - flags.keys() - set(WITHOUT))}")
    expect(not flags.keys() - has, f"values for flags that the program does not have: {sorted(flags.keys() - has)}")
    for flag, leaf in flags.items():
        if flag in helps and "x-program-default" in leaf:
            default = re.search(r"\[default: ([^\]]+)\]", helps[flag])
            expect(bool(default) and default[1] == leaf["x-program-default"], f"{flag}: the default is {default and default[1]}")


def wrong_values(helm: str, expect) -> None:
    for case in yaml.safe_load(read("tests/manifests/wrong-values.yaml")):
        got = helm_template(helm, case["values"])
        # Helm 3 writes a.b, Helm 4 /a/b.
        told = got.stderr.replace("/", ".")
        expect(got.returncode != 0, f"{helm} takes {case['values']}")
        for name in case["named"]:
            expect(name in told, f"{helm}: {case['values']}: nothing of {name} in {got.stderr}")
