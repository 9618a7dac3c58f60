"""The documentation as data: its pages, their code blocks, their links, and the parts that are generated.

`<!-- not run: why -->` stands before a Python block that must not run; `test_docs` counts these. A `text` block right
after a Python block, or after commands, is what these print. A `crontab` block is a file, named in its first line; it
is there for the commands below it. What stands between `<!-- generated: name -->` and `<!-- end -->` is
written by `tests/docs/generated.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.rglob("*.md")),
]

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_PRINTED = re.compile(r"\s*^```text\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_GENERATED = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


class Block(NamedTuple):
    """One fenced block."""

    page: Path
    line: int
    """Of its first line of content, counted from 0."""
    language: str
    text: str
    not_run: str | None
    prints: str | None
    """The `text` block right after it, if there is one."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        marked = _NOT_RUN.search(text[: match.start()])
        line = text.count("\n", 0, match.start(2))
        after = _PRINTED.match(text, match.end())
        found.append(Block(page, line, match[1], match[2], marked[1] if marked else None, after[1] if after else None))
    return found


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]


def command_lines(page: Path) -> list[str]:
    """Every line of a block that is no program, and that calls `foliot`."""
    lines = [line.strip() for block in blocks(page) if block.language != "python" for line in block.text.splitlines()]
    return [line for line in lines if line.startswith("foliot ") and not re.match(r"foliot \d", line)]


def shown_commands(page: Path) -> list[Block]:
    """The blocks of commands whose output is shown, and the files that they need, in order."""
    return [block for block in blocks(page) if block.language == "crontab" or (not block.language and block.prints)]


def links(page: Path) -> list[str]:
    """Where a page points to, code left out."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text("utf-8")))
    return [match[1] or match[2] for match in _LINK.finditer(prose)]


def anchors(page: Path) -> set[str]:
    """The names that a page can be linked by: its headings, and the older names in front of them."""
    prose = _FENCE.sub("", page.read_text("utf-8"))
    titles = re.findall(r"^#{1,6}\s+(.+?)\s*$", prose, re.MULTILINE)
    older = re.findall(r'^<a id="([\w-]+)"></a>$', prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles} | set(older)


def section(page: Path, title: str) -> str:
    """What stands below a heading, up to the next one of its rank or a higher one."""
    text = page.read_text("utf-8")
    match = re.search(rf"^(#+) {re.escape(title)}\s*$", text, re.MULTILINE)
    assert match is not None, f"{name_of(page)} has no section {title!r}"
    rest = text[match.end() :]
    end = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables in a text, by the code in their first cell; a cell may name several: `a`, `b`."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found[name] = cells[1:]
    return found


def generated_parts(page: Path) -> dict[str, str]:
    return {match[2]: match[3] for match in _GENERATED.finditer(page.read_text("utf-8"))}


def rewrite(page: Path, parts: dict[str, str]) -> None:
    text = page.read_text("utf-8")
    page.write_text(_GENERATED.sub(lambda match: match[1] + parts[match[2]] + match[4], text), "utf-8")
