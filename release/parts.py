"""What the binary of the image is made of, asked of Cargo for its features and target.

Knows nothing of the forms in which that is told: write-sbom.py and write-licences.py do.
"""

import dataclasses
import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys
import tomllib

TARGETS = {"amd64": "x86_64-unknown-linux-musl", "arm64": "aarch64-unknown-linux-musl"}
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True, order=True)
class Crate:
    """A package of Cargo.lock. `kind` is `linked`, `macro` (writes code that is linked) or `build` (runs in build scripts)."""

    name: str
    version: str
    kind: str
    licence: str
    description: str
    checksum: str | None
    folder: pathlib.Path
    licence_file: str | None
    needs: tuple[tuple[str, str], ...]


def run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def tree(target: str, edges: str) -> set[tuple[str, str]]:
    """Name and version of each package along these edges. `cargo tree` resolves the features as a build does."""
    lines = run(
        "cargo", "tree", "--locked", "--no-default-features", "--target", target, "--edges", edges, "--prefix", "none", "--format", "{p}"
    ).splitlines()
    found = {re.match(r"(\S+) v(\S+)", line) for line in lines if line}
    if None in found:
        sys.exit(f"cargo tree speaks in a new form: {lines[:3]}")
    return {(one[1], one[2]) for one in found}


def crates(arch: str) -> list[Crate]:
    """All that goes into the binary and into building it, sorted; the package itself is among them."""
    target = TARGETS[arch]
    linked = tree(target, "normal,no-proc-macro")
    macros = tree(target, "normal") - linked
    building = tree(target, "normal,build") - linked - macros
    kinds = {"linked": linked, "macro": macros, "build": building}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    # Macros and build scripts are built for the machine that builds.
    host = re.search(r"^host: (\S+)$", run("rustc", "--version", "--verbose"), re.MULTILINE)[1]
    platforms = [word for platform in sorted({target, host}) for word in ("--filter-platform", platform)]
    told = json.loads(run("cargo", "metadata", "--locked", "--format-version", "1", "--no-default-features", *platforms))
    packages = {p["id"]: p for p in told["packages"]}
    nodes = {n["id"]: n for n in told["resolve"]["nodes"]}
    wanted = linked | macros | building

    def key(package: str) -> tuple[str, str]:
        return packages[package]["name"], packages[package]["version"]

    found = []
    for identity, package in packages.items():
        kind = next((k for k, members in kinds.items() if key(identity) in members), None)
        if kind is None:
            continue
        if package["source"] not in (None, REGISTRY):
            sys.exit(f"{package['name']} is from {package['source']}: say here how to name it")
        needs = {
            key(dep["pkg"])
            for dep in nodes[identity]["deps"]
            if key(dep["pkg"]) in wanted and any(how["kind"] != "dev" for how in dep["dep_kinds"])
        }
        found.append(
            Crate(
                name=package["name"],
                version=package["version"],
                kind=kind,
                # The older way to write a choice.
                licence=re.sub(r"\s*/\s*", " OR ", package["license"] or ""),
                description=" ".join((package["description"] or "").split()),
                checksum=checksums[key(identity)],
                folder=pathlib.Path(package["manifest_path"]).parent,
                licence_file=package["license_file"],
                needs=tuple(sorted(needs)),
            )
        )
    if {(c.name, c.version) for c in found} != wanted:
        sys.exit(f"cargo metadata does not know {wanted - {(c.name, c.version) for c in found}}, which cargo tree names")
    return sorted(found)


def rust() -> tuple[str, pathlib.Path]:
    """The compiler's version and its folder: its standard library is linked."""
    version = run("rustc", "--version").split()[1]
    return version, pathlib.Path(run("rustc", "--print", "sysroot").strip())


def zig() -> tuple[str, pathlib.Path]:
    """Zig's version and folder: its musl, unwinder and compiler runtime are linked."""
    try:
        wheel = importlib.metadata.distribution("ziglang")
    except importlib.metadata.PackageNotFoundError:
        sys.exit("Zig is not installed for this Python: pip install --requirement release/requirements.txt")
    return wheel.version, pathlib.Path(str(wheel.locate_file("ziglang")))


def musl(zig_folder: pathlib.Path) -> str:
    told = (zig_folder / "lib/libc/musl/src/internal/version.h").read_text(encoding="utf-8")
    return re.search(r'#define VERSION "([^"]+)"', told)[1]
