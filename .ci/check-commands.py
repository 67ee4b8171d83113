#!/usr/bin/env python3
"""Checks the commands of the docs: that they would be understood, and that the files that they name are there.

A `cilium-leak-healer` command runs as it stands, in an empty directory and without a cluster: verb, flags and values have to be understood; what
needs no cluster has to succeed. Of kubectl and helm the flags are asked for with `--help`. Any command that names a file of this repository
names one that is there. Takes the path of the program.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path.cwd()
NAME = "cilium-leak-healer"
# Made from the definition of the command line: its usage lines are no commands. The changelog tells of versions that are gone.
LEFT_OUT = {"docs/cli.md", "CHANGELOG.md"}
FENCE = re.compile(r"^([ ]*)(```+|~~~+)([^\n]*)\n(.*?)^\1\2[ ]*$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^(?: {4}|\t)")
SPAN = re.compile(r"(?<!`)`((?:cilium-leak-healer|kubectl|helm) [^`]+)`(?!`)")
# The words that stand for a value of the reader's.
PLACEHOLDERS = {
    "[NAMESPACE/]POD": "tenant-a/web-1", "NAMESPACE/POD": "tenant-a/web-1", "POD": "web-1", "IP": "10.244.1.12", "NODE": "worker-1",
    "SNAPSHOT": "snapshot.yaml", "FILE": "snapshot.yaml", "bash|zsh|fish|…": "bash", "DIR": "pages",
}
DIRECTORIES = tuple(f"{path.name}/" for path in ROOT.iterdir() if path.is_dir())
# A saved cluster, for every file that a page names after --from, and the pod that hangs in it.
CASE = ROOT / "tests/cases/stale-owner-gone.yaml"
CASE_POD = "monitoring/log-shipper-x7k2p"
# What clap ends each refusal with.
REFUSED = "For more information, try '--help'"
# Verbs that end at once without a cluster, and have to succeed; a scan of a file may have findings.
SUCCEED = {"completions": {0}, "man": {0}, "--version": {0}, "--help": {0}, "help": {0}}


def pages() -> list[pathlib.Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"], check=True, capture_output=True, text=True
    ).stdout
    return [pathlib.Path(page) for page in filter(None, listed.split("\0")) if page not in LEFT_OUT and pathlib.Path(page).is_file()]


def lines(text: str) -> list[str]:
    """The lines of all code blocks, and the spans that begin like a command. Lines that go on are one."""
    found: list[str] = []
    for fence in FENCE.finditer(text):
        if fence.group(3).strip() in ("", "sh", "bash", "shell", "console"):
            found += fence.group(4).splitlines()
    rest = FENCE.sub("", text)
    found += [line for line in rest.splitlines() if INDENTED.match(line)]
    found += [span.replace("\n", " ") for span in SPAN.findall(rest)]
    whole: list[str] = []
    for line in map(str.strip, found):
        if whole and whole[-1].endswith("\\"):
            whole[-1] = f"{whole[-1][:-1]} {line}"
        else:
            whole.append(line)
    return whole


def commands(line: str) -> list[list[str]]:
    """The simple commands of a line of a shell; none where it is no such line."""
    if not re.match(r"(?:\$ |[A-Z_]+=\S+ )*(?:\./)?(?:cilium-leak-healer|kubectl|helm|cargo|bash|docker)\b", line):
        return []
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    parts: list[list[str]] = [[]]
    try:
        for token in lexer:
            if set(token) <= set("|&;"):
                parts.append([])
            else:
                parts[-1].append(token)
    except ValueError as error:
        sys.exit(f"not understood: {line}: {error}")
    out = []
    for part in parts:
        # Where the output goes is not the command's.
        for sign in (">", ">>", "<"):
            if sign in part:
                part = part[: part.index(sign)]
        while part and re.fullmatch(r"[A-Z_]+=.*", part[0]):
            part = part[1:]
        if part:
            out.append(part)
    return out


def ours(words: list[str]) -> list[str] | None:
    """The words after the program's name, where the command runs it: by itself, in a pod, as a plugin, by cargo."""
    if words[0] in (NAME, f"./{NAME}"):
        return words[1:]
    if words[0] == "kubectl" and f"/{NAME}" in words:
        return words[words.index(f"/{NAME}") + 1 :]
    if words[:2] == ["kubectl", "cilium-leak"]:
        return words[2:]
    if words[:3] == ["kubectl", "cilium", "leak"]:
        return words[3:]
    if words[:2] == ["cargo", "run"] and "--" in words:
        return words[words.index("--") + 1 :]
    return None


