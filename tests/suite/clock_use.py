"""Finds the places in tests whose result could depend on the speed of the machine: sleeps, time limits, stopwatches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"

SHORT = 60
"""Seconds. A shorter limit can pass on one machine and fail on a slower one."""
SLEEPS = {"asyncio.sleep", "time.sleep"}
STOPWATCHES = {
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.process_time",
    "time.thread_time",
}
LIMITED = {
    "wait": 0,
    "join": 0,
    "result": 0,
    "acquire": 1,
    "wait_for": 1,
    "timeout": 0,
    "timeout_at": 0,
    "fail_after": 0,
}
"""Methods and functions that take seconds by position, and at which position."""
LIMITS = ("timeout", "patience", "within", "deadline", "grace")
"""A keyword argument, or a setting, whose name ends so is a time limit if its value is a number of seconds."""


class Use(NamedTuple):
    """One place. `place` names file and function, so that it survives edits around it."""

    place: str
    line: int
    kind: str
    code: str


def uses_in(file: Path) -> Iterator[Use]:
    source = file.read_text("utf-8")
    tree = ast.parse(source)
    names = _imported_names(tree)
    constants = _constants(tree)
    shown = file.relative_to(ROOT).as_posix()
    for scope, node in _walk(tree, ""):
        if (kind := _kind(node, names, constants)) is not None:
            place = f"{shown}::{scope}" if scope else shown
            yield Use(place, node.lineno, kind, ast.unparse(node))


def _walk(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.Call]]:
    """Each call, with the qualified name of the outermost function or method that holds it."""
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not _in_function(scope):
            mark = "" if isinstance(child, ast.ClassDef) else "()"
            inner = f"{scope}.{child.name}{mark}" if scope else f"{child.name}{mark}"
        if isinstance(child, ast.Call):
            yield inner.removesuffix("()"), child
        yield from _walk(child, inner)


def _in_function(scope: str) -> bool:
    return scope.endswith("()")


def _kind(call: ast.Call, names: dict[str, str], constants: dict[str, float]) -> str | None:
    name = _dotted(call.func, names)
    if name in SLEEPS:
        seconds = _seconds(call.args[0], constants) if call.args else None
        return None if seconds == 0 or (seconds is not None and seconds >= SHORT) else "sleep"
    if name in STOPWATCHES:
        return "stopwatch"
    if any(_is_short(value, constants) for value in _limits(call)):
        return "limit"
    return None


def _limits(call: ast.Call) -> Iterator[ast.expr]:
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg.endswith(LIMITS):
            yield keyword.value
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if last in LIMITED and len(call.args) > LIMITED[last]:
        yield call.args[LIMITED[last]]


def _is_short(value: ast.expr, constants: dict[str, float]) -> bool:
    seconds = _seconds(value, constants)
    return seconds is not None and 0 < seconds < SHORT  # zero asks without waiting


def _seconds(value: ast.expr, constants: dict[str, float]) -> float | None:
    """A literal number, or a constant of the module that is one. Other values are durations in virtual time."""
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool):
        return float(value.value)
    if isinstance(value, ast.Name):
        return constants.get(value.id)
    return None


def _constants(tree: ast.Module) -> dict[str, float]:
    found: dict[str, float] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float() as value)):
                found[name] = float(value)
    return found


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Local names of imported modules and functions: `from time import sleep` gives `sleep` -> `time.sleep`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _dotted(function: ast.expr, names: dict[str, str]) -> str:
    if isinstance(function, ast.Name):
        return names.get(function.id, function.id)
    if isinstance(function, ast.Attribute):
        return f"{_dotted(function.value, names)}.{function.attr}"
    return ""


def all_uses() -> list[Use]:
    return [use for file in sorted(TESTS.rglob("*.py")) for use in uses_in(file)]


if __name__ == "__main__":
    for use in all_uses():
        print(f"{use.place}:{use.line}: {use.kind}: {use.code}")
