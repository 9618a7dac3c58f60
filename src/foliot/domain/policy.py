"""What each class of work chooses, so that nothing is accidental. Settings inherit: app, job, schedule, run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Any

from foliot.domain.instant import HOUR, LAST, MINUTE, SECOND, Duration, duration
from foliot.errors import InvalidInput


class Overlap(StrEnum):
    """What happens to a live tick while an earlier run of its schedule is still busy."""

    SKIP = "skip"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """What happens to ticks that were missed while nothing was there to fire them."""

    ONCE = "once"
    ALL = "all"
    SKIP = "skip"


class OnLost(StrEnum):
    """What happens to a run whose worker vanished, when nothing tells how far it came."""

    RETRY = "retry"
    ASK = "ask"


class OnStall(StrEnum):
    """What happens to an attempt that lives and does not move."""

    ALERT = "alert"
    """People are told."""
    CANCEL = "cancel"
    """It is asked to stop, too."""
    KILL = "kill"
    """Its process is ended if it does not heed that."""


_LATER = {"queue", "coalesce", "replace"}


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that can be chosen. The defaults are those of a run that nobody said anything about."""

    attempts: int = 4
    """How many attempts a run may spend before it goes to the dead letters."""
    attempts_after_effect: int | None = None
    """The same, once one of its effects is done; None: as many as before. 0: then it is never tried again."""
    attempts_inside_effect: int | None = None
    """The same, while an effect is open that the next attempt can settle by itself."""
    retries_per_hour: int | None = None
    """Of all runs of the job together; what comes on top waits for the next hour."""
    poison_after: int = 3
    """So many workers may die of a run that they tried alone, before it goes to the dead letters."""
    backoff: Duration = 5 * SECOND
    """The ceiling of the first delay; it doubles with every attempt spent."""
    backoff_cap: Duration = HOUR
    """The ceiling of every later delay."""
    give_up_after: Duration | None = None
    """Total age, counted from the first due time, after which a failing run is not tried again."""
    timeout: Duration = 15 * MINUTE
    stall_after: Duration | None = None
    """An attempt that says nothing of its progress for so long is stuck; `on_stall` says what happens then."""
    on_stall: OnStall = OnStall.CANCEL
    lease: Duration = 30 * SECOND
    on_lost: OnLost = OnLost.RETRY
    """What becomes of a run whose worker vanished, and of no other: after a timeout it is tried again while it has
    attempts left, and a drain gives it back, whatever this says."""
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.ONCE
    catch_up_window: Duration | None = None
    """Ticks older than this are never caught up."""
    missed_after: Duration = MINUTE
    """A tick later than this was missed, and `catch_up` decides about it."""
    useful_until: Duration | None = None
    """How long after its nominal time a run is still worth starting."""
    jitter: Duration = 0

    def merged(self, choices: Mapping[str, Any]) -> Policy:
        """This policy with some settings chosen otherwise."""
        return replace(self, **choices) if choices else self


OF_SCHEDULES = ("overlap", "catch_up", "catch_up_window", "missed_after", "jitter")
"""Settings that speak of ticks: a single promise has none."""

_DURATIONS = {field.name for field in fields(Policy) if "Duration" in str(field.type)}
_ENUMS: dict[str, type[StrEnum]] = {"overlap": Overlap, "catch_up": CatchUp, "on_lost": OnLost, "on_stall": OnStall}
_COUNTS = {
    "attempts": 1,
    "attempts_after_effect": 0,
    "attempts_inside_effect": 0,
    "retries_per_hour": 0,
    "poison_after": 1,
}
"""Whole numbers, and the least of each."""
_MOST_COUNTED = 10_000
_AT_LEAST = {"timeout": 1, "stall_after": SECOND, "lease": SECOND, "backoff": 0, "missed_after": 0}


def choices(given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks what a user chose, by name and by value, and turns it into the forms that Policy holds."""
    return {name: _choice(name, value) for name, value in given.items()}


def _choice(name: str, value: Any) -> Any:
    if name not in Policy.__dataclass_fields__:
        nearest = get_close_matches(name, Policy.__dataclass_fields__, n=1)
        hint = (
            f"; did you mean {nearest[0]!r}?" if nearest else f"; there are: {', '.join(Policy.__dataclass_fields__)}"
        )
        raise InvalidInput(f"there is no setting {name!r}{hint}")
    if name in _ENUMS:
        return _member(name, value)
    if value is None and Policy.__dataclass_fields__[name].default is None:
        return None
    if name in _COUNTS:
        least = _COUNTS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_COUNTED:
            raise InvalidInput(f"{name}={value!r}: give a whole number from {least} to {_MOST_COUNTED}")
        return value
    length = duration(value)
    if length < _AT_LEAST.get(name, 0):
        raise InvalidInput(f"{name}={value!r} is too short; give at least {_AT_LEAST[name] / SECOND:g} s")
    return length


def _member(name: str, value: Any) -> StrEnum:
    kind = _ENUMS[name]
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(str(member)) for member in kind)
        later = " (not supported by this release yet)" if name == "overlap" and str(value) in _LATER else ""
        raise InvalidInput(f"{name}={value!r}{later}; choose one of {known}") from None


def policy_to_json(policy: Policy) -> bytes:
    """A whole policy in its stored form: microseconds, the values of enums."""
    return _dumped({field.name: getattr(policy, field.name) for field in fields(policy)})


@lru_cache(maxsize=10_000)
def policy_from_json(data: bytes | None) -> Policy:
    """Reads what `policy_to_json` wrote; what it does not say has its default. InvalidInput when it cannot be read.

    A policy is a value, and thousands of schedules share a few: each is read once.
    """
    return Policy().merged(choices_from_json(data))


def choices_to_json(chosen: Mapping[str, Any]) -> bytes | None:
    """Settings as `choices` returns them, in their stored form; None when nothing was chosen, as most runs have it."""
    return _dumped(chosen) if chosen else None


def choices_from_json(data: bytes | None) -> dict[str, Any]:
    """Reads what `choices_to_json` wrote. InvalidInput when it cannot be read.

    Names that this release does not know are passed over: during a rolling deploy a newer one writes them. Values that
    it does not know are refused: nobody can say what was meant.
    """
    if not data:
        return {}
    try:
        stored = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{data!r:.80} is not a stored policy: it is not JSON") from None
    if not isinstance(stored, dict):
        raise InvalidInput(f"{data!r:.80} is not a stored policy: it must be a JSON object")
    return {name: _stored(name, value) for name, value in stored.items() if name in Policy.__dataclass_fields__}


def _stored(name: str, value: Any) -> Any:
    """One stored setting, checked like a given one. Durations are microseconds here, and text is not read again."""
    if isinstance(value, list | dict):
        raise InvalidInput(f"{name}={value!r:.80} is not a stored setting; it must be a number or a text")
    if name in _ENUMS or name in _COUNTS or value is None:
        return _choice(name, value)
    if not isinstance(value, int) or isinstance(value, bool) or not _AT_LEAST.get(name, 0) <= value <= LAST:
        raise InvalidInput(f"{name}={value!r:.80} is not a stored duration; it must be a number of microseconds")
    return value


def _dumped(settings: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(settings), separators=(",", ":")).encode()