def run(program: pathlib.Path, words: list[str]) -> str | None:
    """What is wrong with a command of ours."""
    words = [PLACEHOLDERS.get(word, word) for word in words if word not in ("…", "...")]
    if not words:
        return None
    if words[0] == "demo":
        # It runs for a minute, as a check of its own.
        words = [*words, "--help"]
    with tempfile.TemporaryDirectory() as scratch:
        if words[0] == "ledger" and "--state-dir" not in words:
            # Not that of a watchdog which runs on this machine.
            words = [*words, "--state-dir", f"{scratch}/none"]
        case = CASE.read_text(encoding="utf-8")
        for flag, file in zip(words, words[1:], strict=False):
            if flag == "--from":
                (pathlib.Path(scratch) / file).write_text(case, encoding="utf-8")
        if "--from" in words and words[0] == "explain" and not words[1].startswith("-"):
            words[1] = CASE_POD
        # No cluster, and nothing of who runs this.
        env = {"PATH": os.environ["PATH"], "HOME": scratch, "KUBECONFIG": f"{scratch}/none", "NO_COLOR": "1"}
        try:
            done = subprocess.run([program, *words], cwd=scratch, env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return "it does not end"
    said = done.stderr.strip()
    wanted = {0} if words[-1] == "--help" else SUCCEED.get(words[0])
    if "--from" in words:
        wanted = {0, 2} if words[0] == "scan" else {0}
    if REFUSED in said or "Usage:" in said or (wanted and done.returncode not in wanted):
        return f"status {done.returncode}: {said}"
    # The command line was understood, so it is the cluster that is missing, or the ledger.
    if not wanted and (done.returncode != 1 or not re.search(r"kubeconfig|--state-dir", said)):
        return f"status {done.returncode}, and not for want of a cluster: {said}"
    return None


def files(words: list[str]) -> list[str]:
    """The files of a command that are not there: what begins like a path of this repository, and the arguments of -f and -k."""
    named = {word for word in words if word.startswith(DIRECTORIES)}
    for flag, value in zip(words, words[1:], strict=False):
        if flag in ("-f", "--filename", "-k", "--kustomize", "--values") and words[0] in ("kubectl", "helm"):
            named.add(value)
    named |= {word.split("=", 1)[1] for word in words if re.match(r"--(?:filename|kustomize|values|path)=", word)}
    gone = [name for name in sorted(named) if name not in ("-", ".") and not re.match(r"https?://", name)]
    return [name for name in gone if not (ROOT / name).exists()]


def other(words: list[str]) -> str | None:
    """What is wrong with a command of kubectl or helm, where they are there. What runs in a pod is not theirs."""
    words = words[: words.index("--")] if "--" in words else words
    # Their plugins and short forms such as `kubectl cilium-leak` are looked at above.
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    if done.returncode != 0 or "unknown command" in done.stderr:
        return f"status {done.returncode}: {done.stderr.strip()}"
    return None


class Check:
    def __init__(self, program: pathlib.Path) -> None:
        self.program = program
        self.seen: dict[tuple[str, ...], list[str]] = {}
        self.counts = {"ours": 0, "kubectl": 0, "helm": 0, "files": 0}

    def faults(self, words: list[str]) -> list[str]:
        """Each command once, however many pages have it."""
        if tuple(words) not in self.seen:
            self.seen[tuple(words)] = self.look(words)
        return self.seen[tuple(words)]

    def look(self, words: list[str]) -> list[str]:
        faults = [f"there is no {name}" for name in files(words)]
        self.counts["files"] += any(word.startswith(DIRECTORIES) for word in words)
        mine = ours(words)
        fault = None
        if mine is not None:
            self.counts["ours"] += 1
            fault = run(self.program, mine)
        elif words[0] in ("kubectl", "helm") and shutil.which(words[0]) and words[-1] not in ("kubectl", "helm", "-f", "-k"):
            self.counts[words[0]] += 1
            fault = other(words)
        return faults + ([fault] if fault else [])


# Each has to be found wrong, else this check cannot fail.
WRONG = [
    "cilium-leak-healer heal",
    "cilium-leak-healer scan --no-such-flag",
    "cilium-leak-healer run --node-name worker-1 --mode sometimes",
    "cilium-leak-healer run --mode observe",
    "cilium-leak-healer run --node-name worker-1 --confirm-gap 2",
    "cilium-leak-healer scan --from snapshot.yaml --watch",
    "cilium-leak-healer events --no-follow --for 1m",
    "cilium-leak-healer completions cobol",
    "kubectl -n cilium-leak-healer exec POD -- /cilium-leak-healer ledger --json",
    "kubectl apply -f rbac/none.yaml",
    "kubectl apply -k deploy/kustomize/overlays/none",
    "helm install cilium-leak-healer deploy/helm/none",
]
WRONG_ELSEWHERE = ["kubectl get pods --no-such-flag", "helm install x y --no-such-flag"]


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM")
    program = pathlib.Path(sys.argv[1]).resolve()
    missing = [tool for tool in ("kubectl", "helm") if not shutil.which(tool)]
    for tool in missing:
        print(f"SKIPPED: {tool} is not installed: of its commands only the files are looked at")
    if missing and os.environ.get("CI") == "true":
        return 1
    trial = Check(program)
    wrong = WRONG + [line for line in WRONG_ELSEWHERE if line.split()[0] not in missing]
    for line in wrong:
        found = [fault for words in commands(line) for fault in trial.faults(words)]
        if not found:
            sys.exit(f"this check cannot fail: it lets pass {line}")
        print(f"refused, as it has to be: {line}: {found[0].splitlines()[0]}")
    check, count = Check(program), 0
    for page in pages():
        for line in lines(page.read_text(encoding="utf-8")):
            for words in commands(line):
                for fault in check.faults(words):
                    count += 1
                    print(f"{page}: {line}\n    {fault}")
    print("commands, each once: " + ", ".join(f"{what} {number}" for what, number in check.counts.items()))
    if not check.counts["ours"] or not check.counts["files"]:
        sys.exit("no command was found")
    print(f"{count} faults")
    return 1 if count else 0


sys.exit(main())
