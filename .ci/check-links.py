#!/usr/bin/env python3
"""Checks that every local link of the Markdown files names a file, and a heading where it has an anchor."""

import pathlib
import re
import subprocess
import sys
import urllib.parse

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\s*\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HTML = re.compile(r"""\b(?:src|href|srcset)=["']([^"'\s]+)""")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:|^//")


def anchors(text: str) -> set[str]:
    """The ids that a forge gives to the headings of a page."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        name, again = slug, 0
        while name in found:
            again += 1
            name = f"{slug}-{again}"
        found.add(name)
    return found | set(re.findall(r"""\b(?:id|name)=["']([^"']+)""", text))


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        check=True, capture_output=True, text=True,
    ).stdout
    root = pathlib.Path.cwd().resolve()
    pages = [page for page in map(pathlib.Path, filter(None, listed.split("\0"))) if page.is_file()]
    links = broken = 0
    for page in pages:
        text = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
        targets = [a or b for a, b in LINK.findall(text)] + HTML.findall(text)
        for target in targets:
            if SCHEME.match(target):
                continue
            links += 1
            path, _, anchor = urllib.parse.unquote(target).partition("#")
            file = (page.parent / path).resolve() if path else page.resolve()
            if not file.exists() or not file.is_relative_to(root):
                fault = "there is no such file"
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
                fault = "the page has no such heading"
            else:
                continue
            broken += 1
            print(f"{page}: {target}: {fault}")
    print(f"{len(pages)} pages, {links} local links, {broken} broken")
    return 1 if broken else 0


sys.exit(main())
