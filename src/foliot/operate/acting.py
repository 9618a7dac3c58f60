"""What every action needs: who acts, why, and a way to run it for callers that are not async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

from foliot.domain.identity import checked_line
from foliot.domain.instant import LAST, Instant, instant
from foliot.domain.store import Store
from foliot.errors import InvalidInput
from foliot.net import AddressGuard
from foliot.operate.showing import shown

T = TypeVar("T")


class Call(Protocol):
    """Runs async code for a caller that is not."""

    def __call__(self, begin: Callable[[], Coroutine[Any, Any, T]], twin: str) -> T: ...


class Acting:
    """Acts on a store on behalf of a person, who is shown no secrets. The plain verbs run their `_async` twins."""

    def __init__(self, opened: Callable[[], Awaitable[Store]], call: Call, guard: AddressGuard) -> None:
        self._opened = shown(opened)
        self._stored = opened
        """The store as it is: for verbs that write back what they read. Nothing of it is shown."""
        self._call = call
        self._guard = guard

    def _check_addresses(self, settings: Iterable[object]) -> None:
        """Refuses a `ping` to an address that no request may go to."""
        for given in settings:
            if isinstance(given, Mapping):
                self._guard.check_literal("ping", given.get("ping"))


def stated(reason: str) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInput("reason is missing: an operator's action needs a reason for the audit log").about("reason")
    return checked_line(reason, "reason").strip()


def evident(evidence: str) -> str:
    if not isinstance(evidence, str) or not evidence.strip():
        raise InvalidInput("evidence is missing: reconciling a run needs evidence, which is stored with the run").about(
            "evidence"
        )
    text = checked_line(evidence, "evidence").strip()
    return not_a_placeholder(text, "evidence", "your evidence, with a reference that others can check")


_PLACEHOLDERS = frozenset(
    """asdf because check checked done evidence fixme foo na nil no none null ok okay placeholder qwerty reason tba tbc
    tbd temp test tmp todo unknown why yes""".split()
)


def is_placeholder(text: str) -> bool:
    """Whether a text stands for one that is still to be written: it has no letter or digit, repeats one
    character, or is a word such as "todo"."""
    bare = "".join(letter for letter in text.casefold() if letter.isalnum())
    return len(set(bare)) <= 1 or bare in _PLACEHOLDERS


def not_a_placeholder(text: str, field: str, wanted: str) -> str:
    if is_placeholder(text):
        raise InvalidInput(f"{field}: {text!r:.40} is a placeholder; write {wanted}").about(field)
    return text


def acting(actor: str) -> str:
    return checked_line(actor, "actor").strip()


def as_instant(given: datetime | Instant) -> Instant:
    """A person's datetime, or an instant that was read already."""
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= LAST:
        return given
    return instant(given)  # type: ignore[arg-type]  # it refuses whatever is no datetime
