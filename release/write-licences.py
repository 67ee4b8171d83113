#!/usr/bin/env python3
"""Gathers the licence texts of all that is in the binary: release/write-licences.py amd64|arm64 FOLDER.

Each crate that is linked, or that writes code that is linked, brings its own texts. One without fails the build, unless WITHOUT_TEXT
says which text is its own.
"""

import pathlib
import re
import shutil
import sys

import parts

NAMES = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
CODE = {".rs", ".py", ".sh", ".toml", ".json"}
# Crates that are published without a licence file. The text of Apache-2.0 names no holder, so this repository's copy is theirs too.
WITHOUT_TEXT = {"kube", "kube-client", "kube-core", "kube-derive", "kube-runtime"}
RULE = "=" * 100


def texts(crate: parts.Crate) -> list[pathlib.Path]:
    """The licence files of a crate: at its top, in a folder of licences, and the one that its manifest names."""
    found = {path for path in crate.folder.iterdir() if path.is_file() and NAMES.match(path.name) and path.suffix not in CODE}
    for folder in crate.folder.iterdir():
        if folder.is_dir() and NAMES.match(folder.name):
            found |= {path for path in folder.rglob("*") if path.is_file() and path.suffix not in CODE}
    # Code that a crate carries along from elsewhere.
    found |= {path for path in crate.folder.glob("*/**/LICENSE*") if path.is_file() and path.suffix not in CODE}
    if crate.licence_file:
        found.add(crate.folder / crate.licence_file)
    return sorted(found)


def place(path: pathlib.Path, crate: parts.Crate) -> str:
    return str(path.relative_to(crate.folder)) if path.is_relative_to(crate.folder) else path.name


def read(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip() + "\n"


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in parts.TARGETS:
        print(__doc__, file=sys.stderr)
        return 2
    arch, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    mine = [crate for crate in parts.crates(arch) if crate.kind != "build" and crate.checksum is not None]
    holders: dict[str, list[str]] = {}
    missing, needless = [], set(WITHOUT_TEXT)
    for crate in mine:
        files = texts(crate)
        if not files and crate.name in WITHOUT_TEXT and crate.licence == "Apache-2.0":
            needless.discard(crate.name)
            files = [parts.ROOT / "LICENSE"]
        if not files:
            missing.append(f"{crate.name} {crate.version}: {crate.licence or 'no licence'}, and no licence file in {crate.folder}")
        for path in files:
            holders.setdefault(read(path), []).append(f"{crate.name} {crate.version} ({crate.licence}): {place(path, crate)}")
    zig, zig_folder = parts.zig()
    for what, path in {
        "the compiler runtime of Zig": "LICENSE",
        "musl": "lib/libc/musl/COPYRIGHT",
        "LLVM's libunwind": "lib/libunwind/LICENSE.TXT",
    }.items():
        holders.setdefault(read(zig_folder / path), []).append(f"{what}, from Zig {zig}")
    if missing or needless:
        print("\n".join(missing + [f"{name}: needs no word in WITHOUT_TEXT any more" for name in sorted(needless)]), file=sys.stderr)
        return 1
    rust, sysroot = parts.rust()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(sysroot / "share/doc/rust/COPYRIGHT-library.html", folder / "RUST-STANDARD-LIBRARY.html")
    with open(folder / "THIRD-PARTY.txt", "w", encoding="utf-8") as file:
        file.write(
            "cilium-leak-healer is licensed under Apache-2.0. Its binary holds the works below, each text once, after the names of those\n"
            "that carry it. The Rust standard library "
            f"{rust} is in RUST-STANDARD-LIBRARY.html. In the order of the names.\n"
        )
        for text, names in sorted(holders.items(), key=lambda item: sorted(map(str.lower, item[1]))):
            file.write(f"\n{RULE}\n" + "".join(f"{name}\n" for name in sorted(set(names))) + f"{RULE}\n\n{text}")
    print(f"{folder}: {len(holders)} texts of {len(mine)} crates, of Zig {zig} and of Rust {rust}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
