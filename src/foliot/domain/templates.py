"""Texts that name arguments: `"account:{account_id}"`. Pure.

What a run needs before it may go (its key, its destination) depends on what it was called with, and whoever fires it
has no code of the job. So it is found when the promise is made, and travels with the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, time
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from numbers import Real
from string import Formatter
from typing import Any, NamedTuple

from foliot.domain.policy import BlocksUntil, Policy, choices_to_json
from foliot.errors import InvalidInput

MOST_LETTERS = 200
_SETTINGS = ("concurrency_key", "destination")
_EXAMPLE = '"account:{account_id}"'


class Template(NamedTuple):
    """A setting's text in pieces: some letters, and the argument that follows them, if one does."""

    setting: str
    pieces: tuple[tuple[str, str | None], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.pieces if name is not None)

    def filled(self, values: Mapping[str, Any]) -> str:
        """The text for one call; InvalidInput when it cannot be a key or a destination."""
        text = "".join(letters + ("" if name is None else self._value(name, values)) for letters, name in self.pieces)
        if not 1 <= len(text) <= MOST_LETTERS or not text.isprintable():
            raise InvalidInput(
                f"{self.setting} is {text!r:.80} here; it must have 1 to {MOST_LETTERS} printable characters"
            )
        if self.setting == "concurrency_key" and text.endswith("]"):
            raise InvalidInput(f'{self.setting} is {text!r:.80} here; it must not end with "]", which marks a tenant')
        return text

    def _value(self, name: str, values: Mapping[str, Any]) -> str:
        if name not in values:
            raise InvalidInput(f"{self.setting} names {name}, which is missing; give {name}")
        text = _as_text(values[name])
        if text is None:
            raise InvalidInput(f"{self.setting} names {name}, which is {values[name]!r:.80}; give a text or a number")
        return text


@lru_cache(maxsize=1_000)
def template(setting: str, text: str) -> Template:
    """Reads a text; InvalidInput for braces that hold anything but a name."""
    try:
        parsed = list(Formatter().parse(text))
    except ValueError:
        detail = f"{setting}={text!r:.80}: unbalanced braces"
        raise InvalidInput(f"{detail}; name arguments as {_EXAMPLE}, and write {{{{ and }}}} for braces") from None
    for _, name, form, conversion in parsed:
        if name is not None and (form or conversion or not name.isidentifier()):
            raise InvalidInput(
                f"{setting}={text!r:.80}: braces may only contain the name of an argument, as {_EXAMPLE}"
            )
    return Template(setting, tuple((letters, name) for letters, name, _, _ in parsed))


def _as_text(value: Any) -> str | None:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, date | time):
        return value.isoformat()
    # A UUID is told by its name: importing the module would let chance in here.
    is_one = isinstance(value, str | Real | Decimal) or type(value).__name__ == "UUID"
    return str(value) if is_one else None


class Carried:
    """What runs of one job carry as their options: what was chosen for them, and what firing must know of the rest."""

    def __init__(
        self, job: str, policy: Policy, chosen: Mapping[str, Any], arguments: Collection[str], *, others: bool = False
    ) -> None:
        """`policy`: the job's own; `chosen`: what a schedule or a promise said beside it. `others`: the function takes
        arguments of any name."""
        self._job = job
        whole = policy.merged(chosen)
        self._chosen = {**chosen, **_of_its_key(whole)} | ({"labels": whole.labels} if whole.labels else {})
        self._templates = self._read(whole)
        self.names = frozenset(name for one in self._templates for name in one.names)
        """The arguments that it depends on."""
        if not others:
            self._check_names(arguments)
        self.constant = None if self.names else self.encoded({})
        """The options of every run; None also when they depend on arguments."""

    def _read(self, whole: Policy) -> tuple[Template, ...]:
        try:
            texts = ((setting, getattr(whole, setting)) for setting in _SETTINGS)
            return tuple(template(setting, text) for setting, text in texts if text is not None)
        except InvalidInput as error:
            raise InvalidInput(f"{self._job}: {error}") from None

    def _check_names(self, arguments: Collection[str]) -> None:
        for one in self._templates:
            for name in one.names:
                if name not in arguments:
                    near = get_close_matches(name, arguments, n=1)
                    hint = f"did you mean {near[0]}?" if near else f"it takes: {', '.join(arguments) or 'none'}"
                    raise InvalidInput(f"{self._job}: {one.setting} names {name!r}, which is not an argument; {hint}")

    def choices(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Everything chosen, with the texts for these arguments."""
        try:
            return self._chosen | {one.setting: one.filled(values) for one in self._templates}
        except InvalidInput as error:
            raise InvalidInput(f"{self._job}: {error}") from None

    def encoded(self, values: Mapping[str, Any]) -> bytes | None:
        """The same in its stored form."""
        return _encoded(tuple(self.choices(values).items()))


def _of_its_key(whole: Policy) -> dict[str, Any]:
    """What goes with a key, where it is not the default: the job may have said it, or the app."""
    if whole.concurrency_key is None:
        return {}
    found: dict[str, Any] = {} if whole.key_limit == 1 else {"key_limit": whole.key_limit}
    return found if whole.blocks_until is BlocksUntil.ENDED else found | {"blocks_until": whole.blocks_until}


@lru_cache(maxsize=10_000)
def _encoded(chosen: tuple[tuple[str, Any], ...]) -> bytes | None:
    """Many runs have one key: each is written once."""
    return choices_to_json(dict(chosen))
