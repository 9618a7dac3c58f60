"""Finds the places in tests whose result could depend on the speed of the machine: sleeps, time limits, stopwatches.

It reads numbers, and constants made of numbers. It does not read durations in strings, such as `lease="2s"`: most are
settings of an app in virtual time. Nor does it read code in strings. A review has to.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.waiting import HANG

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
    "communicate": 1,
    "settimeout": 0,
    "select": 3,
    "alarm": 0,
    "Timer": 0,
    "call_later": 0,
}
ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right if right else 0.0,
}
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


def _walk(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.Call | ast.Assign]]:
    """Each call and assignment, with the qualified name of the outermost function or method that holds it."""
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not _in_function(scope):
            mark = "" if isinstance(child, ast.ClassDef) else "()"
            inner = f"{scope}.{child.name}{mark}" if scope else f"{child.name}{mark}"
        if isinstance(child, ast.Call | ast.Assign):
            yield inner.removesuffix("()"), child
        yield from _walk(child, inner)


def _in_function(scope: str) -> bool:
    return scope.endswith("()")


def _kind(node: ast.Call | ast.Assign, names: dict[str, str], constants: dict[str, float]) -> str | None:
    if isinstance(node, ast.Assign):
        return "limit" if _sets_a_limit(node) and _is_short(node.value, constants) else None
    name = _dotted(node.func, names)
    if name in SLEEPS:
        seconds = _seconds(node.args[0], constants) if node.args else None
        return None if seconds == 0 or (seconds is not None and seconds >= SHORT) else "sleep"
    if name in STOPWATCHES:
        return "stopwatch"
    if any(_is_short(value, constants) for value in _limits(node)):
        return "limit"
    return None


def _sets_a_limit(node: ast.Assign) -> bool:
    """`store.connections.patience = 0.1`. A constant is judged where it is used."""
    return any(isinstance(target, ast.Attribute) and target.attr.lower().endswith(LIMITS) for target in node.targets)


def _limits(call: ast.Call) -> Iterator[ast.expr]:
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg.endswith(LIMITS):
            yield keyword.value
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if last in LIMITED and len(call.args) > LIMITED[last]:
        yield call.args[LIMITED[last]]
    match call.args:
        case [_, ast.Constant(value=str(name)), value] if last in ("setattr", "setitem"):
            if name.lower().endswith(LIMITS):
                yield value


def _is_short(value: ast.expr, constants: dict[str, float]) -> bool:
    seconds = _seconds(value, constants)
    return seconds is not None and 0 < seconds < SHORT  # zero asks without waiting


def _seconds(value: ast.expr, constants: dict[str, float]) -> float | None:
    """A number, a constant of the module, or arithmetic of these. Other values are durations in virtual time."""
    match value:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return constants.get(name)
        case ast.BinOp(left=left, right=right, op=sign):
            parts = _seconds(left, constants), _seconds(right, constants)
            if parts[0] is None or parts[1] is None or type(sign) not in ARITHMETIC:
                return None
            return ARITHMETIC[type(sign)](parts[0], parts[1])
        case ast.IfExp(body=body, orelse=other):
            found = [seconds for part in (body, other) if (seconds := _seconds(part, constants)) is not None]
            return min(found, default=None)
    return None


def _constants(tree: ast.Module) -> dict[str, float]:
    """Of the module and of its classes; `HANG`, the bound of all waits, wherever it is imported."""
    found: dict[str, float] = {"HANG": HANG}
    for statement in ast.walk(tree):
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if name.isupper() or name.lstrip("_").isupper():
                seconds = _seconds(value, found)
                if seconds is not None:
                    found[name] = seconds
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


@cache
def all_uses() -> list[Use]:
    return [use for file in sorted(TESTS.rglob("*.py")) for use in uses_in(file)]


if __name__ == "__main__":
    for use in all_uses():
        print(f"{use.place}:{use.line}: {use.kind}: {use.code}")
