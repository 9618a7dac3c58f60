"""What a person does from a page: first it is shown what would happen and to how many, then it is done, with a reason.

An act is two functions. `look` says what will happen, and changes nothing; `do` does it and answers in one sentence.
Both are given the same form, so that what was shown is what is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

from foliot.errors import FoliotError, InvalidInput, InvalidRule
from foliot.operate import Operator
from foliot.web.caller import Caller


@dataclass(frozen=True, slots=True)
class Form:
    """What was filled in: by name, the last value; and all values, where there can be several."""

    values: Mapping[str, Sequence[str]]

    def get(self, name: str, default: str = "") -> str:
        found = self.values.get(name)
        return found[-1].strip() if found else default

    def typed(self, name: str) -> str:
        """As it was typed, with its line breaks and spaces."""
        found = self.values.get(name)
        return found[-1].replace("\r\n", "\n") if found else ""

    def all(self, name: str) -> list[str]:
        return [value for value in self.values.get(name, ()) if value]

    def has(self, name: str) -> bool:
        return self.get(name) not in ("", "no", "false")


class Field(NamedTuple):
    """A question that the form asks."""

    name: str
    text: str
    value: str = ""
    kind: str = "text"
    hint: str = ""
    choices: Sequence[tuple[str, str]] = ()
    required: bool = False


def field_to_blame(error: FoliotError, fields: Sequence[Field], form: Form) -> str | None:
    """The field that an error is about: the one that it names, or whose value it quotes; None for none of them."""
    names = [*(field.name for field in fields), "reason"]
    if not isinstance(error, InvalidInput):
        return None
    if error.field in names:
        return error.field
    if isinstance(error, InvalidRule):
        names = [name for name in ("tz", "changes", "rule") if name in names]
    quoted = [name for name in names if form.get(name) and f"'{form.get(name)}'" in str(error)]
    return quoted[0] if quoted else names[-1] if isinstance(error, InvalidRule) and names else None


class Example(NamedTuple):
    """One of those that it will happen to."""

    id: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What will happen."""

    heading: str
    will: Sequence[str]
    button: str
    fields: Sequence[Field] = ()
    sample: Sequence[Example] = ()
    unsafe: bool = False
    may_go: bool = True
    """False: there is nothing that could be done, and `will` says why."""
    previews: bool = False
    """What was filled in can be looked at before it is done."""
    refused: FoliotError | None = None
    """Why what was filled in would be refused."""


class Said(TypedDict):
    """What every verb is told."""

    reason: str
    actor: str


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a person acts: the verbs, who it is, what it is about, and what was filled in."""

    caller: Caller
    subject: str
    form: Form
    reason: str = ""

    @property
    def operate(self) -> Operator:
        return self.caller.operate

    @property
    def said(self) -> Said:
        return {"reason": self.reason, "actor": self.caller.actor}


Look = Callable[[Desk], Awaitable[Prospect]]
Do = Callable[[Desk], Awaitable[str]]


class Act(NamedTuple):
    look: Look
    do: Do
    is_for_all: bool = False
    """It is about the whole installation: nobody who is bound to a tenant may do it."""


@dataclass(slots=True)
class Acts:
    """All of them: by what they are done to, and by verb."""

    known: dict[tuple[str, str], Act] = field(default_factory=dict)

    def add(self, kind: str, verb: str, look: Look, do: Do, *, is_for_all: bool = False) -> None:
        self.known[kind, verb] = Act(look, do, is_for_all)

    def get(self, kind: str, verb: str) -> Act | None:
        return self.known.get((kind, verb))
