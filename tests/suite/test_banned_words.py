"""No text that a user reads has a word that hides the actor: code, templates, help, and the main pages of the docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from foliot.cli import foliot

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "foliot"
PAGES = ("README.md", "docs/guide.md", "docs/policies.md", "docs/execution.md", "docs/operations.md")

BANNED = (
    *("told", "tell of", "tells of", "nobody", "whoever", "somebody", "anew", "by now", "in vain", "of use"),
    *("so many", "all the same", "at work", "a thing", "hands on", "heart", "room", "rooms", "house"),
)
_BANNED = re.compile(r"\b(" + "|".join(word.replace(" ", r"\s+") for word in BANNED) + r")\b", re.IGNORECASE)
_JOINT = re.compile(r"""["']\s+f?["']""")
"""Between two parts of one literal."""
_JINJA = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
_ALLOWED = {
    ("src/foliot/cli/fleet.py", "told"): "an outcome in JSON, which programs read",
}
"""Reviewed exceptions by file and whole text, each with its reason."""
MOST_ALLOWED = 20
_NAME = re.compile(r"[a-z_]+=?")
"""A literal that is a name or a value, not a text. In `cli`, such words are headings of tables."""
_HIDDEN = re.compile(r'\b(?!title|alt|placeholder|aria-label)[a-z-]+="[^"]*"')


class Text(NamedTuple):
    """A text that a user can read."""

    place: str
    line: int
    text: str


def of_code(place: str, code: str) -> Iterator[Text]:
    """String literals except docstrings. The docstring of a function under a decorator is a text: help, or OpenAPI."""
    if not _BANNED.search(_JOINT.sub("", code)):
        return
    nodes: list[ast.AST] = [ast.parse(code)]
    while nodes:
        node = nodes.pop()
        inner = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
            if place.startswith("src/foliot/web/api/"):
                yield Text(place, node.lineno, ast.get_docstring(node) or "")
        elif isinstance(node, ast.JoinedStr):
            yield Text(place, node.lineno, "".join(_literal(part) for part in node.values))
            inner = [part for part in inner if not isinstance(part, ast.Constant)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if place.startswith("src/foliot/cli/") or not _NAME.fullmatch(node.value):
                yield Text(place, node.lineno, node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        nodes += inner


def _literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "…"


def of_template(place: str, markup: str) -> Iterator[Text]:
    """The text of a template and of attributes that are shown, with literals of its statements."""
    for number, line in enumerate(_HIDDEN.sub("", _JINJA.sub(_blank, markup)).splitlines(), 1):
        yield Text(place, number, line)


def _blank(match: re.Match[str]) -> str:
    """The literals of a statement; a comment and names are no text."""
    shown = "" if match[0].startswith("{#") else " … ".join(re.findall(r"'[^']*'|\"[^\"]*\"", match[0]))
    return shown + "\n" * match[0].count("\n")


def of_help(command: Any, path: str = "foliot") -> Iterator[Text]:
    yield Text(f"{path} --help", 0, command.help or "")
    for parameter in command.params:
        yield Text(f"{path} {parameter.name}", 0, getattr(parameter, "help", None) or "")
    for name, inner in getattr(command, "commands", {}).items():
        yield from of_help(inner, f"{path} {name}")


@cache
def texts() -> tuple[Text, ...]:
    return tuple(_texts())


def _texts() -> Iterator[Text]:
    for file in sorted(SOURCE.rglob("*.py")):
        yield from of_code(file.relative_to(ROOT).as_posix(), file.read_text("utf-8"))
    for file in sorted(SOURCE.rglob("*.html")):
        yield from of_template(file.relative_to(ROOT).as_posix(), file.read_text("utf-8"))
    yield from of_help(typer.main.get_command(foliot))
    for page in PAGES:
        for number, line in enumerate((ROOT / page).read_text("utf-8").splitlines(), 1):
            yield Text(page, number, line)


def test_no_text_has_a_word_that_hides_the_actor() -> None:
    found = [
        f"{one.place}:{one.line}: {match[0]!r} in {' '.join(one.text.split())[:120]!r}"
        for one in texts()
        if (match := _BANNED.search(one.text)) and (one.place, one.text) not in _ALLOWED
    ]
    assert not found, "name the actor and the object instead:\n" + "\n".join(found)


def test_exceptions_are_few_still_needed_and_have_a_reason() -> None:
    seen = {(one.place, one.text) for one in texts()}
    assert len(_ALLOWED) <= MOST_ALLOWED
    assert [key for key in _ALLOWED if key not in seen] == []
    assert [key for key, reason in _ALLOWED.items() if len(reason.split()) < 4] == []


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ('raise ValueError("nobody waits")', True),
        ('raise ValueError(f"run {run} waits in "\n    f"the room of {queue}")', True),
        ('log.warning("worker %d was TOLD to stop", number)', True),
        ('Column("at work", right=True)', True),
        ('def stop():\n    """What was told."""', False),
        ('"a bedroom, a thingy and a heartbeat"', False),
    ],
)
def test_a_banned_word_is_found_as_a_whole_word_in_literals(code: str, is_found: bool) -> None:
    assert any(
        _BANNED.search(one.text) for one in of_code("x.py", f"value = 1\n{code}" if "def" in code else f"x = 1;{code}")
    ) is (is_found)


def test_templates_are_read_without_their_statements_and_comments() -> None:
    lines = [
        one.text for one in of_template("x.html", "{# nobody #}\n<p>{{ told }} {% if room %}{{ say('at work') }}</p>")
    ]
    assert [bool(_BANNED.search(line)) for line in lines] == [False, True]
    assert "told" not in "".join(lines)
