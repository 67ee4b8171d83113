#!/usr/bin/env python3
"""Checks the image that release/build-image left: release/check-image.py amd64|arm64.

Labels, entry point, platform; each file with its owner and mode; the licences of all crates in the SBOM. Where cyclonedx-python-lib is
installed, it holds the SBOM to its schema; with CI=true it has to be.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile
import tomllib

import parts

FILES = {
    "LICENSE": 0o644,
    "cilium-leak-healer": 0o755,
    "licenses/RUST-STANDARD-LIBRARY.html": 0o644,
    "licenses/THIRD-PARTY.txt": 0o644,
    "sbom.cdx.json": 0o644,
}
wrong: list[str] = []


def expect(what: str, seen: object, wanted: object) -> None:
    if seen != wanted:
        wrong.append(f"{what}: {seen!r}, not {wanted!r}")


def blob(layout: pathlib.Path, descriptor: dict) -> bytes:
    algorithm, digest = descriptor["digest"].split(":")
    content = (layout / "blobs" / algorithm / digest).read_bytes()
    expect(f"the digest of {descriptor['mediaType']}", hashlib.sha256(content).hexdigest(), digest)
    return content


def check_config(config: dict, arch: str, date: int) -> None:
    package = tomllib.loads((parts.ROOT / "Cargo.toml").read_text(encoding="utf-8"))["package"]
    expect("platform", (config["os"], config["architecture"]), ("linux", arch))
    expect("entry point", config["config"].get("Entrypoint"), ["/cilium-leak-healer"])
    expect("arguments", config["config"].get("Cmd"), ["run"])
    expect("user", config["config"].get("User", ""), "")
    time = datetime.datetime.fromtimestamp(date, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    expect("time", config["created"], time)
    labels = config["config"]["Labels"]
    for label, value in {
        "title": package["name"],
        "description": package["description"],
        "licenses": package["license"],
        "version": package["version"],
        "revision": os.environ.get("REVISION", "unknown"),
        "source": os.environ.get("SOURCE", ""),
        "created": time,
    }.items():
        expect(f"label {label}", labels.get(f"org.opencontainers.image.{label}"), value)


def check_sbom(text: str, third_party: str, binary: bytes) -> None:
    sbom = json.loads(text)
    expect("the binary in the SBOM", sbom["metadata"]["component"]["hashes"][0]["content"], hashlib.sha256(binary).hexdigest())
    crates = [c for c in sbom["components"] if c["purl"].startswith("pkg:cargo/") and c["scope"] == "required"]
    expect("crates that are linked, more than a hundred", len(crates) > 100, True)
    for crate in crates:
        if f"\n{crate['name']} {crate['version']} (" not in third_party:
            wrong.append(f"no licence of {crate['name']} {crate['version']} in THIRD-PARTY.txt")
    names = {component["name"] for component in sbom["components"]}
    expect("crates of the simulator and the tests in the SBOM", names & {"filetime", "insta", "proptest", "rstest"}, set())
    try:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator
    except ImportError:
        if os.environ.get("CI") == "true":
            raise
        print("cyclonedx-python-lib is not installed: the SBOM was not held to its schema")
        return
    expect("the SBOM by its schema", JsonStrictValidator(SchemaVersion.V1_6).validate_str(text), None)


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in parts.TARGETS:
        print(__doc__, file=sys.stderr)
        return 2
    arch, date = sys.argv[1], int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    layout = parts.ROOT / "target/image" / arch / "oci"
    index = json.loads((layout / "index.json").read_text(encoding="utf-8"))
    manifest = json.loads(blob(layout, index["manifests"][0]))
    check_config(json.loads(blob(layout, manifest["config"])), arch, date)
    expect("layers", len(manifest["layers"]), 1)
    packed = blob(layout, manifest["layers"][0])
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as layer:
        members = layer.getmembers()
        files = {m.name.lstrip("./"): m for m in members if not m.isdir()}
        expect("files and their modes", {name: m.mode & 0o7777 for name, m in files.items()}, FILES)
        expect("owners", {(m.uid, m.gid) for m in members}, {(0, 0)})
        expect("times", {int(m.mtime) for m in members}, {date})
        content = {name: layer.extractfile(m).read() for name, m in files.items()}
    if content.keys() >= FILES.keys():
        check_sbom(
            content["sbom.cdx.json"].decode(), content["licenses/THIRD-PARTY.txt"].decode(), content["cilium-leak-healer"]
        )
    sizes = ", ".join(f"{name} {len(body)}" for name, body in sorted(content.items()))
    total = len(packed) + manifest["config"]["size"] + index["manifests"][0]["size"]
    print(f"{arch}: {total} bytes to pull, {sum(map(len, content.values()))} unpacked ({sizes})")
    for line in wrong:
        print(f"wrong: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
