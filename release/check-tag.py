#!/usr/bin/env python3
"""Checks that a tag may be released: release/check-tag.py v1.2.3 [NOTES].

The tag is the version of Cargo.toml and of the chart, and the changelog has that version on top, with its date and with nothing left
as unreleased. What the changelog says of it goes to the file NOTES.
"""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADING = re.compile(r"^## \[?([^\]\s]+)\]?(.*)$", re.MULTILINE)


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["package"]["version"]
    chart = (ROOT / "deploy/helm/cilium-leak-healer/Chart.yaml").read_text(encoding="utf-8")
    parts = HEADING.split((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    log = dict(zip(parts[1::3], (text.strip() for text in parts[3::3]), strict=True))
    dates = dict(zip(parts[1::3], parts[2::3], strict=True))
    versions = [name for name in log if name != "Unreleased"]
    wrong = []
    if sys.argv[1] != f"v{version}":
        wrong.append(f"the tag is {sys.argv[1]}, the version in Cargo.toml {version}")
    for key in ("version", "appVersion"):
        if not re.search(rf'^{key}: "?{re.escape(version)}"?$', chart, re.MULTILINE):
            wrong.append(f"the chart has another {key} than {version}")
    if versions[:1] != [version] or not log[version]:
        wrong.append(f"CHANGELOG.md does not say first what {version} brings")
    if not re.fullmatch(r" - \d{4}-\d\d-\d\d", dates.get(version, "")):
        wrong.append(f"CHANGELOG.md does not date {version}: ## {version} - YYYY-MM-DD")
    if log.get("Unreleased"):
        wrong.append(f"CHANGELOG.md has unreleased changes: move them to {version}")
    if not wrong and len(sys.argv) == 3:
        pathlib.Path(sys.argv[2]).write_text(log[version] + "\n", encoding="utf-8")
    print("\n".join(wrong) or f"{sys.argv[1]} may be released")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
