#!/usr/bin/env python3
"""Preprocessor of mdbook: links that lead out of docs/ lead nowhere in the book, so they become the text that they show.

With BOOK_SOURCE set, to where the sources can be read, they lead there instead. Links to a README.md lead to the index page that mdbook
makes of it. Code is left alone.
"""

import json
import os
import posixpath
import re
import sys

CODE_OR_LINK = re.compile(r"(?:^(```|~~~)[\s\S]*?^\1|^(?: {4}|\t)[^\n]*$|`[^`\n]*`)|\[([^\]\n]*)\]\(([^)\s]+)\)", re.MULTILINE)
INDEX = re.compile(r"(?<![^/])README\.md(?=#|$)")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:|^[#/]")


def mend(text: str, page: str, source: str) -> str:
    def link(found: re.Match[str]) -> str:
        shown, target = found.group(2), found.group(3)
        if target is None or SCHEME.match(target):
            return found.group(0)
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if path.startswith("docs/"):
            return f"[{shown}]({INDEX.sub('index.md', target)})"
        return f"[{shown}]({source.rstrip('/')}/{path})" if source else shown

    return CODE_OR_LINK.sub(link, text)


def walk(items: list, source: str) -> None:
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            # The path as the file has it: the index page is README.md.
            chapter["content"] = mend(chapter["content"], chapter.get("source_path") or chapter["path"] or "", source)
            walk(chapter["sub_items"], source)


def main() -> int:
    if sys.argv[1:2] == ["supports"]:
        return 0
    _, book = json.load(sys.stdin)
    walk(book.get("items") or book.get("sections") or [], os.environ.get("BOOK_SOURCE", ""))
    json.dump(book, sys.stdout)
    return 0


sys.exit(main())
