#!/usr/bin/env python3
"""Checks the docs as a book.

SUMMARY.md lists every page, the picture is that of the README, mdbook builds without a warning, and in what it built every
local link leads to a file and, with an anchor, to an id on that page.
"""

import html.parser
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree as xml

DOCS = pathlib.Path("docs")
BOOK = pathlib.Path("target/book")
# Pages of docs/ that are no part of the book, each with its reason.
NOT_IN_BOOK: dict[str, str] = {}
SVG = "{http://www.w3.org/2000/svg}"


def summary() -> list[str]:
    """Every page is listed once, and what is listed is there."""
    listed = re.findall(r"\]\(([^)]+)\)", (DOCS / "SUMMARY.md").read_text(encoding="utf-8"))
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"SUMMARY.md"}
    faults = [f"SUMMARY.md does not list {page}" for page in sorted(there - set(listed) - set(NOT_IN_BOOK))]
    faults += [f"SUMMARY.md lists {page}, which is not there" for page in listed if page not in there]
    faults += [f"SUMMARY.md lists {page} twice" for page in sorted({page for page in listed if listed.count(page) > 1})]
    faults += [f"{page} is said not to be in the book, and is" for page in NOT_IN_BOOK if page in listed or page not in there]
    print(f"{len(there)} pages, {len(listed)} in SUMMARY.md")
    return faults


def words(text: str) -> str:
    return " ".join(text.split())


def of_mermaid(text: str) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """The boxes and arrows of the README's flowchart: their words, by their names."""
    chart = re.search(r"^```mermaid\nflowchart TD\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if not chart:
        return {}, {}
    node = r'(\w+)(?:\["(.*?)"\]|\{"(.*?)"\})?'
    boxes: dict[str, str] = {}
    arrows: dict[tuple[str, str], str] = {}
    for line in chart.group(1).splitlines():
        found = re.fullmatch(rf'\s*{node}\s+--(?:\s*(?:"([^"]*)"|([^">]*?))\s*--)?>\s+{node}\s*', line)
        if not found:
            sys.exit(f"README.md: the check does not understand this line of the flowchart: {line}")
        start, square, curly, quoted, label, end, to_square, to_curly = found.groups()
        for name, box in ((start, square or curly), (end, to_square or to_curly)):
            if box:
                boxes[name] = words(box.replace("<br/>", " "))
        arrows[start, end] = words((quoted or label or "").replace("<br/>", " "))
    return boxes, arrows


def of_svg(path: pathlib.Path) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """The same of the picture in the book, by the ids of its groups."""
    boxes: dict[str, str] = {}
    arrows: dict[tuple[str, str], str] = {}
    for group in xml.parse(path).getroot().iter(f"{SVG}g"):
        text = words(" ".join(span.text or "" for span in group.iter(f"{SVG}tspan")))
        kind, *names = group.get("id", "").split("-")
        if kind == "n":
            boxes[names[0]] = text
        elif kind == "e":
            arrows[names[0], names[1]] = text
    return boxes, arrows


def picture() -> list[str]:
    readme = of_mermaid(pathlib.Path("README.md").read_text(encoding="utf-8"))
    book = of_svg(DOCS / "images/decides.svg")
    if len(readme[0]) < 2 or len(readme[1]) < 2:
        return ["README.md has no flowchart"]
    faults = []
    for what, ours, theirs in (("box", readme[0], book[0]), ("arrow", readme[1], book[1])):
        for name in sorted(ours.keys() | theirs.keys(), key=str):
            if ours.get(name) != theirs.get(name):
                faults.append(f"{what} {name}: README.md has {ours.get(name)!r}, docs/images/decides.svg {theirs.get(name)!r}")
    table = (DOCS / "verdicts.md").read_text(encoding="utf-8")
    verdicts = set(re.findall(r"^\| \d+ \| `([a-z-]+)`", table, re.MULTILINE))
    shown = " ".join(readme[0].values())
    faults += [f"the picture has no {verdict}" for verdict in sorted(verdicts) if verdict not in shown]
    print(f"the picture: {len(readme[0])} boxes, {len(readme[1])} arrows, {len(verdicts)} verdicts")
    return faults


class Page(html.parser.HTMLParser):
    """The ids and the local links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value and not re.match(r"[a-z][a-z0-9+.-]*:|//", value):
                self.links.append(value)


def book() -> list[str]:
    built = subprocess.run(["mdbook", "build"], capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    said = built.stdout + built.stderr
    if built.returncode != 0 or re.search(r"\b(WARN|ERROR)\b", said):
        return [f"mdbook build: status {built.returncode}", said]
    # The page for what is not there is served at any path, the page for printers has all ids in one.
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in BOOK.rglob("*.html") if path.name not in ("404.html", "print.html")}
    faults, count = [], 0
    for path, page in sorted(pages.items()):
        for link in page.links:
            target, _, anchor = urllib.parse.unquote(link).partition("#")
            count += 1
            file = (path.parent / target.split("?")[0]).resolve() if target else path.resolve()
            if file.is_dir():
                file = file / "index.html"
            if not file.is_relative_to(BOOK.resolve()) or not file.is_file():
                # The printers' page is left out above, and is there.
                faults.append(f"{path}: {link}: the book has no such file")
                continue
            other = pages.get(BOOK / file.relative_to(BOOK.resolve()))
            if anchor and other and anchor not in other.ids:
                faults.append(f"{path}: {link}: that page has no such heading")
    if count < 100:
        faults.append(f"only {count} links were found in the book")
    print(f"the book: {len(pages)} pages, {count} local links")
    return faults


def main() -> int:
    faults = summary() + picture() + book()
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
