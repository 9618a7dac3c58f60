"""Rules as they are written in Python, typed as text: `cron("0 9 * * *", tz="Europe/Paris") | every("6h")`.

The text is read as a tree, and only what is listed here is understood; nothing of it is ever run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from inspect import Parameter, Signature, signature

from foliot.domain.instant import parse_rfc3339, to_datetime
from foliot.errors import InvalidRule
from foliot.timing.business import business_day, business_days, nearest_business_day, only_on
from foliot.timing.combine import Composable, refused_as_rule
from foliot.timing.cron import cron
from foliot.timing.elapsed import after, at, every
from foliot.timing.monthly import last_weekday, month_end, nth_weekday
from foliot.timing.pieces import Piece, pointing
from foliot.timing.recurrence import rrule
from foliot.timing.workdays import workdays

LONGEST = 4_000
"""Characters. What is longer belongs in a program."""
DEEPEST = 20
"""Calls within calls, or rules joined in a row."""
_LARGEST = 10**12

CONSTRUCTORS: dict[str, Callable[..., object]] = {
    "cron": cron,
    "every": every,
    "after": after,
    "at": at,
    "rrule": rrule,
    "business_day": business_day,
    "business_days": business_days,
    "nearest_business_day": nearest_business_day,
    "month_end": month_end,
    "nth_weekday": nth_weekday,
    "last_weekday": last_weekday,
    "only_on": only_on,
    "workdays": workdays,
}
"""What can be called, by name."""

METHODS: dict[str, Callable[..., object]] = {"between": Composable.between, "outside": Composable.outside}
_OPERATORS: dict[type[ast.operator], Callable[[Composable, Composable], Composable]] = {
    ast.BitOr: Composable.__or__,
    ast.BitAnd: Composable.__and__,
    ast.Sub: Composable.__sub__,
}
# `H(0-29) 2 * * *` is cron.
_BEGINS = re.compile(r"[\s(]*(?!H\s*\()[A-Za-z_]\w*\s*\(", re.IGNORECASE)


def is_spoken(text: str) -> bool:
    """Whether a text begins like a call, and so means to be one."""
    return _BEGINS.match(text) is not None


def spoken(text: str) -> Composable:
    """Reads a rule; InvalidRule that points at the character when it is not one."""
    if len(text) > LONGEST:
        raise InvalidRule(
            f"a typed rule has at most {LONGEST:,} characters, and this one has {len(text):,}; create it in Python"
        )
    if "\\" in text.replace("\\n", ""):
        raise Piece(text, text.replace("\\n", "..").index("\\"), "").refusal("a rule needs no backslash", "remove it")
    return _Reader(text).read()


class _Reader:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        # A line break means nothing between brackets, and nobody should have to add those.
        self._text = re.sub(r"[\r\n\f]", " ", text).strip()

    def read(self) -> Composable:
        try:
            tree = ast.parse(self._text, mode="eval")
        except SyntaxError as problem:
            place = Piece(self._text, max(problem.offset or 1, 1) - 1, "")
            raise place.refusal(f"syntax error: {problem.msg}", "look for a missing quote or bracket") from None
        except (ValueError, RecursionError, MemoryError):
            raise InvalidRule(f"{self._text!r:.80} is not a rule: it is not text, or nested too deeply") from None
        return self._rule(tree.body, 0)

    def _rule(self, node: ast.expr, depth: int) -> Composable:
        value = self._value(node, depth)
        if not isinstance(value, Composable):
            raise self._refusal(node, "this is not a rule", 'write a call such as cron("0 2 * * *")')
        return value

    def _value(self, node: ast.expr, depth: int) -> object:
        if depth > DEEPEST:
            raise self._refusal(node, f"the rule is nested more than {DEEPEST} levels deep", "create it in Python")
        match node:
            case ast.Constant(value=bool() | str() | float() | None as value):
                return value
            case ast.Constant(value=int(value)) if value < _LARGEST:
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if value < _LARGEST:
                return -value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item, depth + 1) for item in items]
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
                first, second = self._rule(left, depth + 1), self._rule(right, depth + 1)
                with pointing(self._place(right.col_offset)):
                    return _OPERATORS[type(sign)](first, second)
            case ast.Call(func=ast.Name(id=name)):
                return self._call(node, name, CONSTRUCTORS, [], depth)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                return self._call(node, name, METHODS, [self._rule(owner, depth + 1)], depth)
        raise self._not_understood(node)

    def _call(
        self, node: ast.Call, name: str, known: Mapping[str, Callable[..., object]], owner: list[object], depth: int
    ) -> object:
        if name not in known:
            what = "a rule has no method" if owner else "there is no rule called"
            raise self._end(node.func, -len(name.encode())).refusal(f"{what} {name:.40}", _nearest(name, known))
        accepted = signature(known[name])
        for keyword in node.keywords:
            if keyword.arg not in _names(accepted):
                advice = _nearest(keyword.arg or "", _names(accepted))
                raise self._refusal(keyword, f"{name} has no argument {keyword.arg or '**':.40}", advice)
        positional = [*owner, *(self._value(argument, depth + 1) for argument in node.args)]
        named = {str(keyword.arg): self._value(keyword.value, depth + 1) for keyword in node.keywords}
        try:
            bound = accepted.bind(*positional, **named)
            with refused_as_rule():
                for argument, value in bound.arguments.items():
                    bound.arguments[argument] = _moment(accepted.parameters[argument], value)
                return known[name](*bound.args, **bound.kwargs)
        except InvalidRule as problem:
            with pointing(self._culprit(node, _names(accepted), positional[len(owner) :], named, str(problem))):
                raise
        except (TypeError, ValueError, AttributeError, OverflowError) as problem:
            # Constructors trust the types that a program gives them; what is typed here may be of any.
            advice = f"it takes {', '.join(_names(accepted))}"
            raise self._refusal(
                node, f"{name} cannot be created with these arguments: {problem!s:.120}", advice
            ) from None

    def _culprit(
        self, node: ast.Call, names: list[str], positional: list[object], named: dict[str, object], problem: str
    ) -> Piece:
        """The argument that a refusal begins with or quotes; else the call."""
        given = [(name, value, argument) for name, value, argument in zip(names, positional, node.args, strict=False)]
        given += [(str(keyword.arg), named[str(keyword.arg)], keyword.value) for keyword in node.keywords]
        for name, value, argument in given:
            texts = value if isinstance(value, list) else [value]
            quoted = any(f"{text!r:.80}" in problem for text in texts if isinstance(text, str))
            if problem.startswith(f"{name}=") or quoted:
                return self._place(argument.col_offset)
        return self._place(node.col_offset)

    def _not_understood(self, node: ast.expr) -> InvalidRule:
        match node:
            case ast.Name(id=name):
                return self._refusal(
                    node, f"{name:.40} is not a call", "write parentheses after it, or quotes around text"
                )
            case ast.Constant(value=int()):
                return self._refusal(node, "this number is too large", f"write less than {_LARGEST:,}")
            case ast.BoolOp(values=[first, *_]) | ast.BinOp(left=first):
                advice = "write | for or, & for and, - for without"
                return self._end(first, 1).refusal("this operator does not combine rules", advice)
        return self._refusal(node, "this syntax is not allowed", "write calls, text in quotes, numbers and lists")

    def _refusal(self, node: ast.expr | ast.keyword, problem: str, advice: str) -> InvalidRule:
        return self._place(node.col_offset).refusal(problem, advice)

    def _end(self, node: ast.expr, further: int) -> Piece:
        """Where a part of the text ends, and some bytes further."""
        return self._place((node.end_col_offset or 0) + further)

    def _place(self, column: int) -> Piece:
        """Where that is in the text; Python counts bytes."""
        before = self._text.encode("utf-8", "replace")[:column].decode(errors="ignore")
        return Piece(self._text, len(before), "")


def _names(accepted: Signature) -> list[str]:
    return [name for name in accepted.parameters if name != "self"]


def _moment(parameter: Parameter, value: object) -> object:
    """An instant is typed as text; where text itself is accepted, it stays text."""
    kinds = str(parameter.annotation).split(" | ")
    if isinstance(value, str) and datetime.__name__ in kinds and "str" not in kinds:
        return to_datetime(parse_rfc3339(value))
    return value


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"give one of {', '.join(known)}"
