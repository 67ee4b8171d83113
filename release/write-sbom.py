#!/usr/bin/env python3
"""Writes what the binary is made of as CycloneDX 1.6: release/write-sbom.py amd64|arm64 BINARY FILE.

The same sources give the same bytes: no serial number, and a time only where SOURCE_DATE_EPOCH gives one. Scope `required` is linked
into the binary; `excluded` ran while it was built: procedural macros and build scripts, with what they need.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import sys

import parts


def licences(expression: str) -> list[dict]:
    # One identifier is an id, more are an expression.
    if re.fullmatch(r"[A-Za-z0-9.-]+", expression):
        return [{"license": {"id": expression}}]
    return [{"expression": expression}]


def reference(name: str, version: str) -> str:
    return f"pkg:cargo/{name}@{version}"


def of_crate(crate: parts.Crate) -> dict:
    component = {
        "type": "library",
        "bom-ref": reference(crate.name, crate.version),
        "name": crate.name,
        "version": crate.version,
        "description": crate.description,
        "scope": "required" if crate.kind == "linked" else "excluded",
        "licenses": licences(crate.licence),
        "purl": reference(crate.name, crate.version),
    }
    if crate.checksum:
        component["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
    return component


def of_toolchain(name: str, version: str, purl: str, expression: str, description: str) -> dict:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "description": description,
        "scope": "required",
        "licenses": licences(expression),
        "purl": purl,
    }


def bill(arch: str, binary: pathlib.Path) -> dict:
    everything = parts.crates(arch)
    own = next(crate for crate in everything if crate.checksum is None)
    others = [crate for crate in everything if crate is not own]
    rust, (zig, zig_folder) = parts.rust()[0], parts.zig()
    musl = parts.musl(zig_folder)
    toolchain = [
        of_toolchain("rust-std", rust, f"pkg:generic/rust-std@{rust}", "MIT OR Apache-2.0", "The Rust standard library"),
        of_toolchain(
            "ziglang",
            zig,
            f"pkg:pypi/ziglang@{zig}",
            "MIT AND Apache-2.0 WITH LLVM-exception",
            "The unwinder, of LLVM, and the compiler runtime, as they come with Zig",
        ),
        of_toolchain("musl", musl, f"pkg:generic/musl@{musl}", "MIT", f"The C library, as it comes with Zig {zig}"),
    ]
    program = of_crate(own) | {
        "type": "application",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(binary.read_bytes()).hexdigest()}],
        "properties": [{"name": "target", "value": parts.TARGETS[arch]}],
    }
    del program["scope"]
    edges = {reference(c.name, c.version): [reference(*need) for need in c.needs] for c in everything}
    edges[program["bom-ref"]] += [component["bom-ref"] for component in toolchain]
    edges |= {component["bom-ref"]: [] for component in toolchain}
    metadata: dict = {"component": program}
    if date := os.environ.get("SOURCE_DATE_EPOCH"):
        metadata["timestamp"] = datetime.datetime.fromtimestamp(int(date), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": metadata,
        "components": [of_crate(crate) for crate in others] + toolchain,
        "dependencies": [{"ref": ref, "dependsOn": sorted(needs)} for ref, needs in sorted(edges.items())],
    }


def main() -> int:
    if len(sys.argv) != 4 or sys.argv[1] not in parts.TARGETS:
        print(__doc__, file=sys.stderr)
        return 2
    arch, binary, file = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    made = bill(arch, binary)
    file.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    linked = sum(component["scope"] == "required" for component in made["components"])
    print(f"{file}: {linked} components linked, {len(made['components']) - linked} used to build")
    return 0


if __name__ == "__main__":
    sys.exit(main())
